//! Destinations that operators pause and resume.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::config::Timing;
use twobox_core::ports::ops::{Count, OutboxStats};
use twobox_core::ports::{Answer, DeliveryError, Link, OpsStore, Transport};
use twobox_core::{Clock, Destination, Message, Response, Source};
use twobox_engine::relay::RelayOptions;
use twobox_testkit::{ScriptedTransport, eventually};

use crate::world::{EVER, World, series};

const MINUTE: Duration = Duration::from_secs(60);

fn names(destination: &str) -> (Source, Destination) {
    (Source::new("shop").unwrap(), Destination::new(destination).unwrap())
}

async fn pause(world: &World, destination: &str) {
    let (source, destination) = names(destination);
    assert!(world.db.pause_lane(&source, &destination, "ann", "maintenance").await.unwrap());
}

async fn resume(world: &World, destination: &str) {
    let (source, destination) = names(destination);
    assert!(world.db.resume_lane(&source, &destination).await.unwrap());
}

async fn stats(world: &World) -> OutboxStats {
    world.db.outbox_stats(1_000).await.unwrap()
}

/// RF-22: while a lane is paused nothing is sent, nobody is charged, and others flow; resuming it sends all in order.
#[tokio::test(start_paused = true)]
async fn rf_22_a_paused_destination_gets_nothing_until_it_is_resumed() {
    let world = World::new().await;
    let (billing, crm) = (ScriptedTransport::sink(), ScriptedTransport::sink());
    let transports: [(&str, Arc<dyn Transport>); 2] =
        [("billing", Arc::new(billing.clone())), ("crm", Arc::new(crm.clone()))];
    let relay = world.relay(&transports, RelayOptions::default());
    world.enqueue_many("a", 3).await;
    world.until_sent(3).await;
    pause(&world, "billing").await;
    world.enqueue_many("b", 3).await;
    world.enqueue(vec![world.message("c", "crm")]).await;
    world.until("c", "Sent").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(billing.sent(), series("a", 0..3));
    assert_eq!(world.status("b0").await, Some(("Pending".into(), 0)));
    let paused = stats(&world).await;
    assert_eq!((paused.pending, paused.lanes[0].pending), (3, Count::exactly(3)));
    assert!(paused.lanes[0].oldest.unwrap() >= 10 * MINUTE);
    let before = world.clock.monotonic();
    resume(&world, "billing").await;
    eventually("all are sent", EVER, async || (billing.sent().len() == 6).then_some(())).await;
    let took = world.clock.monotonic() - before;
    assert!(took < Duration::from_secs(1), "it is woken, not polled: {took:?}");
    assert_eq!(billing.sent(), [series("a", 0..3), series("b", 0..3)].concat());
    relay.stop().await;
}

/// RF-22: what is on its way when a lane is paused is settled.
#[tokio::test(start_paused = true)]
async fn rf_22_what_is_on_its_way_is_settled_although_the_lane_is_paused() {
    let world = World::new().await;
    let (go, gate) = tokio::sync::watch::channel(false);
    let transport = ScriptedTransport::sink();
    let held = Held { inner: transport.clone(), gate };
    let relay = world.relay(&[("billing", Arc::new(held))], RelayOptions::default());
    world.enqueue_many("a", 2).await;
    world.until("a1", "Sending").await;
    pause(&world, "billing").await;
    world.enqueue_many("b", 2).await;
    world.pass(Duration::from_secs(1)).await;
    go.send(true).unwrap();
    world.until("a1", "Sent").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(transport.sent(), series("a", 0..2));
    assert_eq!(world.status("b0").await, Some(("Pending".into(), 0)));
    relay.stop().await;
}

/// Delivers once the gate is open.
struct Held {
    inner: ScriptedTransport,
    gate: tokio::sync::watch::Receiver<bool>,
}

impl Transport for Held {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (inner, link, mut gate) = (self.inner.clone(), Arc::clone(link), self.gate.clone());
        Box::pin(async move {
            gate.wait_for(|open| *open).await.map(drop).ok();
            inner.deliver(&link, batch, timeout).await
        })
    }
}

