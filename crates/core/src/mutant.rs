//! Mutants: protocol bugs on purpose, so that tests can show that they would find them.
//!
//! Without the feature `mutants`, which only the proof harnesses turn on, [`mutant!`](crate::mutant!) is the constant
//! `false` and nothing can arm one. With it, one mutant at a time is armed, by [`arm`] or by the environment variable
//! `TWOBOX_MUTANT`.

/// Whether this planted bug is armed. Always `false` in a normal build.
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutant::is($crate::mutant::Mutant::$name)
    };
}

macro_rules! mutants {
    ($($name:ident = $text:literal, $says:literal;)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $(#[doc = $says] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name on command lines and in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What goes wrong.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }
        }
    };
}

mutants! {
    AcknowledgeBeforeCommit = "acknowledge-before-commit", "The writer answers before it commits.";
    AcknowledgeBeforeSync = "acknowledge-before-sync", "Commits that carry the promise are not synced.";
    AmbiguousIsSent = "ambiguous-is-sent", "A request whose answer is lost counts as delivered.";
    ClaimNotMade = "claim-not-made", "What is to be claimed first is handled without a claim.";
    ConcatenatedSignature = "concatenated-signature", "Signed fields are joined without their lengths.";
    ConflictIsDuplicate = "conflict-is-duplicate", "Another body under a known id is answered as a duplicate.";
    CursorWithoutWaiting = "cursor-without-waiting", "The cursor moves in one transaction, its waiting rows in the next.";
    DedupRowLast = "dedup-row-last", "The effect is committed first, its dedup row in a second transaction.";
    FailureForgotten = "failure-forgotten", "A failure that came too late for its sender is never charged.";
    GoOnAfterFailedSync = "go-on-after-failed-sync", "After a failed sync the connection is used as if nothing had happened.";
    HalfBodiesStay = "half-bodies-stay", "Strangers who send half a request make no room for anybody.";
    HandlerUnbounded = "handler-unbounded", "A handler that hangs is waited for, for ever.";
    LaneKeptAfterReopen = "lane-kept-after-reopen", "What was read before the database was reopened is trusted after it.";
    NewcomersFirst = "newcomers-first", "Whoever the writer did not get to waits for all who come later.";
    NoFence = "no-fence", "Settlements apply whoever holds the lane.";
    NotReachedIsSent = "not-reached-is-sent", "A message the receiver did not get to counts as delivered.";
    NoWatermark = "no-watermark", "A message that may have been purged is handled again.";
    OkToInFlight = "ok-to-in-flight", "A duplicate of a message in flight is answered as done.";
    PauseIgnored = "pause-ignored", "Messages are sent although somebody has paused their destination.";
    ProbeNotKept = "probe-not-kept", "After a probe the log goes first, always, and a suspect is never alone.";
    PurgeByNewest = "purge-by-newest", "What is scheduled makes everything before it old.";
    PurgeUnfinished = "purge-unfinished", "The sweeper removes waiting rows that are not finished.";
    QueueCrashUncharged = "queue-crash-uncharged", "A worker that dies while handling a message costs it no attempt.";
    QueueDoneRunsAgain = "queue-done-runs-again", "A message that is done is queued again when it comes again.";
    QueueEffectApart = "queue-effect-apart", "A worker commits the effect first, and the end of the message in a second transaction.";
    QueueKeyIgnored = "queue-key-ignored", "Workers claim messages behind the head of their ordering key.";
    QueueNoFence = "queue-no-fence", "Workers settle messages whoever has claimed them since.";
    QueueUnstored = "queue-unstored", "A message for the queue is acknowledged without being stored.";
    RejectedIsSent = "rejected-is-sent", "A rejected message counts as delivered instead of becoming a dead letter.";
    ReplayRunsDone = "replay-runs-done", "A replayed message runs again although it was done.";
    RestartAfterFailedSync = "restart-after-failed-sync", "The log is started again although the copy of it has just failed.";
    RetryOvertakesKey = "retry-overtakes-key", "Messages overtake a failed one of their ordering key.";
    SentBeforeAnswer = "sent-before-answer", "Messages count as delivered once they are on their way.";
    SentBeforeDurable = "sent-before-durable", "Messages are sent although their commit may not be durable.";
    SettleOutOfOrder = "settle-out-of-order", "The cursor moves past a batch that is not answered.";
    SourceFromHeader = "source-from-header", "The source is what the message says, not the owner of the key.";
    SwallowedErrorCommits = "swallowed-error-commits", "A handler that swallows an SQL error commits half an effect.";
    UnsignedAnswerCounts = "unsigned-answer-counts", "An answer acknowledges although its signature does not hold.";
    WakeUpLost = "wake-up-lost", "The writer may go to sleep while work arrives.";
    WatermarkFromClock = "watermark-from-clock", "How old is too old is decided by the receiver's clock.";
    WholeBatchCharged = "whole-batch-charged", "When a request fails, all its messages are charged an attempt.";
}

/// The environment variable that names the armed mutant.
pub const VARIABLE: &str = "TWOBOX_MUTANT";

impl Mutant {
    /// The mutant of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

/// Whether this one is armed.
#[cfg(not(feature = "mutants"))]
#[inline]
#[must_use]
pub const fn is(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use self::armed::{arm, is};

#[cfg(feature = "mutants")]
mod armed {
    use std::sync::{Once, RwLock};

    use super::{Mutant, VARIABLE};

    static ARMED: RwLock<Option<Mutant>> = RwLock::new(None);
    static FROM_ENVIRONMENT: Once = Once::new();

    /// Whether this one is armed.
    #[must_use]
    pub fn is(mutant: Mutant) -> bool {
        read_environment();
        *ARMED.read().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(mutant)
    }

    /// Arms a mutant, or none, in the whole process.
    pub fn arm(mutant: Option<Mutant>) {
        read_environment();
        *ARMED.write().unwrap_or_else(std::sync::PoisonError::into_inner) = mutant;
    }

    fn read_environment() {
        FROM_ENVIRONMENT.call_once(|| {
            let Ok(name) = std::env::var(VARIABLE) else { return };
            let mutant = Mutant::named(&name);
            assert!(mutant.is_some(), "{VARIABLE} names no mutant: {name}");
            *ARMED.write().unwrap_or_else(std::sync::PoisonError::into_inner) = mutant;
        });
    }
}
