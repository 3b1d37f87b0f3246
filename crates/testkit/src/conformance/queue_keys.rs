//! Ordering keys in the queue: only the head of a key is handed out (IBX-8.1).

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{DedupStore, HeadPolicy, InboxStatus, QueueStore};
use twobox_core::{Clock, Message, Response};

use super::fixture::{HandlerScript, StoreFixture, keyed, message, name};
use super::worker::{LEASE, SECOND, Worker, key, leases, only_id};

fn none() -> Vec<String> {
    Vec::new()
}

/// Queues three messages of one key and claims its head.
async fn three<F: StoreFixture>(worker: &Worker<'_, F>, fixture: &F) -> Vec<twobox_core::ports::Claimed> {
    worker.put_all(["k1", "k2", "k3"].map(|id| keyed(fixture, id, "k"))).await;
    vec![worker.only().await]
}

/// Claims, checks and acknowledges one message after another.
async fn in_order<F: StoreFixture>(worker: &Worker<'_, F>, ids: &[&str]) {
    for id in ids {
        let next = worker.only().await;
        assert_eq!(next.message.id.as_str(), *id);
        worker.ack(&[next]).await;
    }
    assert_eq!(worker.claim_ids(10).await, none());
}

/// IBX-8.1, S12: the messages of a key come one after another, in order; each waits for the one before.
pub async fn ibx_8_1_s12_only_the_head_is_claimed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (worker, other) = (Worker::new(&fixture, 1), Worker::new(&fixture, 2));
    let head = three(&worker, &fixture).await;
    assert_eq!(head[0].message.id.as_str(), "k1");
    assert_eq!(other.claim_ids(10).await, none(), "while the head is leased");
    assert_eq!(worker.record("k2").await.ready, None);
    worker.ack(&head).await;
    in_order(&other, &["k2", "k3"]).await;
    worker.put_all([keyed(&fixture, "k4", "k")]).await;
    in_order(&worker, &["k4"]).await;
}

/// IBX-8.1: other keys, other sources and messages without a key wait for nobody.
pub async fn ibx_8_1_other_keys_do_not_wait<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let theirs = Message { source: name("crm"), ..keyed(&fixture, "theirs", "k") };
    worker.put_all(["k1", "k2"].map(|id| keyed(&fixture, id, "k"))).await;
    worker.put_all([keyed(&fixture, "j1", "j"), theirs, message(&fixture, "free", "billing")]).await;
    assert_eq!(worker.claim_ids(10).await, ["k1", "j1", "theirs", "free"]);
}

/// IBX-8.1, S12: a message that is tried again keeps its key; the next one does not overtake it.
pub async fn ibx_8_1_s12_a_retry_holds_its_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let head = three(&worker, &fixture).await;
    worker.abandon(&head).await;
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(SECOND * 2);
    let head = vec![worker.only().await];
    worker.abandon_for(&head, Some(SECOND * 5)).await;
    fixture.clock().advance(SECOND * 5);
    let head = vec![worker.only().await];
    worker.store().give_back(&worker.queue, worker.owner, &leases(&head)).await.expect("gives back");
    worker.only().await;
    fixture.clock().advance(LEASE + SECOND);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none(), "its worker died, and it still comes first");
    fixture.clock().advance(SECOND * 60);
    in_order(&worker, &["k1", "k2", "k3"]).await;
}

/// IBX-8.1, S12: under Block, a key waits for its dead head until somebody replays it.
pub async fn ibx_8_1_s12_block_waits_for_a_replay<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::Block);
    let head = three(&worker, &fixture).await;
    worker.fail(&head).await;
    worker.put_all([keyed(&fixture, "k4", "k"), keyed(&fixture, "j1", "j")]).await;
    in_order(&worker, &["j1"]).await;
    assert!(worker.dead().await[0].blocks_key);
    fixture.clock().advance(SECOND * 3600);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
    let replayed = worker.store().replay_work(&worker.queue, &only_id("k1"), 1).await.expect("replays");
    assert_eq!((replayed.replayed, replayed.more), (1, false));
    in_order(&worker, &["k1", "k2", "k3", "k4"]).await;
}

