//! What operators see and steer: counters, listings, single messages, pausing, the audit trail (RF-22).
//!
//! Nothing here shows a payload or a response: only their sizes, media types and hashes (S17). Nothing costs more
//! because more is retained (S18): counters are maintained with the rows they count, and a listing looks at no more
//! than [`EXAMINED_MAX`] rows per call.

mod audit;
mod inbox;
mod outbox;
mod stats;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::{DeadLetter, DeadLetterFilter, DeadWork, LaneStore, WorkFilter};
use crate::{Consumer, Destination, MessageId, Result, Source};

pub use self::audit::{AuditEntry, AuditFilter, AuditId, AuditOutcome, AuditRecord};
pub use self::inbox::{BlockedWorkKey, InboxDetail, InboxFilter, InboxSummary, QueuedDetail};
pub use self::outbox::{AttemptRecord, OutboxDetail, OutboxFilter, OutboxStatus, OutboxSummary, TraceIds};
pub use self::stats::{
    Count, InboxCounts, InboxStats, LaneStats, OutboxStats, Pause, PeerStats, WaitingCounts,
};

/// Rows one call of a listing looks at, at most, whether they match or not.
pub const EXAMINED_MAX: usize = 5_000;
/// The longest page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// How many rows a message may stand away from where its date would have it without a listing of a range of dates missing
/// it: transactions overtake each other, and clocks are set. Less than [`EXAMINED_MAX`], so that the first page has room.
pub const DATE_SLACK_ROWS: usize = 2_000;
/// Messages of one id that are shown: ids are unique within a source and consumer only.
pub const SAME_ID_MAX: usize = 100;
/// How long the audit trail is kept unless a [`SweepPlan`](super::SweepPlan) says otherwise: 90 days.
pub const AUDIT_RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);
/// The most characters of an actor, a subject or a reason given by an operator.
pub const NOTE_CHARS_MAX: usize = 500;
/// The most bytes of the details of one audit row.
pub const AUDIT_DETAIL_BYTES_MAX: usize = 4 << 10;

/// Where a listing goes on. Opaque text: the store that made it understands it, for the same kind of listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageToken(String);

impl PageToken {
    /// Wraps the text of a token. Whether it means anything is found out by the listing it is given to.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text: letters, digits, `.`, `-` and `_` only.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Part of a listing. May be short, even empty, and still have a next page: what was looked at is bounded, not only
/// what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<PageToken>,
    /// Rows that were looked at.
    pub examined: usize,
}

/// What operators need from a store, beside [`DeadLetterStore`](super::DeadLetterStore) and
/// [`QueueStore`](super::QueueStore), which replay, purge and release.
///
/// Listings are newest first. `limit` is at most [`PAGE_MAX`]; more is taken as that.
pub trait OpsStore: LaneStore {
    /// A place in the log as text, for whoever has to write it down; see [`parse_position`](Self::parse_position).
    fn position_text(position: &Self::Position) -> String;

    /// A place in the log from its text.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if it is none.
    fn parse_position(text: &str) -> Result<Self::Position>;

    /// The outbox in numbers. Totals are maintained; for what each lane has pending, at most `examine` of the newest
    /// rows of the log are looked at (never more than [`EXAMINED_MAX`]), and none if nothing is pending. With an
    /// `examine` of zero, lanes' pending messages and their oldest are not looked for.
    fn outbox_stats(&self, examine: usize) -> impl Future<Output = Result<OutboxStats>> + Send;

    /// The inbox in numbers, all maintained.
    fn inbox_stats(&self) -> impl Future<Output = Result<InboxStats>> + Send;

    /// Messages of the outbox that match, newest first.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the token is not one of this listing.
    fn outbox_list(
        &self,
        filter: &OutboxFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<OutboxSummary<Self::Position>>>> + Send;

    /// Messages of the inbox that match, newest first.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the token is not one of this listing.
    fn inbox_list(
        &self,
        filter: &InboxFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<InboxSummary>>> + Send;

    /// Dead letters of the outbox that match, oldest death first, as
    /// [`dead_letters`](super::DeadLetterStore::dead_letters) lists them.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the token is not one of this listing.
    fn dead_letter_list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<DeadLetter<Self::Position>>>> + Send;

    /// Dead letters of a consumer's inbox that match, oldest death first, as
    /// [`dead_work`](super::QueueStore::dead_work) lists them.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the token is not one of this listing.
    fn dead_work_list(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<DeadWork>>> + Send;

    /// The messages of the outbox with this id, of every source, at most [`SAME_ID_MAX`]. Empty if there was none, or
    /// if it is trimmed or was purged.
    fn outbox_message(
        &self,
        id: &MessageId,
    ) -> impl Future<Output = Result<Vec<OutboxDetail<Self::Position>>>> + Send;

    /// The messages of the inbox with this id, of every consumer and source, at most [`SAME_ID_MAX`].
    fn inbox_message(&self, id: &MessageId) -> impl Future<Output = Result<Vec<InboxDetail>>> + Send;

    /// Ordering keys of the inbox that wait for an operator, at most `limit`.
    fn blocked_work_keys(&self, limit: usize) -> impl Future<Output = Result<Vec<BlockedWorkKey>>> + Send;

    /// Stops sending to a destination until it is resumed, whatever restarts in between. What is on its way is
    /// settled, nothing is charged, and what expires meanwhile expires (L6). Returns whether it was running: a lane
    /// that is paused keeps the pause it has. A destination that has no lane yet gets one. Durable when this returns.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if `by` or `reason` is longer than [`NOTE_CHARS_MAX`].
    fn pause_lane(
        &self,
        source: &Source,
        destination: &Destination,
        by: &str,
        reason: &str,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Sends to a destination again. Returns whether it was paused. Durable when this returns.
    fn resume_lane(
        &self,
        source: &Source,
        destination: &Destination,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Writes down that an action begins. Durable when this returns: an action whose row cannot be written must not
    /// happen.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the details are longer than [`AUDIT_DETAIL_BYTES_MAX`] or the other
    /// texts longer than [`NOTE_CHARS_MAX`]; otherwise the store's.
    fn begin_audit(&self, entry: &AuditEntry) -> impl Future<Output = Result<AuditId>> + Send;

    /// Writes down what became of an action.
    ///
    /// # Errors
    /// The store's. The action has happened all the same; its row says *begun*.
    fn end_audit(
        &self,
        id: AuditId,
        outcome: AuditOutcome,
        result: Option<&serde_json::Value>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The audit trail, newest first.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the token is not one of this listing.
    fn audit_list(
        &self,
        filter: &AuditFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<AuditRecord>>> + Send;
}
