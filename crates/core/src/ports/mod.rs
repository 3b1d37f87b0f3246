//! What the engines need from the outside world, as small traits.
//!
//! An outbox store implements [`LaneStore`], [`LogStore`], [`WaitingStore`] and [`DeadLetterStore`]
//! (together: [`OutboxStore`]); an inbox store implements [`InboxStore`], [`QueueStore`] and
//! [`DedupStore`], and [`InstanceStore`] tells boxes apart; both are cleaned through
//! [`SweepStore`]. Operators see and steer a store through [`OpsStore`], whose types are in [`ops`]. A transport implements
//! [`Transport`] and its far end, which may [`Listen`], gives what arrives to [`Receive`].
//!
//! Stores date everything with their own clock and are given durations, never instants (S13).

mod backup;
mod dead_letters;
mod dedup;
mod inbox;
mod instances;
mod lanes;
mod log;
pub mod ops;
mod queue;
mod resend;
mod sweep;
mod transport;
mod waiting;

pub use self::backup::{BackupStore, KeptBackup};
pub use self::dead_letters::{
    BlockedKey, DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterStore, Death, Purged, Replay,
    Replayed,
};
pub use self::dedup::{
    ClaimFirst, ClaimOutcome, ClaimToken, ContentHash, DedupStore, HASH_ALGORITHM_CHARS_MAX, HASH_BYTES_MAX,
    MessageKey, Noticed, Unfinished,
};
pub use self::inbox::{Delivery, InboxRecord, InboxStatus, InboxStore, KeyGate, Treatment};
pub use self::instances::{Inboxes, InstanceStore, Met, MetOutbox};
pub use self::lanes::{Discovered, LaneId, LaneLease, LaneStatus, LaneStore, Outage, TakeLanes};
pub use self::log::{LogChunk, LogEntry, LogStore, ReadLog, Settlement, Undecodable};
pub use self::ops::OpsStore;
pub use self::queue::{
    CLAIM_MAX, Claim, Claimed, DeadWork, DeadWorkPage, Enqueued, Handled, Job, LEASE_MAX, OwnerToken, Queue,
    QueueStore, Work, WorkFilter, WorkLease, WorkRecord, check_delay, check_lease,
};
pub use self::resend::{ResendFilter, ResendPlace, ResendStore, Resendable, Resent, Trimmed};
pub use self::sweep::{SweepPlan, SweepStore, Swept};
pub use self::transport::{Answer, DeliveryError, Link, Listen, Receive, Transport};
pub use self::waiting::{
    Due, HeadPolicy, Look, NewWaiting, Settled, WaitingMessage, WaitingOutcome, WaitingStore,
};

/// Everything a relay needs.
pub trait OutboxStore: LaneStore + LogStore + WaitingStore + DeadLetterStore {}

impl<S: LaneStore + LogStore + WaitingStore + DeadLetterStore> OutboxStore for S {}
