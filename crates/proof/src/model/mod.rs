//! The protocol as a model whose every interleaving within stated bounds is looked at.
//!
//! Two models meet in the middle. `outbox` has the sender's side in detail and a receiver that handles a request in
//! one go; `inbox` has the receiver's side in detail and senders that just send again. Time is no part of them:
//! whatever a clock could make happen, such as a lease that ends or a request that is given up, may happen at any
//! moment. So what holds here holds whatever clocks do.
//!
//! Each step is as atomic as the code makes it:
//!
//! | step | in the code |
//! | --- | --- |
//! | `Enqueue`, `Sync` | a commit becomes visible, then durable: `sqlite/writer/core.rs`, `commit`, `sync_lazy` |
//! | `Take`, `Renew` | `sqlite/outbox/lanes.rs`, `take`; `engine/relay/event.rs`, `lanes_taken` |
//! | `Form` | `engine/relay/work.rs`, `form`; `lane.rs`, `form_batch`; `sqlite/outbox/waiting.rs`, `held_keys` |
//! | `Look` | `sqlite/outbox/waiting.rs`, `DueQuery`; `engine/relay/lane.rs`, `add_due` |
//! | `Send` | `engine/relay/work.rs`, `dispatch`, `send`; `sqlite/outbox/log.rs`, `make_durable` |
//! | `Answer`, `Lose`, `Delay`, `Refuse`, `Probe` | `engine/relay/lane.rs`, `answered`, `failed`; `event.rs`, `probed` |
//! | `SettleLog` | `engine/relay/lane.rs`, `settlement`; `sqlite/outbox/log.rs`, `settle`: one fenced transaction |
//! | `SettleWaiting` | `sqlite/outbox/waiting.rs`, `settle_waiting_rows`: one fenced transaction |
//! | `Replay`, `ReleaseKey` | `sqlite/outbox/dead_letters.rs`, `replay_one`, `release_key` |
//! | `Trim` | `sqlite/sweep.rs`, `trim` |
//! | `Kill`, `PowerCut`, `Reopen` | the process ends; unsynced commits are gone; `sqlite/writer/recovery.rs`, `recover` |
//! | `Receive`, `InProgress` | `engine/receiver/wave.rs`, `Wave::form`; `receiver/mod.rs`, `answer_in_progress` |
//! | `Handle` | `sqlite/inbox/handle.rs`, `attempt`, `claim`, `check_date`, `store_response`: one transaction |
//! | `Answer` of the inbox | `sqlite/inbox/job.rs`: the job is `Synced`, so it is answered after the sync |
//! | `Purge` | `sqlite/sweep.rs`, `purge`: rows and watermark in one transaction |
//! | `Clock` | the receiver's clock moves; messages are dated by the sender's, which may step back |
//!
//! Left out: time to live, scheduled messages, destinations without a route, sizes, `NotReached`, conflicts.
//!
//! A [`Variant`] switches one rule off, and the checker must notice: that shows that the properties can fail.

mod heal;
mod inbox;
mod outbox;

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model};

use self::inbox::{InboxBounds, InboxModel};
use self::outbox::{HeadPolicy, OutboxBounds, OutboxModel};

/// One rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// The receiver acknowledges and then commits (S2).
    AcknowledgeBeforeCommit,
    /// The receiver acknowledges what is committed and not durable (S2).
    AcknowledgeBeforeSync,
    /// The relay settles a batch as sent while it is on its way (S2).
    SentBeforeAnswer,
    /// The relay sends what is visible and not durable (W6).
    SendBeforeDurable,
    /// The dedup row is looked up first and written last (S3).
    DedupRowLast,
    /// Effect and dedup row are two transactions, the effect first (S3).
    HandleThenMark,
    /// Effect and dedup row are two transactions, the row first (S3).
    MarkThenHandle,
    /// A settlement does not ask whether its lease is the newest (S5).
    NoFence,
    /// The state of a lane is used although the database was reopened (L1).
    LaneKeptAfterReopen,
    /// The cursor moves and the waiting rows are not written with it (L1).
    CursorWithoutRows,
    /// A batch is settled although one before it is not answered (L1).
    SettleOutOfOrder,
    /// A duplicate of a message in flight is told that all is well (S7).
    OkToInFlightDuplicate,
    /// Purged messages are forgotten altogether (S9).
    NoWatermark,
    /// Age by the receiver's clock takes the place of the watermark (S9).
    WatermarkFromClock,
    /// The watermark rises in a transaction of its own, after the purge (S9).
    WatermarkApart,
    /// What follows a failed message of its key is sent (S12, L4).
    RetryOvertakesKey,
    /// A request that fails as a whole charges all its messages (L3).
    WholeBatchCharged,
    /// A batch that broke the receiver travels whole for ever (L3).
    NeverHalved,
    /// The sweeper takes what is not finished (S18).
    PurgeUnfinished,
    /// A replayed message is run again although it is done (L10).
    ReplayRerunsDone,
    /// A replay goes out under the number it had (L10).
    ReplayKeepsNumber,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::AcknowledgeBeforeCommit,
        Self::AcknowledgeBeforeSync,
        Self::SentBeforeAnswer,
        Self::SendBeforeDurable,
        Self::DedupRowLast,
        Self::HandleThenMark,
        Self::MarkThenHandle,
        Self::NoFence,
        Self::LaneKeptAfterReopen,
        Self::CursorWithoutRows,
        Self::SettleOutOfOrder,
        Self::OkToInFlightDuplicate,
        Self::NoWatermark,
        Self::WatermarkFromClock,
        Self::WatermarkApart,
        Self::RetryOvertakesKey,
        Self::WholeBatchCharged,
        Self::NeverHalved,
        Self::PurgeUnfinished,
        Self::ReplayRerunsDone,
        Self::ReplayKeepsNumber,
    ];

    /// Whether it breaks a rule of the receiver's side, rather than one of the sender's.
    fn is_of_inbox(self) -> bool {
        matches!(
            self,
            Self::AcknowledgeBeforeCommit
                | Self::AcknowledgeBeforeSync
                | Self::DedupRowLast
                | Self::HandleThenMark
                | Self::MarkThenHandle
                | Self::OkToInFlightDuplicate
                | Self::NoWatermark
                | Self::WatermarkFromClock
                | Self::WatermarkApart
        )
    }
}

