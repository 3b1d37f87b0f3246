//! Ordering keys: who waits behind whom, and what the death of a head does to its key.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use twobox_core::ports::{
    Answer, BlockedKey, DeadLetterFilter, DeadLetterStore, DeliveryError, HeadPolicy, KeyGate, Replay,
};
use twobox_core::{Clock, Destination, Message, NewMessage, OrderingKey, Response, Source};
use twobox_engine::Timer;
use twobox_engine::relay::RelayOptions;
use twobox_testkit::ScriptedTransport;

use crate::world::{Running, World, series};

const HOUR: Duration = Duration::from_secs(3600);

fn ok() -> Answer {
    Answer::Done(Some(Response::empty()))
}

fn retry() -> Answer {
    Answer::Retry { after: None, error: "not now".into() }
}

fn rejected() -> Answer {
    Answer::Rejected { error: "never".into() }
}

fn policy(head_policy: HeadPolicy) -> RelayOptions {
    RelayOptions { head_policy, ..RelayOptions::default() }
}

fn keyed(world: &World, id: &str, key: &str) -> NewMessage {
    world.message(id, "billing").ordering_key(OrderingKey::new(key).unwrap())
}

/// Enqueues messages whose key is their first letter.
async fn enqueue(world: &World, ids: &[&str]) {
    world.enqueue(ids.iter().map(|id| keyed(world, id, &id[..1])).collect()).await;
}

/// A receiver that holds what follows a failed message in its key, as a real one does, and remembers what it
/// has accepted.
#[derive(Clone)]
struct Peer {
    transport: ScriptedTransport,
    accepted: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    /// `answer` is asked with the number of earlier deliveries of the message.
    fn new(answer: impl Fn(&Message, usize) -> Answer + Send + Sync + 'static) -> Self {
        let seen = Mutex::new(HashMap::new());
        Self::with_requests(move |_, batch, gate| {
            let answers = batch.iter().map(|message| {
                if gate.holds(message) {
                    return Answer::Held;
                }
                let mut seen = seen.lock().unwrap();
                let count = seen.entry(message.id.clone()).or_insert(0);
                let answer = answer(message, *count);
                *count += 1;
                gate.note(message, &answer);
                answer
            });
            Ok(answers.collect())
        })
    }

    fn with_requests(
        script: impl Fn(usize, &[Arc<Message>], &mut KeyGate) -> Result<Vec<Answer>, DeliveryError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let accepted: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = Arc::clone(&accepted);
        let transport = ScriptedTransport::new(move |n, batch| {
            let answers = script(n, batch, &mut KeyGate::default())?;
            let done = batch.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Answer::Done(_)));
            list.lock().unwrap().extend(done.map(|(message, _)| message.id.to_string()));
            Ok(answers)
        });
        Self { transport, accepted }
    }

    fn accepted(&self) -> Vec<String> {
        self.accepted.lock().unwrap().clone()
    }

    fn accepted_of(&self, key: &str) -> Vec<String> {
        self.accepted().into_iter().filter(|id| id.starts_with(key)).collect()
    }

    fn relay(&self, world: &World, options: RelayOptions) -> Running {
        world.relay(&[("billing", Arc::new(self.transport.clone()))], options)
    }
}

async fn blocked(world: &World) -> Vec<BlockedKey<i64>> {
    world.db.blocked_keys(10).await.unwrap()
}

async fn release(world: &World, key: &str) -> bool {
    let (source, destination) = (Source::new("shop").unwrap(), Destination::new("billing").unwrap());
    world.db.release_key(&source, &destination, &OrderingKey::new(key).unwrap()).await.unwrap()
}

async fn replay_all(world: &World) -> u64 {
    let filter = DeadLetterFilter::default();
    world.db.replay(&filter, Replay::SameId, 24 * HOUR, 100).await.unwrap().replayed
}

