//! Many dead letters at once: replayed or purged in batches, at a pace, and stopped on the way.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use twobox_core::ports::{Answer, DeadLetterFilter, DeadLetterStore, Replay};
use twobox_core::{Clock, Response};
use twobox_engine::relay::RelayOptions;
use twobox_engine::replay::Progress;
use twobox_engine::{Bulk, OutboxLetters, Shutdown};
use twobox_sqlite::Sqlite;
use twobox_testkit::ScriptedTransport;

use crate::world::{Running, World, series};

const DAY: Duration = Duration::from_secs(24 * 3600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A receiver that rejects everything until it is mended.
struct Peer {
    transport: ScriptedTransport,
    mended: Arc<AtomicBool>,
}

impl Peer {
    fn new() -> Self {
        let mended = Arc::new(AtomicBool::new(false));
        let is_mended = Arc::clone(&mended);
        let transport = ScriptedTransport::each(move |_| match is_mended.load(Ordering::SeqCst) {
            true => Answer::Done(Some(Response::empty())),
            false => Answer::Rejected { error: "never".into() },
        });
        Self { transport, mended }
    }

    fn mend(&self) {
        self.mended.store(true, Ordering::SeqCst);
    }

    fn relay(&self, world: &World) -> Running {
        world.relay(&[("billing", Arc::new(self.transport.clone()))], RelayOptions::default())
    }

    /// How often each message was sent.
    fn times(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        for id in self.transport.sent() {
            *times.entry(id).or_default() += 1;
        }
        times
    }
}

/// A world in which this many messages have died.
async fn dead(count: usize) -> (World, Peer, Running) {
    let (world, peer) = (World::new().await, Peer::new());
    world.enqueue_many("m", count).await;
    let relay = peer.relay(&world);
    world.until(&format!("m{}", count - 1), "Failed").await;
    world.pass(MILLISECOND).await; // so that they died before whatever begins now
    (world, peer, relay)
}

fn bulk(world: &World, batch: u32, per_second: u32) -> Bulk {
    let (batch, per_second) = (NonZeroU32::new(batch).unwrap(), NonZeroU32::new(per_second).unwrap());
    Bulk::new(Arc::clone(&world.clock) as _).batch(batch).per_second(per_second)
}

fn replay(world: &World) -> OutboxLetters<Sqlite> {
    OutboxLetters::replay(world.db.clone(), DeadLetterFilter::default(), Replay::SameId, DAY)
}

fn purge(world: &World) -> OutboxLetters<Sqlite> {
    OutboxLetters::purge(world.db.clone(), DeadLetterFilter::default())
}

async fn count(world: &World) -> u64 {
    world.db.dead_letter_count(&DeadLetterFilter::default(), 1_000).await.unwrap()
}

async fn rows(world: &World, sql: &'static str) -> i64 {
    world.query(sql, |row| row.get::<i64>(0)).await[0]
}

#[tokio::test(start_paused = true)]
async fn rf_05_everything_is_replayed_in_batches_and_at_the_pace() {
    let (world, peer, relay) = dead(250).await;
    peer.mend();
    let (_handle, shutdown) = Shutdown::new();
    let (start, mut told) = (world.clock.monotonic(), Vec::new());
    let tell = |progress: Progress| told.push(progress.done);
    let progress = bulk(&world, 40, 20).run(replay(&world), shutdown, tell).await.unwrap();
    let took = world.clock.monotonic() - start;
    assert_eq!(progress, Progress { done: 250, finished: true });
    assert_eq!(
        told,
        (1..=12).map(|n| 20 * n).chain([250]).collect::<Vec<_>>(),
        "no more than a second may take"
    );
    assert!((Duration::from_secs(12)..Duration::from_secs(13)).contains(&took), "{took:?}");
    world.until_sent(250).await;
    assert_eq!(count(&world).await, 0);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rf_05_what_dies_again_is_not_replayed_again_by_the_same_call() {
    let (world, peer, relay) = dead(30).await;
    let (_handle, shutdown) = Shutdown::new();
    let bounded = |progress: Progress| assert!(progress.done <= 30, "it goes round in circles");
    let progress = bulk(&world, 10, 10).run(replay(&world), shutdown.clone(), bounded).await.unwrap();
    assert_eq!(progress, Progress { done: 30, finished: true });
    world.pass(Duration::from_secs(1)).await;
    assert!(peer.times().values().all(|times| *times == 2), "{:?}", peer.times());
    assert_eq!(count(&world).await, 30);
    peer.mend();
    let progress = bulk(&world, 10, 10).run(replay(&world), shutdown, |_| {}).await.unwrap();
    assert_eq!(progress.done, 30, "another call does");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s13_a_clock_that_steps_back_makes_no_message_die_twice_in_one_call() {
    for age in [MILLISECOND, Duration::from_secs(7_200)] {
        let (world, peer, relay) = dead(30).await;
        world.pass(age).await;
        let (_handle, shutdown) = Shutdown::new();
        let (clock, mut stepped) = (Arc::clone(&world.clock), false);
        let step = move |progress: Progress| {
            assert!(progress.done <= 30, "it goes round in circles");
            if !std::mem::replace(&mut stepped, true) {
                clock.step_micros(-3_600_000_000);
            }
        };
        let progress = bulk(&world, 10, 10).run(replay(&world), shutdown, step).await.unwrap();
        assert_eq!(progress, Progress { done: 30, finished: true }, "{age:?}");
        world.pass(Duration::from_secs(1)).await;
        assert!(peer.times().values().all(|times| *times == 2), "{age:?}: {:?}", peer.times());
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s20_a_replay_stops_when_asked_and_another_call_goes_on() {
    let (world, peer, relay) = dead(50).await;
    peer.mend();
    let (handle, shutdown) = Shutdown::new();
    let start = world.clock.monotonic();
    let stop_at_twenty = |progress: Progress| {
        if progress.done == 20 {
            handle.request();
        }
    };
    let progress = bulk(&world, 10, 10).run(replay(&world), shutdown.clone(), stop_at_twenty).await.unwrap();
    assert_eq!(progress, Progress { done: 20, finished: false });
    assert!(world.clock.monotonic() - start < Duration::from_secs(2), "it does not wait for its pace");
    assert_eq!(count(&world).await, 30, "what was done is done");
    let nothing = bulk(&world, 10, 10).run(replay(&world), shutdown, |_| {}).await.unwrap();
    assert_eq!(nothing, Progress::default(), "stopped before it starts");
    let (_handle, shutdown) = Shutdown::new();
    let progress = bulk(&world, 10, 1_000).run(replay(&world), shutdown, |_| {}).await.unwrap();
    assert_eq!(progress, Progress { done: 30, finished: true });
    world.until_sent(50).await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rf_05_what_is_purged_leaves_nothing_and_is_never_sent_again() {
    let (world, peer, relay) = dead(30).await;
    let (_handle, shutdown) = Shutdown::new();
    let progress = bulk(&world, 7, 100).run(purge(&world), shutdown, |_| {}).await.unwrap();
    assert_eq!(progress, Progress { done: 30, finished: true });
    for table in [
        "SELECT count(*) FROM outbox_log",
        "SELECT count(*) FROM outbox_waiting",
        "SELECT count(*) FROM outbox_attempts",
        "SELECT count(*) FROM outbox_messages",
    ] {
        assert_eq!(rows(&world, table).await, 0, "{table}");
    }
    relay.stop().await;
    peer.mend();
    world.enqueue_many("new", 1).await;
    let relay = peer.relay(&world);
    world.until("new0", "Sent").await;
    world.pass(DAY).await;
    assert_eq!(peer.transport.sent(), [series("m", 0..30), series("new", 0..1)].concat());
    relay.stop().await;
}
