//! The receiver: duplicates in flight, handlers in two halves, and the way from end to end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use twobox_core::config::Timing;
use twobox_core::ports::{
    Answer, Delivery, InboxRecord, InboxStatus, InboxStore, InstanceStore, Met, MetOutbox,
};
use twobox_core::retry::Policy;
use twobox_core::{
    Consumer, Endpoint, Error, ErrorKind, HandlerResult, Message, MessageId, OrderingKey, Random, Refusal,
    Response, Result, Source,
};
use twobox_engine::receiver::{ClaimedHandler, OnError, Prepare, Route, claim_first};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{InProcess, Receiver, Timer};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::{SeededRandom, eventually};

use crate::world::{EVER, World, series};

const BUDGET: Duration = Duration::from_secs(5);

fn consumer() -> Consumer {
    Consumer::new("billing").unwrap()
}

fn receiver(world: &World, route: Route<SqliteHandler>) -> Receiver<Sqlite> {
    let receiver = Receiver::builder(world.db.clone(), consumer(), Arc::clone(&world.clock) as _);
    receiver.route(Endpoint::new("Pay").unwrap(), route).unwrap().build()
}

fn message(world: &World, id: &str) -> Arc<Message> {
    Arc::new(world.stamped(&world.message(id, "billing")))
}

fn response(id: &str) -> Response {
    Response::json(&format!("paid {id}")).unwrap()
}

async fn create_effects(world: &World) {
    let create = "CREATE TABLE effects (id TEXT NOT NULL)";
    world.db.transaction::<_, Error, _>(move |tx| tx.execute(create, [])).await.unwrap();
}

async fn effects(world: &World) -> Vec<String> {
    world.query("SELECT id FROM effects ORDER BY rowid", |row| row.get::<String>(0)).await
}

/// The effect of a message: a row.
fn effect() -> SqliteHandler {
    SqliteHandler::new(|tx, message| {
        tx.execute("INSERT INTO effects VALUES (?1)", [message.id.as_str()])?;
        Ok(response(message.id.as_str()))
    })
}

async fn record(world: &World, id: &str) -> Option<InboxRecord> {
    let source = Source::new("shop").unwrap();
    world.db.inbox_record(&consumer(), &source, &MessageId::new(id).unwrap()).await.unwrap()
}

/// First halves that wait at a gate; the second half writes the effect.
struct Gated {
    world: World,
    receiver: Receiver<Sqlite>,
    gate: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
}

impl Gated {
    /// `halves` says how the n-th first half ends.
    async fn new(halves: impl Fn(usize) -> HandlerResult<SqliteHandler> + Send + Sync + 'static) -> Self {
        let world = World::new().await;
        create_effects(&world).await;
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (held, count, halves) = (Arc::clone(&gate), Arc::clone(&begun), Arc::new(halves));
        let prepare: Prepare<SqliteHandler> = Arc::new(move |_| {
            let (held, halves, n) =
                (Arc::clone(&held), Arc::clone(&halves), count.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move {
                held.acquire().await.unwrap().forget();
                halves(n)
            })
        });
        let receiver = receiver(&world, Route::Prepared(prepare));
        Self { world, receiver, gate, begun }
    }