#[tokio::test(start_paused = true)]
async fn s12_block_a_dead_head_blocks_its_key_until_it_is_released() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2", "b1", "a3", "b2"]).await;
    let peer = Peer::new(|message, _| if message.id.as_str() == "a1" { rejected() } else { ok() });
    let relay = peer.relay(&world, policy(HeadPolicy::Block));
    world.until("a1", "Failed").await;
    world.until("b2", "Sent").await;
    enqueue(&world, &["a4", "b3"]).await;
    world.until("b3", "Sent").await;
    relay.stop().await;

    let relay = peer.relay(&world, policy(HeadPolicy::Block));
    world.pass(HOUR).await;
    assert_eq!(peer.accepted(), ["b1", "b2", "b3"], "others flow, the key waits, also across a restart");
    assert_eq!(world.status("a4").await, Some(("Pending".into(), 0)));
    let keys = blocked(&world).await;
    let head = world.db.message_status(&"a1".parse().unwrap()).await.unwrap().unwrap().position;
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].ordering_key.as_str(), keys[0].head, keys[0].waiting), ("a", head, 3));

    assert!(release(&world, "a").await);
    world.until("a4", "Sent").await;
    assert_eq!(peer.accepted_of("a"), ["a2", "a3", "a4"]);
    assert!(world.is("a1", "Failed").await, "the dead letter stays");
    assert_eq!(blocked(&world).await, []);
    assert!(!release(&world, "a").await, "there is nothing left to release");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adr_07_s12_a_key_goes_on_once_its_poison_message_is_purged() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2", "b1", "a3"]).await;
    let peer = Peer::new(|message, _| if message.id.as_str() == "a1" { rejected() } else { ok() });
    let relay = peer.relay(&world, policy(HeadPolicy::Block));
    world.until("a1", "Failed").await;
    world.pass(HOUR).await;
    assert_eq!(peer.accepted(), ["b1"]);
    let poison = DeadLetterFilter { message_id: Some("a1".parse().unwrap()), ..DeadLetterFilter::default() };
    assert_eq!(world.db.purge(&poison, 10).await.unwrap().purged, 1);
    let start = world.clock.monotonic();
    world.until("a3", "Sent").await;
    assert!(world.clock.monotonic() - start < Duration::from_secs(3), "it is told at once");
    assert_eq!(peer.accepted_of("a"), ["a2", "a3"]);
    assert_eq!((world.status("a1").await, blocked(&world).await), (None, Vec::new()));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s12_step_over_the_next_message_takes_its_turn() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2", "b1", "a3"]).await;
    let peer = Peer::new(|message, _| if message.id.as_str() == "a1" { rejected() } else { ok() });
    let relay = peer.relay(&world, policy(HeadPolicy::StepOver));
    world.until("a3", "Sent").await;
    assert!(world.is("a1", "Failed").await);
    assert_eq!(peer.accepted_of("a"), ["a2", "a3"]);
    assert_eq!(world.lane("billing").await.failed, 1);
    assert_eq!(blocked(&world).await, []);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s12_fail_key_what_waits_behind_the_head_dies_with_it() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2", "b1", "a3"]).await;
    let first = |message: &Message, seen| message.id.as_str() == "a1" && seen == 0;
    let peer = Peer::new(move |message, seen| if first(message, seen) { rejected() } else { ok() });
    let relay = peer.relay(&world, policy(HeadPolicy::FailKey));
    world.until("a3", "Failed").await;
    let letters = world.db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap();
    let reasons: Vec<_> =
        letters.iter().map(|letter| (&*letter.message_id, letter.reason.as_str())).collect();
    assert_eq!(reasons, [("a1", "rejected"), ("a2", "key-failed"), ("a3", "key-failed")]);
    assert_eq!(world.lane("billing").await.failed, 3);
    assert_eq!(blocked(&world).await, [], "what comes later is not held");
    enqueue(&world, &["a4"]).await;
    world.until("a4", "Sent").await;

    assert_eq!(replay_all(&world).await, 3);
    world.until("a3", "Sent").await;
    assert_eq!(peer.accepted_of("a"), ["a4", "a1", "a2", "a3"], "replayed together, in order");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adr_02_l4_a_retried_head_is_not_overtaken_by_what_is_still_in_the_log() {
    let world = World::new().await;
    // Small batches: most of the key has not been read when its head fails.
    let options = RelayOptions { batch_messages_max: 2, ..RelayOptions::default() };
    let messages = (0..30).flat_map(|n| ["a", "b"].map(|key| keyed(&world, &format!("{key}{n}"), key)));
    world.enqueue(messages.collect()).await;
    let troubled = ["a0", "a7", "b3"];
    let peer = Peer::new(
        move |message, seen| {
            if seen < 2 && troubled.contains(&message.id.as_str()) { retry() } else { ok() }
        },
    );
    let relay = peer.relay(&world, options);
    world.until_sent(60).await;
    assert_eq!(peer.accepted_of("a"), series("a", 0..30));
    assert_eq!(peer.accepted_of("b"), series("b", 0..30));
    assert_eq!(world.status("a8").await, Some(("Sent".into(), 0)), "waiting is not charged");
    relay.stop().await;
}

