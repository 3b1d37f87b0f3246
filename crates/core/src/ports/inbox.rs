//! The inbox: effects once, duplicates answered from the stored response.

use std::collections::HashSet;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, ContentHash};
use crate::{Consumer, Error, Message, MessageId, OrderingKey, Refusal, Response, Result, Source, Timestamp};

/// A message to be handled, with what handles it.
#[derive(Debug)]
pub struct Delivery<H> {
    /// The message; its source is authenticated.
    pub message: Arc<Message>,
    /// Who handles: part of the dedup key.
    pub consumer: Consumer,
    /// SHA-256 of the body (S8).
    pub body_hash: [u8; 32],
    /// What is done with it.
    pub treatment: Treatment<H>,
}

/// What is done with a message that is new.
#[derive(Clone, Debug)]
pub enum Treatment<H> {
    /// It is handled in the transaction that writes its row.
    Handle(H),
    /// It is stored and acknowledged; a worker handles it later.
    Queue,
    /// Its endpoint is unknown, which a duplicate does not mind.
    Unknown,
}

/// Status of an inbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InboxStatus {
    /// Noticed, not queued.
    Seen,
    /// Queued, or leased by a worker.
    Processing,
    /// Effect committed, response stored. Final.
    Done,
    /// Rejected: a dead letter that can be replayed.
    Dead,
    /// Past its time to live before it was handled.
    Expired,
}

impl InboxStatus {
    /// The name in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seen => "Seen",
            Self::Processing => "Processing",
            Self::Done => "Done",
            Self::Dead => "Dead",
            Self::Expired => "Expired",
        }
    }
}

impl FromStr for InboxStatus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Seen, Self::Processing, Self::Done, Self::Dead, Self::Expired]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is not an inbox status")))
    }
}

/// An inbox row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRecord {
    /// Where it stands.
    pub status: InboxStatus,
    /// Hash of the body, if one is known.
    pub hash: Option<ContentHash>,
    /// Whether it is in the queue: stored, to be handled later, or dead there.
    pub is_queued: bool,
    /// Replay number it was last handled under.
    pub replay: u32,
    /// When it was handled.
    pub processed: Option<Timestamp>,
    /// The stored response.
    pub response: Option<Response>,
    /// Why it was rejected.
    pub error: Option<String>,
}

/// Handling messages exactly once.
pub trait InboxStore: Clone + Send + Sync + 'static {
    /// What handles a message within this store's transaction.
    type Handler: Clone + Send + Sync + 'static;

    /// A handler that does nothing but refuse: for work that failed before its transaction began.
    fn refusing(refusal: Refusal) -> Self::Handler;

    /// A handler that does nothing but answer: for work that this delivery has done outside of its transaction. If the
    /// message's row says by then that it is done, that is what was done, and no duplicate.
    fn answering(response: Response) -> Self::Handler;

    /// Handles the deliveries in order, each atomically, and answers each once its outcome is durable (S2).
    ///
    /// For each: the dedup row is written first, then the handler runs in the same transaction, then the
    /// response is stored by a guarded update that must touch exactly one row (S3). A failure, panic or swallowed
    /// SQL error rolls everything of that delivery back (S4) and holds later ones of its key (L4, [`KeyGate`]).
    /// After `budget`, what has not been reached is answered [`Answer::NotReached`] (W7). Responses that the answer to
    /// so many deliveries has no room for are left out ([`ResponseRoom`](crate::wire::ResponseRoom)).
    ///
    /// # Errors
    /// Only when nothing can be said about the deliveries; the caller answers none of them.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the work; the outcome is found by delivering again.
    fn process(
        &self,
        deliveries: Vec<Delivery<Self::Handler>>,
        budget: Duration,
    ) -> impl Future<Output = Result<Vec<Answer>>> + Send;

    /// The row of a message, if there is one.
    fn inbox_record(
        &self,
        consumer: &Consumer,
        source: &Source,
        id: &MessageId,
    ) -> impl Future<Output = Result<Option<InboxRecord>>> + Send;
}

/// Remembers which ordering keys of a batch are held because an earlier message failed (L4).
#[derive(Debug, Default)]
pub struct KeyGate(HashSet<(Source, OrderingKey)>);

impl KeyGate {
    /// Whether an earlier message of this one's key has failed.
    #[must_use]
    pub fn holds(&self, message: &Message) -> bool {
        !self.0.is_empty() && Self::key(message).is_some_and(|key| self.0.contains(&key))
    }

    /// Takes note of an answer: later messages of the key are held unless it went well.
    ///
    /// A message that can never work is dead; what its death means for the key is the sender's policy, and
    /// until the sender has decided, the key waits as well.
    pub fn note(&mut self, message: &Message, answer: &Answer) {
        if matches!(answer, Answer::Done(_) | Answer::Duplicate(_)) {
            return;
        }
        self.0.extend(Self::key(message));
    }

    fn key(message: &Message) -> Option<(Source, OrderingKey)> {
        message.ordering_key.clone().map(|key| (message.source.clone(), key))
    }
}