    /// Lets everyone through.
    fn open(&self) {
        self.gate.add_permits(100);
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// A delivery of this message, under way.
    async fn deliver(&self, message: &Arc<Message>) -> JoinHandle<Answer> {
        let (receiver, message) = (self.receiver.clone(), Arc::clone(message));
        let delivery =
            tokio::spawn(async move { receiver.receive(vec![message], BUDGET).await.unwrap().remove(0) });
        self.world.pass(Duration::from_millis(10)).await;
        delivery
    }
}

#[tokio::test(start_paused = true)]
async fn s7_a_duplicate_waits_for_the_first_and_gets_its_response() {
    let gated = Gated::new(|_| Ok(effect())).await;
    let m = message(&gated.world, "m");
    let first = gated.deliver(&m).await;
    let second = gated.deliver(&m).await;
    gated.world.pass(Duration::from_secs(1)).await;
    assert!(!second.is_finished(), "it waits");
    assert_eq!(gated.begun(), 1);
    gated.open();
    assert_eq!(first.await.unwrap(), Answer::Done(Some(response("m"))));
    assert_eq!(second.await.unwrap(), Answer::Duplicate(Some(response("m"))));
    assert_eq!(effects(&gated.world).await, ["m"]);
}

#[tokio::test(start_paused = true)]
async fn s7_the_wait_is_bounded_and_a_second_waiter_is_told_at_once() {
    let gated = Gated::new(|_| Ok(effect())).await;
    let m = message(&gated.world, "m");
    let first = gated.deliver(&m).await;
    let before = tokio::time::Instant::now();
    let second = gated.deliver(&m).await;
    let in_progress = Answer::InProgress { after: Duration::from_secs(1) };
    let third = gated.deliver(&m).await;
    assert!(third.is_finished(), "one waiter is enough");
    assert_eq!(third.await.unwrap(), in_progress);
    assert_eq!(second.await.unwrap(), in_progress);
    let waited = before.elapsed();
    assert!((Duration::from_millis(1_900)..Duration::from_millis(2_100)).contains(&waited), "{waited:?}");
    gated.open();
    assert_eq!(first.await.unwrap(), Answer::Done(Some(response("m"))), "the first is not disturbed");
}

#[tokio::test(start_paused = true)]
async fn s7_when_the_first_fails_exactly_one_duplicate_runs_the_handler() {
    let gated = Gated::new(|n| if n == 0 { Err(Refusal::retry("not now")) } else { Ok(effect()) }).await;
    let m = message(&gated.world, "m");
    let first = gated.deliver(&m).await;
    let waiting = gated.deliver(&m).await;
    let told = gated.deliver(&m).await;
    gated.gate.add_permits(1);
    assert_eq!(first.await.unwrap(), Answer::Retry { after: None, error: "not now".into() });
    let late = gated.deliver(&m).await; // waits for the one that runs now
    assert_eq!(gated.begun(), 2);
    gated.open();
    assert_eq!(waiting.await.unwrap(), Answer::Done(Some(response("m"))));
    assert!(matches!(told.await.unwrap(), Answer::InProgress { .. }));
    assert_eq!(late.await.unwrap(), Answer::Duplicate(Some(response("m"))));
    assert_eq!(effects(&gated.world).await, ["m"]);
}

#[tokio::test(start_paused = true)]
async fn s7_a_caller_that_hangs_up_does_not_make_the_receiver_forget() {
    let gated = Gated::new(|_| Ok(effect())).await;
    let m = message(&gated.world, "m");
    gated.deliver(&m).await.abort();
    gated.world.pass(Duration::from_secs(10)).await;
    assert!(matches!(gated.deliver(&m).await.await.unwrap(), Answer::InProgress { .. }));
    assert_eq!(gated.begun(), 1, "the first half runs on, and once");
    gated.open();
    eventually("the effect happens", EVER, async || record(&gated.world, "m").await).await;
    assert_eq!(gated.deliver(&m).await.await.unwrap(), Answer::Duplicate(Some(response("m"))));
    assert_eq!(effects(&gated.world).await, ["m"]);
}

/// How many first halves run now, and the most that ever did, by key.
type Running = HashMap<Option<OrderingKey>, (usize, usize)>;

#[tokio::test(start_paused = true)]
async fn w8_first_halves_of_one_key_run_one_after_another_and_keys_side_by_side() {
    let world = World::new().await;
    create_effects(&world).await;
    let running: Arc<Mutex<Running>> = Arc::default();
    let (clock, seen) = (Arc::clone(&world.clock), Arc::clone(&running));
    let prepare: Prepare<SqliteHandler> = Arc::new(move |message| {
        let (clock, seen) = (Arc::clone(&clock), Arc::clone(&seen));
        Box::pin(async move {
            let change = |by: isize| {
                let mut seen = seen.lock().unwrap();
                let (now, most) = seen.entry(message.ordering_key.clone()).or_default();
                *now = now.checked_add_signed(by).unwrap();
                *most = (*most).max(*now);
            };
            change(1);
            Timer::sleep(&*clock, Duration::from_millis(100)).await;
            change(-1);
            Ok(effect())
        })
    });
    let receiver = receiver(&world, Route::Prepared(prepare));
    let keyed = |id: &str| {
        let new = world.message(id, "billing");
        let key = (!id.starts_with('-')).then(|| OrderingKey::new(&id[..1]).unwrap());
        Arc::new(world.stamped(&key.into_iter().fold(new, twobox_core::NewMessage::ordering_key)))
    };
    let batch = ["a1", "a2", "b1", "-1", "b2", "-2", "a3"].map(keyed).into();
    let before = tokio::time::Instant::now();
    let answers = receiver.receive(batch, BUDGET).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Done(_))), "{answers:?}");
    let took = before.elapsed().as_millis();
    assert!((300..350).contains(&took), "as long as the longest key: {took} ms");
    let most: HashMap<_, _> =
        running.lock().unwrap().iter().map(|(key, (_, most))| (key.clone(), *most)).collect();
    let key = |key: &str| Some(OrderingKey::new(key).unwrap());
    assert_eq!(most, HashMap::from([(key("a"), 1), (key("b"), 1), (None, 2)]));
    let of_a: Vec<String> = effects(&world).await.into_iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3"]);
}