/// How far is explored: models with their sizes and the number of each fault.
#[derive(Clone, Debug)]
pub struct Bounds {
    inbox: InboxBounds,
    /// The sender's side has too many dimensions for one run; each of these has some of them.
    outbox: Vec<OutboxBounds>,
}

impl Bounds {
    /// A few seconds, also in a debug build.
    #[must_use]
    pub fn short() -> Self {
        Self::new(false)
    }

    /// Under a minute in a release build.
    #[must_use]
    pub fn full() -> Self {
        Self::new(true)
    }

    fn new(full: bool) -> Self {
        let policies = [HeadPolicy::Block, HeadPolicy::StepOver, HeadPolicy::FailKey];
        let mut outbox: Vec<OutboxBounds> = policies.map(OutboxBounds::keys).into();
        outbox.push(OutboxBounds::poison(full));
        outbox.push(OutboxBounds::take_over(full));
        outbox.push(OutboxBounds::crash(full));
        if full {
            outbox.extend(policies.map(OutboxBounds::more_keys));
            outbox.push(OutboxBounds::keys_and_kill());
            outbox.push(OutboxBounds::take_over_of_a_key());
            outbox.push(OutboxBounds::take_over_and_crash());
            outbox.push(OutboxBounds::take_over_and_reopen());
        }
        Self { inbox: InboxBounds::new(full), outbox }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inbox)?;
        self.outbox.iter().try_for_each(|part| write!(f, "\n{part}"))
    }
}

/// What was looked at, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps taken.
    pub states: usize,
    /// Different states.
    pub unique: usize,
    /// The longest way to a state.
    pub depth: usize,
    /// The first property that does not hold.
    pub violation: Option<Violation>,
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The part it was found in, with its bounds.
    pub part: String,
    /// What does not hold.
    pub property: &'static str,
    /// The steps to where it does not; none for something that should happen and never does.
    pub path: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.property, self.part, self.path.join(", "))
    }
}

/// Looks at every state within the bounds, with one rule switched off if asked to. Stops at the first violation.
#[must_use]
pub fn check(bounds: &Bounds, variant: Option<Variant>) -> Report {
    let mut report = Report::default();
    if variant.is_none_or(Variant::is_of_inbox) {
        report.explore(&bounds.inbox, InboxModel::new(bounds.inbox.clone(), variant));
    }
    for part in bounds.outbox.iter().filter(|_| variant.is_none_or(|variant| !variant.is_of_inbox())) {
        if report.violation.is_none() {
            report.explore(part, OutboxModel::new(part.clone(), variant));
        }
    }
    report
}

impl Report {
    fn explore<M>(&mut self, part: &impl fmt::Display, model: M)
    where
        M: Model + Send + Sync + 'static,
        M::State: Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
        M::Action: Clone + PartialEq + fmt::Debug,
    {
        let properties = model.properties();
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        self.states += checker.state_count();
        self.unique += checker.unique_state_count();
        self.depth = self.depth.max(checker.max_depth());
        self.violation = properties.into_iter().find_map(|property| {
            let failure = property.expectation.discovery_is_failure();
            let path = match checker.discovery(property.name) {
                Some(path) if failure => path.into_actions().iter().map(|step| format!("{step:?}")).collect(),
                None if !failure => Vec::new(),
                _ => return None,
            };
            Some(Violation { part: part.to_string(), property: property.name, path })
        });
    }
}
