//! Dead letters: what died, why, and how it is sent again.

use std::future::Future;
use std::time::Duration;

use super::LaneStore;
use crate::lifecycle::Reason;
use crate::{Destination, Endpoint, MessageId, OrderingKey, Result, Source, Timestamp};

/// A message that died or expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<P> {
    /// Its place in the log, which identifies it within its outbox.
    pub position: P,
    /// Its id, as stored: even one that cannot be decoded is listed (S19).
    pub message_id: String,
    /// Where it was to go, as stored.
    pub destination: String,
    /// What it was to call, as stored.
    pub endpoint: String,
    /// Its ordering key, as stored.
    pub ordering_key: Option<String>,
    /// Why it died.
    pub reason: Reason,
    /// The last error.
    pub error: Option<String>,
    /// Attempts charged.
    pub attempts: u32,
    /// When it died.
    pub died: Timestamp,
    /// Whether its ordering key waits for it.
    pub blocks_key: bool,
}

/// Which dead letters are meant.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterFilter {
    /// Only this source.
    pub source: Option<Source>,
    /// Only this destination.
    pub destination: Option<Destination>,
    /// Only this endpoint.
    pub endpoint: Option<Endpoint>,
    /// Only this message.
    pub message_id: Option<MessageId>,
    /// Only this reason.
    pub reason: Option<Reason>,
}

/// How dead letters are sent again (L10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Under the same id with a higher replay number: a receiver that had rejected it runs it again, one that
    /// had handled it answers as a duplicate.
    SameId,
    /// Under a new id, at the end of the log: for messages the receiver calls too old. The dead letter stays,
    /// marked with the new id, and no longer blocks its key.
    NewId,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Messages sent again.
    pub replayed: u64,
    /// Whether more match than one call replays.
    pub more: bool,
}

/// An ordering key that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedKey<P> {
    /// The lane's source.
    pub source: Source,
    /// The lane's destination.
    pub destination: Destination,
    /// The key.
    pub ordering_key: OrderingKey,
    /// The dead message at its head.
    pub head: P,
    /// Messages that wait behind it, counted up to a bound.
    pub waiting: u64,
}

/// Listing and replaying dead letters.
pub trait DeadLetterStore: LaneStore {
    /// Dead letters that match, oldest death first, at most `limit`, after `after`.
    fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&DeadLetter<Self::Position>>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter<Self::Position>>>> + Send;

    /// Sends up to `limit` matching dead letters again: attempts start anew, the time to live is `ttl` from
    /// now, the place among the waiting messages of the key is kept.
    fn replay(
        &self,
        filter: &DeadLetterFilter,
        replay: Replay,
        ttl: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Replayed>> + Send;

    /// Ordering keys that wait for an operator, at most `limit`.
    fn blocked_keys(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<BlockedKey<Self::Position>>>> + Send;

    /// Lets a blocked key step over its dead messages. Returns whether it was blocked.
    fn release_key(
        &self,
        source: &Source,
        destination: &Destination,
        key: &OrderingKey,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Dead letters of `source` whose callback has not been confirmed, durable before they are returned (W4).
    /// Those after `after` in the log, so that one whose callback fails does not hide the others.
    fn unannounced(
        &self,
        source: &Source,
        after: Option<&Self::Position>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter<Self::Position>>>> + Send;

    /// Confirms callbacks: of these deaths, not of any later one of the same message.
    fn announced(&self, deaths: Vec<(Self::Position, Timestamp)>) -> impl Future<Output = Result<()>> + Send;
}
