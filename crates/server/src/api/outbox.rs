//! The outbox: in numbers, in lists, one message at a time.

use serde::{Deserialize, Serialize};
use twobox_core::ports::DeadLetter;
use twobox_core::ports::ops;
use utoipa::{IntoParams, ToSchema};

use super::{hex, millis, sometime, time};

/// The outbox in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxStats {
    /// Messages of the log that are not settled yet.
    pub(crate) pending: u64,
    /// Messages that failed and are tried again.
    pub(crate) retrying: u64,
    /// Messages that are not due yet.
    pub(crate) scheduled: u64,
    /// Messages behind another one of their ordering key.
    pub(crate) held: u64,
    /// Dead letters that wait for a decision.
    pub(crate) dead: u64,
    /// Messages ever enqueued.
    pub(crate) enqueued: u64,
    /// Messages acknowledged so far.
    pub(crate) sent: u64,
    /// Messages that died so far.
    pub(crate) failed: u64,
    /// Messages that expired so far.
    pub(crate) expired: u64,
    /// How long the oldest message that could have been sent has waited, if there is one and it was found.
    pub(crate) oldest_ms: Option<u64>,
}

impl From<&ops::OutboxStats> for OutboxStats {
    fn from(stats: &ops::OutboxStats) -> Self {
        Self {
            pending: stats.pending,
            retrying: stats.waiting.retrying,
            scheduled: stats.waiting.scheduled,
            held: stats.waiting.held,
            dead: stats.waiting.dead,
            enqueued: stats.enqueued,
            sent: stats.sent,
            failed: stats.failed,
            expired: stats.expired,
            oldest_ms: stats.oldest.map(millis),
        }
    }
}

/// Which messages of the outbox are wanted, newest first. All that is given must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutboxQuery {
    /// `Pending`, `Sending`, `Sent`, `Failed` or `Expired`.
    pub(crate) status: Option<String>,
    /// Only of this source.
    pub(crate) source: Option<String>,
    /// Only to this destination.
    pub(crate) destination: Option<String>,
    /// Only for this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only of this ordering key.
    pub(crate) ordering_key: Option<String>,
    /// Only this message.
    pub(crate) message_id: Option<String>,
    /// Only what was created at this time or later (RFC 3339, UTC).
    #[param(format = DateTime)]
    pub(crate) created_from: Option<String>,
    /// Only what was created before this time (RFC 3339, UTC).
    #[param(format = DateTime)]
    pub(crate) created_until: Option<String>,
    /// Most items of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<usize>,
    /// `next` of the page before.
    pub(crate) next: Option<String>,
}

/// Which dead letters of the outbox are wanted, oldest death first. All that is given must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutboxFailedQuery {
    /// Only of this source.
    pub(crate) source: Option<String>,
    /// Only to this destination.
    pub(crate) destination: Option<String>,
    /// Only for this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only this message.
    pub(crate) message_id: Option<String>,
    /// Only what died for this reason.
    pub(crate) reason: Option<String>,
    /// Only what died before this time (RFC 3339, UTC).
    #[param(format = DateTime)]
    pub(crate) died_before: Option<String>,
    /// Most items of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<usize>,
    /// `next` of the page before.
    pub(crate) next: Option<String>,
}

/// A message of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxMessage {
    /// Its id.
    pub(crate) message_id: String,
    /// Its place in the log: tells messages apart that share an id.
    pub(crate) seq: i64,
    /// Who sends it.
    pub(crate) source: String,
    /// Where it goes.
    pub(crate) destination: String,
    /// What it calls.
    pub(crate) endpoint: String,
    /// `Signal`, `Command`, `PushCall` or `Response`.
    pub(crate) message_type: String,
    /// Its ordering key.
    pub(crate) ordering_key: Option<String>,
    /// `Pending`, `Sending`, `Sent`, `Failed` or `Expired`.
    pub(crate) status: String,
    /// Failed attempts that were charged.
    pub(crate) attempts: u32,
    /// When it was enqueued.
    #[schema(format = DateTime)]
    pub(crate) created: String,
    /// Not before this time.
    #[schema(format = DateTime)]
    pub(crate) due: Option<String>,
    /// When it is tried again.
    #[schema(format = DateTime)]
    pub(crate) next_attempt: Option<String>,
    /// What went wrong the last time.
    pub(crate) last_error: Option<String>,
    /// Bytes of its payload, which is never shown.
    pub(crate) payload_bytes: u64,
    /// Media type of its payload.
    pub(crate) content_type: String,
}

