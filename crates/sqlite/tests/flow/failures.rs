//! Retries, outages, killers, expiry.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use twobox_core::config::Timing;
use twobox_core::ports::{Answer, DeadLetterFilter, DeadLetterStore, DeliveryError};
use twobox_core::retry::Policy;
use twobox_core::{Clock, Response};
use twobox_engine::relay::RelayOptions;
use twobox_testkit::{ScriptedTransport, eventually};

use crate::world::{EVER, World, series};

fn retry() -> Answer {
    Answer::Retry { after: None, error: "not now".into() }
}

fn ok() -> Answer {
    Answer::Done(Some(Response::empty()))
}

fn options(attempts: u32) -> RelayOptions {
    let retry = Policy::default().attempts_max(NonZeroU32::new(attempts).unwrap());
    RelayOptions { timing: Timing { retry, ..Timing::default() }, ..RelayOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn rf_04_l9_failed_messages_are_retried_with_growing_delays_and_leave_rows() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let times = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (clock, seen) = (Arc::clone(&world.clock), Arc::clone(&times));
    let transport = ScriptedTransport::new(move |n, _| {
        seen.lock().unwrap().push(clock.monotonic());
        Ok(vec![if n < 3 { retry() } else { ok() }])
    });
    let relay = world.relay(&[("billing", Arc::new(transport))], RelayOptions::default());
    world.until("m0", "Sent").await;
    assert_eq!(world.status("m0").await, Some(("Sent".into(), 3)), "its attempts are still known (L2)");
    let times = times.lock().unwrap().clone();
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (gap, least) in gaps.iter().zip([2.0, 4.0, 8.0]) {
        assert!((least..least + 0.7).contains(gap), "{gaps:?}");
    }
    let history = world.db.message_status(&"m0".parse().unwrap()).await.unwrap().unwrap().history;
    let attempts: Vec<u32> = history.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(attempts, [1, 2, 3], "L9: failed attempts leave rows");
    assert!(history.iter().all(|attempt| attempt.error == "not now"));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adr_07_a_poison_message_dies_and_blocks_nobody() {
    let world = World::new().await;
    world.enqueue_many("m", 20).await;
    let transport =
        ScriptedTransport::each(|message| if message.id.as_str() == "m3" { retry() } else { ok() });
    let relay = world.relay(&[("billing", Arc::new(transport))], RelayOptions::default());
    world.until("m3", "Failed").await;
    assert_eq!(world.status("m3").await, Some(("Failed".into(), 6)));
    assert_eq!(world.lane("billing").await.sent, 19);
    let letters = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap();
    assert_eq!(letters[0].reason.as_str(), "attempts-exhausted");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l3_a_nights_outage_charges_nobody_and_kills_nothing() {
    let world = World::new().await;
    let ids = world.enqueue_many("m", 1_000).await;
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let transport = ScriptedTransport::new(move |n, batch| {
        if is_up.load(Ordering::SeqCst) {
            return Ok(vec![ok(); batch.len()]);
        }
        // Refused connections and time-outs by turns.
        if n.is_multiple_of(3) {
            Err(DeliveryError::ambiguous("timed out"))
        } else {
            Err(DeliveryError::unreachable("connection refused"))
        }
    });
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], options(3));
    world.pass(Duration::from_secs(10 * 3600)).await;
    let during = transport.requests().iter().filter(|request| !request.is_empty()).count();
    assert!(during < 20, "the lane is probed with empty requests, not with messages: {during}");
    let probes = transport.requests().len() - during;
    assert!((1_000..10_000).contains(&probes), "{probes} probes in ten hours");
    up.store(true, Ordering::SeqCst);
    world.until_sent(1_000).await;
    for id in &ids {
        assert_eq!(world.status(id).await, Some(("Sent".into(), 0)));
    }
    assert!(world.lane("billing").await.held_since.is_none());
    relay.stop().await;
}

/// A receiver that dies whenever it meets a killer, and is back a second later.
fn mortal(world: &World, killer: &'static str) -> ScriptedTransport {
    let down_until = std::sync::Mutex::new(Duration::ZERO);
    let clock = Arc::clone(&world.clock);
    ScriptedTransport::new(move |_, batch| {
        let mut down_until = down_until.lock().unwrap();
        if clock.monotonic() < *down_until {
            return Err(DeliveryError::unreachable("connection refused"));
        }
        if batch.iter().any(|message| message.id.as_str().starts_with(killer)) {
            *down_until = clock.monotonic() + Duration::from_secs(1);
            return Err(DeliveryError::ambiguous("connection reset"));
        }
        Ok(vec![ok(); batch.len()])
    })
}

#[tokio::test(start_paused = true)]
async fn l3_a_message_that_kills_its_receiver_is_found_and_dies_alone() {
    let world = World::new().await;
    world.enqueue_many("m", 300).await;
    let relay = world.relay(&[("billing", Arc::new(mortal(&world, "m123")))], options(3));
    world.until("m123", "Failed").await;
    world.until_sent(299).await;
    assert_eq!(world.status("m123").await, Some(("Failed".into(), 3)));
    for n in (0..300).filter(|n| *n != 123) {
        assert_eq!(world.status(&format!("m{n}")).await, Some(("Sent".into(), 0)), "m{n} is innocent");
    }
    let letter = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().remove(0);
    assert!(letter.error.unwrap().starts_with("outcome unknown"), "it may have happened");
    relay.stop().await;
}

/// There is always something in the log that could be sent first when the receiver answers a probe.
#[tokio::test(start_paused = true)]
async fn l3_l9_a_message_that_kills_its_receiver_dies_although_others_keep_coming() {
    let world = World::new().await;
    world.enqueue(vec![world.message("killer", "billing")]).await;
    let relay = world.relay(&[("billing", Arc::new(mortal(&world, "killer")))], options(3));
    let mut others = Vec::new();
    while others.len() < 1_000 && !world.is("killer", "Failed").await {
        others.extend(world.enqueue_many(&format!("m{}-", others.len()), 1).await);
        world.pass(Duration::from_millis(100)).await;
    }
    assert_eq!(world.status("killer").await, Some(("Failed".into(), 3)), "after {} others", others.len());
    world.until_sent(others.len() as u64).await;
    for id in &others {
        assert_eq!(world.status(id).await, Some(("Sent".into(), 0)), "{id} is innocent");
    }
    let history = world.db.message_status(&"killer".parse().unwrap()).await.unwrap().unwrap().history;
    let attempts: Vec<u32> = history.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    relay.stop().await;
}

/// Their retries break the receiver again and again, for as long as they have attempts.
#[tokio::test(start_paused = true)]
async fn l3_messages_that_kill_their_receiver_leave_time_for_others() {
    let world = World::new().await;
    let killers = world.enqueue_many("killer", 8).await;
    let relay = world.relay(&[("billing", Arc::new(mortal(&world, "killer")))], options(3));
    for id in &killers {
        let charged = async || world.status(id).await.filter(|(_, attempts)| *attempts > 0);
        eventually("all are retried", EVER, charged).await;
    }
    let (mut count, mut behind) = (0, 0);
    while count < 3_000 && world.lane("billing").await.failed < 8 {
        world.enqueue_many(&format!("m{count}-"), 1).await;
        count += 1;
        world.pass(Duration::from_millis(100)).await;
        behind = behind.max(count - world.lane("billing").await.sent);
    }
    assert_eq!(world.lane("billing").await.failed, 8, "after {count} others");
    assert!(behind < 100, "others waited for up to {behind} tenths of a second");
    world.until_sent(count).await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_messages_expire_while_the_lane_is_held() {
    let world = World::new().await;
    let short = world.message("short", "billing").ttl(Duration::from_secs(60));
    let long = world.message("long", "billing").ttl(Duration::from_secs(600));
    world.enqueue(vec![short, long]).await;
    let dead = ScriptedTransport::new(|_, _| Err(DeliveryError::unreachable("connection refused")));
    let relay = world.relay(&[("billing", Arc::new(dead.clone()))], RelayOptions::default());
    let before = tokio::time::Instant::now();
    world.until("short", "Expired").await;
    let took = before.elapsed();
    assert!((Duration::from_secs(60)..Duration::from_secs(90)).contains(&took), "{took:?}");
    assert_eq!(world.status("long").await, Some(("Pending".into(), 0)));
    world.until("long", "Expired").await;
    assert_eq!(world.lane("billing").await.expired, 2);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_message_without_a_route_fails_visibly_after_the_grace_period() {
    let world = World::new().await;
    world.enqueue(vec![world.message("lost", "nowhere"), world.message("fine", "billing")]).await;
    let relay = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], RelayOptions::default());
    world.until("fine", "Sent").await;
    let before = tokio::time::Instant::now();
    world.until("lost", "Failed").await;
    assert!(
        before.elapsed() >= Duration::from_secs(590),
        "a rolling deploy has time: {:?}",
        before.elapsed()
    );
    let letter = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().remove(0);
    assert_eq!(letter.reason.as_str(), "no-route");
    relay.stop().await;
}

/// The process that routes the destination takes its lanes a moment later than one that does not.
#[tokio::test(start_paused = true)]
async fn s13_l6_a_clock_that_jumps_ahead_gives_no_destination_up() {
    clock_jumps_ahead(Duration::from_secs(98)).await;
}

/// The clock jumps between the relay's look at it and the store's.
#[tokio::test(start_paused = true)]
async fn s13_l6_a_clock_that_jumps_ahead_while_lanes_are_taken_gives_no_destination_up() {
    clock_jumps_ahead(Duration::from_secs(100)).await;
}

/// Nobody could register meanwhile, as when somebody else's transaction holds the file.
#[tokio::test(start_paused = true)]
async fn l6_a_store_that_stood_still_while_lanes_were_taken_gives_no_destination_up() {
    let world = World::new().await;
    let options = || RelayOptions { route_grace: Duration::from_secs(60), ..RelayOptions::default() };
    let refused = ScriptedTransport::new(|_, _| Err(DeliveryError::unreachable("connection refused")));
    world.enqueue(vec![world.message("m", "crm")]).await;
    let routes = world.relay(&[("crm", Arc::new(refused))], options());
    let routes_not = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], options());
    world.pass(Duration::from_secs(102)).await;
    routes.kill();
    world.stall_writer();
    world.pass(Duration::from_secs(120)).await;
    let db = world.db.clone();
    let driving = tokio::spawn(async move { db.drive().await });
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.status("m").await, Some(("Pending".into(), 0)));
    let routes = world.relay(&[("crm", Arc::new(ScriptedTransport::sink()))], options());
    world.until("m", "Sent").await;
    routes_not.stop().await;
    routes.stop().await;
    driving.abort();
}

