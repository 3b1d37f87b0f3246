//! What the queue writes into the log, and what it never does (IBX-127). A binary of its own: there is one log per
//! process, and the writer has a thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use twobox_core::ports::{
    Claim, Claimed, DedupStore, Handled, HeadPolicy, Job, MessageKey, OwnerToken, Queue, QueueStore, Work,
};
use twobox_core::{Consumer, Endpoint, Message, NewMessage, Refusal, Source, Stamp};
use twobox_engine::worker::Handling;
use twobox_engine::{Shutdown, SystemTimer, Worker};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::{ManualClock, eventually};

const SECRET: &str = "4111-1111-1111-1111";
const LEASE: Duration = Duration::from_secs(30);

/// Keeps every event of every level as one line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Log {
    /// Whether there is a line of this level with all these words.
    fn has(&self, level: Level, words: &[&str]) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|(of, line)| *of == level && words.iter().all(|word| line.contains(word)))
    }
}

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
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
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
    let lines = log.0.lock().unwrap();
    assert!(lines.iter().all(|(_, line)| !line.contains("4111")), "{lines:?}");
}
