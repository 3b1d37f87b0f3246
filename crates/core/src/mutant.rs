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
    ($($name:ident = $text:literal, $rule:literal, $says:literal;)*) => {
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

            /// The rule that it breaks, as docs/RULES.md numbers them.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$name => $rule,)* }
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
    AcknowledgeBeforeCommit = "acknowledge-before-commit", "S2", "The writer answers before it commits.";
    AcknowledgeBeforeSync = "acknowledge-before-sync", "S2", "Commits that carry the promise are not synced.";
    AmbiguousIsSent = "ambiguous-is-sent", "L3", "A request whose answer is lost counts as delivered.";
    ClaimedAheadKept = "claimed-ahead-kept", "S3", "Rows that were written ahead stay, although their handlers did not run.";
    ClaimNotMade = "claim-not-made", "S3", "What is to be claimed first is handled without a claim.";
    ConcatenatedSignature = "concatenated-signature", "S11", "Signed fields are joined without their lengths.";
    ConflictIsDuplicate = "conflict-is-duplicate", "S8", "Another body under a known id is answered as a duplicate.";
    CursorWithoutWaiting = "cursor-without-waiting", "L1", "The cursor moves in one transaction, its waiting rows in the next.";
    DedupRowLast = "dedup-row-last", "S3", "The effect is committed first, its dedup row in a second transaction.";
    FailureForgotten = "failure-forgotten", "S6", "A failure that came too late for its sender is never charged.";
    FirstSpeaksForAll = "first-speaks-for-all", "S11", "Of a batch only the first signature is verified.";
    FullLaneStopsReader = "full-lane-stops-reader", "S15", "Nobody's messages are read while one destination has as many as it may.";
    GoOnAfterFailedSync = "go-on-after-failed-sync", "S14", "After a failed sync the connection is used as if nothing had happened.";
    HalfBodiesStay = "half-bodies-stay", "S16", "Strangers who send half a request make no room for anybody.";
    HandlerUnbounded = "handler-unbounded", "S6", "A handler that hangs is waited for, for ever.";
    LaneKeptAfterReopen = "lane-kept-after-reopen", "L1", "What was read before the database was reopened is trusted after it.";
    NewcomersFirst = "newcomers-first", "W7", "Whoever the writer did not get to waits for all who come later.";
    NoChangeIsSync = "no-change-is-sync", "W6", "A commit that changes nothing, and so syncs nothing, passes for a sync.";
    NoFence = "no-fence", "S5", "Settlements apply whoever holds the lane.";
    NotReachedIsSent = "not-reached-is-sent", "W7", "A message the receiver did not get to counts as delivered.";
    NoWatermark = "no-watermark", "S9", "A message that may have been purged is handled again.";
    OkToInFlight = "ok-to-in-flight", "S7", "A duplicate of a message in flight is answered as done.";
    OtherFileAccepted = "other-file-accepted", "S1", "A message is enqueued in the transaction of another file.";
    ParkedByClock = "parked-by-clock", "S13", "What a clock that has jumped puts off waits for its date.";
    PauseIgnored = "pause-ignored", "L6", "Messages are sent although somebody has paused their destination.";
    PayloadShown = "payload-shown", "S17", "Debug output shows payloads.";
    PoisonHidesRest = "poison-hides-rest", "S19", "A row that cannot be decoded keeps those behind it from being read.";
    ProbeNotKept = "probe-not-kept", "L3", "After a probe the log goes first, always, and a suspect is never alone.";
    PurgeByNewest = "purge-by-newest", "S9", "What is scheduled makes everything before it old.";
    PurgeUnfinished = "purge-unfinished", "S18", "The sweeper removes waiting rows that are not finished.";
    QueueCrashUncharged = "queue-crash-uncharged", "S6", "A worker that dies while handling a message costs it no attempt.";
    QueueDoneRunsAgain = "queue-done-runs-again", "S5", "A message that is done is queued again when it comes again.";
    QueueEffectApart = "queue-effect-apart", "S3", "A worker commits the effect first, and the end of the message in a second transaction.";
    QueueKeyIgnored = "queue-key-ignored", "S12", "Workers claim messages behind the head of their ordering key.";
    QueueNoFence = "queue-no-fence", "S5", "Workers settle messages whoever has claimed them since.";
    QueueUnstored = "queue-unstored", "S2", "A message for the queue is acknowledged without being stored.";
    RefusalsStay = "refusals-stay", "S16", "Strangers who do not read why they are refused make no room for anybody.";
    RejectedIsSent = "rejected-is-sent", "L10", "A rejected message counts as delivered instead of becoming a dead letter.";
    ReplayRunsDone = "replay-runs-done", "S5", "A replayed message runs again although it was done.";
    RestartAfterFailedSync = "restart-after-failed-sync", "S14", "The log is started again although the copy of it has just failed.";
    RetryOvertakesKey = "retry-overtakes-key", "S12", "Messages overtake a failed one of their ordering key.";
    SentBeforeAnswer = "sent-before-answer", "L1", "Messages count as delivered once they are on their way.";
    SentBeforeDurable = "sent-before-durable", "W6", "Messages are sent although their commit may not be durable.";
    SettleOutOfOrder = "settle-out-of-order", "L1", "The cursor moves past a batch that is not answered.";
    SlowHoldsCallers = "slow-holds-callers", "S15", "Everybody's callers wait for a destination that takes its time.";
    SourceFromHeader = "source-from-header", "S11", "The source is what the message says, not the owner of the key.";
    StopUnbounded = "stop-unbounded", "S20", "Whoever stops a relay waits until every request is answered.";
    SwallowedErrorCommits = "swallowed-error-commits", "S4", "A handler that swallows an SQL error commits half an effect.";
    UnsignedAnswerCounts = "unsigned-answer-counts", "S11", "An answer acknowledges although its signature does not hold.";
    WakeUpLost = "wake-up-lost", "W1", "The writer may go to sleep while work arrives.";
    WatermarkFromClock = "watermark-from-clock", "S9", "How old is too old is decided by the receiver's clock.";
    WholeBatchCharged = "whole-batch-charged", "L3", "When a request fails, all its messages are charged an attempt.";
    WindowUnchecked = "window-unchecked", "S10", "Messages may be forgotten while their senders still try.";
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The rules that have a row in the documentation.
    fn rules() -> BTreeSet<&'static str> {
        let rows = include_str!("../../../docs/RULES.md").lines().filter_map(|line| line.strip_prefix("| "));
        let is_rule = |name: &&str| {
            name.strip_prefix(['S', 'L', 'W']).is_some_and(|number| number.parse::<u8>().is_ok())
        };
        rows.filter_map(|row| row.split(" |").next()).filter(is_rule).collect()
    }

    /// A rule that no planted bug breaks is not proved.
    #[test]
    fn every_safety_rule_has_a_mutant_and_every_mutant_a_rule() {
        let (rules, broken) =
            (rules(), Mutant::ALL.iter().map(|mutant| mutant.rule()).collect::<BTreeSet<_>>());
        assert_eq!(broken.difference(&rules).count(), 0, "{broken:?}");
        let unproved = rules.difference(&broken).filter(|rule| rule.starts_with('S')).collect::<Vec<_>>();
        assert_eq!(rules.iter().filter(|rule| rule.starts_with('S')).count(), 20);
        assert_eq!(unproved, Vec::<&&str>::new());
    }
}
