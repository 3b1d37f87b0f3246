//! The inbox as a work queue. Every call is one transaction; leases are checked in it (S5).

mod claim;
mod dead;
mod enqueue;
mod handle;
mod keys;
mod record;
mod settle;

use std::time::Duration;

use twobox_core::meters::MESSAGES;
use twobox_core::ports::{
    Claim, Claimed, ContentHash, DeadWork, Death, Enqueued, Handled, Job, MessageKey, OwnerToken, Queue,
    QueueStore, Work, WorkFilter, WorkLease, WorkRecord, check_delay, check_lease,
};
use twobox_core::{Consumer, Error, ErrorKind, OrderingKey, Result, Source};

pub(crate) use self::dead::of_id as dead_of_id;
pub(crate) use self::enqueue::{mismatch, named, store_delivered};
pub(crate) use self::keys::Ended;
pub(crate) use self::settle::bury_by_hand;

use self::handle::HandleJob;
use self::settle::Settle;
use crate::writer::Class;
use crate::{Sqlite, SqliteHandler, SqliteTx};

impl QueueStore for Sqlite {
    fn store_name(&self) -> String {
        self.path().display().to_string()
    }

    async fn enqueue_work(&self, queue: &Queue, work: &Work) -> Result<Enqueued> {
        let message = &work.message;
        let (db, queue, mut put) = (self.clone(), queue.clone(), work.clone());
        // Here rather than in the writer, which everybody waits for.
        put.hash.get_or_insert_with(|| ContentHash::sha256(message.payload.sha256()));
        let enqueued = self.write(Class::Synced, move |tx| enqueue::enqueue(&db, tx, &queue, &put)).await?;
        tracing::info!(
            target: MESSAGES,
            store = self.store_name(),
            source = message.source.as_str(),
            endpoint = message.endpoint.as_str(),
            message_id = message.id.as_str(),
            outcome = ?enqueued,
            "queued"
        );
        Ok(enqueued)
    }

    async fn claim(&self, queue: &Queue, claim: &Claim) -> Result<Vec<Claimed>> {
        let (db, queue, claim) = (self.clone(), queue.clone(), claim.clone());
        // Lazy: a lease that a power cut forgets was held by a worker that is gone with it.
        self.write(Class::Lazy, move |tx| claim::claim(&db, tx, &queue, &claim)).await
    }

    async fn ack(&self, queue: &Queue, owner: OwnerToken, leases: &[WorkLease]) -> Result<u64> {
        self.settle_work(queue, owner, leases, Settle::Done).await
    }

    async fn abandon(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        error: Option<&str>,
        delay: Option<Duration>,
    ) -> Result<u64> {
        check_delay(delay)?;
        self.settle_work(queue, owner, leases, Settle::Failed { error: error.map(Into::into), delay }).await
    }

    async fn give_back(&self, queue: &Queue, owner: OwnerToken, leases: &[WorkLease]) -> Result<u64> {
        self.settle_work(queue, owner, leases, Settle::Untried).await
    }

    async fn fail(&self, queue: &Queue, owner: OwnerToken, leases: &[WorkLease], error: &str) -> Result<u64> {
        self.settle_work(queue, owner, leases, Settle::Rejected { error: error.into() }).await
    }

    async fn renew(
        &self,
        _: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        lease: Duration,
    ) -> Result<Vec<WorkLease>> {
        check_lease(lease)?;
        let (db, leases) = (self.clone(), leases.to_vec());
        self.write(Class::Ephemeral, move |tx| settle::renew(&db, tx, owner, &leases, lease)).await
    }

    async fn reap(&self, queue: &Queue, limit: usize) -> Result<u64> {
        let (db, queue) = (self.clone(), queue.clone());
        self.write(Class::Lazy, move |tx| settle::reap(&db, tx, &queue, limit)).await
    }

    async fn work(&self, consumer: &Consumer, key: &MessageKey) -> Result<Option<WorkRecord>> {
        let (consumer, key) = (consumer.clone(), key.clone());
        self.read(move |connection, sql| record::read(connection, sql, &consumer, &key)).await
    }

    async fn handle(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        jobs: Vec<Job<SqliteHandler>>,
    ) -> Result<Vec<Handled>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (job, receiver) = HandleJob::new(self, queue, owner, jobs);
        self.submit(job).await?;
        let (handled, _) =
            receiver.await.map_err(|_| Error::new(ErrorKind::Stopped, "the database is closed"))?;
        handled
    }

    async fn work_changed(&self, seen: u64) -> u64 {
        let mut work = self.state.work.subscribe();
        // The sender lives in this store, so it cannot have gone.
        work.wait_for(|version| *version > seen).await.map_or(seen, |version| *version)
    }

    async fn next_work(&self, consumer: &Consumer) -> Result<Option<Duration>> {
        let (consumer, now) = (consumer.clone(), self.options.clock.now());
        self.read(move |connection, sql| record::next(connection, sql, &consumer, now)).await
    }

    async fn dead_work(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        after: Option<&DeadWork>,
        limit: usize,
    ) -> Result<Vec<DeadWork>> {
        let (consumer, filter) = (consumer.clone(), filter.clone());
        let after = after.map_or((i64::MIN, 0), |letter| (letter.died.as_micros(), letter.place));
        self.read(move |connection, sql| dead::list(connection, sql, &consumer, &filter, after, limit)).await
    }

    async fn replay_work_deaths(&self, queue: &Queue, deaths: Vec<Death<i64>>) -> Result<u64> {
        if deaths.is_empty() {
            return Ok(0);
        }
        let (db, queue) = (self.clone(), queue.clone());
        self.write(Class::Synced, move |tx| dead::replay(&db, tx, &queue, &deaths)).await
    }

    async fn purge_work_deaths(&self, queue: &Queue, deaths: Vec<Death<i64>>) -> Result<u64> {
        if deaths.is_empty() {
            return Ok(0);
        }
        let (db, queue) = (self.clone(), queue.clone());
        self.write(Class::Synced, move |tx| dead::purge(&db, tx, &queue, &deaths)).await
    }

    async fn release_work_key(&self, queue: &Queue, source: &Source, key: &OrderingKey) -> Result<bool> {
        let (db, queue, source, key) = (self.clone(), queue.clone(), source.clone(), key.clone());
        self.write(Class::Synced, move |tx| dead::release_key(&db, tx, &queue, &source, &key)).await
    }
}

impl Sqlite {
    /// Queues a message within the caller's transaction: it is handled exactly if the caller's own rows are there. For
    /// work of a service's own that is to be done later, once (ADR-05).
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the transaction is on another file; otherwise the statement's error.
    pub fn enqueue_work_in(&self, tx: &mut SqliteTx<'_>, queue: &Queue, work: &Work) -> Result<Enqueued> {
        self.check_tx(tx)?;
        enqueue::enqueue(self, tx, queue, work)
    }

    async fn settle_work(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        settle: Settle,
    ) -> Result<u64> {
        if leases.is_empty() {
            return Ok(0);
        }
        let (db, queue, leases) = (self.clone(), queue.clone(), leases.to_vec());
        self.write(Class::Synced, move |tx| {
            let now = db.options.clock.now();
            leases.iter().try_fold(0, |settled, lease| {
                let is_settled = settle::settle(&db, tx, &queue, (owner, lease), &settle, now)?;
                Ok(settled + u64::from(is_settled))
            })
        })
        .await
    }
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
