//! Handling what was claimed: effects and the fenced end in one transaction.

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Claimed, DedupStore, Handled, InboxStatus, InboxStore, Job, QueueStore};
use twobox_core::{Clock, Response};

use super::fixture::{HandlerScript, StoreFixture, lane, message, name, unread};
use super::worker::{LEASE, SECOND, Worker, at_once, key};

use HandlerScript::{
    Effect, EffectAndFollowUp, EffectThenPanic, EffectThenReject, EffectThenRetry, EffectThenRetryAfter,
    EffectThenSpoil, EffectThenSwallow, Large,
};

fn none() -> Vec<String> {
    Vec::new()
}

fn is_retried(handled: &Handled) -> bool {
    matches!(handled, Handled::Retried { .. })
}

/// Queues a message and handles it once.
async fn once<F: StoreFixture>(worker: &Worker<'_, F>, fixture: &F, script: HandlerScript) -> Handled {
    worker.put(message(fixture, "a", "billing")).await;
    let claimed = vec![worker.only().await];
    worker.handle(claimed, |_| script.clone()).await.remove(0)
}

/// IBX-044, S3: the effect and Done commit together; the response is kept for duplicates.
pub async fn s3_ibx_044_effect_and_done_commit_together<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let Handled::Done(response) = once(&worker, &fixture, Effect).await else { panic!("not done") };
    let fixture = fixture.reopen().await;
    let worker = Worker::new(&fixture, 1);
    assert_eq!(fixture.effects().await, ["a"]);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.lease, record.payload), (InboxStatus::Done, None, None));
    let stored = fixture.store().inbox_record(&worker.queue.consumer, &name("shop"), &name("a")).await;
    assert_eq!(stored.expect("looks").expect("is known").response, Some(response));
    fixture.clock().advance(LEASE * 2);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
}

/// IBX-051, IBX-052: a handler that asks for another try leaves no effect, and is tried again after the back-off.
pub async fn ibx_051_ibx_052_a_retry_leaves_no_effect<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let handled = once(&worker, &fixture, EffectThenRetry).await;
    assert_eq!(handled, Handled::Retried { error: "not now".into() });
    assert_eq!(fixture.effects().await, none());
    let record = worker.record("a").await;
    assert_eq!((record.attempts, record.lease), (1, None));
    assert_eq!(record.last_error.as_deref(), Some("not now"));
    assert_eq!(record.ready, Some(fixture.clock().now().plus(SECOND * 2)));
    fixture.clock().advance(SECOND * 2);
    let claimed = vec![worker.only().await];
    assert!(matches!(worker.handle(claimed, |_| Effect).await[0], Handled::Done(_)));
    assert_eq!(fixture.effects().await, ["a"]);
}

/// RF-04: a handler may ask for more patience than the policy has, up to its longest delay, and never for less.
pub async fn rf_04_a_handler_may_ask_for_more_patience_and_not_for_less<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    for (asked, delay) in [(0, 2), (1, 4), (30, 30), (24 * 3600, 60), (60, 60)] {
        let claimed = vec![worker.only().await];
        worker.handle(claimed, |_| EffectThenRetryAfter(SECOND * asked)).await;
        assert_eq!(worker.record("a").await.ready, Some(fixture.clock().now().plus(SECOND * delay)));
        fixture.clock().advance(SECOND * delay);
    }
    assert_eq!(fixture.effects().await, none());
}

/// IBX-060, IBX-061: a handler that rejects leaves no effect, and its message is a dead letter.
pub async fn ibx_060_ibx_061_a_rejection_is_a_dead_letter<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let handled = once(&worker, &fixture, EffectThenReject).await;
    assert_eq!(handled, Handled::Died { error: "never".into() });
    assert_eq!(fixture.effects().await, none());
    let record = worker.record("a").await;
    assert_eq!((record.status, record.reason), (InboxStatus::Dead, Some(Reason::Rejected)));
    assert_eq!((record.attempts, record.last_error.as_deref()), (1, Some("never")));
}

