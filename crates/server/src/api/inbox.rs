//! The inbox: in numbers, in lists, one message at a time.

use serde::{Deserialize, Serialize};
use twobox_core::ports::DeadWork;
use twobox_core::ports::ops;
use utoipa::{IntoParams, ToSchema};

use super::{Trace, hex, sometime, time};

/// The inbox in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxStats {
    /// All of it.
    pub(crate) total: Counts,
    /// Of all messages that arrived, the part that had been handled before: from 0 to 1.
    pub(crate) duplicate_rate: f64,
    /// Every consumer and source, at most 1,000.
    pub(crate) peers: Vec<Peer>,
}

/// What happened in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// Rows that are kept now: the memory of what was handled, what is queued, dead letters.
    pub(crate) rows: u64,
    /// Messages that are queued now.
    pub(crate) queued: u64,
    /// Dead letters that wait for a decision.
    pub(crate) dead: u64,
    /// Messages handled so far.
    pub(crate) done: u64,
    /// Duplicates answered so far.
    pub(crate) duplicates: u64,
    /// Messages that died or expired so far.
    pub(crate) died: u64,
    /// Messages refused so far because their id is known with another content.
    pub(crate) conflicts: u64,
    /// Messages refused so far because they may have been handled and forgotten.
    pub(crate) too_old: u64,
    /// Messages so far whose content differed from what was seen before, when that was no reason to refuse them.
    pub(crate) mismatches: u64,
}

/// What a consumer has received from a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Peer {
    /// Who received.
    pub(crate) consumer: String,
    /// Who sent.
    pub(crate) source: String,
    /// How much.
    pub(crate) counts: Counts,
    /// What is dated at or before this and has no row is refused as too old.
    #[schema(format = DateTime)]
    pub(crate) watermark: Option<String>,
}

impl From<ops::InboxCounts> for Counts {
    fn from(counts: ops::InboxCounts) -> Self {
        Self {
            rows: counts.rows,
            queued: counts.queued,
            dead: counts.dead,
            done: counts.done,
            duplicates: counts.duplicates,
            died: counts.died,
            conflicts: counts.conflicts,
            too_old: counts.too_old,
            mismatches: counts.mismatches,
        }
    }
}

impl From<ops::PeerStats> for Peer {
    fn from(peer: ops::PeerStats) -> Self {
        Self {
            consumer: peer.consumer.to_string(),
            source: peer.source.to_string(),
            counts: peer.counts.into(),
            watermark: sometime(peer.watermark),
        }
    }
}

impl InboxStats {
    /// With at most so many peers.
    pub(crate) fn new(stats: ops::InboxStats, peers_max: usize) -> Self {
        let (done, duplicates) = (stats.total.done, stats.total.duplicates);
        let arrived = done + duplicates;
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
        let duplicate_rate = if arrived == 0 { 0.0 } else { duplicates as f64 / arrived as f64 };
        let peers = stats.peers.into_iter().take(peers_max).map(Into::into).collect();
        Self { total: stats.total.into(), duplicate_rate, peers }
    }
}

/// Which messages of the inbox are wanted, newest first. All that is given must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// `Seen`, `Processing`, `Done`, `Dead` or `Expired`.
    pub(crate) status: Option<String>,
    /// Only of this consumer.
    pub(crate) consumer: Option<String>,
    /// Only from this source.
    pub(crate) source: Option<String>,
    /// Only for this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only of this ordering key; it is known as long as a message is queued.
    pub(crate) ordering_key: Option<String>,
    /// Only this message.
    pub(crate) message_id: Option<String>,
    /// Only what was received at this time or later (RFC 3339, UTC).
    #[param(format = DateTime)]
    pub(crate) received_from: Option<String>,
    /// Only what was received before this time (RFC 3339, UTC).
    #[param(format = DateTime)]
    pub(crate) received_until: Option<String>,
    /// Most items of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<usize>,
    /// `next` of the page before.
    pub(crate) next: Option<String>,
}

/// Which dead letters of the inbox are wanted, oldest death first. All that is given must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxFailedQuery {
    /// Only from this source.
    pub(crate) source: Option<String>,
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

/// A message of the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxMessage {
    /// Its id.
    pub(crate) message_id: String,
    /// Who received it.
    pub(crate) consumer: String,
    /// Who sent it.
    pub(crate) source: String,
    /// What it calls; empty if it was only noticed.
    pub(crate) endpoint: String,
    /// `Signal`, `Command`, `PushCall` or `Response`.
    pub(crate) message_type: String,
    /// Its ordering key, as long as it is queued.
    pub(crate) ordering_key: Option<String>,
    /// `Seen`, `Processing`, `Done`, `Dead` or `Expired`.
    pub(crate) status: String,
    /// Whether it is stored to be handled later, or died there.
    pub(crate) is_queued: bool,
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// When it was received first.
    #[schema(format = DateTime)]
    pub(crate) received: String,
    /// When it was handled, died or expired.
    #[schema(format = DateTime)]
    pub(crate) processed: Option<String>,
    /// What went wrong the last time.
    pub(crate) last_error: Option<String>,
}

