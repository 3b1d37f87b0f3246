//! Workers: messages that are stored first and handled later.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use twobox_core::ports::{
    Answer, Claim, DedupStore, HeadPolicy, InboxStatus, MessageKey, OwnerToken, Queue, QueueStore, Work,
    WorkFilter, WorkRecord,
};
use twobox_core::{
    Clock, Consumer, Endpoint, Error, HandlerResult, Message, NewMessage, OrderingKey, Refusal, Response,
};
use twobox_engine::receiver::Route;
use twobox_engine::replay::{Bulk, InboxLetters, Progress};
use twobox_engine::worker::{Handling, WorkContext, WorkerOptions};
use twobox_engine::{Receiver, Shutdown, Sweeper, Timer, Worker};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::eventually;

use crate::world::{EVER, Running, World};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn consumer() -> Consumer {
    Consumer::new("billing").unwrap()
}

pub(crate) fn topic(name: &str) -> Endpoint {
    Endpoint::new(name).unwrap()
}

fn key(id: &str) -> MessageKey {
    MessageKey::new("shop", id).unwrap()
}

pub(crate) async fn world() -> World {
    let world = World::new().await;
    world.query("CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)", |_| Ok(())).await;
    world
}

pub(crate) fn new(world: &World, id: &str) -> NewMessage {
    world.message(id, "billing")
}

pub(crate) async fn put(world: &World, new: &NewMessage) {
    let work = Work { message: world.stamped(new), hash: None };
    world.db.enqueue_work(&Queue::new(consumer()), &work).await.unwrap();
}

async fn effects(world: &World) -> Vec<String> {
    world.query("SELECT id FROM effects ORDER BY n", |row| row.get(0)).await
}

pub(crate) async fn record(world: &World, id: &str) -> Option<WorkRecord> {
    world.db.work(&consumer(), &key(id)).await.unwrap()
}

pub(crate) async fn until(world: &World, id: &str, status: InboxStatus) {
    let what = format!("{id} becomes {status:?}");
    eventually(&what, EVER, async || record(world, id).await.filter(|record| record.status == status)).await;
}

/// Writes the message's id.
pub(crate) fn effect() -> SqliteHandler {
    SqliteHandler::new(|tx, message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        Ok(Response::empty())
    })
}

