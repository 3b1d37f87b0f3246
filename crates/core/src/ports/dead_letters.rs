//! Dead letters: what died, why, and how it is sent again or removed.

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
    /// Only those that died before this time.
    pub died_before: Option<Timestamp>,
}

/// One death of a message: its place and when it died. A message that was replayed and has died again since has
/// died another death.
pub type Death<P> = (P, Timestamp);

/// Some of the dead letters that match a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterPage<P> {
    /// The dead letters.
    pub letters: Vec<DeadLetter<P>>,
    /// Whether more match behind them.
    pub more: bool,
}

impl<P: Clone> DeadLetterPage<P> {
    /// The deaths that are listed.
    #[must_use]
    pub fn deaths(&self) -> Vec<Death<P>> {
        self.letters.iter().map(|letter| (letter.position.clone(), letter.died)).collect()
    }
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

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Dead letters removed.
    pub purged: u64,
    /// Whether more match than one call removes.
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

/// Listing, replaying and purging dead letters.
pub trait DeadLetterStore: LaneStore {
    /// Dead letters that match, at most `limit`, after `after`: oldest death first, those of one message id in log
    /// order.
    fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&DeadLetter<Self::Position>>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter<Self::Position>>>> + Send;

    /// How many dead letters match, counted up to `limit`: a replay or a purge without doing it. `limit` itself
    /// means that many or more.
    fn dead_letter_count(
        &self,
        filter: &DeadLetterFilter,
        limit: usize,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Sends these deaths again, in one transaction: attempts start anew, the time to live is `ttl` from now, the
    /// place among the waiting messages of the key is kept. Passes over a message that is not dead, or has died
    /// again since. Returns how many are sent again.
    fn replay_deaths(
        &self,
        deaths: Vec<Death<Self::Position>>,
        replay: Replay,
        ttl: Duration,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Removes these dead letters for good, with their attempts, in one transaction. Nothing of them is shown or
    /// sent any more, and no callback tells of them; keys that waited for them go on with their next message.
    /// Passes over a message that is not dead, or has died again since. Returns how many are gone.
    fn purge_deaths(&self, deaths: Vec<Death<Self::Position>>) -> impl Future<Output = Result<u64>> + Send;

    /// One page of the dead letters that match, after `after`.
    fn dead_letter_page(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&DeadLetter<Self::Position>>,
        limit: usize,
    ) -> impl Future<Output = Result<DeadLetterPage<Self::Position>>> + Send {
        async move {
            let mut letters = self.dead_letters(filter, after, limit.saturating_add(1)).await?;
            let more = letters.len() > limit;
            letters.truncate(limit);
            Ok(DeadLetterPage { letters, more })
        }
    }

    /// Sends up to `limit` matching dead letters again, as [`replay_deaths`](Self::replay_deaths) does.
    fn replay(
        &self,
        filter: &DeadLetterFilter,
        replay: Replay,
        ttl: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Replayed>> + Send {
        async move {
            let page = self.dead_letter_page(filter, None, limit).await?;
            let replayed = self.replay_deaths(page.deaths(), replay, ttl).await?;
            Ok(Replayed { replayed, more: page.more })
        }
    }

    /// Removes up to `limit` matching dead letters, as [`purge_deaths`](Self::purge_deaths) does.
    fn purge(&self, filter: &DeadLetterFilter, limit: usize) -> impl Future<Output = Result<Purged>> + Send {
        async move {
            let page = self.dead_letter_page(filter, None, limit).await?;
            let purged = self.purge_deaths(page.deaths()).await?;
            Ok(Purged { purged, more: page.more })
        }
    }

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
    fn announced(&self, deaths: Vec<Death<Self::Position>>) -> impl Future<Output = Result<()>> + Send;
}
