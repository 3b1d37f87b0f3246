//! Batches, lanes, leases, settling, stopping.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use twobox_core::ports::{Answer, DeliveryError, LaneStore, Transport};
use twobox_core::{Clock, Random, Response};
use twobox_engine::relay::RelayOptions;
use twobox_testkit::{ScriptedTransport, SeededRandom, eventually};

use crate::world::{EVER, World, series};

fn done(count: usize) -> Vec<Answer> {
    vec![Answer::Done(Some(Response::empty())); count]
}

/// Acknowledges everything after a while.
fn slow(world: &World, delay: Duration) -> ScriptedTransport {
    ScriptedTransport::delayed(Arc::clone(&world.clock) as _, delay, |_, batch| Ok(done(batch.len())))
}

#[tokio::test(start_paused = true)]
async fn rf_03_messages_are_delivered_in_order_and_marked_sent() {
    let world = World::new().await;
    let ids = world.enqueue_many("m", 1_200).await;
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.until_sent(1_200).await;
    assert_eq!(sink.sent(), ids);
    let sizes: Vec<usize> = sink.requests().iter().map(Vec::len).collect();
    assert!(sizes.iter().all(|size| *size <= 500), "{sizes:?}");
    assert!(sizes.len() < 6, "messages travel in batches: {sizes:?}");
    assert_eq!(world.status("m700").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_wakes_the_relay_at_once() {
    let world = World::new().await;
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.enqueue_many("first", 1).await;
    world.until_sent(1).await;
    let before = tokio::time::Instant::now();
    world.enqueue_many("second", 1).await;
    world.until_sent(2).await;
    assert!(before.elapsed() < Duration::from_millis(50), "took {:?} of virtual time", before.elapsed());
    relay.stop().await;
}

/// The first message for a destination nobody has named finds its way at once, through a lane of its own.
#[tokio::test(start_paused = true)]
async fn rf_14_the_default_transport_serves_destinations_without_their_own() {
    let world = World::new().await;
    let (own, rest) = (ScriptedTransport::sink(), ScriptedTransport::sink());
    let relay = world.relay_by_default(&[("billing", Arc::new(own.clone()))], Arc::new(rest.clone()));
    let messages = ["billing", "crm", "mail"].map(|to| world.message(&format!("to-{to}"), to));
    let before = tokio::time::Instant::now();
    world.enqueue(messages.into()).await;
    for id in ["to-billing", "to-crm", "to-mail"] {
        world.until(id, "Sent").await;
    }
    assert!(before.elapsed() < Duration::from_millis(100), "took {:?} of virtual time", before.elapsed());
    assert_eq!(own.sent(), ["to-billing"]);
    let mut others = rest.requests();
    others.sort();
    assert_eq!(others, [["to-crm"], ["to-mail"]], "one request per lane");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l1_outcomes_are_settled_in_log_order() {
    let world = World::new().await;
    world.enqueue_many("m", 3).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let transport = ScriptedTransport::with_futures(move |n, batch| {
        let (held, answers) = (Arc::clone(&held), done(batch.len()));
        Box::pin(async move {
            if n == 0 {
                held.acquire().await.unwrap().forget();
            }
            Ok(answers)
        })
    });
    let options = RelayOptions { batch_messages_max: 1, ..RelayOptions::default() };
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], options);
    eventually("all are on their way", EVER, async || (transport.sent().len() == 3).then_some(())).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.status("m1").await, Some(("Sending".into(), 0)), "answered, but its turn has not come");
    assert_eq!(world.lane("billing").await.sent, 0);
    gate.add_permits(1);
    world.until_sent(3).await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s15_a_dead_and_a_slow_destination_delay_nobody_else() {
    const MANY: usize = 4_000;
    let world = World::new().await;
    let dead = ScriptedTransport::new(|_, _| Err(DeliveryError::unreachable("connection refused")));
    let slow = slow(&world, Duration::from_secs(5));
    let fast = ScriptedTransport::sink();
    // More than a lane has in memory and in requests.
    for rounds in (0..MANY).collect::<Vec<_>>().chunks(100) {
        let each = |round| ["dead", "slow", "fast"].map(|to| world.message(&format!("{to}{round}"), to));
        world.enqueue(rounds.iter().flat_map(each).collect()).await;
    }
    let before = tokio::time::Instant::now();
    let relay = world.relay(
        &[("dead", Arc::new(dead)), ("slow", Arc::new(slow.clone())), ("fast", Arc::new(fast.clone()))],
        RelayOptions::default(),
    );
    world.until(&format!("fast{}", MANY - 1), "Sent").await;
    assert!(before.elapsed() < Duration::from_secs(5), "fast took {:?}", before.elapsed());
    assert_eq!(fast.sent(), series("fast", 0..MANY));
    world.until(&format!("slow{}", MANY - 1), "Sent").await;
    assert_eq!(slow.sent(), series("slow", 0..MANY), "a lane that fell behind catches up and skips nothing");
    assert_eq!(world.status("dead0").await, Some(("Pending".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s5_a_relay_that_slept_past_its_lease_settles_nothing() {
    let world = World::new().await;
    world.enqueue_many("m", 2).await;
    let never =
        ScriptedTransport::delayed(Arc::clone(&world.clock) as _, Duration::from_secs(9), |_, batch| {
            Ok(vec![Answer::Rejected { error: "late".into() }; batch.len()])
        });
    let stalled = world.relay(&[("billing", Arc::new(never.clone()))], RelayOptions::default());
    eventually("the first relay sends", EVER, async || (!never.sent().is_empty()).then_some(())).await;
    // Its lease is taken over while its request is still out, as if it had been stopped (SIGSTOP).
    let steal =
        "UPDATE outbox_lanes SET lease_owner = 'other', lease_token = lease_token + 1, lease_until = 0";
    world.db.transaction::<_, twobox_core::Error, _>(move |tx| tx.execute(steal, [])).await.unwrap();
    world.pass(Duration::from_secs(9)).await;
    assert_eq!(world.lane("billing").await.failed, 0, "its late verdict changed nothing");
    stalled.kill();
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.until_sent(2).await;
    assert_eq!(sink.sent(), ["m0", "m1"]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l7_two_relays_on_one_file_share_the_work_and_lose_nothing() {
    let world = World::new().await;
    let (one, two) = (ScriptedTransport::sink(), ScriptedTransport::sink());
    let first = world.relay(&[("billing", Arc::new(one.clone()))], RelayOptions::default());
    world.enqueue_many("a", 10).await;
    world.until_sent(10).await;
    let second = world.relay(&[("billing", Arc::new(two.clone()))], RelayOptions::default());
    world.enqueue_many("b", 10).await;
    world.until_sent(20).await;
    assert!(two.sent().is_empty(), "the lane has one holder");
    first.kill();
    world.enqueue_many("c", 10).await;
    world.until_sent(30).await;
    assert_eq!(two.sent(), series("c", 0..10), "the other takes over when the lease is over");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s20_stopping_settles_what_was_answered_and_gives_lanes_back() {
    let world = World::new().await;
    world.enqueue_many("m", 5).await;
    let slow = slow(&world, Duration::from_secs(1));
    let relay = world.relay(&[("billing", Arc::new(slow.clone()))], RelayOptions::default());
    eventually("the request is out", EVER, async || (!slow.sent().is_empty()).then_some(())).await;
    relay.stop().await;
    assert_eq!(world.lane("billing").await.sent, 5, "the answer was waited for and settled");
    assert_eq!(world.lane("billing").await.owner, None, "the lane is free at once");
}

#[tokio::test(start_paused = true)]
async fn s20_stopping_does_not_wait_for_ever() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let stuck = ScriptedTransport::with_futures(|_, _| Box::pin(std::future::pending()));
    let relay = world.relay(&[("billing", Arc::new(stuck.clone()))], RelayOptions::default());
    eventually("the request is out", EVER, async || (!stuck.sent().is_empty()).then_some(())).await;
    let before = tokio::time::Instant::now();
    relay.stop().await;
    assert!(before.elapsed() <= Duration::from_secs(6), "took {:?}", before.elapsed());
    assert_eq!(world.lane("billing").await.owner, None);
    assert_eq!(world.status("m0").await.unwrap().1, 0, "nobody is charged for being abandoned");
}

#[tokio::test(start_paused = true)]
async fn w7_batches_shrink_to_what_the_receiver_manages() {
    let world = World::new().await;
    let ids = world.enqueue_many("m", 400).await;
    let slow = ScriptedTransport::new(|_, batch| {
        let reached = batch.len().min(30);
        let mut answers = done(reached);
        answers.resize(batch.len(), Answer::NotReached);
        Ok(answers)
    });
    let relay = world.relay(&[("billing", Arc::new(slow.clone()))], RelayOptions::default());
    world.until_sent(400).await;
    let sent = slow.sent();
    let mut firsts: Vec<String> = Vec::new();
    sent.iter().for_each(|id| {
        if !firsts.contains(id) {
            firsts.push(id.clone());
        }
    });
    assert_eq!(firsts, ids, "order is kept");
    assert!(sent.len() < 1_500, "{} deliveries for 400 messages", sent.len());
    assert_eq!(world.status("m399").await, Some(("Sent".into(), 0)), "nobody is charged");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l7_idle_lanes_do_not_pin_their_cursor() {
    let world = World::new().await;
    let transports: Vec<(&str, Arc<dyn Transport>)> = vec![
        ("billing", Arc::new(ScriptedTransport::sink())),
        ("quiet", Arc::new(ScriptedTransport::sink())),
    ];
    let relay = world.relay(&transports, RelayOptions::default());
    world.enqueue_many("m", 50).await;
    world.until_sent(50).await;
    world.pass(Duration::from_secs(20)).await;
    let cursors =
        world.query("SELECT cursor FROM outbox_lanes ORDER BY destination", |row| row.get::<i64>(0)).await;
    assert_eq!(cursors, [50, 50]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l3_a_held_lane_is_visible() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let dead = ScriptedTransport::new(|_, _| Err(DeliveryError::unreachable("connection refused")));
    let relay = world.relay(&[("billing", Arc::new(dead))], RelayOptions::default());
    let held = eventually("the lane is held", EVER, async || {
        Some(world.db.lanes().await.unwrap().pop()?).filter(|lane| lane.held_since.is_some())
    });
    let held = held.await;
    assert_eq!(held.held_error.as_deref(), Some("connection refused"));
    assert!(held.next_probe.is_some());
    relay.stop().await;
}

/// One run with chance in it: what was sent when, and what the database says at the end.
async fn chance_run(seed: u64) -> (Vec<(Duration, Vec<String>)>, Vec<(String, String, i64)>) {
    let world = World::with_seed(seed).await;
    let (clock, chance) = (Arc::clone(&world.clock), SeededRandom::new(seed));
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let transport = ScriptedTransport::new(move |_, batch| {
        let ids = batch.iter().map(|message| message.id.to_string()).collect();
        seen.lock().unwrap().push((clock.monotonic(), ids));
        if chance.next_u64().is_multiple_of(4) {
            return Err(DeliveryError::ambiguous("cut"));
        }
        let fate = |_| match chance.next_u64() % 3 {
            0 => Answer::Retry { after: None, error: "not now".into() },
            _ => Answer::Done(Some(Response::empty())),
        };
        Ok(batch.iter().map(fate).collect())
    });
    let transports: [(&str, Arc<dyn Transport>); 2] =
        [("billing", Arc::new(transport.clone())), ("audit", Arc::new(transport))];
    let relay = world.relay(&transports, RelayOptions::default());
    for round in 0..20 {
        let to = |to: &str| world.message(&format!("{to}{round}"), to);
        world.enqueue(vec![to("billing"), to("audit")]).await;
        world.pass(Duration::from_millis(100)).await;
    }
    world.pass(Duration::from_secs(600)).await;
    relay.stop().await;
    let sql = "SELECT message_id, status, retry_count FROM outbox_messages ORDER BY seq";
    let rows = world.query(sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).await;
    let log = log.lock().unwrap().clone();
    (log, rows)
}

#[tokio::test(start_paused = true)]
async fn w1_the_same_seed_gives_the_same_run() {
    let first = chance_run(42).await;
    assert_eq!(first, chance_run(42).await);
    assert_ne!(first.0, chance_run(43).await.0, "and another seed another one");
}
