//! Sending again what was sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use twobox_core::ports::{Answer, LaneStore, ResendFilter, ResendStore, SweepPlan, SweepStore};
use twobox_core::{
    Clock, Destination, Endpoint, Error, Message, NewMessage, OrderingKey, Response, Source, Stamp, Timestamp,
};
use twobox_engine::relay::{Relay, RelayOptions};
use twobox_engine::replay::{Bulk, SentMessages};
use twobox_engine::{Shutdown, Timer};
use twobox_sqlite::{Drive, Sqlite, VerifyOptions, verify};
use twobox_testkit::{ScriptedTransport, SeededRandom, VirtualClock, eventually};

use crate::fixture::Place;

const EVER: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_secs(600);

/// A shop whose messages go to a receiver that answers as it is told, on a clock that jumps.
struct World {
    folder: Place,
    db: Sqlite,
    clock: Arc<VirtualClock>,
    arrived: Arc<Mutex<Vec<Arc<Message>>>>,
}

impl World {
    async fn new() -> Self {
        let (folder, clock) = (Place::new(), Arc::new(VirtualClock::start()));
        let builder = Sqlite::builder()
            .drive(Drive::Manual)
            .clock(Arc::clone(&clock) as _)
            .random(Arc::new(SeededRandom::new(7)));
        let db = builder.open(folder.database()).await.unwrap();
        tokio::spawn({
            let db = db.clone();
            async move { db.drive().await }
        });
        db.migrate().await.unwrap();
        Self { folder, db, clock, arrived: Arc::default() }
    }

    async fn enqueue(&self, id: &str, key: Option<&str>) {
        let stamp = Stamp::new(Source::new("shop").unwrap(), self.db.clock(), self.db.random()).ttl(TTL);
        let mut new = NewMessage::json("billing", if id.starts_with('x') { "Ship" } else { "Pay" }, &id)
            .unwrap()
            .id(id.parse().unwrap());
        if let Some(key) = key {
            new = new.ordering_key(OrderingKey::new(key).unwrap());
        }
        let (message, inside) = (stamp.message(&new).unwrap(), self.db.clone());
        self.db.transaction::<_, Error, _>(move |tx| inside.append(tx, &message).map(drop)).await.unwrap();
    }

    /// Relays until so many messages were acknowledged in all; `answer` is given their id.
    async fn relay(&self, sent: u64, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) {
        let arrived = Arc::clone(&self.arrived);
        let transport = ScriptedTransport::new(move |_, batch| {
            arrived.lock().unwrap().extend(batch.iter().cloned());
            Ok(batch.iter().map(|message| answer(message.id.as_str())).collect())
        });
        let timer: Arc<dyn Timer> = Arc::clone(&self.clock) as _;
        let relay = Relay::builder(self.db.clone(), Source::new("shop").unwrap(), timer, self.db.random())
            .destination(Destination::new("billing").unwrap(), Arc::new(transport))
            .unwrap()
            .options(RelayOptions::default())
            .build()
            .unwrap();
        let (stop, shutdown) = Shutdown::new();
        let running = tokio::spawn(relay.run(shutdown));
        eventually("sent", EVER, async || {
            let lanes = self.db.lanes().await.unwrap();
            lanes.iter().any(|lane| lane.sent >= sent).then_some(())
        })
        .await;
        stop.request();
        running.await.unwrap();
    }

