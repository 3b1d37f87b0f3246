//! Settling what was claimed: done, again, never; and leases that are over.

use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Claimed, Handled, InboxStatus, MessageKey, QueueStore, WorkLease};
use twobox_core::{Clock, ErrorKind};

use super::fixture::{StoreFixture, keyed, message, name};
use super::worker::{LEASE, SECOND, Worker, ids, leases};

fn none() -> Vec<String> {
    Vec::new()
}

/// Claims the message `a`, which is new.
async fn claimed<F: StoreFixture>(worker: &Worker<'_, F>, fixture: &F) -> Vec<Claimed> {
    worker.put_all([message(fixture, "a", "billing")]).await;
    worker.claim(1).await
}

/// IBX-044, IBX-047, IBX-049: an acknowledged message is Done, has no lease and does not come back.
pub async fn ibx_044_ibx_047_ibx_049_acknowledged_is_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let claimed = claimed(&worker, &fixture).await;
    assert_eq!(worker.ack(&claimed).await, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.lease, record.ready), (InboxStatus::Done, None, None));
    assert_eq!(worker.ack(&claimed).await, 0, "once");
    let fixture = fixture.reopen().await;
    let worker = Worker::new(&fixture, 1);
    fixture.clock().advance(LEASE * 2);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
}

/// IBX-045, IBX-046, IBX-054, IBX-055, IBX-062, IBX-063: what is somebody else's, or does not exist, is passed over.
pub async fn ibx_046_ibx_055_ibx_063_strangers_settle_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (worker, other) = (Worker::new(&fixture, 1), Worker::new(&fixture, 2));
    let mine = claimed(&worker, &fixture).await;
    let unknown = Claimed {
        lease: WorkLease {
            key: MessageKey { source: name("shop"), id: name("unknown") },
            token: 1,
            place: 4_711,
        },
        ..mine[0].clone()
    };
    let misplaced = Claimed {
        lease: WorkLease { key: unknown.lease.key.clone(), ..mine[0].lease.clone() },
        ..mine[0].clone()
    };
    assert_eq!(other.ack(&mine).await + other.abandon(&mine).await + other.fail(&mine).await, 0);
    for wrong in [unknown.clone(), misplaced] {
        let wrong = [wrong];
        assert_eq!(worker.ack(&wrong).await + worker.abandon(&wrong).await + worker.fail(&wrong).await, 0);
        let leases = [wrong[0].lease.clone()];
        let renewed = worker.store().renew(&worker.queue, worker.owner, &leases, LEASE).await;
        assert_eq!(renewed.expect("asks"), [], "it is not held");
        let handled = worker.handle(wrong.to_vec(), |_| super::HandlerScript::Effect).await;
        assert_eq!(handled, [Handled::LeaseLost]);
    }
    let before = worker.record("a").await;
    assert_eq!((before.status, before.attempts), (InboxStatus::Processing, 0));
    assert_eq!(
        worker.ack(&[unknown, mine[0].clone()]).await,
        1,
        "one that is wrong spoils none that is right"
    );
}

/// IBX-048, IBX-059, IBX-066: settling nothing is no error and does nothing.
pub async fn ibx_048_ibx_059_ibx_066_nothing_is_a_no_op<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    claimed(&worker, &fixture).await;
    assert_eq!(worker.ack(&[]).await + worker.abandon(&[]).await + worker.fail(&[]).await, 0);
    assert_eq!(worker.handle(Vec::new(), |_| super::HandlerScript::Effect).await, []);
    assert!(worker.record("a").await.lease.is_some());
}

/// IBX-050, IBX-051, IBX-056, IBX-057: an abandoned message has no lease, one attempt more, the error, and comes back.
pub async fn ibx_050_ibx_051_ibx_056_ibx_057_abandoned_comes_back<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let claimed = claimed(&worker, &fixture).await;
    assert_eq!(worker.abandon(&claimed).await, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.lease, record.attempts), (InboxStatus::Processing, None, 1));
    assert_eq!(record.last_error.as_deref(), Some("not now"));
    assert_eq!(worker.abandon(&claimed).await, 0, "the lease is over");
    fixture.clock().advance(SECOND * 2);
    let again = worker.claim(1).await;
    assert_eq!((again[0].attempts, again[0].last_error.as_deref()), (1, Some("not now")));
    let (store, leases) = (worker.store(), leases(&again));
    store.abandon(&worker.queue, worker.owner, &leases, None, None).await.expect("settles");
    assert_eq!(worker.record("a").await.last_error.as_deref(), Some("not now"), "none is no news");
}