/// IBX-8.1, S12: a blocked key that is released steps over its dead head.
pub async fn ibx_8_1_s12_a_blocked_key_is_released<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::Block);
    let (shop, k) = (name("shop"), name("k"));
    let release = async || worker.store().release_work_key(&worker.queue, &shop, &k).await.expect("releases");
    assert!(!release().await, "nobody knows it");
    let head = three(&worker, &fixture).await;
    assert!(!release().await, "it is not blocked");
    worker.fail(&head).await;
    assert!(release().await);
    assert!(!release().await, "no longer");
    let letter = worker.dead().await.remove(0);
    assert!(letter.id == "k1" && !letter.blocks_key, "it is still a dead letter");
    let second = vec![worker.only().await];
    worker.store().replay_work(&worker.queue, &only_id("k1"), 1).await.expect("replays");
    assert_eq!(worker.claim_ids(10).await, none(), "it has lost its place, and waits at the end");
    worker.ack(&second).await;
    in_order(&worker, &["k3", "k1"]).await;
}

/// IBX-8.2: purging the head of a blocked key lets the key go on.
pub async fn ibx_8_2_a_purged_head_blocks_nobody<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::Block);
    let head = three(&worker, &fixture).await;
    worker.fail(&head).await;
    let purged = worker.store().purge_work(&worker.queue, &only_id("k1"), 1).await.expect("purges");
    assert_eq!(purged.purged, 1);
    in_order(&worker, &["k2", "k3"]).await;
}

/// IBX-8.1, S12: under StepOver, the next message of the key takes its turn.
pub async fn ibx_8_1_s12_step_over_goes_on<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::StepOver);
    let head = three(&worker, &fixture).await;
    worker.fail(&head).await;
    assert!(!worker.dead().await[0].blocks_key);
    in_order(&worker, &["k2", "k3"]).await;
}

/// IBX-8.1, S12: under FailKey, what waits behind a dead head dies with it, and is replayed in order.
pub async fn ibx_8_1_s12_fail_key_takes_the_rest_along<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::FailKey);
    let head = three(&worker, &fixture).await;
    worker.put_all([keyed(&fixture, "j1", "j")]).await;
    worker.fail(&head).await;
    let died = |id: &str, reason| (id.to_owned(), reason);
    let expected =
        [died("k1", Reason::Rejected), died("k2", Reason::KeyFailed), died("k3", Reason::KeyFailed)];
    assert_eq!(worker.deaths().await, expected);
    assert!(worker.dead().await[1].error.as_ref().expect("says why").contains("never"));
    in_order(&worker, &["j1"]).await;
    worker.put_all([keyed(&fixture, "k4", "k")]).await;
    in_order(&worker, &["k4"]).await;
    worker.store().replay_work(&worker.queue, &Default::default(), 10).await.expect("replays");
    in_order(&worker, &["k1", "k2", "k3"]).await;
}

/// IBX-8.3, S12: a head that has expired counts as dead for its key.
pub async fn ibx_8_3_s12_an_expired_head_counts_as_dead<F: StoreFixture>() {
    for (policy, next) in [(HeadPolicy::Block, none()), (HeadPolicy::StepOver, vec!["k2".to_owned()])] {
        let fixture = F::fresh().await;
        let worker = Worker::under(&fixture, policy);
        let expires = fixture.clock().now().plus(SECOND);
        let first = Message { expires, ..keyed(&fixture, "k1", "k") };
        worker.put_all([first, keyed(&fixture, "k2", "k")]).await;
        fixture.clock().advance(SECOND);
        assert_eq!(worker.claim_ids(10).await, next, "{policy:?}");
        assert_eq!(worker.status("k1").await, InboxStatus::Expired);
    }
}