/// One of the processes does not route the destination; it takes its lanes every five seconds.
async fn clock_jumps_ahead(after: Duration) {
    let world = World::new().await;
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let crm = ScriptedTransport::new(move |_, batch| match is_up.load(Ordering::SeqCst) {
        true => Ok(vec![ok(); batch.len()]),
        false => Err(DeliveryError::unreachable("connection refused")),
    });
    let options = || RelayOptions { route_grace: Duration::from_secs(60), ..RelayOptions::default() };
    world.enqueue(vec![world.message("m", "crm")]).await;
    let routes = world.relay(&[("crm", Arc::new(crm))], options());
    world.pass(Duration::from_secs(3)).await;
    let routes_not = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], options());
    world.pass(after).await;
    // In a task of its own: after the relay's turn, if it has one now, and before that of the store.
    let clock = Arc::clone(&world.clock);
    tokio::spawn(async move { clock.step_micros(3600 * 1_000_000) }).await.unwrap();
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.status("m").await, Some(("Pending".into(), 0)));
    up.store(true, Ordering::SeqCst);
    world.until("m", "Sent").await;
    routes_not.stop().await;
    routes.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adr_05_scheduled_messages_are_delivered_when_due() {
    let world = World::new().await;
    let due = world.clock.now().plus(Duration::from_secs(3600));
    let later = world.message("later", "billing").due(due);
    world.enqueue(vec![later, world.message("now", "billing")]).await;
    let (clock, arrived) = (Arc::clone(&world.clock), Arc::new(std::sync::Mutex::new(Vec::new())));
    let seen = Arc::clone(&arrived);
    let sink = ScriptedTransport::each(move |message| {
        seen.lock().unwrap().push((message.id.to_string(), clock.now()));
        ok()
    });
    let relay = world.relay(&[("billing", Arc::new(sink))], RelayOptions::default());
    world.until("later", "Sent").await;
    let arrived = arrived.lock().unwrap().clone();
    assert_eq!(arrived.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["now", "later"]);
    assert!(arrived[1].1 >= due, "not before its time");
    let late = arrived[1].1.since(due);
    assert!(late < Duration::from_millis(100), "{late:?} late");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s13_a_clock_that_jumps_parks_nothing() {
    let world = World::new().await;
    let year = 365 * 24 * 3600 * 1_000_000_i64;
    world.clock.step_micros(year);
    let patient = world.message("m", "billing").ttl(EVER * 1_000);
    world.enqueue(vec![patient]).await;
    let transport = ScriptedTransport::new(|n, _| Ok(vec![if n == 0 { retry() } else { ok() }]));
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], RelayOptions::default());
    eventually("the first attempt fails", EVER, async || {
        world.status("m").await.filter(|(_, attempts)| *attempts == 1)
    })
    .await;
    world.clock.step_micros(-year);
    let before = tokio::time::Instant::now();
    world.until("m", "Sent").await;
    assert!(before.elapsed() < Duration::from_secs(310), "{:?}", before.elapsed());
    assert!(transport.requests().len() < 10, "and nothing spins");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s19_an_undecodable_row_dies_alone_with_its_bytes() {
    let world = World::new().await;
    world.enqueue_many("a", 2).await;
    let garbage = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload, headers) \
                   VALUES ('bad', 'shop', 'billing', 'Pay', x'fffe', 'no json')";
    world.db.transaction::<_, twobox_core::Error, _>(move |tx| tx.execute(garbage, [])).await.unwrap();
    world.enqueue_many("b", 2).await;
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.until("bad", "Failed").await;
    world.until_sent(4).await;
    assert_eq!(sink.sent(), ["a0", "a1", "b0", "b1"]);
    let payload = world.query("SELECT payload FROM outbox_waiting", |row| row.get::<Vec<u8>>(0)).await;
    assert_eq!(payload, [vec![0xff, 0xfe]]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s19_a_content_type_that_no_envelope_can_carry_dies_alone() {
    let world = World::new().await;
    world.enqueue_many("a", 2).await;
    let insert = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload, content_type) \
                  VALUES (?1, 'shop', 'billing', 'Pay', '1', ?2)";
    let odd = move |tx: &mut twobox_sqlite::SqliteTx<'_>| {
        tx.execute(insert, ("control", "text/plain\n"))?;
        tx.execute(insert, ("long", "x".repeat(256)))
    };
    world.db.transaction::<_, twobox_core::Error, _>(odd).await.unwrap();
    world.enqueue_many("b", 2).await;
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.until_sent(4).await;
    world.until("control", "Failed").await;
    world.until("long", "Failed").await;
    assert_eq!(sink.sent(), ["a0", "a1", "b0", "b1"]);
    let letters = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), ["undecodable"; 2]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s19_a_destination_that_is_no_name_stops_nobody_else_and_dies_visibly() {
    let world = World::new().await;
    let insert = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload) \
                  VALUES (?1, 'shop', CAST(?2 AS TEXT), 'Pay', '1')";
    let odd = move |tx: &mut twobox_sqlite::SqliteTx<'_>| {
        tx.execute(insert, ("control", &b"audit\n"[..]))?;
        tx.execute(insert, ("bytes", &b"audit\xff"[..]))
    };
    world.db.transaction::<_, twobox_core::Error, _>(odd).await.unwrap();
    world.enqueue_many("m", 3).await;
    let relay = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], RelayOptions::default());
    world.until_sent(3).await;
    world.until("control", "Failed").await;
    world.until("bytes", "Failed").await;
    let letters = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), ["undecodable"; 2]);
    world.enqueue_many("later", 3).await;
    world.until_sent(6).await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_panics_or_miscounts_loses_nothing() {
    let world = World::new().await;
    let ids = world.enqueue_many("m", 10).await;
    let transport = ScriptedTransport::with_futures(|n, batch| {
        let count = batch.len();
        Box::pin(async move {
            match n {
                0 => panic!("a transport's own mistake"),
                2 => Ok(vec![ok(); count + 1]),
                _ => Ok(vec![ok(); count]),
            }
        })
    });
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], RelayOptions::default());
    world.until_sent(10).await;
    let arrived: HashSet<String> = transport.sent().into_iter().collect();
    assert_eq!(arrived, ids.into_iter().collect());
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s7_in_progress_is_asked_again_and_charges_nobody() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let after = Duration::from_secs(1);
    let transport = ScriptedTransport::new(move |n, _| {
        Ok(vec![if n < 8 {
            Answer::InProgress { after }
        } else {
            Answer::Duplicate(Some(Response::empty()))
        }])
    });
    let relay = world.relay(&[("billing", Arc::new(transport))], options(3));
    world.until("m0", "Sent").await;
    assert_eq!(world.status("m0").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l1_state_is_reloaded_after_a_crash_and_everything_arrives() {
    let world = World::new().await;
    let sink = ScriptedTransport::sink();
    for round in 0..5 {
        world.enqueue_many(&format!("r{round}-"), 700).await;
        let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
        let wanted = sink.requests().len() + 1;
        eventually("a request is out", EVER, async || (sink.requests().len() >= wanted).then_some(())).await;
        relay.kill();
        world.pass(Duration::from_secs(16)).await;
    }
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.until("r4-699", "Sent").await;
    let arrived: HashSet<String> = sink.sent().into_iter().collect();
    let expected = (0..5).flat_map(|round| series(&format!("r{round}-"), 0..700));
    assert_eq!(arrived, expected.collect());
    relay.stop().await;
}