pub(crate) type Topics = Vec<(&'static str, Handling<SqliteHandler>)>;

fn worker(world: &World, topics: Topics, options: WorkerOptions) -> Running {
    worker_of(world, Queue::new(consumer()), topics, options)
}

fn worker_of(world: &World, queue: Queue, topics: Topics, options: WorkerOptions) -> Running {
    let mut worker = Worker::builder(world.db.clone(), queue, Arc::clone(&world.clock) as _, &*world.random)
        .options(options);
    for (name, handling) in topics {
        worker = worker.topic(topic(name), handling).unwrap();
    }
    let (handle, shutdown) = Shutdown::new();
    Running { handle, task: tokio::spawn(worker.build().unwrap().run(shutdown)) }
}

pub(crate) fn external<F>(
    handle: impl Fn(WorkContext) -> F + Send + Sync + 'static,
) -> Handling<SqliteHandler>
where
    F: Future<Output = HandlerResult<Response>> + Send + 'static,
{
    Handling::External(Arc::new(move |context| Box::pin(handle(context))))
}

/// IBX-073, IBX-076: each topic has its handler, and the handler gets the whole message.
#[tokio::test(start_paused = true)]
async fn ibx_073_ibx_076_messages_go_to_the_handler_of_their_topic() {
    let world = world().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let refund = external(move |context: WorkContext| {
        told.lock().unwrap().push((context.idempotency_key().to_string(), context.message.payload.clone()));
        async { Ok(Response::empty()) }
    });
    put(&world, &new(&world, "a")).await;
    let other = NewMessage { endpoint: topic("Refund"), ..new(&world, "b") };
    put(&world, &other).await;
    let topics = vec![("Pay", Handling::Transactional(effect())), ("Refund", refund)];
    let running = worker(&world, topics, WorkerOptions::default());
    until(&world, "a", InboxStatus::Done).await;
    until(&world, "b", InboxStatus::Done).await;
    assert_eq!(effects(&world).await, ["a"]);
    assert_eq!(*seen.lock().unwrap(), [("b".to_owned(), other.payload.clone())]);
    running.stop().await;
}

/// IBX-074: without a handler the message is given back with a reason, and handled once there is one.
#[tokio::test(start_paused = true)]
async fn ibx_074_an_unknown_topic_is_abandoned_and_handled_later() {
    let world = world().await;
    put(&world, &new(&world, "a")).await;
    let running = worker(&world, Vec::new(), WorkerOptions::default());
    eventually("it is abandoned", EVER, async || record(&world, "a").await.filter(|a| a.attempts >= 2)).await;
    let abandoned = record(&world, "a").await.unwrap();
    assert_eq!(abandoned.status, InboxStatus::Processing);
    assert_eq!(abandoned.last_error.as_deref(), Some("no handler for topic Pay"));
    running.stop().await;
    let topics = vec![("Pay", Handling::Transactional(effect()))];
    let running = worker(&world, topics, WorkerOptions::default());
    until(&world, "a", InboxStatus::Done).await;
    running.stop().await;
}

/// IBX-075, IBX-080, IBX-083, ADR-07, S6: errors and panics of both kinds of handlers are tried again after
/// `min(2^n s, 60 s)`, and the message is a dead letter after the last attempt; others go on.
#[tokio::test(start_paused = true)]
async fn ibx_075_ibx_080_ibx_083_adr_07_failures_back_off_and_die_at_last() {
    let world = world().await;
    let times = Arc::new(Mutex::new(Vec::new()));
    let (told, clock) = (Arc::clone(&times), Arc::clone(&world.clock));
    let bad = external(move |_| {
        told.lock().unwrap().push(clock.monotonic().as_secs());
        async { panic!("a handler's own mistake") }
    });
    let panicking = SqliteHandler::new(|tx, message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        panic!("a handler's own mistake")
    });
    put(&world, &NewMessage { endpoint: topic("Bad"), ..new(&world, "bad") }).await;
    put(&world, &NewMessage { endpoint: topic("Panic"), ..new(&world, "panic") }).await;
    put(&world, &new(&world, "good")).await;
    let topics = vec![
        ("Bad", bad),
        ("Panic", Handling::Transactional(panicking)),
        ("Pay", Handling::Transactional(effect())),
    ];
    let running = worker(&world, topics, WorkerOptions::default());
    until(&world, "good", InboxStatus::Done).await;
    until(&world, "bad", InboxStatus::Dead).await;
    until(&world, "panic", InboxStatus::Dead).await;
    assert_eq!(effects(&world).await, ["good"], "what a failed attempt wrote is undone");
    let times = times.lock().unwrap().clone();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [2, 4, 8, 16, 32, 60, 60, 60, 60], "{times:?}");
    let dead = world.db.dead_work(&consumer(), &WorkFilter::default(), None, 10).await.unwrap();
    assert_eq!(dead.iter().map(|letter| letter.attempts).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(dead[0].error.as_deref(), Some("the handler panicked"));
    running.stop().await;
}

/// IBX-082: a policy of the user's own, and a rejection that is final at once.
#[tokio::test(start_paused = true)]
async fn ibx_082_the_policy_is_the_users_and_a_rejection_is_final() {
    let world = world().await;
    let mut queue = Queue::new(consumer());
    queue.retry = queue.retry.attempts_max(2.try_into().unwrap()).base(Duration::from_millis(10));
    put(&world, &new(&world, "twice")).await;
    put(&world, &NewMessage { endpoint: topic("Never"), ..new(&world, "never") }).await;
    let fails = SqliteHandler::new(|_, _| Err(Refusal::retry("not now")));
    let never = SqliteHandler::new(|_, _| Err(Refusal::reject("never")));
    let topics = vec![("Pay", Handling::Transactional(fails)), ("Never", Handling::Transactional(never))];
    let running = worker_of(&world, queue, topics, WorkerOptions::default());
    until(&world, "twice", InboxStatus::Dead).await;
    until(&world, "never", InboxStatus::Dead).await;
    let attempts = |record: Option<WorkRecord>| record.unwrap().attempts;
    assert_eq!(attempts(record(&world, "twice").await), 2);
    assert_eq!(attempts(record(&world, "never").await), 1);
    running.stop().await;
}