    async fn pass(&self, time: Duration) {
        Timer::sleep(&*self.clock, time).await;
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The ids that have arrived since the last call.
    fn arrived(&self) -> Vec<String> {
        let arrived = std::mem::take(&mut *self.arrived.lock().unwrap());
        arrived.iter().map(|message| message.id.to_string()).collect()
    }

    async fn resend(&self, filter: ResendFilter) -> u64 {
        let bulk = Bulk::new(Arc::clone(&self.clock) as _).batch(3.try_into().unwrap());
        let (_stop, shutdown) = Shutdown::new();
        let sent = SentMessages::resend(self.db.clone(), filter, TTL);
        let progress = bulk.run(sent, shutdown, |_| {}).await.unwrap();
        assert!(progress.finished);
        progress.done
    }

    fn is_sound(&self) {
        let found = verify(self.folder.database(), VerifyOptions::Full).unwrap().findings;
        assert!(found.is_empty(), "{found:?}");
    }
}

fn done(_: &str) -> Answer {
    Answer::Done(Some(Response::empty()))
}

fn since(since: Timestamp) -> ResendFilter {
    ResendFilter { since, ..ResendFilter::default() }
}

/// Those that were sent since a time, once each, in log order, under their own ids; whether they went at once or had to
/// wait first. None that was sent before, and none that was not sent.
#[tokio::test(start_paused = true)]
async fn rf_18_what_was_sent_since_a_time_is_sent_again() {
    let world = World::new().await;
    for n in 0..10 {
        world.enqueue(&format!("a{n}"), None).await;
    }
    world.relay(10, done).await;
    world.pass(Duration::from_secs(60)).await;
    let then = world.now();
    for n in 0..10 {
        world.enqueue(&format!("b{n}"), None).await;
    }
    // Some fail once, and are sent later, after those that were enqueued behind them.
    let failed = Mutex::new(std::collections::HashSet::new());
    world
        .relay(20, move |id| {
            if id.ends_with('3') && failed.lock().unwrap().insert(id.to_owned()) {
                return Answer::Retry { after: None, error: "not yet".into() };
            }
            done(id)
        })
        .await;
    world.arrived();
    let count = async |filter: &ResendFilter| world.db.resendable(filter, 1_000).await.unwrap();
    assert_eq!(count(&since(then)).await.messages, 10);
    assert_eq!(count(&since(Timestamp::default())).await.messages, 20);
    assert_eq!(world.db.resendable(&since(then), 4).await.unwrap().messages, 4, "counted up to a limit");
    assert_eq!(world.arrived(), [""; 0], "counting sends nothing");

    world.pass(TTL * 2).await; // what is sent again is worth delivering again
    world.enqueue("c", None).await;
    assert_eq!(world.resend(since(then)).await, 10);
    world.is_sound();
    world.relay(31, |id| if id == "c" { done(id) } else { Answer::Duplicate(None) }).await;
    let mut arrived = world.arrived();
    arrived.retain(|id| id != "c");
    let wanted: Vec<String> = (0..10).map(|n| format!("b{n}")).collect();
    assert_eq!(arrived, wanted, "in log order, each once");
    assert!(world.arrived.lock().unwrap().iter().all(|message| message.replay == 0));
    world.is_sound();
}

#[tokio::test(start_paused = true)]
async fn rf_18_s12_keys_keep_their_order_and_new_messages_wait_for_what_is_sent_again() {
    let world = World::new().await;
    for n in 0..6 {
        world.enqueue(&format!("k{n}"), Some(if n % 2 == 0 { "even" } else { "odd" })).await;
    }
    world.relay(6, done).await;
    world.arrived();
    assert_eq!(world.resend(since(Timestamp::default())).await, 6);
    world.enqueue("k6", Some("even")).await;
    world.is_sound();
    world.relay(13, done).await;
    let arrived = world.arrived();
    for parity in [0, 1] {
        let of_key: Vec<&String> =
            arrived.iter().filter(|id| id[1..].parse::<u32>().unwrap() % 2 == parity).collect();
        assert!(of_key.is_sorted(), "{arrived:?}");
    }
    assert_eq!(arrived.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn rf_18_filters_choose_what_is_sent_again() {
    let world = World::new().await;
    for id in ["a", "x", "b", "xx"] {
        world.enqueue(id, None).await;
    }
    world.relay(4, done).await;
    world.arrived();
    let all = since(Timestamp::default());
    let ship = ResendFilter { endpoint: Some(Endpoint::new("Ship").unwrap()), ..all.clone() };
    let elsewhere = ResendFilter { destination: Some(Destination::new("other").unwrap()), ..all.clone() };
    let earlier = ResendFilter { before: Some(Timestamp::default()), ..all.clone() };
    assert_eq!(world.resend(elsewhere).await, 0);
    assert_eq!(world.resend(earlier).await, 0);
    assert_eq!(world.resend(ship).await, 2);
    world.relay(6, done).await;
    assert_eq!(world.arrived(), ["x", "xx"]);
    assert_eq!(world.resend(all).await, 4, "what was sent again was sent since then as well");
}

/// What is no longer in the log cannot be sent again, and that is said.
#[tokio::test(start_paused = true)]
async fn rf_18_what_was_trimmed_is_told_as_missing() {
    let world = World::new().await;
    world.enqueue("old", None).await;
    world.relay(1, done).await;
    let first = world.now();
    world.pass(Duration::from_secs(3600)).await;
    world.enqueue("young", None).await;
    world.relay(2, done).await;
    let plan = SweepPlan { sent_retention: Duration::from_secs(600), ..SweepPlan::default() };
    assert!(world.db.resendable(&since(Timestamp::default()), 10).await.unwrap().trimmed.is_empty());
    while world.db.sweep(&plan).await.unwrap().more {}
    let found = world.db.resendable(&since(Timestamp::default()), 10).await.unwrap();
    assert_eq!(found.messages, 1);
    let [trimmed] = &found.trimmed[..] else { panic!("{found:?}") };
    assert!(trimmed.until <= first && trimmed.destination.as_str() == "billing", "{trimmed:?}");
    let later = trimmed.until.plus(Duration::from_micros(1));
    assert!(
        world.db.resendable(&since(later), 10).await.unwrap().trimmed.is_empty(),
        "nothing later is missing"
    );
}
