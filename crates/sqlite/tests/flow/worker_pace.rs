//! How often a worker asks its store for something: not all the time, whatever goes wrong or has to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use twobox_core::ports::{
    Answer, Claim, Claimed, DeadWork, Delivery, Enqueued, Handled, InboxRecord, InboxStatus, InboxStore, Job,
    MessageKey, OwnerToken, Queue, QueueStore, Replayed, Work, WorkFilter, WorkLease, WorkRecord,
};
use twobox_core::{
    Clock, Consumer, Error, ErrorKind, MessageId, OrderingKey, Refusal, Response, Result, Source,
};
use twobox_engine::worker::{Handling, WorkerOptions};
use twobox_engine::{Shutdown, Timer, Worker};
use twobox_sqlite::{Sqlite, SqliteHandler};

use crate::workers::{SECOND, Topics, consumer, effect, new, put, topic, until, world};
use crate::world::{Running, World};

/// A store that counts claims, and fails them when it is told to.
#[derive(Clone)]
struct Counted {
    db: Sqlite,
    claims: Arc<AtomicUsize>,
    failing: Arc<AtomicBool>,
}

impl Counted {
    fn new(world: &World) -> Self {
        Self { db: world.db.clone(), claims: Arc::default(), failing: Arc::default() }
    }

    fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }
}

/// Passes calls on to the database.
macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        async fn $name(&self, $($arg: $type),*) -> $result {
            self.db.$name($($arg),*).await
        }
    )*};
}

impl InboxStore for Counted {
    type Handler = SqliteHandler;
    fn refusing(refusal: Refusal) -> SqliteHandler {
        Sqlite::refusing(refusal)
    }
    fn answering(response: Response) -> SqliteHandler {
        Sqlite::answering(response)
    }
    pass_on! {
        process(deliveries: Vec<Delivery<SqliteHandler>>, budget: Duration) -> Result<Vec<Answer>>;
        inbox_record(consumer: &Consumer, source: &Source, id: &MessageId) -> Result<Option<InboxRecord>>;
    }
}

type Leases = [WorkLease];

impl QueueStore for Counted {
    fn store_name(&self) -> String {
        self.db.store_name()
    }
    async fn claim(&self, queue: &Queue, claim: &Claim) -> Result<Vec<Claimed>> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        if self.failing.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "stumbled"));
        }
        self.db.claim(queue, claim).await
    }
    pass_on! {
        enqueue_work(queue: &Queue, work: &Work) -> Result<Enqueued>;
        ack(queue: &Queue, owner: OwnerToken, leases: &Leases) -> Result<u64>;
        abandon(queue: &Queue, owner: OwnerToken, leases: &Leases, error: Option<&str>, delay: Option<Duration>)
            -> Result<u64>;
        give_back(queue: &Queue, owner: OwnerToken, leases: &Leases) -> Result<u64>;
        fail(queue: &Queue, owner: OwnerToken, leases: &Leases, error: &str) -> Result<u64>;
        renew(queue: &Queue, owner: OwnerToken, leases: &Leases, lease: Duration) -> Result<Vec<WorkLease>>;
        reap(queue: &Queue, limit: usize) -> Result<u64>;
        work(consumer: &Consumer, key: &MessageKey) -> Result<Option<WorkRecord>>;
        handle(queue: &Queue, owner: OwnerToken, jobs: Vec<Job<SqliteHandler>>) -> Result<Vec<Handled>>;
        work_changed(seen: u64) -> u64;
        next_work(consumer: &Consumer) -> Result<Option<Duration>>;
        dead_work(consumer: &Consumer, filter: &WorkFilter, after: Option<&DeadWork>, limit: usize)
            -> Result<Vec<DeadWork>>;
        replay_work(queue: &Queue, filter: &WorkFilter, limit: usize) -> Result<Replayed>;
        purge_work(queue: &Queue, filter: &WorkFilter, limit: usize) -> Result<Replayed>;
        release_work_key(queue: &Queue, source: &Source, key: &OrderingKey) -> Result<bool>;
    }
}

fn run(
    world: &World,
    store: &Counted,
    timer: Arc<dyn Timer>,
    topics: Topics,
    options: WorkerOptions,
) -> Running {
    let queue = Queue::new(consumer());
    let mut worker = Worker::builder(store.clone(), queue, timer, &*world.random).options(options);
    for (name, handling) in topics {
        worker = worker.topic(topic(name), handling).unwrap();
    }
    let (handle, shutdown) = Shutdown::new();
    Running { handle, task: tokio::spawn(worker.build().unwrap().run(shutdown)) }
}

/// IBX-124: what waits can be seen but not claimed, and each message that comes wakes the worker.
#[tokio::test(start_paused = true)]
async fn ibx_124_a_store_whose_claims_fail_is_asked_a_few_times_a_second() {
    let world = world().await;
    let store = Counted::new(&world);
    store.failing.store(true, Ordering::SeqCst);
    put(&world, &new(&world, "first")).await;
    let topics = vec![("Pay", Handling::Transactional(effect()))];
    let timer = Arc::clone(&world.clock) as _;
    let running = run(&world, &store, timer, topics, WorkerOptions::default());
    world.pass(SECOND).await;
    let before = store.claims();
    for n in 0..100 {
        put(&world, &new(&world, &format!("m{n}"))).await;
        world.pass(Duration::from_millis(20)).await;
    }
    world.pass(8 * SECOND).await;
    let claims = store.claims() - before;
    assert!((10..=110).contains(&claims), "{claims} claims in ten seconds");
    store.failing.store(false, Ordering::SeqCst);
    let mended = world.clock.monotonic();
    until(&world, "m99", InboxStatus::Done).await;
    let took = world.clock.monotonic() - mended;
    assert!(took < SECOND, "work goes on at once: {took:?}");
    running.stop().await;
}