/// A message whose first half never began, because its time was up, holds what follows it in its key.
#[tokio::test(start_paused = true)]
async fn l4_nothing_overtakes_a_message_whose_first_half_was_not_reached() {
    let world = World::new().await;
    create_effects(&world).await;
    let clock = Arc::clone(&world.clock);
    let prepare: Prepare<SqliteHandler> = Arc::new(move |_| {
        let pause = Timer::sleep(&*clock, Duration::from_secs(3));
        Box::pin(async move {
            pause.await;
            Ok(effect())
        })
    });
    let receiver = Receiver::builder(world.db.clone(), consumer(), Arc::clone(&world.clock) as _)
        .route(Endpoint::new("Pay").unwrap(), Route::Prepared(prepare))
        .and_then(|receiver| receiver.route(Endpoint::new("Note").unwrap(), Route::Handler(effect())))
        .unwrap()
        .build();
    let keyed = |id: &str, endpoint: &str| {
        let new = twobox_core::NewMessage::json("billing", endpoint, &id).unwrap();
        let new = new.id(MessageId::new(id).unwrap()).ordering_key(OrderingKey::new("k").unwrap());
        Arc::new(world.stamped(&new))
    };
    let batch = vec![keyed("1", "Pay"), keyed("2", "Pay"), keyed("3", "Note")];
    let answers = receiver.receive(batch.clone(), BUDGET).await.unwrap();
    assert!(matches!(answers[..], [Answer::Done(_), Answer::NotReached, Answer::NotReached]), "{answers:?}");
    receiver.receive(batch, BUDGET).await.unwrap();
    assert_eq!(effects(&world).await, ["1", "2", "3"]);
}

/// What hangs counts as failed, and holds the others of its request no longer than that.
#[tokio::test(start_paused = true)]
async fn s6_a_first_half_that_hangs_is_a_failure_and_its_neighbours_are_handled() {
    let gated = Gated::new(|_| Ok(effect())).await;
    let noting = Receiver::builder(gated.world.db.clone(), consumer(), Arc::clone(&gated.world.clock) as _)
        .handler_timeout(Duration::from_secs(7));
    let hangs: Prepare<SqliteHandler> = Arc::new(|_| Box::pin(std::future::pending()));
    let receiver = noting
        .route(Endpoint::new("Pay").unwrap(), Route::Prepared(hangs))
        .and_then(|receiver| receiver.route(Endpoint::new("Note").unwrap(), Route::Handler(effect())))
        .unwrap()
        .build();
    let note = twobox_core::NewMessage::json("billing", "Note", &1).unwrap();
    let note = Arc::new(gated.world.stamped(&note.id(MessageId::new("note").unwrap())));
    let before = tokio::time::Instant::now();
    let answers = receiver.receive(vec![message(&gated.world, "m"), note], BUDGET).await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 7);
    assert_eq!(answers[0], Answer::Retry { after: None, error: "the handler took longer than 7s".into() });
    assert!(matches!(answers[1], Answer::Done(_)), "{answers:?}");

    // Nobody has it in hand any more.
    gated.open();
    let again = gated.deliver(&message(&gated.world, "m")).await.await.unwrap();
    assert_eq!(again, Answer::Done(Some(response("m"))));
    assert_eq!(effects(&gated.world).await, ["note", "m"]);
}

