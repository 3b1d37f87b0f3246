//! What the queue writes into the log, and what it never does (IBX-127). A binary of its own: there is one log per
//! process, and the writer has a thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tracing::Level;
use twobox_core::ports::{
    Claim, Claimed, DedupStore, Handled, HeadPolicy, Job, MessageKey, OwnerToken, Queue, QueueStore, Work,
};
use twobox_core::{Consumer, Endpoint, Message, NewMessage, Refusal, Source, Stamp};
use twobox_engine::worker::Handling;
use twobox_engine::{Shutdown, SystemTimer, Worker};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::{Log, ManualClock, eventually};

const SECRET: &str = "4111-1111-1111-1111";
const LEASE: Duration = Duration::from_secs(30);

struct World {
    db: Sqlite,
    clock: Arc<ManualClock>,
    queue: Queue,
    owner: OwnerToken,
    stamp: Stamp,
}

impl World {
    async fn put(&self) -> Message {
        let new = NewMessage::json("billing", "Pay", &SECRET).unwrap();
        let message = self.stamp.message(&new).unwrap();
        let work = Work { message: message.clone(), hash: None };
        self.db.enqueue_work(&self.queue, &work).await.unwrap();
        message
    }

    async fn claim(&self) -> Vec<Claimed> {
        self.db.claim(&self.queue, &Claim::new(self.owner, LEASE, 10).unwrap()).await.unwrap()
    }

    async fn handle(&self, refusal: fn(&str) -> Refusal) -> Handled {
        let handler = SqliteHandler::new(move |_, _| Err(refusal("no such card")));
        let job = |Claimed { lease, message, .. }: Claimed| Job { lease, message, handler: handler.clone() };
        let jobs = self.claim().await.into_iter().map(job).collect();
        self.db.handle(&self.queue, self.owner, jobs).await.unwrap().remove(0)
    }
}

/// What a worker says about a message, and about which store.
async fn work_off(world: &World, log: &Log) {
    let sent = world.put().await;
    let never = SqliteHandler::new(|_, _| Err(Refusal::retry("no such card")));
    let timer = Arc::new(SystemTimer::default());
    let worker = Worker::builder(world.db.clone(), world.queue.clone(), timer, &*world.db.random())
        .topic(Endpoint::new("Pay").unwrap(), Handling::Transactional(never))
        .unwrap();
    let (_handle, shutdown) = Shutdown::new();
    let running = tokio::spawn(worker.build().unwrap().run(shutdown));
    let (id, store) = (sent.id.as_str(), world.db.store_name());
    let failed = ["a handler failed", "no such card", id, store.as_str()];
    let limit = Duration::from_secs(20);
    eventually("IBX-111", limit, async || log.has(Level::ERROR, &failed).then_some(())).await;
    assert!(log.has(Level::INFO, &["handling", "Pay", id, store.as_str()]), "IBX-110, IBX-113");
    assert!(log.has(Level::DEBUG, &["claimed", store.as_str()]), "IBX-113");
    running.abort();
}

#[tokio::test]
async fn ibx_107_ibx_108_ibx_109_ibx_110_ibx_111_ibx_112_ibx_113_ibx_127_what_is_logged_and_what_never_is() {
    let log = Log::install();
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let db = Sqlite::builder().clock(Arc::clone(&clock) as _).open(directory.path().join("boxes.db"));
    let db = db.await.unwrap();
    db.migrate().await.unwrap();
    let queue = Queue { head_policy: HeadPolicy::StepOver, ..Queue::new(Consumer::new("billing").unwrap()) };
    let stamp = Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random());
    let owner = OwnerToken::mint(&*db.random());
    let world = World { db, clock, queue, owner, stamp };

    let sent = world.put().await;
    let key = MessageKey { source: sent.source.clone(), id: sent.id.clone() };
    assert!(log.has(Level::INFO, &["queued", "Pay", "shop", sent.id.as_str()]), "IBX-108");
    world.db.already_processed(&world.queue.consumer, &key, None).await.unwrap();
    assert!(log.has(Level::DEBUG, &["known", sent.id.as_str(), "Processing"]), "IBX-107");
    let mut changed = sent.clone();
    changed.payload = twobox_core::Payload::new(format!("{SECRET} changed").into_bytes());
    world.db.enqueue_work(&world.queue, &Work { message: changed, hash: None }).await.unwrap();
    assert!(log.has(Level::WARN, &["another content", sent.id.as_str()]), "IBX-008");
    assert!(matches!(world.handle(|error| Refusal::retry(error)).await, Handled::Retried { .. }));
    assert!(log.has(Level::DEBUG, &["claimed", "messages=1"]), "IBX-109");
    world.clock.advance(LEASE);
    world.claim().await;
    world.clock.advance(LEASE * 2);
    world.db.reap(&world.queue, 10).await.unwrap();
    assert!(log.has(Level::INFO, &["took leases back", "messages=1"]), "IBX-112");
    world.clock.advance(LEASE * 2);
    assert!(matches!(world.handle(|error| Refusal::reject(error)).await, Handled::Died { .. }));
    assert!(log.has(Level::WARN, &["dead letter", "rejected"]));
    work_off(&world, &log).await;
    let lines = log.lines();
    assert!(lines.iter().all(|line| !line.contains("4111")), "{lines:?}");
}
