//! How often a worker asks its store for something: not all the time, whatever goes wrong or has to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use twobox_core::ports::{
    Answer, Claim, Claimed, DeadWork, Death, Delivery, Enqueued, Handled, InboxRecord, InboxStatus,
    InboxStore, Job, MessageKey, OwnerToken, Queue, QueueStore, Work, WorkFilter, WorkLease, WorkRecord,
};
use twobox_core::{
    Clock, Consumer, Error, ErrorKind, MessageId, OrderingKey, Refusal, Response, Result, Source,
};
use twobox_engine::worker::{Handling, WorkContext, WorkerOptions};
use twobox_engine::{Shutdown, Timer, Worker};
use twobox_sqlite::{Sqlite, SqliteHandler};

use crate::workers::{SECOND, Topics, consumer, effect, external, new, put, record, topic, until, world};
use crate::world::{Counting, Running, World};

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
        replay_work_deaths(queue: &Queue, deaths: Vec<Death<i64>>) -> Result<u64>;
        purge_work_deaths(queue: &Queue, deaths: Vec<Death<i64>>) -> Result<u64>;
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
    let running = run(&world, &store, Arc::clone(&world.clock) as _, topics, WorkerOptions::default());
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

/// IBX-124: there is room for something, but what is in hand has not begun.
#[tokio::test(start_paused = true)]
async fn ibx_124_a_worker_that_has_its_hands_full_does_not_spin() {
    let world = world().await;
    for n in 0..5 {
        put(&world, &new(&world, &format!("m{n}"))).await;
    }
    let (store, timer) = (Counted::new(&world), Counting::new(&world));
    let stuck = external(|_| std::future::pending());
    let options = WorkerOptions { batch: 2, in_hand_max: 3, concurrency: 1, ..WorkerOptions::default() };
    let running = run(&world, &store, Arc::clone(&timer) as _, vec![("Pay", stuck)], options);
    world.pass(10 * SECOND).await;
    let before = timer.looks();
    world.pass(100 * SECOND).await;
    let looks = timer.looks() - before;
    assert!(looks < 1_000, "{looks} looks at the clock in 100 s of waiting");
    assert!(store.claims() <= 3, "{} claims", store.claims());
    running.stop().await;
}

/// IBX-079: there is never room for a whole batch while one handler takes its time.
#[tokio::test(start_paused = true)]
async fn ibx_079_a_slow_handler_keeps_nobody_from_being_claimed() {
    let world = world().await;
    for id in ["slow", "m0", "m1", "m2", "m3"] {
        put(&world, &new(&world, id)).await;
    }
    let gate = Arc::new(Semaphore::new(0));
    let door = Arc::clone(&gate);
    let handler = external(move |context: WorkContext| {
        let (is_slow, door) = (context.message.id.as_str() == "slow", Arc::clone(&door));
        async move {
            if is_slow {
                door.acquire().await.unwrap().forget();
            }
            Ok(Response::empty())
        }
    });
    let options = WorkerOptions { batch: 2, in_hand_max: 2, concurrency: 2, ..WorkerOptions::default() };
    let topics = vec![("Pay", handler)];
    let running = run(&world, &Counted::new(&world), Arc::clone(&world.clock) as _, topics, options);
    world.pass(10 * SECOND).await;
    for n in 0..4 {
        let status = record(&world, &format!("m{n}")).await.unwrap().status;
        assert_eq!(status, InboxStatus::Done, "m{n}");
    }
    gate.add_permits(1);
    until(&world, "slow", InboxStatus::Done).await;
    running.stop().await;
}
