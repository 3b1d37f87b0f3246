//! Messages of the outbox: listed, and one by one.

use std::fmt;
use std::str::FromStr;

use crate::lifecycle::Reason;
use crate::{Destination, Endpoint, Error, MessageId, OrderingKey, Result, Source, Timestamp};

/// Status of a message of the outbox (RF-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboxStatus {
    /// To be sent: now, at its next attempt, when it is due, or after what is before it in its key.
    Pending,
    /// On its way.
    Sending,
    /// Acknowledged.
    Sent,
    /// A dead letter.
    Failed,
    /// A dead letter, because its time to live is over.
    Expired,
}

impl OutboxStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Sending, Self::Sent, Self::Failed, Self::Expired];

    /// The name in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Sending => "Sending",
            Self::Sent => "Sent",
            Self::Failed => "Failed",
            Self::Expired => "Expired",
        }
    }
}

impl fmt::Display for OutboxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OutboxStatus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is none of Pending, Sending, Sent, Failed, Expired"))
        })
    }
}

/// Which messages of the outbox are meant. All that is given must match.
#[derive(Clone, Debug, Default)]
pub struct OutboxFilter {
    /// Only this status.
    pub status: Option<OutboxStatus>,
    /// Only this source.
    pub source: Option<Source>,
    /// Only this destination.
    pub destination: Option<Destination>,
    /// Only this endpoint.
    pub endpoint: Option<Endpoint>,
    /// Only this ordering key.
    pub ordering_key: Option<OrderingKey>,
    /// Only this id, found by index.
    pub message_id: Option<MessageId>,
    /// Only what was created at this time or later. Ranges are found by bisection; see [`DATE_SLACK_ROWS`](super::DATE_SLACK_ROWS).
    pub created_from: Option<Timestamp>,
    /// Only what was created before this time.
    pub created_until: Option<Timestamp>,
}

/// A message of the outbox in a listing. Names are as stored: what cannot be decoded is listed as well (S19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxSummary<P> {
    /// Its place in the log, which identifies it within its outbox.
    pub position: P,
    /// Its id.
    pub message_id: String,
    /// Who sends it.
    pub source: String,
    /// Where it goes.
    pub destination: String,
    /// What it calls.
    pub endpoint: String,
    /// Signal, Command, PushCall or Response.
    pub message_type: String,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Where it stands.
    pub status: OutboxStatus,
    /// Attempts charged.
    pub attempts: u32,
    /// When it was enqueued.
    pub created: Timestamp,
    /// Not before this time, if it was scheduled.
    pub due: Option<Timestamp>,
    /// When it is tried again, if that is known.
    pub next_attempt: Option<Timestamp>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Media type of its payload.
    pub content_type: String,
}

/// A failed attempt at a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Replay number it belongs to.
    pub replay: u32,
    /// Which attempt of that replay.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What went wrong.
    pub error: String,
}

impl AttemptRecord {
    /// An attempt that failed.
    #[must_use]
    pub fn new(replay: u32, attempt: u32, at: Timestamp, error: String) -> Self {
        Self { replay, attempt, at, error }
    }
}

/// Where a message belongs in a distributed trace: from its W3C `traceparent` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// The trace: 32 hexadecimal digits.
    pub trace_id: String,
    /// The span that enqueued it: 16 hexadecimal digits.
    pub span_id: String,
}

impl TraceIds {
    /// Reads a `traceparent` header: `00-<trace id>-<span id>-<flags>`. `None` if it is not one.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let parts: Vec<&str> = traceparent.trim().split('-').collect();
        let &[version, trace_id, span_id, flags, ref rest @ ..] = parts.as_slice() else { return None };
        let hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
        };
        let is_id = |text: &str, digits| hex(text, digits) && text.bytes().any(|c| c != b'0');
        // Later versions may have more parts; ff is no version.
        let known = hex(version, 2) && version != "ff" && (version != "00" || rest.is_empty());
        (known && is_id(trace_id, 32) && is_id(span_id, 16) && hex(flags, 2))
            .then(|| Self { trace_id: trace_id.into(), span_id: span_id.into() })
    }
}

/// All there is to know about a message of the outbox, except for its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxDetail<P> {
    /// What a listing shows of it.
    pub summary: OutboxSummary<P>,
    /// SHA-256 of its payload.
    pub payload_sha256: [u8; 32],
    /// Names of its headers. Their values may hold secrets and are not shown.
    pub headers: Vec<String>,
    /// Its correlation id.
    pub correlation_id: Option<String>,
    /// Its place in a distributed trace, if it carries one.
    pub trace: Option<TraceIds>,
    /// When its time to live is over.
    pub expires: Option<Timestamp>,
    /// When it was acknowledged, died or expired.
    pub finished: Option<Timestamp>,
    /// When it was last tried, as far as that is known of a message that went well.
    pub last_attempt: Option<Timestamp>,
    /// Why it died.
    pub reason: Option<Reason>,
    /// How often it was replayed.
    pub replay: u32,
    /// The id it was sent again under.
    pub replayed_as: Option<String>,
    /// Whether its ordering key waits for it.
    pub holds_key: bool,
    /// Failed attempts, oldest first, the last few of them (L9).
    pub history: Vec<AttemptRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_trace_ids_come_from_a_traceparent_that_is_one() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let ids = TraceIds::parse(good).unwrap();
        assert_eq!(ids.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(ids.span_id, "00f067aa0ba902b7");
        assert!(TraceIds::parse(&good.replace("00-4", "01-4")).is_some(), "a later version");
        for bad in [
            "",
            "00-1",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(TraceIds::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn rf_22_statuses_have_one_spelling() {
        for status in OutboxStatus::ALL {
            assert_eq!(status.as_str().parse::<OutboxStatus>().unwrap(), status);
        }
        assert!("sent".parse::<OutboxStatus>().is_err());
    }
}