impl From<ops::OutboxSummary<i64>> for OutboxMessage {
    fn from(summary: ops::OutboxSummary<i64>) -> Self {
        Self {
            message_id: summary.message_id,
            seq: summary.position,
            source: summary.source,
            destination: summary.destination,
            endpoint: summary.endpoint,
            message_type: summary.message_type,
            ordering_key: summary.ordering_key,
            status: summary.status.as_str().into(),
            attempts: summary.attempts,
            created: time(summary.created),
            due: sometime(summary.due),
            next_attempt: sometime(summary.next_attempt),
            last_error: summary.last_error,
            payload_bytes: summary.payload_bytes,
            content_type: summary.content_type,
        }
    }
}

/// The messages of the outbox with one id: ids are unique within a source only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxMessages {
    /// At least one.
    pub(crate) messages: Vec<OutboxMessageDetail>,
}

/// All there is to know about a message of the outbox, except for its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxMessageDetail {
    /// What lists show of it.
    pub(crate) message: OutboxMessage,
    /// SHA-256 of its payload, in hexadecimal digits.
    pub(crate) payload_sha256: String,
    /// Names of its headers. Their values may hold secrets and are not shown.
    pub(crate) headers: Vec<String>,
    /// Its correlation id.
    pub(crate) correlation_id: Option<String>,
    /// Its place in a distributed trace.
    pub(crate) trace: Option<Trace>,
    /// When its time to live is over.
    #[schema(format = DateTime)]
    pub(crate) expires: Option<String>,
    /// When it was acknowledged, died or expired.
    #[schema(format = DateTime)]
    pub(crate) finished: Option<String>,
    /// When it was last tried.
    #[schema(format = DateTime)]
    pub(crate) last_attempt: Option<String>,
    /// Why it died.
    pub(crate) reason: Option<String>,
    /// How often it was replayed.
    pub(crate) replay: u32,
    /// The id it was sent again under.
    pub(crate) replayed_as: Option<String>,
    /// Whether its ordering key waits for it.
    pub(crate) holds_key: bool,
    /// Failed attempts, oldest first, the last few of them.
    pub(crate) history: Vec<Attempt>,
}

impl From<ops::OutboxDetail<i64>> for OutboxMessageDetail {
    fn from(detail: ops::OutboxDetail<i64>) -> Self {
        Self {
            message: detail.summary.into(),
            payload_sha256: hex(&detail.payload_sha256),
            headers: detail.headers,
            correlation_id: detail.correlation_id,
            trace: detail.trace.map(Into::into),
            expires: sometime(detail.expires),
            finished: sometime(detail.finished),
            last_attempt: sometime(detail.last_attempt),
            reason: detail.reason.map(|reason| reason.to_string()),
            replay: detail.replay,
            replayed_as: detail.replayed_as,
            holds_key: detail.holds_key,
            history: detail.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    /// Replay number it belongs to.
    pub(crate) replay: u32,
    /// Which attempt of that replay.
    pub(crate) attempt: u32,
    /// When.
    #[schema(format = DateTime)]
    pub(crate) at: String,
    /// What went wrong.
    pub(crate) error: String,
}

impl From<ops::AttemptRecord> for Attempt {
    fn from(record: ops::AttemptRecord) -> Self {
        Self { replay: record.replay, attempt: record.attempt, at: time(record.at), error: record.error }
    }
}

/// Where a message belongs in a distributed trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trace {
    /// The trace: 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// The span that enqueued the message: 16 hexadecimal digits.
    pub(crate) span_id: String,
}

impl From<ops::TraceIds> for Trace {
    fn from(ids: ops::TraceIds) -> Self {
        Self { trace_id: ids.trace_id, span_id: ids.span_id }
    }
}

/// A dead letter of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxFailed {
    /// Its id.
    pub(crate) message_id: String,
    /// Its place in the log: tells messages apart that share an id.
    pub(crate) seq: i64,
    /// Where it was to go.
    pub(crate) destination: String,
    /// What it was to call.
    pub(crate) endpoint: String,
    /// Its ordering key.
    pub(crate) ordering_key: Option<String>,
    /// Why it died.
    pub(crate) reason: String,
    /// The last error.
    pub(crate) error: Option<String>,
    /// Failed attempts that were charged.
    pub(crate) attempts: u32,
    /// When it died.
    #[schema(format = DateTime)]
    pub(crate) died: String,
    /// Whether its ordering key waits for it.
    pub(crate) blocks_key: bool,
}

impl From<DeadLetter<i64>> for OutboxFailed {
    fn from(letter: DeadLetter<i64>) -> Self {
        Self {
            message_id: letter.message_id,
            seq: letter.position,
            destination: letter.destination,
            endpoint: letter.endpoint,
            ordering_key: letter.ordering_key,
            reason: letter.reason.to_string(),
            error: letter.error,
            attempts: letter.attempts,
            died: time(letter.died),
            blocks_key: letter.blocks_key,
        }
    }
}
