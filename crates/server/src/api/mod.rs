//! What travels between a node's API and its clients: one set of types for both, so that they cannot disagree.
//!
//! Fields are in camel case, times in RFC 3339 (UTC), and what is not known is `null`. No type here can hold a payload
//! that is on its way out: answers have sizes and hashes only (S17).

mod audit;
mod bulk;
mod error;
mod health;
mod inbox;
mod lanes;
mod messages;
mod outbox;
mod page;

use std::time::Duration;

use twobox_core::Timestamp;

pub(crate) use self::audit::{AuditQuery, AuditRow};
pub(crate) use self::bulk::{
    BulkAnswer, InboxFilter, InboxPurge, InboxReplay, Matched, OutboxFilter, OutboxPurge, OutboxReplay,
    ReplayMode, RetryAnswer, RetryOne,
};
pub(crate) use self::error::{ErrorAnswer, ErrorDetail};
pub(crate) use self::health::{Alive, Health, HealthStatus, Problem};
pub(crate) use self::inbox::{
    InboxFailed, InboxFailedQuery, InboxMessage, InboxMessageDetail, InboxMessages, InboxQuery, InboxStats,
};
pub(crate) use self::lanes::{
    BlockedInboxKey, BlockedOutboxKey, Lane, PauseAnswer, PauseRequest, ReleaseAnswer, ReleaseInboxKey,
    ReleaseOutboxKey,
};
pub(crate) use self::messages::{MessageType, NewMessage, SendAnswer, SendBody, Sent};
pub(crate) use self::outbox::{
    Attempt, OutboxFailed, OutboxFailedQuery, OutboxMessage, OutboxMessageDetail, OutboxMessages,
    OutboxQuery, OutboxStats, Trace,
};
pub(crate) use self::page::{Items, LimitQuery, Page};

/// The year after which RFC 3339 ends. What expires later never does.
const LAST: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);

fn time(at: Timestamp) -> String {
    at.to_rfc3339()
}

fn sometime(at: Option<Timestamp>) -> Option<String> {
    at.filter(|at| *at <= LAST).map(time)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}