/// Its sender has long given up by the time it has failed, and finds it being handled whenever it asks.
#[tokio::test(start_paused = true)]
async fn s6_l3_a_message_whose_handler_hangs_dies_of_its_attempts_and_not_of_its_age() {
    let world = World::new().await;
    create_effects(&world).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let hangs: Prepare<SqliteHandler> = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    });
    let receiver = Receiver::builder(world.db.clone(), consumer(), Arc::clone(&world.clock) as _)
        .route(Endpoint::new("Pay").unwrap(), Route::Prepared(hangs))
        .and_then(|receiver| receiver.route(Endpoint::new("Note").unwrap(), Route::Handler(effect())))
        .unwrap()
        .build();
    let relay = world.relay(&[("billing", Arc::new(InProcess::to(receiver)))], RelayOptions::default());
    world.enqueue_many("m", 1).await;
    let status = async || world.status("m0").await.filter(|(status, _)| status == "Failed");
    let dies = eventually("it dies", EVER, status);
    let (_, attempts) = tokio::time::timeout(Duration::from_secs(15 * 60), dies).await.unwrap();
    let begun = begun.load(Ordering::SeqCst);
    assert_eq!(attempts, 6);
    assert!(begun <= 6, "once per attempt: {begun}");
    relay.stop().await;
}

/// CEB-2: a claim whose handler hangs is kept or given back, like that of one that fails.
#[tokio::test(start_paused = true)]
async fn s6_ceb_2_a_claimed_handler_that_hangs_is_a_failure() {
    for (on_error, id) in [(OnError::Keep, "kept"), (OnError::Release, "released")] {
        let world = World::new().await;
        create_effects(&world).await;
        let hangs: ClaimedHandler = Arc::new(|_| Box::pin(std::future::pending()));
        let route = claim_first(world.db.clone(), consumer(), "pager", on_error, hangs);
        let answers = receiver(&world, route).receive(vec![message(&world, id)], BUDGET).await.unwrap();
        let error = "the handler took longer than 30s";
        let left = record(&world, id).await.map(|record| record.status);
        match on_error {
            OnError::Keep => {
                assert!(
                    matches!(&answers[0], Answer::Rejected { error: why, .. } if why == error),
                    "{answers:?}"
                );
                assert_eq!(left, Some(InboxStatus::Dead));
            }
            OnError::Release => {
                assert_eq!(answers[0], Answer::Retry { after: None, error: error.into() });
                assert_eq!(left, None, "the next delivery may claim it");
            }
        }
    }
}

/// CEB-1: what is claimed and handled is done, and only what comes again is a duplicate, in answers and figures.
#[tokio::test(start_paused = true)]
async fn ceb_1_rf_21_a_message_that_is_claimed_first_is_not_its_own_duplicate() {
    let world = World::new().await;
    create_effects(&world).await;
    let works: ClaimedHandler = Arc::new(|_| Box::pin(async { Ok(response("m")) }));
    let route = claim_first(world.db.clone(), consumer(), "printer", OnError::Keep, works);
    let (receiver, m) = (receiver(&world, route), message(&world, "m"));
    let receive = async || receiver.receive(vec![Arc::clone(&m)], BUDGET).await.unwrap().remove(0);
    let counted = async || {
        let counts = "SELECT done * 100 + duplicates FROM inbox_peers";
        world.query(counts, |row| row.get::<i64>(0)).await[0]
    };
    assert_eq!((receive().await, counted().await), (Answer::Done(Some(response("m"))), 100));
    assert_eq!((receive().await, counted().await), (Answer::Duplicate(Some(response("m"))), 101));
}

