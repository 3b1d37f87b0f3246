//! A worker under test: a queue, an identity, and what it does with a store.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use tokio::runtime::Handle;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{
    Claim, Claimed, DeadWork, Enqueued, Handled, HeadPolicy, InboxStatus, Job, MessageKey, OwnerToken, Queue,
    QueueStore, Work, WorkFilter, WorkLease, WorkRecord,
};
use twobox_core::{Consumer, Message};

use super::fixture::{HandlerScript, StoreFixture, name};
use crate::SeededRandom;

/// How long workers under test claim for.
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// One of the workers of the consumer `billing`.
pub(super) struct Worker<'f, F> {
    fixture: &'f F,
    pub(super) queue: Queue,
    pub(super) owner: OwnerToken,
}

impl<'f, F: StoreFixture> Worker<'f, F> {
    /// A worker; those with another number have another identity.
    pub(super) fn new(fixture: &'f F, number: u64) -> Self {
        let queue = Queue::new(Consumer::new("billing").expect("legal"));
        Self { fixture, queue, owner: OwnerToken::mint(&SeededRandom::new(number)) }
    }

    /// The first worker of a queue with another policy for its keys.
    pub(super) fn under(fixture: &'f F, head_policy: HeadPolicy) -> Self {
        let worker = Self::new(fixture, 1);
        Self { queue: Queue { head_policy, ..worker.queue }, ..worker }
    }

    pub(super) fn store(&self) -> &F::Store {
        self.fixture.store()
    }

    pub(super) async fn put(&self, message: Message) -> Enqueued {
        let work = Work { message, hash: None };
        self.store().enqueue_work(&self.queue, &work).await.expect("queues")
    }

    pub(super) async fn put_all<const N: usize>(&self, messages: [Message; N]) {
        for message in messages {
            assert_eq!(self.put(message).await, Enqueued::New);
        }
    }

    /// Queues many messages at once.
    pub(super) async fn put_many(&self, messages: impl Iterator<Item = Message>) {
        let put = |message| {
            let (store, queue) = (self.store().clone(), self.queue.clone());
            let work = Work { message, hash: None };
            tokio::spawn(async move { store.enqueue_work(&queue, &work).await })
        };
        for put in messages.map(put).collect::<Vec<_>>() {
            assert_eq!(put.await.expect("runs").expect("queues"), Enqueued::New);
        }
    }

    pub(super) async fn claim(&self, limit: usize) -> Vec<Claimed> {
        let claim = Claim::new(self.owner, LEASE, limit).expect("legal");
        self.store().claim(&self.queue, &claim).await.expect("claims")
    }

    /// The ids of what a claim returns.
    pub(super) async fn claim_ids(&self, limit: usize) -> Vec<String> {
        ids(&self.claim(limit).await)
    }

    /// The one message that can be claimed.
    pub(super) async fn only(&self) -> Claimed {
        let mut claimed = self.claim(10).await;
        assert_eq!(claimed.len(), 1, "{:?}", ids(&claimed));
        claimed.remove(0)
    }

    pub(super) async fn ack(&self, claimed: &[Claimed]) -> u64 {
        self.store().ack(&self.queue, self.owner, &leases(claimed)).await.expect("settles")
    }

    /// Gives messages back as failed, after the usual back-off.
    pub(super) async fn abandon(&self, claimed: &[Claimed]) -> u64 {
        self.abandon_for(claimed, None).await
    }

    pub(super) async fn abandon_for(&self, claimed: &[Claimed], delay: Option<Duration>) -> u64 {
        let leases = leases(claimed);
        self.store().abandon(&self.queue, self.owner, &leases, Some("not now"), delay).await.expect("settles")
    }

    pub(super) async fn fail(&self, claimed: &[Claimed]) -> u64 {
        self.store().fail(&self.queue, self.owner, &leases(claimed), "never").await.expect("settles")
    }

    pub(super) async fn reap(&self) -> u64 {
        self.store().reap(&self.queue, 100).await.expect("reaps")
    }

    /// Handles what was claimed, as the script for each says.
    pub(super) async fn handle(
        &self,
        claimed: Vec<Claimed>,
        script: impl Fn(&Message) -> HandlerScript,
    ) -> Vec<Handled> {
        let job = |Claimed { lease, message, .. }: Claimed| {
            let handler = self.fixture.handler(script(&message));
            Job { lease, message, handler }
        };
        let jobs = claimed.into_iter().map(job).collect();
        self.store().handle(&self.queue, self.owner, jobs).await.expect("handles")
    }

    /// What is known about the message `id` from shop.
    pub(super) async fn record(&self, id: &str) -> WorkRecord {
        let found = self.store().work(&self.queue.consumer, &key(id)).await.expect("looks");
        found.unwrap_or_else(|| panic!("{id} is not known"))
    }

    pub(super) async fn status(&self, id: &str) -> InboxStatus {
        self.record(id).await.status
    }

    /// The dead letters, oldest first.
    pub(super) async fn dead(&self) -> Vec<DeadWork> {
        let all = WorkFilter::default();
        self.store().dead_work(&self.queue.consumer, &all, None, 100).await.expect("lists")
    }

    /// Ids and reasons of the dead letters.
    pub(super) async fn deaths(&self) -> Vec<(String, Reason)> {
        self.dead().await.into_iter().map(|letter| (letter.id, letter.reason)).collect()
    }
}

/// Does `count` things at the same time, each on a thread of its own, and returns what they return.
pub(super) async fn at_once<T, W>(count: usize, work: impl Fn(usize) -> W) -> Vec<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let on_a_thread = |n| {
        let (work, start, runtime) = (work(n), Arc::clone(&start), Handle::current());
        tokio::task::spawn_blocking(move || {
            start.wait();
            runtime.block_on(work)
        })
    };
    let threads: Vec<_> = (0..count).map(on_a_thread).collect();
    let mut results = Vec::new();
    for thread in threads {
        results.push(thread.await.expect("runs"));
    }
    results
}

pub(super) fn leases(claimed: &[Claimed]) -> Vec<WorkLease> {
    claimed.iter().map(|claimed| claimed.lease.clone()).collect()
}

pub(super) fn ids(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|claimed| claimed.message.id.to_string()).collect()
}

/// The key of a message from shop.
pub(super) fn key(id: &str) -> MessageKey {
    MessageKey { source: name("shop"), id: name(id) }
}

/// A filter for the message `id`.
pub(super) fn only_id(id: &str) -> WorkFilter {
    WorkFilter { id: Some(name(id)), ..WorkFilter::default() }
}