/// IBX-083: the last failed attempt makes a dead letter.
pub async fn ibx_083_the_last_attempt_is_the_last<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut worker = Worker::new(&fixture, 1);
    worker.queue.retry = worker.queue.retry.clone().attempts_max(std::num::NonZeroU32::MIN);
    let handled = once(&worker, &fixture, EffectThenRetry).await;
    assert_eq!(handled, Handled::Died { error: "not now".into() });
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::AttemptsExhausted)]);
    assert_eq!(fixture.effects().await, none());
}

/// S4, S6: a panic and a swallowed error are failed attempts without effect.
pub async fn s4_s6_panics_and_swallowed_errors_are_failures<F: StoreFixture>() {
    for script in [EffectThenPanic, EffectThenSwallow] {
        let fixture = F::fresh().await;
        let worker = Worker::new(&fixture, 1);
        assert!(is_retried(&once(&worker, &fixture, script.clone()).await), "{script:?}");
        assert_eq!(fixture.effects().await, none(), "{script:?}");
        let record = worker.record("a").await;
        assert_eq!((record.attempts, record.lease), (1, None), "{script:?}");
        fixture.clock().advance(SECOND * 2);
        let claimed = vec![worker.only().await];
        assert!(matches!(worker.handle(claimed, |_| Effect).await[0], Handled::Done(_)));
    }
}

/// S4: a handler that spoils the whole transaction leaves no effect; its lease runs out, which is an attempt.
pub async fn s4_a_spoilt_transaction_is_an_attempt<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    assert!(is_retried(&once(&worker, &fixture, EffectThenSpoil).await));
    assert_eq!(fixture.effects().await, none());
    assert_eq!(worker.status("a").await, InboxStatus::Processing);
    fixture.clock().advance(LEASE + SECOND);
    let again = worker.only().await;
    assert_eq!(again.attempts, 1);
    assert!(matches!(worker.handle(vec![again], |_| Effect).await[0], Handled::Done(_)));
    assert_eq!(fixture.effects().await, ["a"]);
}

/// S5, IBX-045: whoever has lost the lease between claiming and handling leaves no effect, whatever the handler says.
pub async fn s5_ibx_045_without_the_lease_there_is_no_effect<F: StoreFixture>() {
    for script in [Effect, EffectThenReject, EffectThenRetry, EffectThenPanic] {
        let fixture = F::fresh().await;
        let (slow, quick) = (Worker::new(&fixture, 1), Worker::new(&fixture, 2));
        slow.put(message(&fixture, "a", "billing")).await;
        let stale = vec![slow.only().await];
        fixture.clock().advance(LEASE);
        let current = vec![quick.only().await];
        assert_eq!(slow.handle(stale.clone(), |_| script.clone()).await, [Handled::LeaseLost], "{script:?}");
        assert_eq!(fixture.effects().await, none());
        let record = slow.record("a").await;
        assert_eq!((record.status, record.attempts), (InboxStatus::Processing, 1), "{script:?}");
        assert!(matches!(quick.handle(current, |_| Effect).await[0], Handled::Done(_)));
        assert_eq!(slow.handle(stale, |_| Effect).await, [Handled::LeaseLost], "it is done");
        assert_eq!(fixture.effects().await, ["a"]);
    }
}

/// S5: a lease that is over still settles as long as nobody has claimed since, and only once.
pub async fn s5_a_late_worker_without_a_rival_is_in_time<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = [worker.only().await];
    fixture.clock().advance(LEASE * 2);
    let both = vec![claimed[0].clone(), claimed[0].clone()];
    let handled = worker.handle(both, |_| Effect).await;
    assert!(matches!(handled[0], Handled::Done(_)), "{handled:?}");
    assert_eq!(handled[1], Handled::LeaseLost);
    assert_eq!(fixture.effects().await, ["a"]);
}

