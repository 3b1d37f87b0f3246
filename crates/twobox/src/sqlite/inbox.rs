//! A service's inbox, for callers that do not leave everything to handlers.

use std::time::Duration;

use twobox_core::id::IdMint;
use twobox_core::ports::{
    Claim, Claimed, ContentHash, DeadWork, Death, DedupStore as _, Enqueued, MessageKey, Noticed, OwnerToken,
    Purged, Queue, QueueStore as _, Replayed, Unfinished, Work, WorkFilter, WorkLease, WorkRecord,
};

use super::Signal;
use crate::replay::InboxLetters;
use crate::{
    ContentType, Destination, Endpoint, Error, Headers, Message, MessageId, MessageType, OrderingKey,
    Payload, Response, Result, Source, Sqlite, SqliteTx, Timestamp,
};

/// The inbox of a service: what it knows about messages, and its queue. Cheap to clone.
///
/// Everything is keyed by source and id, under the service's name as consumer.
#[derive(Clone, Debug)]
pub struct Inbox {
    db: Sqlite,
    source: Source,
    queue: Queue,
    payload_bytes_max: usize,
}

/// A message to be queued, as its author has it.
#[derive(Clone, Debug)]
#[must_use = "work does nothing until it is enqueued"]
pub struct NewWork {
    topic: Endpoint,
    key: MessageKey,
    payload: Payload,
    content_type: ContentType,
    hash: Option<ContentHash>,
    due: Option<Timestamp>,
    expires: Option<Timestamp>,
    ordering_key: Option<OrderingKey>,
    headers: Headers,
}

impl NewWork {
    /// A message from outside: topic, source, id and content. The content may be empty.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if a name is empty, longer than 255 characters or has control characters.
    pub fn new(topic: &str, source: &str, id: &str, payload: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Self {
            topic: Endpoint::new(topic)?,
            key: MessageKey::new(source, id)?,
            payload: Payload::new(payload.into()),
            content_type: ContentType::JSON,
            hash: None,
            due: None,
            expires: None,
            ordering_key: None,
            headers: Headers::default(),
        })
    }

    /// Media type of the content. Default: JSON.
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Hash of the content. Default: SHA-256, computed.
    pub fn hash(mut self, hash: ContentHash) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Not before this time; one that has passed means at once.
    pub fn due(mut self, due: Timestamp) -> Self {
        self.due = Some(due);
        self
    }

    /// Not after this time: then it is a dead letter. Default: never.
    pub fn expires(mut self, expires: Timestamp) -> Self {
        self.expires = Some(expires);
        self
    }

    /// Messages with the same key and source are handled one after another, in order.
    pub fn ordering_key(mut self, key: OrderingKey) -> Self {
        self.ordering_key = Some(key);
        self
    }

    /// Headers for the handler.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }
}

impl Inbox {
    pub(super) fn new(db: Sqlite, source: Source, queue: Queue, payload_bytes_max: usize) -> Self {
        Self { db, source, queue, payload_bytes_max }
    }

    /// The name under which messages are deduplicated.
    #[must_use]
    pub fn consumer(&self) -> &crate::Consumer {
        &self.queue.consumer
    }

    /// Whether a message has been processed; if it is not known, it is noted as seen.
    ///
    /// # Errors
    /// The database's.
    pub async fn already_processed(&self, key: &MessageKey, hash: Option<&ContentHash>) -> Result<Noticed> {
        self.db.already_processed(&self.queue.consumer, key, hash).await
    }

    /// Notes that a message is being processed. `false` if it is done, dead or not known.
    ///
    /// # Errors
    /// The database's.
    pub async fn mark_processing(&self, key: &MessageKey) -> Result<bool> {
        self.db.mark_processing(&self.queue.consumer, key).await
    }

    /// Notes that a message is done, which is final. `false` if it was, or is not known.
    ///
    /// # Errors
    /// The database's.
    pub async fn mark_processed(&self, key: &MessageKey) -> Result<bool> {
        self.db.mark_processed(&self.queue.consumer, key, &Response::empty()).await
    }