/// What is on its way to a slow receiver.
#[derive(Default)]
struct OnTheWay {
    keys: Vec<OrderingKey>,
    requests: usize,
    requests_most: usize,
    clashes: usize,
}

#[tokio::test(start_paused = true)]
async fn l4_a_hot_key_is_never_in_two_requests_at_once() {
    let world = World::new().await;
    let ids = series("hot", 0..40);
    let messages = ids.iter().enumerate().flat_map(|(n, id)| {
        let others = series(&format!("other{n}-"), 0..5);
        let others: Vec<NewMessage> = others.iter().map(|other| keyed(&world, other, other)).collect();
        std::iter::once(keyed(&world, id, "hot")).chain(others)
    });
    world.enqueue(messages.collect()).await;
    let on_the_way: Arc<Mutex<OnTheWay>> = Arc::default();
    let (clock, watched) = (Arc::clone(&world.clock), Arc::clone(&on_the_way));
    let slow = ScriptedTransport::with_futures(move |n, batch| {
        let keys: HashSet<OrderingKey> = batch.iter().filter_map(|m| m.ordering_key.clone()).collect();
        let (clock, watched, answers) = (Arc::clone(&clock), Arc::clone(&watched), vec![ok(); batch.len()]);
        let mut now = watched.lock().unwrap();
        now.clashes += now.keys.iter().filter(|key| keys.contains(*key)).count();
        now.keys.extend(keys.iter().cloned());
        now.requests += 1;
        now.requests_most = now.requests_most.max(now.requests);
        drop(now);
        Box::pin(async move {
            Timer::sleep(&*clock, Duration::from_millis([50, 10, 30][n % 3])).await;
            let mut now = watched.lock().unwrap();
            now.keys.retain(|key| !keys.contains(key));
            now.requests -= 1;
            Ok(answers)
        })
    });
    let options = RelayOptions { batch_messages_max: 4, in_flight_max: 3, ..RelayOptions::default() };
    let relay = world.relay(&[("billing", Arc::new(slow.clone()))], options);
    world.until_sent(240).await;
    let hot: Vec<String> = slow.sent().into_iter().filter(|id| id.starts_with("hot")).collect();
    assert_eq!(hot, ids, "in order, each once");
    relay.stop().await;
    let seen = on_the_way.lock().unwrap();
    assert_eq!(seen.clashes, 0, "a key travels alone");
    assert!((2..=3).contains(&seen.requests_most), "others travel beside it, and not more than may");
}

