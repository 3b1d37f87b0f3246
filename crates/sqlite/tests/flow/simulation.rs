//! The relay on a store that is slow and stumbles: some mishaps by name, and a simulation that looks for more.
//!
//! The last seed a failed simulation has printed is the one: `TWOBOX_SEED=7 cargo test … simulation` runs it alone.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use twobox_core::ports::*;
use twobox_core::{
    Clock, Destination, Error, ErrorKind, Message, NewMessage, OrderingKey, Random, Response, Result, Source,
    Timestamp,
};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Relay, Shutdown, Timer};
use twobox_sqlite::Sqlite;
use twobox_testkit::{ScriptedTransport, SeededRandom, VirtualClock, eventually};

use crate::world::{Counting, Running, World};

const SECOND: Duration = Duration::from_secs(1);

fn ok() -> Answer {
    Answer::Done(Some(Response::empty()))
}

fn retry() -> Answer {
    Answer::Retry { after: None, error: "not now".into() }
}

/// Before which call to the store something happens; `Settled` is right after a settlement was committed, and
/// `Discovered` right after the log was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Take,
    Read,
    Settle,
    Settled,
    Due,
    SettleWaiting,
    Discovered,
}

/// A delay, and whether the call fails.
type Trouble = (Duration, bool);

const NONE: Trouble = (Duration::ZERO, false);

/// A store with a script of troubles.
#[derive(Clone)]
struct Stumbling {
    db: Sqlite,
    timer: Arc<dyn Timer>,
    script: Arc<dyn Fn(Call) -> Trouble + Send + Sync>,
}

impl Stumbling {
    fn new(world: &World, script: impl Fn(Call) -> Trouble + Send + Sync + 'static) -> Self {
        Self { db: world.db.clone(), timer: Arc::clone(&world.clock) as _, script: Arc::new(script) }
    }

    async fn before(&self, call: Call) -> Result<()> {
        let (delay, fails) = (self.script)(call);
        if !delay.is_zero() {
            self.timer.sleep(delay).await;
        }
        if fails { Err(Error::new(ErrorKind::Unavailable, "stumbled")) } else { Ok(()) }
    }
}

type Lease = LaneLease<i64>;
type Letter = DeadLetter<i64>;

/// Passes calls on to the database, the named ones after what the script has for them.
macro_rules! pass_on {
    ($($([$call:ident])? $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        async fn $name(&self, $($arg: $type),*) -> $result {
            $(self.before(Call::$call).await?;)?
            self.db.$name($($arg),*).await
        }
    )*};
}

impl LaneStore for Stumbling {
    type Position = i64;
    pass_on! {
        [Take] take_lanes(take: &TakeLanes) -> Result<Vec<Lease>>;
        release_lanes(leases: &[Lease]) -> Result<()>;
        hold_lane(lease: &Lease, outage: Option<&Outage>) -> Result<()>;
        meet_inbox(lease: &Lease, inbox: &str) -> Result<Met>;
        lanes() -> Result<Vec<LaneStatus>>;
        paused_lanes(source: &Source) -> Result<HashSet<LaneId>>;
    }
    async fn discover_lanes(&self, source: &Source) -> Result<Discovered> {
        let discovered = self.db.discover_lanes(source).await?;
        self.before(Call::Discovered).await.map(|()| discovered)
    }
    fn steered(&self) -> u64 {
        self.db.steered()
    }
}

impl LogStore for Stumbling {
    pass_on! {
        changed(seen: u64) -> u64;
        [Read] read_log(read: ReadLog<i64>) -> Result<LogChunk<i64>>;
        make_durable(epoch: u64, position: &i64) -> Result<()>;
        mark_sending(lease: &Lease, upto: &i64) -> Result<()>;
    }
    async fn settle_log(&self, lease: &Lease, settlement: Settlement<i64>) -> Result<Settled> {
        self.before(Call::Settle).await?;
        let settled = self.db.settle_log(lease, settlement).await?;
        self.before(Call::Settled).await.map(|()| settled)
    }
}

impl WaitingStore for Stumbling {
    pass_on! {
        [Due] due(lease: &Lease, look: &Look) -> Result<Due<i64>>;
        held_keys(lease: &Lease, keys: Vec<OrderingKey>) -> Result<HashSet<OrderingKey>>;
        [SettleWaiting] settle_waiting(lease: &Lease, outcomes: Vec<(i64, WaitingOutcome)>) -> Result<Settled>;
    }
}