/// IBX-078, IBX-079: handlers of different messages run side by side, up to the limit; of one message there is never
/// more than one, although its lease was lost and claimed again.
#[tokio::test(start_paused = true)]
async fn ibx_078_ibx_079_many_messages_at_once_but_each_only_once() {
    let world = world().await;
    for n in 0..6 {
        put(&world, &new(&world, &format!("m{n}"))).await;
    }
    let (running_now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let (count, peak, door) = (Arc::clone(&running_now), Arc::clone(&most), Arc::clone(&gate));
    let slow = external(move |_| {
        let (count, peak, door) = (Arc::clone(&count), Arc::clone(&peak), Arc::clone(&door));
        async move {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            door.acquire().await.unwrap().forget();
            count.fetch_sub(1, Ordering::SeqCst);
            Ok(Response::empty())
        }
    });
    let options = WorkerOptions { concurrency: 4, ..WorkerOptions::default() };
    let running = worker(&world, vec![("Pay", slow)], options);
    eventually("four run", EVER, async || (running_now.load(Ordering::SeqCst) == 4).then_some(())).await;
    // Somebody takes their leases away; this worker claims them again while the handlers still run.
    world
        .query("UPDATE inbox_queue SET lease_owner = NULL, lease_until = NULL, ready_at = 0", |_| Ok(()))
        .await;
    world.pass(60 * SECOND).await;
    assert_eq!(most.load(Ordering::SeqCst), 4, "no message has two handlers, no more than four run");
    gate.add_permits(100);
    for n in 0..6 {
        until(&world, &format!("m{n}"), InboxStatus::Done).await;
    }
    running.stop().await;
}

/// IBX-072: what a killed worker had claimed is handled by another one when the lease is over, and the crash has counted as an attempt (S6).
#[tokio::test(start_paused = true)]
async fn ibx_072_s6_the_leases_of_a_dead_worker_are_taken_back() {
    let world = world().await;
    put(&world, &new(&world, "a")).await;
    let stuck = external(|_| std::future::pending());
    let first = worker(&world, vec![("Pay", stuck)], WorkerOptions::default());
    eventually("it is leased", EVER, async || record(&world, "a").await?.lease).await;
    first.kill();
    let topics = vec![("Pay", Handling::Transactional(effect()))];
    let second = worker(&world, topics, WorkerOptions::default());
    until(&world, "a", InboxStatus::Done).await;
    assert_eq!(effects(&world).await, ["a"]);
    assert!(world.clock.monotonic() >= Duration::from_secs(30), "not before the lease was over");
    second.stop().await;
}

/// A handler that takes longer than its lease keeps it, because it is renewed.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_a_handler_runs() {
    let world = world().await;
    put(&world, &new(&world, "slow")).await;
    let clock = Arc::clone(&world.clock);
    let slow = external(move |_| {
        let pause = Timer::sleep(&*clock, 200 * SECOND);
        async {
            pause.await;
            Ok(Response::empty())
        }
    });
    let one = worker(&world, vec![("Pay", slow)], WorkerOptions::default());
    eventually("it is leased", EVER, async || record(&world, "slow").await?.lease).await;
    let two = worker(&world, vec![("Pay", Handling::Transactional(effect()))], WorkerOptions::default());
    until(&world, "slow", InboxStatus::Done).await;
    assert!(effects(&world).await.is_empty(), "the other one never got it");
    assert_eq!(record(&world, "slow").await.unwrap().attempts, 0);
    one.stop().await;
    two.stop().await;
}

/// S5: a handler is told when its lease is lost, and what it returns does not count.
#[tokio::test(start_paused = true)]
async fn s5_a_handler_is_told_that_its_lease_is_lost_and_its_result_does_not_count() {
    let world = world().await;
    put(&world, &new(&world, "a")).await;
    let told = Arc::new(Semaphore::new(0));
    let tells = Arc::clone(&told);
    let waits = external(move |mut context: WorkContext| {
        let tells = Arc::clone(&tells);
        async move {
            context.lost().await;
            assert!(context.is_lost());
            tells.add_permits(1);
            Ok(Response::json(&"too late")?)
        }
    });
    let running = worker(&world, vec![("Pay", waits)], WorkerOptions::default());
    eventually("it is leased", EVER, async || record(&world, "a").await?.lease).await;
    // An operator says that it is done.
    assert!(world.db.mark_processed(&consumer(), &key("a"), &Response::empty()).await.unwrap());
    told.acquire().await.unwrap().forget();
    world.pass(60 * SECOND).await;
    let stored = world.db.inbox_record_of("a").await;
    assert_eq!(stored, Some(Response::empty()), "the late result was not stored");
    running.stop().await;
}

