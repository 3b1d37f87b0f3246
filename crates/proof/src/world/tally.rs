//! What happened in a run, counted by kind: a kind of trouble that never happens proves nothing.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal,)*) => {
        /// Something that happens in a world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// A message was begun.
    Message: "messages",
    /// A process was killed; what it wrote survives.
    Kill: "cuts-kill",
    /// The power went; what was not synced is gone.
    Lost: "cuts-lost",
    /// The power went; some of what was not synced is gone.
    Subset: "cuts-subset",
    /// The power went; some sectors of what was not synced are gone.
    Torn: "cuts-torn",
    /// The power went between two writes of a commit.
    MidCommit: "cuts-mid-commit",
    /// The power went while a store was recovering.
    WhileRecovering: "cuts-while-recovering",
    /// A read failed.
    ReadFault: "faults-read",
    /// A write failed.
    WriteFault: "faults-write",
    /// A sync failed.
    SyncFault: "faults-sync",
    /// The disk was full for a moment.
    FullFault: "faults-full",
    /// A sync failed, and the kernel kept what it could not write.
    KeptPages: "faults-kept-pages",
    /// A sync failed, and the kernel forgot what it could not write.
    DroppedPages: "faults-dropped-pages",
    /// A store stopped for safety and was opened again.
    StoreStopped: "stores-stopped",
    /// A second relay process on the same outbox was killed.
    RelayKilled: "relays-killed",
    /// A request got lost.
    RequestLost: "requests-lost",
    /// A request came after its sender had given up.
    RequestLate: "requests-late",
    /// A request came twice.
    RequestTwice: "requests-twice",
    /// A copy of a request came after seconds, when much had been forgotten.
    RequestCopy: "requests-copied-late",
    /// A request was damaged on its way.
    RequestGarbled: "requests-garbled",
    /// A request met nobody.
    NobodyThere: "requests-to-nobody",
    /// A request met a partition.
    Partitioned: "requests-partitioned",
    /// An answer got lost.
    AnswerLost: "answers-lost",
    /// An answer came after its sender had given up.
    AnswerLate: "answers-late",
    /// An answer was damaged on its way.
    AnswerGarbled: "answers-garbled",
    /// A request was given the answer to another one.
    AnswerForeign: "answers-foreign",
    /// Somebody who is not the receiver answered that all was done.
    AnswerForged: "answers-forged",
    /// An answer was not believed.
    AnswerDisbelieved: "answers-disbelieved",
    /// One direction of the network was cut.
    Partition: "partitions",
    /// Keys were exchanged.
    KeyRotated: "keys-rotated",
    /// A request was refused because of its signature.
    Unauthentic: "requests-unauthentic",
    /// A request was refused because of its date.
    Stale: "requests-stale",
    /// A clock ran ahead or behind from the start.
    Skew: "clocks-skewed",
    /// A clock stepped forward.
    StepForward: "clocks-forward",
    /// A clock stepped back.
    StepBack: "clocks-back",
    /// A clock stood still.
    Freeze: "clocks-frozen",
    /// A handler failed after it had written.
    HandlerRetry: "handlers-failed",
    /// A handler rejected after it had written.
    HandlerReject: "handlers-rejected",
    /// A handler swallowed an SQL error.
    HandlerSwallow: "handlers-swallowed",
    /// A handler panicked.
    HandlerPanic: "handlers-panicked",
    /// The first half of a handler took its time.
    HandlerSlow: "handlers-slow",
    /// The first half of a handler hung until it was ended.
    HandlerHung: "handlers-hung",
    /// A handler kept the writer busy.
    HandlerBusy: "handlers-busy",
    /// A message was scheduled.
    Scheduled: "messages-scheduled",
    /// A message had a short time to live.
    Mortal: "messages-mortal",
    /// A message had an ordering key.
    Keyed: "messages-keyed",
    /// A message was enqueued under a once key.
    Once: "messages-once",
    /// A once key was found to be taken.
    OnceTaken: "once-keys-taken",
    /// A message was enqueued through somebody else's connection, which does not sync.
    Foreign: "messages-foreign",
    /// A handler enqueued a message.
    FollowUp: "messages-follow-up",
    /// An author does not know whether a commit happened.
    CommitUnknown: "commits-unknown",
    /// A duplicate was answered.
    Duplicate: "answers-duplicate",
    /// A message was too old.
    TooOld: "answers-too-old",
    /// A message was dated too far ahead.
    TooEarly: "answers-too-early",
    /// A message died, and an operator was told.
    Died: "deaths",
    /// A message expired.
    Expired: "deaths-expired",
    /// A dead letter was sent again under its id.
    ReplayedSame: "replays-same-id",
    /// A dead letter was sent again under a new id.
    ReplayedNew: "replays-new-id",
    /// A dead letter was removed for good.
    LetterPurged: "letters-purged",
    /// A message that was sent was sent again.
    Resent: "messages-resent",
    /// A blocked key was released.
    Released: "keys-released",
    /// An operator paused a destination.
    Paused: "lanes-paused",
    /// A message was for a worker.
    Queued: "messages-queued",
    /// A process died while its worker had messages in hand.
    WorkLeft: "work-left-behind",
    /// The first half of a worker's handler took its time.
    WorkSlow: "work-slow",
    /// The first half of a worker's handler hung until it was ended.
    WorkHung: "work-hung",
    /// A dead letter of an inbox was run again.
    WorkReplayed: "work-replayed",
    /// A blocked key of an inbox was released.
    WorkReleased: "work-keys-released",
    /// A message is a dead letter of an inbox at the end.
    WorkDead: "work-dead",
    /// A message that was sent has been swept from the log.
    Swept: "messages-swept",
    /// An inbox has forgotten what it had handled.
    Purged: "inboxes-purged",
}

impl Kind {
    const POWER_CUTS: [Self; 3] = [Self::Lost, Self::Subset, Self::Torn];
}

/// How often each kind happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally([u64; Kind::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Kind::ALL.len()])
    }
}

impl Tally {
    /// How often `kind` happened.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Power cuts of any kind.
    #[must_use]
    pub fn power_cuts(&self) -> u64 {
        Kind::POWER_CUTS.iter().map(|kind| self.of(*kind)).sum()
    }

    /// Kinds that never happened.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.of(*kind) == 0).collect()
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| *count += other);
    }

    pub(super) fn count(&mut self, kind: Kind) {
        self.0[kind as usize] += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power cuts {}", self.power_cuts())?;
        Kind::ALL.iter().try_for_each(|kind| write!(f, ", {} {}", kind.name(), self.of(*kind)))
    }
}