/// CEB-2, L10: a message that was replayed and fails again under a kept claim is rejected, once and for all.
#[tokio::test(start_paused = true)]
async fn ceb_2_l10_a_replay_that_fails_again_is_rejected_as_the_first_time() {
    let world = World::new().await;
    create_effects(&world).await;
    let fails: ClaimedHandler = Arc::new(|_| Box::pin(async { Err(Refusal::retry("no paper")) }));
    let route = claim_first(world.db.clone(), consumer(), "printer", OnError::Keep, fails);
    let receiver = receiver(&world, route);
    let replayed = Arc::new(Message { replay: 1, ..Message::clone(&message(&world, "m")) });
    for _ in 0..2 {
        let answers = receiver.receive(vec![Arc::clone(&replayed)], BUDGET).await.unwrap();
        assert!(matches!(&answers[0], Answer::Rejected { error, .. } if error == "no paper"), "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s6_a_panic_in_the_first_half_is_a_failure_that_may_be_retried() {
    let gated = Gated::new(|n| if n == 0 { panic!("the handler's own mistake") } else { Ok(effect()) }).await;
    let m = message(&gated.world, "m");
    gated.open();
    let answer = gated.deliver(&m).await.await.unwrap();
    assert_eq!(answer, Answer::Retry { after: None, error: "the handler panicked".into() });
    assert_eq!(record(&gated.world, "m").await, None, "nothing is left behind");
    assert_eq!(gated.deliver(&m).await.await.unwrap(), Answer::Done(Some(response("m"))));
}

#[tokio::test(start_paused = true)]
async fn w8_a_rejection_in_the_first_half_is_stored() {
    let gated = Gated::new(|_| Err(Refusal::reject("no such account"))).await;
    let m = message(&gated.world, "m");
    gated.open();
    let rejected = Answer::Rejected { error: "no such account".into() };
    assert_eq!(gated.deliver(&m).await.await.unwrap(), rejected);
    let stored = record(&gated.world, "m").await.unwrap();
    assert_eq!((stored.status, stored.error.as_deref()), (InboxStatus::Dead, Some("no such account")));
    assert_eq!(gated.deliver(&m).await.await.unwrap(), rejected, "a duplicate gets the same answer");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_endpoint_is_retried_and_a_duplicate_does_not_mind_it() {
    let world = World::new().await;
    create_effects(&world).await;
    let deployed = receiver(&world, Route::Handler(effect()));
    let undeployed = Receiver::builder(world.db.clone(), consumer(), Arc::clone(&world.clock) as _).build();
    let m = message(&world, "m");
    let receive = async |receiver: &Receiver<Sqlite>| {
        receiver.receive(vec![Arc::clone(&m)], BUDGET).await.unwrap().remove(0)
    };
    assert_eq!(receive(&undeployed).await, Answer::UnknownEndpoint);
    assert_eq!(record(&world, "m").await, None);
    assert_eq!(receive(&deployed).await, Answer::Done(Some(response("m"))));
    assert_eq!(receive(&undeployed).await, Answer::Duplicate(Some(response("m"))), "it was handled before");

    world.enqueue_many("e", 1).await;
    let relay = world.relay(&[("billing", Arc::new(InProcess::to(undeployed)))], RelayOptions::default());
    eventually("it is charged", EVER, async || world.status("e0").await.filter(|(_, n)| *n > 0)).await;
    relay.stop().await;
    let relay = world.relay(&[("billing", Arc::new(InProcess::to(deployed)))], RelayOptions::default());
    world.until("e0", "Sent").await; // deployed later
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn w8_slow_first_halves_are_all_handled_in_the_end() {
    let world = World::new().await;
    create_effects(&world).await;
    let ids = world.enqueue_many("m", 500).await;
    let clock = Arc::clone(&world.clock);
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    // All of them together take longer than a request may.
    let prepare: Prepare<SqliteHandler> = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let pause = Timer::sleep(&*clock, Duration::from_millis(200));
        Box::pin(async move {
            pause.await;
            Ok(effect())
        })
    });
    let transport = Arc::new(InProcess::to(receiver(&world, Route::Prepared(prepare))));
    let relay = world.relay(&[("billing", transport)], RelayOptions::default());
    world.until_sent(500).await;
    let mut handled = effects(&world).await;
    handled.sort_by_key(|id| id[1..].parse::<usize>().unwrap());
    assert_eq!(handled, ids);
    let begun = begun.load(Ordering::SeqCst);
    assert!(begun < 600, "little is prepared in vain: {begun}");
    relay.stop().await;
}

/// An inbox whose disk is full, and how often it was asked.
#[derive(Clone, Default)]
struct Broken(Arc<AtomicUsize>);

impl InboxStore for Broken {
    type Handler = ();

    fn refusing(_: Refusal) {}

    fn answering(_: Response) {}

    async fn process(&self, _: Vec<Delivery<()>>, _: Duration) -> Result<Vec<Answer>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(Error::new(ErrorKind::Unavailable, "disk full"))
    }

    async fn inbox_record(&self, _: &Consumer, _: &Source, _: &MessageId) -> Result<Option<InboxRecord>> {
        Ok(None)
    }
}

impl InstanceStore for Broken {
    async fn inbox_instance(&self) -> Result<String> {
        Err(Error::new(ErrorKind::Unavailable, "disk full"))
    }

    async fn meet_outbox(&self, _: &Consumer, _: &Source, _: &str) -> Result<Met> {
        Err(Error::new(ErrorKind::Unavailable, "disk full"))
    }

    async fn met_outboxes(&self) -> Result<Vec<MetOutbox>> {
        Ok(Vec::new())
    }
}

/// How often a receiver is asked within five minutes of its store being down.
async fn asked_while_down(world: &World) -> usize {
    let broken = Broken::default();
    let receiver = Receiver::builder(broken.clone(), consumer(), Arc::clone(&world.clock) as _);
    let receiver = receiver.route(Endpoint::new("Pay").unwrap(), Route::Handler(())).unwrap().build();
    let relay = world.relay(&[("billing", Arc::new(InProcess::to(receiver)))], RelayOptions::default());
    world.pass(Duration::from_secs(300)).await;
    relay.stop().await;
    broken.0.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn l3_a_receiver_whose_store_is_down_charges_nobody() {
    let world = World::new().await;
    world.enqueue_many("m", 20).await;
    assert!(asked_while_down(&world).await > 1);
    assert_eq!(world.lane("billing").await.failed, 0);
    assert_eq!(world.status("m0").await, Some(("Pending".into(), 0)));
}

#[tokio::test(start_paused = true)]
async fn l3_a_receiver_whose_store_is_down_is_left_alone_more_and_more() {
    let world = World::new().await;
    world.enqueue_many("m", 20).await;
    let asked = asked_while_down(&world).await;
    assert!(asked < 100, "asked {asked} times in five minutes");
}

/// Handles a message, or fails at random after having written; what it passes on is part of its transaction.
fn moody(world: &Arc<World>, seed: u64, passes_on: bool) -> SqliteHandler {
    let (random, world) = (SeededRandom::new(seed), Arc::clone(world));
    SqliteHandler::new(move |tx, message| {
        let id = message.id.as_str();
        tx.execute("INSERT INTO effects VALUES (?1)", [id])?;
        if passes_on {
            let follow_up = world.message(&format!("after-{id}"), "mail");
            world.db.append(tx, &world.stamped(&follow_up))?;
        }
        if random.next_u64().is_multiple_of(4) { Err(Refusal::retry("not now")) } else { Ok(response(id)) }
    })
}

#[tokio::test(start_paused = true)]
async fn rf_08_from_end_to_end_every_effect_happens_once() {
    let [shop, billing, mail] =
        [World::with_seed(1).await, World::with_seed(2).await, World::with_seed(3).await].map(Arc::new);
    for world in [&billing, &mail] {
        create_effects(world).await;
    }
    let retry = Policy::default().attempts_max(std::num::NonZeroU32::new(20).unwrap());
    let options = RelayOptions { timing: Timing { retry, ..Timing::default() }, ..RelayOptions::default() };
    let to_billing = InProcess::to(receiver(&billing, Route::Handler(moody(&billing, 4, true))));
    let to_mail = InProcess::to(receiver(&mail, Route::Handler(moody(&mail, 5, false))));
    let shop_relay = shop.relay(&[("billing", Arc::new(to_billing))], options.clone());
    let billing_relay = billing.relay(&[("mail", Arc::new(to_mail))], options);
    let ids = shop.enqueue_many("m", 300).await;
    shop.until_sent(300).await;
    let is_through = async || (billing.lane("mail").await.sent >= 300).then_some(());
    eventually("all follow-ups are sent", EVER, is_through).await;

    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(effects(&billing).await), sorted(ids.clone()));
    assert_eq!(sorted(effects(&mail).await), sorted(series("after-m", 0..300)));
    let mut charged = 0;
    for id in &ids {
        let stored = record(&billing, id).await.unwrap();
        assert_eq!((stored.status, stored.response), (InboxStatus::Done, Some(response(id))));
        charged += shop.status(id).await.unwrap().1;
    }
    assert!(charged > 30, "it was a bumpy ride: {charged}");
    shop_relay.stop().await;
    billing_relay.stop().await;
}
