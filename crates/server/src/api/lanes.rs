//! Lanes, and the ordering keys that wait in them.

use serde::{Deserialize, Serialize};
use twobox_core::ports::BlockedKey;
use twobox_core::ports::ops::{BlockedWorkKey, LaneStats};
use utoipa::ToSchema;

use super::{Matched, millis, sometime, time};

/// A lane: all messages of one source to one destination.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lane {
    /// Whose messages.
    pub(crate) source: String,
    /// Where they go.
    pub(crate) destination: String,
    /// The relay that serves it, if one does.
    pub(crate) owner: Option<String>,
    /// Since when its breaker is open.
    #[schema(format = DateTime)]
    pub(crate) held_since: Option<String>,
    /// What opened it.
    pub(crate) held_error: Option<String>,
    /// When the destination is asked next whether it is back.
    #[schema(format = DateTime)]
    pub(crate) next_probe: Option<String>,
    /// Since when an operator has paused it.
    #[schema(format = DateTime)]
    pub(crate) paused_since: Option<String>,
    /// Who has paused it.
    pub(crate) paused_by: Option<String>,
    /// Why, in their words.
    pub(crate) pause_reason: Option<String>,
    /// Messages of the log that are not settled yet.
    pub(crate) pending: Matched,
    /// How long the oldest of them that could have been sent has waited, if it was found.
    pub(crate) oldest_ms: Option<u64>,
    /// Messages that failed and are tried again.
    pub(crate) retrying: u64,
    /// Messages that are not due yet.
    pub(crate) scheduled: u64,
    /// Messages behind another one of their ordering key.
    pub(crate) held: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Messages acknowledged so far.
    pub(crate) sent: u64,
    /// Messages that died so far.
    pub(crate) failed: u64,
    /// Messages that expired so far.
    pub(crate) expired: u64,
}

impl From<LaneStats> for Lane {
    fn from(stats: LaneStats) -> Self {
        let LaneStats { lane, pending, oldest } = stats;
        let (paused_since, paused_by, pause_reason) = match lane.paused {
            Some(pause) => (Some(time(pause.since)), Some(pause.by), Some(pause.reason)),
            None => (None, None, None),
        };
        Self {
            source: lane.source.to_string(),
            destination: lane.destination.to_string(),
            owner: lane.owner,
            held_since: sometime(lane.held_since),
            held_error: lane.held_error,
            next_probe: sometime(lane.next_probe),
            paused_since,
            paused_by,
            pause_reason,
            pending: pending.into(),
            oldest_ms: oldest.map(millis),
            retrying: lane.waiting.retrying,
            scheduled: lane.waiting.scheduled,
            held: lane.waiting.held,
            dead: lane.waiting.dead,
            sent: lane.sent,
            failed: lane.failed,
            expired: lane.expired,
        }
    }
}

/// Why a lane is paused.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PauseRequest {
    /// For whoever finds it paused.
    #[serde(default)]
    #[schema(max_length = 500)]
    pub(crate) reason: String,
}

/// What pausing or resuming came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PauseAnswer {
    /// The destination.
    pub(crate) destination: String,
    /// Whether it is paused now.
    pub(crate) paused: bool,
    /// Whether that is new.
    pub(crate) changed: bool,
}

/// An ordering key of the outbox that waits for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockedOutboxKey {
    /// Whose messages.
    pub(crate) source: String,
    /// Where they go.
    pub(crate) destination: String,
    /// The key.
    pub(crate) ordering_key: String,
    /// Messages that wait behind the dead one, counted up to a bound.
    pub(crate) waiting: u64,
}

impl<P> From<BlockedKey<P>> for BlockedOutboxKey {
    fn from(key: BlockedKey<P>) -> Self {
        Self {
            source: key.source.to_string(),
            destination: key.destination.to_string(),
            ordering_key: key.ordering_key.to_string(),
            waiting: key.waiting,
        }
    }
}

/// An ordering key of the inbox that waits for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockedInboxKey {
    /// Who receives.
    pub(crate) consumer: String,
    /// Whose messages.
    pub(crate) source: String,
    /// The key.
    pub(crate) ordering_key: String,
    /// Id of the dead message.
    pub(crate) message_id: String,
    /// Messages that wait behind it, counted up to a bound.
    pub(crate) waiting: u64,
}

impl From<BlockedWorkKey> for BlockedInboxKey {
    fn from(key: BlockedWorkKey) -> Self {
        Self {
            consumer: key.consumer.to_string(),
            source: key.source.to_string(),
            ordering_key: key.ordering_key.to_string(),
            message_id: key.head,
            waiting: key.waiting,
        }
    }
}

/// Which ordering key of the outbox steps over its dead messages.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReleaseOutboxKey {
    /// Whose messages. Default: the node's own.
    pub(crate) source: Option<String>,
    /// Where they go.
    pub(crate) destination: String,
    /// The key.
    pub(crate) ordering_key: String,
}

/// Which ordering key of the inbox steps over its dead messages.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReleaseInboxKey {
    /// Whose messages.
    pub(crate) source: String,
    /// The key.
    pub(crate) ordering_key: String,
}

/// What releasing came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReleaseAnswer {
    /// Always `true`: a key that is not blocked is answered with 404.
    pub(crate) released: bool,
}
