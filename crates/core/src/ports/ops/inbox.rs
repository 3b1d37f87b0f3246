//! Messages of the inbox: listed, and one by one.

use super::TraceIds;
use crate::lifecycle::Reason;
use crate::ports::{ContentHash, InboxStatus};
use crate::{Consumer, Endpoint, MessageId, OrderingKey, Source, Timestamp};

/// Which messages of the inbox are meant. All that is given must match.
#[derive(Clone, Debug, Default)]
pub struct InboxFilter {
    /// Only this consumer.
    pub consumer: Option<Consumer>,
    /// Only this source.
    pub source: Option<Source>,
    /// Only this status.
    pub status: Option<InboxStatus>,
    /// Only this endpoint.
    pub endpoint: Option<Endpoint>,
    /// Only this ordering key. Known as long as a message is queued.
    pub ordering_key: Option<OrderingKey>,
    /// Only this id, found by index.
    pub message_id: Option<MessageId>,
    /// Only what was received at this time or later. Ranges are found by bisection; see [`DATE_SLACK_ROWS`](super::DATE_SLACK_ROWS).
    pub received_from: Option<Timestamp>,
    /// Only what was received before this time.
    pub received_until: Option<Timestamp>,
}

/// A message of the inbox in a listing. Names are as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxSummary {
    /// Its row.
    pub place: i64,
    /// Who received it.
    pub consumer: String,
    /// Who sent it.
    pub source: String,
    /// Its id.
    pub message_id: String,
    /// What it calls; empty if it was only noticed.
    pub endpoint: String,
    /// Signal, Command, PushCall or Response.
    pub message_type: String,
    /// Its ordering key, as long as it is queued.
    pub ordering_key: Option<String>,
    /// Where it stands.
    pub status: InboxStatus,
    /// Whether it is stored to be handled later, or died there.
    pub is_queued: bool,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it was received first.
    pub received: Timestamp,
    /// When it was handled, died or expired.
    pub processed: Option<Timestamp>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

/// All there is to know about a message of the inbox, except for its payload and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxDetail {
    /// What a listing shows of it.
    pub summary: InboxSummary,
    /// Hash of its content, if one is known.
    pub hash: Option<ContentHash>,
    /// The sender's date, from which the dedup window counts.
    pub available: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// Replay number it was last handled under.
    pub replay: u32,
    /// Bytes of the stored response.
    pub response_bytes: Option<u64>,
    /// Media type of the stored response.
    pub response_type: Option<String>,
    /// Who claimed it before handling it, since when.
    pub claimed: Option<(String, Timestamp)>,
    /// What is known as long as it is queued.
    pub queued: Option<QueuedDetail>,
}

/// What is known about a message that is queued or died in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedDetail {
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Media type of its payload.
    pub content_type: String,
    /// Names of its headers. Their values may hold secrets and are not shown.
    pub headers: Vec<String>,
    /// Its correlation id.
    pub correlation_id: Option<String>,
    /// Its place in a distributed trace, if it carries one.
    pub trace: Option<TraceIds>,
    /// Not before this time.
    pub due: Option<Timestamp>,
    /// When its time to live is over.
    pub expires: Option<Timestamp>,
    /// When it can be claimed; `None` if it waits behind another of its key, or is dead.
    pub ready: Option<Timestamp>,
    /// Which worker has it, and until when.
    pub lease: Option<(Vec<u8>, Timestamp)>,
    /// When it was last tried.
    pub last_attempt: Option<Timestamp>,
    /// Why it died.
    pub reason: Option<Reason>,
}

/// An ordering key of an inbox that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedWorkKey {
    /// Who receives.
    pub consumer: Consumer,
    /// Who sends.
    pub source: Source,
    /// The key.
    pub ordering_key: OrderingKey,
    /// Id of the dead message at its head, as stored.
    pub head: String,
    /// Messages that wait behind it, counted up to a bound.
    pub waiting: u64,
}