/// L5: a message for later is no part of its key until it is due; then it joins at the end.
pub async fn l5_a_scheduled_message_joins_when_it_is_due<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let available = fixture.clock().now().plus(SECOND * 10);
    let scheduled = ["s1", "s2"].map(|id| Message { available, ..keyed(&fixture, id, "k") });
    worker.put_all(scheduled).await;
    worker.put_all([keyed(&fixture, "k1", "k")]).await;
    let head = vec![worker.only().await];
    assert_eq!(head[0].message.id.as_str(), "k1", "it does not wait for tomorrow's");
    fixture.clock().advance(SECOND * 10);
    worker.put_all([keyed(&fixture, "k2", "k")]).await;
    assert_eq!(worker.claim_ids(10).await, none(), "the head is leased");
    worker.ack(&head).await;
    in_order(&worker, &["k2", "s1", "s2"]).await;
}

/// L5: of several that come due for a key that is free, one is handed out at a time.
pub async fn l5_scheduled_messages_of_a_free_key_come_one_by_one<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let available = fixture.clock().now().plus(SECOND * 10);
    worker.put_all(["s1", "s2"].map(|id| Message { available, ..keyed(&fixture, id, "k") })).await;
    fixture.clock().advance(SECOND * 10);
    in_order(&worker, &["s1", "s2"]).await;
}

/// L5: one that has expired before it was due was never the head, so its key does not pay for it.
pub async fn l5_what_never_joined_does_not_fail_its_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::FailKey);
    let available = fixture.clock().now().plus(SECOND * 10);
    worker.put_all([Message { available, expires: available, ..keyed(&fixture, "s1", "k") }]).await;
    worker.put_all(["k1", "k2"].map(|id| keyed(&fixture, id, "k"))).await;
    let head = vec![worker.only().await];
    fixture.clock().advance(SECOND * 10);
    assert_eq!(worker.claim_ids(10).await, none());
    assert_eq!(worker.deaths().await, [("s1".to_owned(), Reason::Expired)]);
    assert_eq!(worker.ack(&head).await, 1);
    in_order(&worker, &["k2"]).await;
}

/// S12, S6: a head whose workers keep dying dies at last, and its key goes the way it is told.
pub async fn s12_s6_a_head_that_kills_its_workers_ends<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut worker = Worker::under(&fixture, HeadPolicy::StepOver);
    worker.queue.retry = worker.queue.retry.clone().attempts_max(std::num::NonZeroU32::MIN);
    three(&worker, &fixture).await;
    fixture.clock().advance(LEASE);
    let second = worker.only().await;
    assert_eq!(second.message.id.as_str(), "k2", "found dead in the claim that goes on with the next");
    assert_eq!(worker.deaths().await, [("k1".to_owned(), Reason::AttemptsExhausted)]);
}

/// S12: a handler's success, rejection and retry move the key as acknowledging, failing and abandoning do.
pub async fn s12_handling_moves_the_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::StepOver);
    let head = three(&worker, &fixture).await;
    worker.handle(head, |_| HandlerScript::EffectThenRetry).await;
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(SECOND * 2);
    let head = vec![worker.only().await];
    worker.handle(head, |_| HandlerScript::EffectThenReject).await;
    let second = vec![worker.only().await];
    worker.handle(second, |_| HandlerScript::Effect).await;
    assert_eq!(worker.claim_ids(10).await, ["k3"]);
    assert_eq!(fixture.effects().await, ["k2"]);
}

/// S12: what is marked by hand lets its key go on.
pub async fn s12_marks_by_hand_move_the_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::under(&fixture, HeadPolicy::Block);
    let consumer = &worker.queue.consumer;
    three(&worker, &fixture).await;
    fixture.store().mark_processed(consumer, &key("k1"), &Response::empty()).await.expect("marks");
    assert_eq!(worker.claim_ids(10).await, ["k2"]);
    fixture.store().mark_dead(consumer, &key("k2"), "never").await.expect("marks");
    assert_eq!(worker.claim_ids(10).await, ["k3"]);
}