/// IBX-124: an idle worker looks less and less often, and is woken by what is queued.
#[tokio::test(start_paused = true)]
async fn ibx_124_idle_workers_rest_and_are_woken() {
    let world = world().await;
    let topics = vec![("Pay", Handling::Transactional(effect()))];
    let options = WorkerOptions { poll_max: 3600 * SECOND, ..WorkerOptions::default() };
    let running = worker(&world, topics, options);
    world.pass(10_000 * SECOND).await;
    let before = world.clock.monotonic();
    put(&world, &new(&world, "a")).await;
    until(&world, "a", InboxStatus::Done).await;
    assert!(
        world.clock.monotonic() - before < Duration::from_millis(100),
        "it did not wait for its next look"
    );
    running.stop().await;
}

/// ADR-05, IBX-023: an internal command runs once, when it is due, and no earlier.
#[tokio::test(start_paused = true)]
async fn adr_05_ibx_023_a_scheduled_message_is_handled_when_it_is_due() {
    let world = world().await;
    let due = world.clock.now().plus(3_000 * SECOND);
    put(&world, &NewMessage { due: Some(due), ..new(&world, "later") }).await;
    let topics = vec![("Pay", Handling::Transactional(effect()))];
    let running = worker(&world, topics, WorkerOptions::default());
    world.pass(2_999 * SECOND).await;
    assert!(effects(&world).await.is_empty());
    until(&world, "later", InboxStatus::Done).await;
    assert!(world.clock.now() >= due && world.clock.now() < due.plus(10 * SECOND));
    assert_eq!(effects(&world).await, ["later"]);
    running.stop().await;
}

/// IBX-8.1, S12: messages of one key are handled in order although the first fails; others do not wait.
#[tokio::test(start_paused = true)]
async fn ibx_8_1_s12_a_key_keeps_its_order() {
    let world = world().await;
    let ordered = |id: &str, key: &str| NewMessage {
        ordering_key: Some(OrderingKey::new(key).unwrap()),
        ..new(&world, id)
    };
    for (id, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        put(&world, &ordered(id, key)).await;
    }
    let failures = Arc::new(AtomicUsize::new(2));
    let handler = SqliteHandler::new(move |tx, message: &Message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        let fails = message.id.as_str() == "a1"
            && failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { Err(Refusal::retry("not now")) } else { Ok(Response::empty()) }
    });
    let running = worker(&world, vec![("Pay", Handling::Transactional(handler))], WorkerOptions::default());
    until(&world, "a3", InboxStatus::Done).await;
    assert_eq!(effects(&world).await, ["b1", "a1", "a2", "a3"]);
    running.stop().await;
}

/// ADR-07: what happens to a key when its head dies is the user's choice.
#[tokio::test(start_paused = true)]
async fn adr_07_s12_a_dead_head_blocks_its_key_or_is_stepped_over() {
    for (policy, handled) in [(HeadPolicy::Block, vec![]), (HeadPolicy::StepOver, vec!["a2".to_owned()])] {
        let world = world().await;
        let ordering_key = Some(OrderingKey::new("a").unwrap());
        for (id, name) in [("a1", "Never"), ("a2", "Pay")] {
            let new = new(&world, id);
            put(&world, &NewMessage { ordering_key: ordering_key.clone(), endpoint: topic(name), ..new })
                .await;
        }
        let queue = Queue { head_policy: policy, ..Queue::new(consumer()) };
        let never = SqliteHandler::new(|_, _| Err(Refusal::reject("never")));
        let topics =
            vec![("Never", Handling::Transactional(never)), ("Pay", Handling::Transactional(effect()))];
        let running = worker_of(&world, queue, topics, WorkerOptions::default());
        until(&world, "a1", InboxStatus::Dead).await;
        world.pass(100 * SECOND).await;
        assert_eq!(effects(&world).await, handled, "{policy:?}");
        running.stop().await;
    }
}