/// IBX-052, IBX-080, IBX-081, IBX-083: twice as long each time, up to a minute; the tenth failure is the last.
pub async fn ibx_052_ibx_080_ibx_081_ibx_083_the_default_back_off<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all([message(&fixture, "a", "billing")]).await;
    for delay in [2, 4, 8, 16, 32, 60, 60, 60, 60] {
        let claimed = worker.claim(1).await;
        worker.abandon(&claimed).await;
        assert_eq!(worker.record("a").await.ready, Some(fixture.clock().now().plus(SECOND * delay)));
        fixture.clock().advance(SECOND * delay);
    }
    let claimed = worker.claim(1).await;
    assert_eq!(worker.abandon(&claimed).await, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.attempts, record.lease), (InboxStatus::Dead, 10, None));
    assert_eq!(
        (record.reason, record.last_error.as_deref()),
        (Some(Reason::AttemptsExhausted), Some("not now"))
    );
    fixture.clock().advance(SECOND * 3600);
    assert_eq!(worker.claim_ids(10).await, none());
}

/// IBX-053, IBX-058: a delay that is given is used as it is, however long; none at all is refused.
pub async fn ibx_053_ibx_058_a_delay_of_ones_own<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let first = claimed(&worker, &fixture).await;
    let refused = worker
        .store()
        .abandon(&worker.queue, worker.owner, &leases(&first), None, Some(Duration::ZERO))
        .await
        .expect_err("a delay of zero");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(worker.record("a").await.lease.is_some(), "nothing was done");
    assert_eq!(worker.abandon_for(&first, Some(SECOND * 7200)).await, 1);
    assert_eq!(worker.record("a").await.attempts, 1);
    worker.reap().await;
    fixture.clock().advance(SECOND * 7200 - SECOND);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(SECOND);
    assert_eq!(worker.claim_ids(10).await, ["a"]);
}

/// IBX-060, IBX-061, IBX-064, IBX-065: a failed message is Dead, has the error and no lease, and stays so.
pub async fn ibx_060_ibx_061_ibx_064_ibx_065_failed_is_dead<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let claimed = claimed(&worker, &fixture).await;
    assert_eq!(worker.fail(&claimed).await, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.lease, record.ready), (InboxStatus::Dead, None, None));
    assert_eq!((record.reason, record.last_error.as_deref()), (Some(Reason::Rejected), Some("never")));
    assert!(record.payload.is_some(), "a dead letter keeps its content");
    assert_eq!(worker.fail(&claimed).await + worker.ack(&claimed).await, 0);
    fixture.clock().advance(LEASE * 2);
    assert_eq!(worker.reap().await, 0);
    assert_eq!(worker.claim_ids(10).await, none());
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::Rejected)]);
}

/// What nobody has tried goes back without a charge, at once.
pub async fn what_is_given_back_is_not_charged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let claimed = claimed(&worker, &fixture).await;
    let given = worker.store().give_back(&worker.queue, worker.owner, &leases(&claimed)).await;
    assert_eq!(given.expect("gives back"), 1);
    let record = worker.record("a").await;
    assert_eq!((record.attempts, record.lease), (0, None));
    assert_eq!(worker.ack(&claimed).await, 0, "the lease is over");
    assert_eq!(worker.only().await.attempts, 0);
}

/// A lease can be prolonged by whoever has it, and then lasts longer.
pub async fn a_lease_is_prolonged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (worker, other) = (Worker::new(&fixture, 1), Worker::new(&fixture, 2));
    let claimed = claimed(&worker, &fixture).await;
    fixture.clock().advance(LEASE - SECOND);
    let renew = async |worker: &Worker<'_, F>, lease| {
        worker.store().renew(&worker.queue, worker.owner, &leases(&claimed), lease).await
    };
    assert_eq!(renew(&worker, LEASE).await.expect("renews"), leases(&claimed));
    assert_eq!(renew(&other, LEASE).await.expect("renews"), [], "not theirs");
    let refused = renew(&worker, Duration::ZERO).await.expect_err("a lease of nothing");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    fixture.clock().advance(LEASE - SECOND);
    assert_eq!(worker.reap().await, 0);
    assert_eq!(other.claim_ids(10).await, none());
    assert_eq!(worker.ack(&claimed).await, 1);
    assert_eq!(renew(&worker, LEASE).await.expect("renews"), [], "it is done");
}