/// RF-22: a pause is stored with the lane: a relay that starts later heeds it from its first moment.
#[tokio::test(start_paused = true)]
async fn rf_22_a_pause_survives_a_restart() {
    let world = World::new().await;
    world.enqueue_many("m", 2).await;
    pause(&world, "billing").await;
    for _ in 0..3 {
        let transport = ScriptedTransport::sink();
        let relay = world.relay(&[("billing", Arc::new(transport.clone()))], RelayOptions::default());
        world.pass(2 * MINUTE).await;
        assert_eq!(transport.requests().len(), 0, "not even a probe");
        relay.stop().await;
    }
    resume(&world, "billing").await;
    let relay = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], RelayOptions::default());
    world.until_sent(2).await;
    relay.stop().await;
}

/// L6: what expires while a lane is paused expires, in the log and among what waits, and is a dead letter.
#[tokio::test(start_paused = true)]
async fn l6_rf_22_messages_of_a_paused_lane_expire() {
    let world = World::new().await;
    let transport = ScriptedTransport::each(|_| Answer::Retry { after: None, error: "not now".into() });
    let timing = Timing { ttl: 20 * MINUTE, ..Timing::default() };
    let relay = world.relay(
        &[("billing", Arc::new(transport.clone()))],
        RelayOptions { timing, ..RelayOptions::default() },
    );
    let short = |id: &str| world.message(id, "billing").ttl(20 * MINUTE);
    world.enqueue(vec![short("failed")]).await;
    eventually("it has failed", EVER, async || (transport.requests().len() == 1).then_some(())).await;
    pause(&world, "billing").await;
    world.enqueue(vec![short("new")]).await;
    world.pass(10 * MINUTE).await;
    let tried = transport.requests().len();
    assert!(tried <= 2, "a retry may have been on its way: {tried}");
    world.until("new", "Expired").await;
    world.until("failed", "Expired").await;
    assert_eq!(transport.requests().len(), tried);
    assert_eq!(stats(&world).await.waiting.dead, 2);
    relay.stop().await;
}

/// RF-22: pausing during an outage ends the probes; resuming begins with one.
#[tokio::test(start_paused = true)]
async fn rf_22_a_destination_that_is_down_is_not_probed_while_it_is_paused() {
    let world = World::new().await;
    let up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let transport = ScriptedTransport::new(move |_, batch| {
        if is_up.load(std::sync::atomic::Ordering::SeqCst) {
            return Ok(vec![Answer::Done(Some(Response::empty())); batch.len()]);
        }
        Err(DeliveryError::unreachable("connection refused"))
    });
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], RelayOptions::default());
    world.enqueue_many("m", 2).await;
    world.pass(MINUTE).await;
    assert!(transport.requests().len() > 2, "it is probed");
    pause(&world, "billing").await;
    world.pass(Duration::from_secs(1)).await;
    let before = transport.requests().len();
    world.pass(30 * MINUTE).await;
    assert_eq!(transport.requests().len(), before);
    up.store(true, std::sync::atomic::Ordering::SeqCst);
    resume(&world, "billing").await;
    world.until_sent(2).await;
    assert_eq!(world.status("m0").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

/// RF-22: a destination that nobody reaches any more does not lose its messages while it is paused.
#[tokio::test(start_paused = true)]
async fn l6_rf_22_a_paused_destination_is_not_given_up() {
    let world = World::new().await;
    world.enqueue(vec![world.message("m", "gone")]).await;
    pause(&world, "gone").await;
    let relay = world.relay(&[("billing", Arc::new(ScriptedTransport::sink()))], RelayOptions::default());
    world.pass(60 * MINUTE).await;
    assert_eq!(world.status("m").await, Some(("Pending".into(), 0)));
    resume(&world, "gone").await;
    world.until("m", "Failed").await;
    relay.stop().await;
}