/// S4, S6: of messages that are handled together, one that fails in whatever way changes nothing for the others.
pub async fn one_bad_neighbour_spoils_no_other<F: StoreFixture>() {
    for script in [
        EffectThenPanic,
        EffectThenReject,
        EffectThenRetry,
        EffectThenSwallow,
        EffectThenSpoil,
        Large(1 << 24),
    ] {
        let fixture = F::fresh().await;
        let worker = Worker::new(&fixture, 1);
        worker.put_all(["a", "bad", "c"].map(|id| message(&fixture, id, "billing"))).await;
        let claimed = worker.claim(10).await;
        let choose = |message: &twobox_core::Message| match message.id.as_str() {
            "bad" => script.clone(),
            _ => Effect,
        };
        let handled = worker.handle(claimed, choose).await;
        assert!(
            matches!(handled[0], Handled::Done(_)) && matches!(handled[2], Handled::Done(_)),
            "{script:?}"
        );
        assert!(!matches!(handled[1], Handled::Done(_)), "{script:?}");
        assert_eq!(fixture.effects().await, ["a", "c"], "{script:?}");
    }
}

/// RF-25: a response that is too large is a dead letter, without the effect.
pub async fn rf_25_a_response_beyond_the_limit_is_a_dead_letter<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let Handled::Died { error } = once(&worker, &fixture, Large(1 << 24)).await else { panic!("lives") };
    assert!(error.contains("response_bytes_max"), "{error}");
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::Rejected)]);
}

/// ADR-05, S1: what a handler enqueues goes out if its effect commits, and otherwise not.
pub async fn s1_follow_ups_commit_with_the_effect_of_queued_messages<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "lost", "billing")).await;
    let stale = vec![worker.only().await];
    let consumer = &worker.queue.consumer;
    fixture.store().mark_processed(consumer, &key("lost"), &Response::empty()).await.expect("marks");
    let follow_up = || EffectAndFollowUp(name("billing"));
    assert_eq!(worker.handle(stale, |_| follow_up()).await, [Handled::LeaseLost]);
    assert_eq!(fixture.log_rows().await, 0);
    assert!(matches!(once(&worker, &fixture, follow_up()).await, Handled::Done(_)));
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].message.as_ref().expect("decodes").endpoint.as_str(), "Next");
    assert_eq!(fixture.effects().await, ["a"]);
}

/// IBX-105, IBX-106: of workers that handle the same messages at the same time, one has the effect.
pub async fn ibx_105_ibx_106_workers_at_once_have_each_effect_once<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let workers: Vec<_> = (0..4).map(|number| Worker::new(&fixture, number)).collect();
    workers[0].put_many((0..40).map(|n| message(&fixture, &format!("m{n}"), "billing"))).await;
    // Each has claimed all of them, when the lease of the one before was over.
    let mut claims = Vec::new();
    for worker in &workers {
        claims.push(worker.claim(40).await);
        fixture.clock().advance(LEASE);
    }
    let handled = at_once(4, |n| {
        let (store, queue, owner) = (fixture.store().clone(), workers[n].queue.clone(), workers[n].owner);
        let job = |Claimed { lease, message, .. }: &Claimed| {
            let (lease, message) = (lease.clone(), message.clone());
            Job { lease, message, handler: fixture.handler(Effect) }
        };
        let jobs = claims[n].iter().map(job).collect();
        async move { store.handle(&queue, owner, jobs).await.expect("handles") }
    })
    .await;
    let (last, others) = handled.split_last().expect("four");
    assert!(last.iter().all(|handled| matches!(handled, Handled::Done(_))), "{last:?}");
    assert!(others.iter().flatten().all(|handled| *handled == Handled::LeaseLost), "{others:?}");
    let mut effects = fixture.effects().await;
    assert_eq!(effects.len(), 40);
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 40);
}