    /// Notes that a message can never be processed. `false` if it is done, was dead, or is not known.
    ///
    /// # Errors
    /// The database's.
    pub async fn mark_dead(&self, key: &MessageKey, error: &str) -> Result<bool> {
        self.db.mark_dead(&self.queue.consumer, key, error).await
    }

    /// Queues a message, durable when this returns. One that is done stays done; one that waits gets the new content;
    /// one that a worker has right now is left alone.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the payload exceeds its limit; otherwise the database's.
    pub async fn enqueue(&self, new: &NewWork) -> Result<Enqueued> {
        self.db.enqueue_work(&self.queue, &self.work_of(new)?).await
    }

    /// Queues a message within a transaction: it is handled exactly if the transaction commits.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue), and if the transaction is on another file.
    pub fn enqueue_in(&self, tx: &mut SqliteTx<'_>, new: &NewWork) -> Result<Enqueued> {
        self.db.enqueue_work_in(tx, &self.queue, &self.work_of(new)?)
    }

    /// Schedules a command of the service to itself: handled once, not before `due`, exactly if the transaction
    /// commits (ADR-05).
    ///
    /// # Errors
    /// As [`enqueue_in`](Self::enqueue_in).
    pub fn schedule(
        &self,
        tx: &mut SqliteTx<'_>,
        command: &impl Signal,
        due: Timestamp,
    ) -> Result<MessageId> {
        let new = command.to(self.source.as_str())?;
        let id = IdMint::new(self.db.clock(), self.db.random()).mint();
        let work =
            NewWork::new(new.endpoint.as_str(), self.source.as_str(), id.as_str(), new.payload.as_bytes())?;
        self.enqueue_in(tx, &work.due(due))?;
        Ok(id)
    }

    fn work_of(&self, new: &NewWork) -> Result<Work> {
        if new.payload.len() > self.payload_bytes_max {
            return Err(Error::invalid(format!(
                "a payload of {} bytes exceeds payload_bytes_max ({}): store it elsewhere and queue a reference",
                new.payload.len(),
                self.payload_bytes_max
            )));
        }
        let created = self.db.clock().now();
        let message = Message {
            id: new.key.id.clone(),
            source: new.key.source.clone(),
            destination: Destination::from(&self.source),
            endpoint: new.topic.clone(),
            message_type: MessageType::Signal,
            payload: new.payload.clone(),
            content_type: new.content_type.clone(),
            correlation_id: None,
            ordering_key: new.ordering_key.clone(),
            headers: new.headers.clone(),
            created,
            available: new.due.map_or(created, |due| due.max(created)),
            expires: new.expires.unwrap_or(Timestamp::MAX),
            replay: 0,
        };
        Ok(Work { message, hash: new.hash.clone() })
    }

    /// Leases up to `limit` messages that are due, for workers of your own.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if lease or limit is zero or too large; otherwise the database's.
    pub async fn claim(&self, owner: OwnerToken, lease: Duration, limit: usize) -> Result<Vec<Claimed>> {
        self.db.claim(&self.queue, &Claim::new(owner, lease, limit)?).await
    }

    /// Marks claimed messages as done; leases that are not current are passed over. Returns how many were.
    ///
    /// # Errors
    /// The database's.
    pub async fn ack(&self, owner: OwnerToken, leases: &[WorkLease]) -> Result<u64> {
        self.db.ack(&self.queue, owner, leases).await
    }

    /// Gives claimed messages back after a failed attempt: after `delay`, or after the back-off. Returns how many were.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the delay is zero; otherwise the database's.
    pub async fn abandon(
        &self,
        owner: OwnerToken,
        leases: &[WorkLease],
        error: Option<&str>,
        delay: Option<Duration>,
    ) -> Result<u64> {
        self.db.abandon(&self.queue, owner, leases, error, delay).await
    }

    /// Makes claimed messages dead letters. Returns how many were.
    ///
    /// # Errors
    /// The database's.
    pub async fn fail(&self, owner: OwnerToken, leases: &[WorkLease], error: &str) -> Result<u64> {
        self.db.fail(&self.queue, owner, leases, error).await
    }