/// IBX-068, IBX-069, IBX-070, S6: leases that are over are taken back, each as a failed attempt with its back-off.
pub async fn ibx_068_ibx_069_ibx_070_reaped_messages_come_back<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let over = claimed(&worker, &fixture).await;
    fixture.clock().advance(SECOND * 10);
    worker.put_all([message(&fixture, "b", "billing")]).await;
    let current = worker.claim(1).await;
    fixture.clock().advance(LEASE - SECOND * 10);
    assert_eq!(worker.reap().await, 0, "not yet over");
    fixture.clock().advance(SECOND / 1000);
    assert_eq!(worker.reap().await, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.lease, record.attempts), (InboxStatus::Processing, None, 1));
    assert!(record.last_error.expect("says why").contains("its worker stopped"));
    assert!(worker.record("b").await.lease.is_some(), "that one is current");
    assert_eq!(worker.ack(&over).await, 0, "whoever had it is too late");
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(SECOND * 2);
    assert_eq!(worker.claim_ids(10).await, ["a"]);
    assert_eq!(worker.ack(&current).await, 1);
}

/// IBX-071, IBX-083: reaping leaves Done and Dead alone, and lets what has had its last attempt die.
pub async fn ibx_071_ibx_083_reaping_touches_only_leases<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut worker = Worker::new(&fixture, 1);
    worker.queue.retry = worker.queue.retry.clone().attempts_max(std::num::NonZeroU32::MIN);
    worker.put_all(["done", "dead", "crashed"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    worker.ack(&claimed[..1]).await;
    worker.fail(&claimed[1..2]).await;
    let before = (worker.record("done").await, worker.record("dead").await);
    fixture.clock().advance(LEASE + SECOND);
    assert_eq!(worker.reap().await, 1);
    assert_eq!((worker.record("done").await, worker.record("dead").await), before);
    let letter = worker.record("crashed").await;
    assert_eq!((letter.status, letter.reason), (InboxStatus::Dead, Some(Reason::AttemptsExhausted)));
    assert_eq!(worker.reap().await, 0);
}

/// S18: reaping takes no more at a time than it is told to.
pub async fn s18_reaping_is_bounded<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["a", "b", "c"].map(|id| message(&fixture, id, "billing"))).await;
    worker.claim(10).await;
    fixture.clock().advance(LEASE + SECOND);
    let reap = async || worker.store().reap(&worker.queue, 2).await.expect("reaps");
    assert_eq!((reap().await, reap().await, reap().await), (2, 1, 0));
}

/// IBX-044, IBX-050, IBX-060: a call that settles several messages settles them all.
pub async fn ibx_044_ibx_050_ibx_060_many_are_settled_in_one_call<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["a", "b", "c", "d", "e", "f"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    assert_eq!(worker.ack(&claimed[..2]).await, 2);
    assert_eq!(worker.abandon(&claimed[2..4]).await, 2);
    assert_eq!(worker.fail(&claimed[4..]).await, 2);
    let twice = [claimed[0].clone(), claimed[0].clone()];
    assert_eq!(worker.ack(&twice).await, 0);
    fixture.clock().advance(SECOND * 2);
    assert_eq!(ids(&worker.claim(10).await), ["c", "d"]);
    assert_eq!(worker.dead().await.len(), 2);
}

/// S5: the same lease twice in one call settles once.
pub async fn s5_a_lease_settles_once<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all([keyed(&fixture, "a", "k")]).await;
    let claimed = worker.claim(1).await;
    let twice = [claimed[0].clone(), claimed[0].clone()];
    assert_eq!(worker.abandon(&twice).await, 1);
    assert_eq!(worker.record("a").await.attempts, 1);
}