/// Messages written before the clock was set back are dated ahead of it, but nobody has scheduled them.
#[tokio::test(start_paused = true)]
async fn s13_a_clock_that_steps_back_parks_no_message_and_breaks_no_order() {
    let world = World::new().await;
    let keyed = |id: &str| world.message(id, "billing").ordering_key(OrderingKey::new("k").unwrap());
    world.enqueue(vec![keyed("first")]).await;
    world.clock.step_micros(-3_600_000_000);
    world.enqueue(vec![keyed("second")]).await;
    let sink = ScriptedTransport::sink();
    let relay = world.relay(&[("billing", Arc::new(sink.clone()))], RelayOptions::default());
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(sink.sent(), ["first", "second"]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l5_a_scheduled_message_joins_its_key_only_when_due() {
    let world = World::new().await;
    let due = world.clock.now().plus(HOUR);
    world.enqueue(vec![keyed(&world, "a-later", "a").due(due)]).await;
    enqueue(&world, &["a1", "a2"]).await;
    let peer = Peer::new(|message, _| if message.id.as_str() == "a-bad" { rejected() } else { ok() });
    let relay = peer.relay(&world, RelayOptions::default());
    world.until("a2", "Sent").await;
    assert!(world.clock.now() < due, "nobody waits for what is not due");
    enqueue(&world, &["a-bad"]).await;
    world.until("a-bad", "Failed").await;
    world.pass(2 * HOUR).await;
    assert!(
        world.is("a-later", "Pending").await,
        "once due it waits behind the dead head like everyone else"
    );
    assert_eq!(blocked(&world).await[0].waiting, 1);
    assert!(release(&world, "a").await);
    world.until("a-later", "Sent").await;
    assert_eq!(peer.accepted(), ["a1", "a2", "a-later"]);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l5_a_replayed_head_goes_before_what_waits_behind_it() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2", "a3"]).await;
    let first = |message: &Message, seen| message.id.as_str() == "a1" && seen == 0;
    let peer = Peer::new(move |message, seen| if first(message, seen) { rejected() } else { ok() });
    let relay = peer.relay(&world, RelayOptions::default());
    world.until("a1", "Failed").await;
    enqueue(&world, &["a4"]).await;
    world.pass(HOUR).await;
    assert_eq!(replay_all(&world).await, 1);
    world.until("a4", "Sent").await;
    assert_eq!(peer.accepted(), ["a1", "a2", "a3", "a4"]);
    assert_eq!(blocked(&world).await, []);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l5_an_expired_head_counts_as_dead_for_its_key() {
    for (head_policy, follower) in
        [(HeadPolicy::Block, "Pending"), (HeadPolicy::StepOver, "Sent"), (HeadPolicy::FailKey, "Failed")]
    {
        let world = World::new().await;
        let short = keyed(&world, "a1", "a").ttl(Duration::from_secs(10));
        world.enqueue(vec![short, keyed(&world, "a2", "a")]).await;
        let peer = Peer::new(|message, _| if message.id.as_str() == "a1" { retry() } else { ok() });
        let relay = peer.relay(&world, policy(head_policy));
        world.until("a1", "Expired").await;
        world.pass(HOUR).await;
        assert_eq!(world.status("a2").await, Some((follower.into(), 0)), "{head_policy:?}");
        let is_blocked = head_policy == HeadPolicy::Block;
        assert_eq!(blocked(&world).await.len(), usize::from(is_blocked), "{head_policy:?}");
        assert_eq!(release(&world, "a").await, is_blocked);
        if is_blocked {
            world.until("a2", "Sent").await;
        }
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn l3_the_second_half_of_a_cut_request_does_not_overtake_its_key() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2"]).await;
    let peer = Peer::with_requests(|n, batch, gate| {
        if n == 0 {
            return Err(DeliveryError::ambiguous("cut"));
        }
        let answers = batch.iter().map(|message| {
            let answer = if gate.holds(message) {
                Answer::Held
            } else if n == 2 {
                retry()
            } else {
                ok()
            };
            gate.note(message, &answer);
            answer
        });
        Ok(answers.collect())
    });
    let relay = peer.relay(&world, RelayOptions::default());
    world.until_sent(2).await;
    assert_eq!(peer.accepted(), ["a1", "a2"]);
    let requests = peer.transport.requests();
    assert_eq!(requests[..3], [vec!["a1", "a2"], vec![], vec!["a1"]], "whole, a probe, the first half");
    assert_eq!(requests[3][0], "a1", "it failed, so the second half waits behind it");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l4_what_was_not_reached_does_not_overtake_its_key() {
    let world = World::new().await;
    enqueue(&world, &["a1", "a2"]).await;
    let peer = Peer::with_requests(|n, batch, _| {
        Ok(if n == 0 { vec![retry(), Answer::NotReached] } else { vec![ok(); batch.len()] })
    });
    let relay = peer.relay(&world, RelayOptions::default());
    world.until_sent(2).await;
    assert_eq!(peer.accepted(), ["a1", "a2"]);
    assert_eq!(world.status("a2").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn w7_a_request_of_which_nothing_was_reached_is_sent_once_more() {
    let world = World::new().await;
    enqueue(&world, &["a1", "b1", "c1", "d1"]).await;
    let clock = Arc::clone(&world.clock);
    let transport = ScriptedTransport::with_futures(move |n, batch| {
        let answer = if n == 0 { Answer::NotReached } else { ok() };
        let slow = batch.first().is_some_and(|message| message.id.as_str() == "c1");
        let pause = Timer::sleep(&*clock, Duration::from_secs(if slow { 2 } else { 0 }));
        let answers = vec![answer; batch.len()];
        Box::pin(async move {
            pause.await;
            Ok(answers)
        })
    });
    let options = RelayOptions { batch_messages_max: 2, in_flight_max: 2, ..RelayOptions::default() };
    let relay = world.relay(&[("billing", Arc::new(transport.clone()))], options);
    world.until_sent(4).await;
    let mut sent = transport.sent();
    sent.sort();
    assert_eq!(sent, ["a1", "a1", "b1", "b1", "c1", "d1"]);
    relay.stop().await;
}