    /// Prolongs leases; returns those that are still held.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the lease is zero or too long; otherwise the database's.
    pub async fn renew(
        &self,
        owner: OwnerToken,
        leases: &[WorkLease],
        lease: Duration,
    ) -> Result<Vec<WorkLease>> {
        self.db.renew(&self.queue, owner, leases, lease).await
    }

    /// Takes back up to `limit` leases that are over. Returns how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn reap(&self, limit: usize) -> Result<u64> {
        self.db.reap(&self.queue, limit).await
    }

    /// What is known about a message.
    ///
    /// # Errors
    /// The database's.
    pub async fn get(&self, key: &MessageKey) -> Result<Option<WorkRecord>> {
        self.db.work(&self.queue.consumer, key).await
    }

    /// Dead letters that match, oldest first, after `after`, at most `limit`.
    ///
    /// # Errors
    /// The database's.
    pub async fn dead_letters(
        &self,
        filter: &WorkFilter,
        after: Option<&DeadWork>,
        limit: usize,
    ) -> Result<Vec<DeadWork>> {
        self.db.dead_work(&self.queue.consumer, filter, after, limit).await
    }

    /// How many dead letters match; `limit` means that many or more. What a replay or purge would come to.
    ///
    /// # Errors
    /// The database's.
    pub async fn dead_letter_count(&self, filter: &WorkFilter, limit: usize) -> Result<u64> {
        self.db.dead_work_count(&self.queue.consumer, filter, limit).await
    }

    /// All dead letters that match, to be run again in batches at a pace by [`Bulk`](crate::replay::Bulk).
    #[must_use]
    pub fn replay_all(&self, filter: WorkFilter) -> InboxLetters<Sqlite> {
        InboxLetters::replay(self.db.clone(), self.queue.clone(), filter)
    }

    /// All dead letters that match, to be removed in batches at a pace.
    #[must_use]
    pub fn purge_all(&self, filter: WorkFilter) -> InboxLetters<Sqlite> {
        InboxLetters::purge(self.db.clone(), self.queue.clone(), filter)
    }

    /// Runs these deaths again, each its place and when it died; one that is over is passed over. Returns how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn replay_deaths(&self, deaths: Vec<Death<i64>>) -> Result<u64> {
        self.db.replay_work_deaths(&self.queue, deaths).await
    }

    /// Removes these deaths for good, each its place and when it died; one that is over is passed over. Returns how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn purge_deaths(&self, deaths: Vec<Death<i64>>) -> Result<u64> {
        self.db.purge_work_deaths(&self.queue, deaths).await
    }

    /// Runs up to `limit` matching dead letters again.
    ///
    /// # Errors
    /// The database's.
    pub async fn replay(&self, filter: &WorkFilter, limit: usize) -> Result<Replayed> {
        self.db.replay_work(&self.queue, filter, limit).await
    }

    /// Removes up to `limit` matching dead letters for good. A duplicate that arrives later is still recognised.
    ///
    /// # Errors
    /// The database's.
    pub async fn purge(&self, filter: &WorkFilter, limit: usize) -> Result<Purged> {
        self.db.purge_work(&self.queue, filter, limit).await
    }

    /// Lets a blocked ordering key step over its dead messages. Returns whether it was blocked.
    ///
    /// # Errors
    /// The database's.
    pub async fn release_key(&self, source: &Source, key: &OrderingKey) -> Result<bool> {
        self.db.release_work_key(&self.queue, source, key).await
    }

    /// Messages that were noticed or claimed first at least this long ago and that nobody has finished.
    ///
    /// # Errors
    /// The database's.
    pub async fn unfinished(&self, older_than: Duration, limit: usize) -> Result<Vec<Unfinished>> {
        self.db.unfinished(&self.queue.consumer, older_than, limit).await
    }

    /// Forgets those, so that they are processed when they come again. Returns how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn release_unfinished(&self, older_than: Duration, limit: usize) -> Result<u64> {
        self.db.release_unfinished(&self.queue.consumer, older_than, limit).await
    }
}