impl DeadLetterStore for Stumbling {
    pass_on! {
        dead_letters(filter: &DeadLetterFilter, after: Option<&Letter>, limit: usize) -> Result<Vec<Letter>>;
        dead_letter_count(filter: &DeadLetterFilter, limit: usize) -> Result<u64>;
        replay_deaths(deaths: Vec<(i64, Timestamp)>, how: Replay, ttl: Duration) -> Result<u64>;
        purge_deaths(deaths: Vec<(i64, Timestamp)>) -> Result<u64>;
        blocked_keys(limit: usize) -> Result<Vec<BlockedKey<i64>>>;
        release_key(source: &Source, destination: &Destination, key: &OrderingKey) -> Result<bool>;
        unannounced(source: &Source, after: Option<&i64>, limit: usize) -> Result<Vec<Letter>>;
        announced(deaths: Vec<(i64, Timestamp)>) -> Result<()>;
    }
}

fn run(
    world: &World,
    store: Stumbling,
    transports: &[(&str, &ScriptedTransport)],
    options: RelayOptions,
) -> Running {
    let (source, timer) = (Source::new("shop").unwrap(), Arc::clone(&store.timer));
    let mut relay = Relay::builder(store, source, timer, Arc::clone(&world.random) as _).options(options);
    for (to, transport) in transports {
        relay = relay.destination(Destination::new(*to).unwrap(), Arc::new((*transport).clone())).unwrap();
    }
    let (handle, shutdown) = Shutdown::new();
    Running { handle, task: tokio::spawn(relay.build().unwrap().run(shutdown)) }
}

#[tokio::test(start_paused = true)]
async fn l1_a_lane_that_is_reloaded_during_a_read_skips_nothing() {
    let world = World::new().await;
    let (doubt, slow) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_doubtful, is_slow) = (Arc::clone(&doubt), Arc::clone(&slow));
    let store = Stumbling::new(&world, move |call| match call {
        Call::Settled => (Duration::ZERO, is_doubtful.swap(false, Ordering::SeqCst)),
        Call::Read if is_slow.load(Ordering::SeqCst) => (Duration::from_millis(300), false),
        _ => NONE,
    });
    let sink = ScriptedTransport::sink();
    let first = world.relay(&[("a", Arc::new(sink.clone()))], RelayOptions::default());
    world.pass(SECOND).await; // so that lane a comes before lane b
    first.stop().await;
    world.enqueue(vec![world.message("a0", "a"), world.message("b0", "b")]).await;
    let relay = run(&world, store, &[("a", &sink), ("b", &sink)], RelayOptions::default());
    world.pass(20 * SECOND).await;
    doubt.store(true, Ordering::SeqCst); // the next settlement is committed, but nobody hears of it
    world.enqueue(vec![world.message("a1", "a")]).await;
    world.pass(Duration::from_millis(50)).await;
    slow.store(true, Ordering::SeqCst);
    world.enqueue(vec![world.message("b1", "b"), world.message("a2", "a")]).await;
    world.pass(60 * SECOND).await;
    assert!(world.is("a2", "Sent").await && sink.sent().contains(&"a2".into()), "{:?}", sink.sent());
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l5_a_look_that_overtakes_a_slow_settlement_is_repeated() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let millis = |call| if call == Call::Settle { 5 } else { 0 };
    let store = Stumbling::new(&world, move |call| (Duration::from_millis(millis(call)), false));
    let transport =
        ScriptedTransport::new(|n, batch| Ok(vec![if n == 0 { retry() } else { ok() }; batch.len()]));
    let relay = run(&world, store, &[("billing", &transport)], RelayOptions::default());
    world.pass(5 * SECOND).await;
    assert_eq!(world.status("m0").await, Some(("Sent".into(), 1)), "its retry is not forgotten");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_look_that_ends_during_an_outage_hides_nothing_that_expires() {
    let world = World::new().await;
    let short = world.message("short", "billing").ttl(60 * SECOND);
    world.enqueue(vec![world.message("long", "billing"), short]).await;
    let (slow, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_slow, begins) = (Arc::clone(&slow), Arc::clone(&begun));
    let store = Stumbling::new(&world, move |call| {
        if call == Call::Due && is_slow.swap(false, Ordering::SeqCst) {
            begins.store(true, Ordering::SeqCst);
            return (2 * SECOND, false);
        }
        NONE
    });
    let transport = ScriptedTransport::new(|n, _| match n {
        0 => Ok(vec![retry(), Answer::InProgress { after: 30 * SECOND }]),
        _ => Err(DeliveryError::unreachable("refused")),
    });
    let relay = run(&world, store, &[("billing", &transport)], RelayOptions::default());
    world.pass(SECOND).await;
    slow.store(true, Ordering::SeqCst); // the look that finds the retry of the long one
    eventually("the look begins", 10 * SECOND, async || begun.load(Ordering::SeqCst).then_some(())).await;
    world.enqueue(vec![world.message("new", "billing")]).await; // it is refused, and the lane is held
    world.pass(63 * SECOND).await;
    assert!(world.is("short", "Expired").await);
    assert_eq!(world.status("long").await, Some(("Pending".into(), 1)));
    assert!(world.lane("billing").await.held_since.is_some());
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_search_that_is_asked_for_during_another_one_is_made() {
    let world = World::new().await;
    let is_slow = AtomicBool::new(true);
    let store = Stumbling::new(&world, move |call| match call {
        // Longer than it takes until lanes are taken again, which asks for the next search.
        Call::Discovered if is_slow.swap(false, Ordering::SeqCst) => (6 * SECOND, false),
        _ => NONE,
    });
    let relay = run(&world, store, &[("billing", &ScriptedTransport::sink())], RelayOptions::default());
    world.pass(SECOND).await;
    world.enqueue(vec![world.message("m", "new")]).await; // the search has read the log, and is not back
    world.pass(7 * SECOND).await;
    let lanes = world.db.lanes().await.unwrap();
    assert!(lanes.iter().any(|lane| lane.destination.as_str() == "new"), "{lanes:?}");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s13_a_held_lane_with_retries_does_not_spin() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let transport = ScriptedTransport::new(|n, batch| match n {
        0 => Ok(vec![retry(); batch.len()]),
        _ => Err(DeliveryError::unreachable("refused")),
    });
    let timer = Counting::new(&world);
    let mut store = Stumbling::new(&world, |_| NONE);
    store.timer = Arc::clone(&timer) as _;
    let relay = run(&world, store, &[("billing", &transport)], RelayOptions::default());
    world.pass(10 * SECOND).await;
    let before = timer.looks();
    world.pass(100 * SECOND).await;
    let looks = timer.looks() - before;
    assert!(looks < 10_000, "{looks} looks at the clock in 100 s of outage");
    relay.stop().await;
}

/// What may go wrong in a simulation besides refused connections, failing handlers and slow calls.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    store_fails: bool,
    requests_are_cut: bool,
    time_runs_out: bool,
}