/// S20: stopping gives back what nobody has begun, uncharged, and ends within its time although a handler hangs.
#[tokio::test(start_paused = true)]
async fn s20_stopping_gives_back_what_is_in_hand() {
    let world = world().await;
    for id in ["a", "b", "c"] {
        put(&world, &new(&world, id)).await;
    }
    let stuck = external(|_| std::future::pending());
    let options = WorkerOptions { concurrency: 1, ..WorkerOptions::default() };
    let running = worker(&world, vec![("Pay", stuck)], options);
    eventually("they are leased", EVER, async || record(&world, "c").await?.lease).await;
    let before = world.clock.monotonic();
    running.stop().await;
    assert!(world.clock.monotonic() - before <= 6 * SECOND);
    let claim = Claim::new(OwnerToken::mint(&*world.random), SECOND, 10).unwrap();
    world.pass(10 * SECOND).await;
    let free = world.db.claim(&Queue::new(consumer()), &claim).await.unwrap();
    let mut attempts: Vec<_> = free.iter().map(|a| (a.message.id.to_string(), a.attempts)).collect();
    attempts.sort();
    assert_eq!(attempts, [("a".into(), 1), ("b".into(), 0), ("c".into(), 0)]);
}

/// S20: also if the store does not answer any more.
#[tokio::test(start_paused = true)]
async fn s20_nobody_waits_for_ever_for_a_store_that_does_not_answer() {
    let world = world().await;
    for id in ["a", "b"] {
        put(&world, &new(&world, id)).await;
    }
    let stuck = external(|_| std::future::pending());
    let options = WorkerOptions { concurrency: 1, ..WorkerOptions::default() };
    let running = worker(&world, vec![("Pay", stuck)], options);
    eventually("they are leased", EVER, async || record(&world, "b").await?.lease).await;
    world.stall_writer();
    let (handle, shutdown) = Shutdown::new();
    let sweeper = Sweeper::new(world.db.clone(), Arc::clone(&world.clock) as _);
    let sweeping = tokio::spawn(sweeper.run(shutdown));
    world.pass(SECOND).await;
    let before = world.clock.monotonic();
    handle.request();
    tokio::time::timeout(EVER, sweeping).await.unwrap().unwrap();
    assert_eq!(world.clock.monotonic(), before, "it is in the middle of a sweep");
    tokio::time::timeout(EVER, running.stop()).await.unwrap();
    assert!(world.clock.monotonic() - before <= 11 * SECOND, "{:?}", world.clock.monotonic() - before);
}

/// ADR-04: the receiver stores and acknowledges; a worker handles later, once.
#[tokio::test(start_paused = true)]
async fn adr_04_the_receiver_stores_and_acknowledges_and_a_worker_handles_later() {
    let world = world().await;
    let receiver = Receiver::builder(world.db.clone(), consumer(), Arc::clone(&world.clock) as _)
        .route(topic("Pay"), Route::Queued)
        .unwrap()
        .build();
    let message = Arc::new(world.stamped(&new(&world, "a")));
    let answers = receiver.receive(vec![Arc::clone(&message)], 5 * SECOND).await.unwrap();
    assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    assert!(effects(&world).await.is_empty(), "not handled yet");
    let again = receiver.receive(vec![Arc::clone(&message)], 5 * SECOND).await.unwrap();
    assert!(matches!(again[..], [Answer::Duplicate(_)]), "{again:?}");
    let running = worker(&world, vec![("Pay", Handling::Transactional(effect()))], WorkerOptions::default());
    until(&world, "a", InboxStatus::Done).await;
    let again = receiver.receive(vec![message], 5 * SECOND).await.unwrap();
    assert!(matches!(again[..], [Answer::Duplicate(_)]), "{again:?}");
    assert_eq!(effects(&world).await, ["a"]);
    running.stop().await;
}