impl From<ops::InboxSummary> for InboxMessage {
    fn from(summary: ops::InboxSummary) -> Self {
        Self {
            message_id: summary.message_id,
            consumer: summary.consumer,
            source: summary.source,
            endpoint: summary.endpoint,
            message_type: summary.message_type,
            ordering_key: summary.ordering_key,
            status: summary.status.as_str().into(),
            is_queued: summary.is_queued,
            attempts: summary.attempts,
            received: time(summary.received),
            processed: sometime(summary.processed),
            last_error: summary.last_error,
        }
    }
}

/// The messages of the inbox with one id: ids are unique within a source only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxMessages {
    /// At least one.
    pub(crate) messages: Vec<InboxMessageDetail>,
}

/// All there is to know about a message of the inbox, except for its payload and its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxMessageDetail {
    /// What lists show of it.
    pub(crate) message: InboxMessage,
    /// Hash of its content, in hexadecimal digits, if one is known.
    pub(crate) hash: Option<String>,
    /// The sender's date, from which the dedup window counts.
    #[schema(format = DateTime)]
    pub(crate) available: Option<String>,
    /// When it was last seen.
    #[schema(format = DateTime)]
    pub(crate) last_seen: String,
    /// Replay number it was last handled under.
    pub(crate) replay: u32,
    /// Bytes of the stored response, which is never shown.
    pub(crate) response_bytes: Option<u64>,
    /// Media type of the stored response.
    pub(crate) response_type: Option<String>,
    /// Who claimed it before handling it.
    pub(crate) claimed: Option<InboxClaim>,
    /// What is known as long as it is queued, or died there.
    pub(crate) queued: Option<InboxQueued>,
}

/// Who claimed a message before handling it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxClaim {
    /// The handler.
    pub(crate) handler: String,
    /// Since when.
    #[schema(format = DateTime)]
    pub(crate) since: String,
}

/// What is known about a message that is queued, or died there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxQueued {
    /// Bytes of its payload, which is never shown.
    pub(crate) payload_bytes: u64,
    /// Media type of its payload.
    pub(crate) content_type: String,
    /// Names of its headers. Their values may hold secrets and are not shown.
    pub(crate) headers: Vec<String>,
    /// Its correlation id.
    pub(crate) correlation_id: Option<String>,
    /// Its place in a distributed trace.
    pub(crate) trace: Option<Trace>,
    /// Not before this time.
    #[schema(format = DateTime)]
    pub(crate) due: Option<String>,
    /// When its time to live is over.
    #[schema(format = DateTime)]
    pub(crate) expires: Option<String>,
    /// When it can be claimed; `null` if it waits behind another one of its key, or is dead.
    #[schema(format = DateTime)]
    pub(crate) ready: Option<String>,
    /// Until when a worker has it.
    #[schema(format = DateTime)]
    pub(crate) leased_until: Option<String>,
    /// When it was last tried.
    #[schema(format = DateTime)]
    pub(crate) last_attempt: Option<String>,
    /// Why it died.
    pub(crate) reason: Option<String>,
}

impl From<ops::InboxDetail> for InboxMessageDetail {
    fn from(detail: ops::InboxDetail) -> Self {
        let claimed = detail.claimed.map(|(handler, since)| InboxClaim { handler, since: time(since) });
        Self {
            message: detail.summary.into(),
            hash: detail.hash.map(|hash| hex(hash.as_bytes())),
            available: sometime(Some(detail.available)),
            last_seen: time(detail.last_seen),
            replay: detail.replay,
            response_bytes: detail.response_bytes,
            response_type: detail.response_type,
            claimed,
            queued: detail.queued.map(Into::into),
        }
    }
}

impl From<ops::QueuedDetail> for InboxQueued {
    fn from(detail: ops::QueuedDetail) -> Self {
        Self {
            payload_bytes: detail.payload_bytes,
            content_type: detail.content_type,
            headers: detail.headers,
            correlation_id: detail.correlation_id,
            trace: detail.trace.map(Into::into),
            due: sometime(detail.due),
            expires: sometime(detail.expires),
            ready: sometime(detail.ready),
            leased_until: sometime(detail.lease.map(|(_, until)| until)),
            last_attempt: sometime(detail.last_attempt),
            reason: detail.reason.map(|reason| reason.to_string()),
        }
    }
}

/// A dead letter of the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxFailed {
    /// Its id.
    pub(crate) message_id: String,
    /// Who sent it.
    pub(crate) source: String,
    /// What it was to call.
    pub(crate) endpoint: String,
    /// Its ordering key.
    pub(crate) ordering_key: Option<String>,
    /// Why it died.
    pub(crate) reason: String,
    /// The last error.
    pub(crate) error: Option<String>,
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// When it died.
    #[schema(format = DateTime)]
    pub(crate) died: String,
    /// Whether its ordering key waits for it.
    pub(crate) blocks_key: bool,
}

impl From<DeadWork> for InboxFailed {
    fn from(letter: DeadWork) -> Self {
        Self {
            message_id: letter.id,
            source: letter.source,
            endpoint: letter.topic,
            ordering_key: letter.ordering_key,
            reason: letter.reason.to_string(),
            error: letter.error,
            attempts: letter.attempts,
            died: time(letter.died),
            blocks_key: letter.blocks_key,
        }
    }
}