/// What a simulated receiver knows.
#[derive(Default)]
struct Ledger {
    done: Vec<(Option<OrderingKey>, String)>,
    on_the_way: Vec<OrderingKey>,
    clashes: Vec<OrderingKey>,
}

impl Ledger {
    fn depart(&mut self, keys: &HashSet<OrderingKey>) {
        self.clashes.extend(keys.iter().filter(|key| self.on_the_way.contains(key)).cloned());
        self.on_the_way.extend(keys.iter().cloned());
    }
}

/// A receiver that has moods until it is told to calm down.
struct Moody {
    weather: Weather,
    clock: Arc<VirtualClock>,
    random: SeededRandom,
    calm: AtomicBool,
    ledger: Mutex<Ledger>,
}

impl Moody {
    fn up_to(&self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    /// True once in so many times, until all is calm.
    fn mishap(&self, once_in: u64) -> bool {
        self.up_to(once_in) == 0 && !self.calm.load(Ordering::SeqCst)
    }

    fn millis(&self, bound: u64) -> Duration {
        Duration::from_millis(self.up_to(bound))
    }

    async fn deliver(self: Arc<Self>, batch: Vec<Arc<Message>>) -> Result<Vec<Answer>, DeliveryError> {
        let keys: HashSet<OrderingKey> = batch.iter().filter_map(|m| m.ordering_key.clone()).collect();
        self.ledger.lock().unwrap().depart(&keys);
        Timer::sleep(&*self.clock, self.millis(40)).await;
        let answers = self.answer(&batch);
        self.ledger.lock().unwrap().on_the_way.retain(|key| !keys.contains(key));
        answers
    }

    fn answer(&self, batch: &[Arc<Message>]) -> Result<Vec<Answer>, DeliveryError> {
        if self.mishap(10) {
            return Err(DeliveryError::unreachable("refused"));
        }
        let size = u64::try_from(batch.len()).unwrap();
        let handled = |now: bool, least: u64| now.then(|| least + self.up_to(size + 1 - least));
        let is_cut = self.weather.requests_are_cut && size > 0 && self.mishap(10);
        let runs_out = self.weather.time_runs_out && size > 0 && self.mishap(8);
        let until = handled(is_cut, 0).or(handled(runs_out, 1)).unwrap_or(size);
        let mut gate = KeyGate::default();
        let mut answers: Vec<Answer> = Vec::new();
        for message in batch.iter().take(usize::try_from(until).unwrap()) {
            let answer = if gate.holds(message) { Answer::Held } else { self.handle(message) };
            gate.note(message, &answer);
            answers.push(answer);
        }
        answers.resize(batch.len(), Answer::NotReached);
        if is_cut { Err(DeliveryError::ambiguous("cut")) } else { Ok(answers) }
    }

    fn handle(&self, message: &Message) -> Answer {
        let done = &mut self.ledger.lock().unwrap().done;
        if done.iter().any(|(_, id)| id == message.id.as_str()) {
            return Answer::Duplicate(Some(Response::empty()));
        }
        if self.mishap(6) {
            let after = Duration::from_millis(200);
            return if self.up_to(2) == 0 { retry() } else { Answer::InProgress { after } };
        }
        done.push((message.ordering_key.clone(), message.id.to_string()));
        ok()
    }
}

/// Some messages, most of them with one of five keys, some scheduled.
fn some_messages(world: &World, moody: &Moody, from: usize) -> Vec<NewMessage> {
    let count = 1 + usize::try_from(moody.up_to(8)).unwrap();
    let message = |n| {
        let message = world.message(&format!("m{n:05}"), "billing");
        match moody.up_to(6) {
            0 if moody.up_to(2) == 0 => message.due(world.clock.now().plus(moody.millis(2_000))),
            0 => message,
            key => message.ordering_key(OrderingKey::new(format!("k{key}")).unwrap()),
        }
    };
    (from..from + count).map(message).collect()
}

async fn simulate(seed: u64, weather: Weather) {
    let world = World::with_seed(seed).await;
    let moody = Arc::new(Moody {
        weather,
        clock: Arc::clone(&world.clock),
        random: SeededRandom::new(seed.wrapping_mul(7_919)),
        calm: AtomicBool::new(false),
        ledger: Mutex::default(),
    });
    let (peer, chance) = (Arc::clone(&moody), Arc::clone(&moody));
    let transport =
        ScriptedTransport::with_futures(move |_, batch| Box::pin(Arc::clone(&peer).deliver(batch.to_vec())));
    let store = Stumbling::new(&world, move |_| {
        let delay = if chance.up_to(3) == 0 { chance.millis(30) } else { Duration::ZERO };
        (delay, weather.store_fails && chance.mishap(25))
    });
    let mut options = RelayOptions { batch_messages_max: 5, in_flight_max: 3, ..RelayOptions::default() };
    let [base, max, jitter] = [50, 400, 10].map(Duration::from_millis);
    let retry = options.timing.retry.base(base).max(max).jitter(jitter);
    options.timing.retry = retry.attempts_max(NonZeroU32::new(1_000).unwrap());
    let relay = run(&world, store, &[("billing", &transport)], options);
    let mut count = 0;
    for _ in 0..40 {
        let messages = some_messages(&world, &moody, count);
        count += messages.len();
        world.enqueue(messages).await;
        world.pass(moody.millis(300)).await;
    }
    world.pass(5 * SECOND).await;
    moody.calm.store(true, Ordering::SeqCst);
    let sent = async || (world.lane("billing").await.sent >= count as u64).then_some(());
    eventually("all are sent once all is calm", 120 * SECOND, sent).await;
    relay.stop().await;

    let ledger = moody.ledger.lock().unwrap();
    assert_eq!(ledger.done.len(), count, "each is handled once");
    // A lane that is reloaded sends again what may still be on its way, as after a crash.
    assert!(weather.store_fails || ledger.clashes.is_empty(), "keys travel alone: {:?}", ledger.clashes);
    let mut keyed: Vec<_> = ledger.done.iter().filter(|(key, _)| key.is_some()).collect();
    keyed.sort_by_key(|(key, _)| key.clone()); // stable: the order within a key stays
    assert!(keyed.is_sorted(), "keys keep their order: {keyed:?}");
}

async fn simulate_all(seeds: u64, weather: Weather) {
    let chosen = std::env::var("TWOBOX_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in chosen.map_or(0..seeds, |seed| seed..seed + 1) {
        println!("TWOBOX_SEED={seed} in {weather:?}"); // shown if it fails
        simulate(seed, weather).await;
    }
}

#[tokio::test(start_paused = true)]
async fn l4_simulated_failures_break_no_order_and_lose_nothing() {
    simulate_all(15, Weather::default()).await;
}

#[tokio::test(start_paused = true)]
async fn l1_simulated_failures_of_the_store_break_no_order_and_lose_nothing() {
    simulate_all(15, Weather { store_fails: true, ..Weather::default() }).await;
}

#[tokio::test(start_paused = true)]
async fn l3_simulated_cuts_break_no_order_and_lose_nothing() {
    simulate_all(15, Weather { requests_are_cut: true, ..Weather::default() }).await;
}

#[tokio::test(start_paused = true)]
async fn w7_simulated_haste_breaks_no_order_and_loses_nothing() {
    simulate_all(15, Weather { time_runs_out: true, ..Weather::default() }).await;
}