/// A world in which five messages have died, and the worker that lets them; it counts how often each was run.
async fn five_dead() -> (World, Arc<Mutex<BTreeMap<String, usize>>>, Running) {
    let world = world().await;
    for n in 0..5 {
        put(&world, &new(&world, &format!("m{n}"))).await;
    }
    let runs = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = Arc::clone(&runs);
    let never = external(move |context| {
        *counted.lock().unwrap().entry(context.message.id.to_string()).or_default() += 1;
        async { Err(Refusal::reject("never")) }
    });
    let running = worker(&world, vec![("Pay", never)], WorkerOptions::default());
    until_dead(&world).await;
    world.pass(SECOND).await; // so that they died before whatever begins now
    (world, runs, running)
}

async fn dead(world: &World) -> u64 {
    world.db.dead_work_count(&consumer(), &WorkFilter::default(), 100).await.unwrap()
}

async fn until_dead(world: &World) {
    eventually("all are dead", EVER, async || (dead(world).await == 5).then_some(())).await;
}

/// Two per second.
fn slowly(world: &World) -> Bulk {
    let two = NonZeroU32::new(2).unwrap();
    Bulk::new(Arc::clone(&world.clock) as _).batch(two).per_second(two)
}

fn replay(world: &World) -> InboxLetters<Sqlite> {
    InboxLetters::replay(world.db.clone(), Queue::new(consumer()), WorkFilter::default())
}

/// IBX-8.2: all dead letters are run again, a few at a time, and none twice: what dies again meanwhile is left to
/// another call.
#[tokio::test(start_paused = true)]
async fn ibx_8_2_all_dead_letters_are_run_again_at_a_pace() {
    let (world, runs, running) = five_dead().await;
    let all = WorkFilter::default();
    assert_eq!(world.db.dead_work_count(&consumer(), &all, 3).await.unwrap(), 3, "that many or more");
    let (_handle, shutdown) = Shutdown::new();
    let before = world.clock.monotonic();
    let progress = slowly(&world).run(replay(&world), shutdown.clone(), |_| {}).await.unwrap();
    assert_eq!(progress, Progress { done: 5, finished: true });
    assert!(world.clock.monotonic() - before >= 2 * SECOND, "two per second");
    until_dead(&world).await;
    let again = world.db.dead_work(&consumer(), &all, None, 100).await.unwrap();
    assert!(
        again.iter().all(|letter| letter.attempts == 1),
        "attempts began anew, and each had one: {again:?}"
    );
    assert_eq!(runs.lock().unwrap().values().copied().collect::<Vec<_>>(), [2; 5]);
    world.pass(SECOND).await;
    let letters = InboxLetters::purge(world.db.clone(), Queue::new(consumer()), all);
    assert_eq!(slowly(&world).run(letters, shutdown, |_| {}).await.unwrap().done, 5);
    assert_eq!(dead(&world).await, 0);
    running.stop().await;
}

/// IBX-8.2, S13: what dies again under a clock that was set back is dated before the call began, and left alone as well,
/// however old the dead letters are.
#[tokio::test(start_paused = true)]
async fn ibx_8_2_s13_a_clock_that_steps_back_makes_no_letter_run_twice_in_one_call() {
    for age in [SECOND, 7_200 * SECOND] {
        let (world, runs, running) = five_dead().await;
        world.pass(age).await;
        let (_handle, shutdown) = Shutdown::new();
        let (clock, mut stepped) = (Arc::clone(&world.clock), false);
        let step = move |progress: Progress| {
            assert!(progress.done <= 5, "it goes round in circles");
            if !std::mem::replace(&mut stepped, true) {
                clock.step_micros(-3_600_000_000);
            }
        };
        let progress = slowly(&world).run(replay(&world), shutdown, step).await.unwrap();
        assert_eq!(progress, Progress { done: 5, finished: true }, "{age:?}");
        until_dead(&world).await;
        assert_eq!(runs.lock().unwrap().values().copied().collect::<Vec<_>>(), [2; 5], "{age:?}");
        running.stop().await;
    }
}

trait Stored {
    async fn inbox_record_of(&self, id: &str) -> Option<Response>;
}

impl Stored for Sqlite {
    async fn inbox_record_of(&self, id: &str) -> Option<Response> {
        use twobox_core::ports::InboxStore;
        let key = key(id);
        let found: Result<_, Error> = self.inbox_record(&consumer(), &key.source, &key.id).await;
        found.unwrap().and_then(|record| record.response)
    }
}
