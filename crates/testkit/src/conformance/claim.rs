//! Claiming: leases on messages that are due.

use std::collections::HashSet;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Claim, HeadPolicy, InboxStatus, Queue, QueueStore};
use twobox_core::{Clock, Message};

use super::fixture::{StoreFixture, keyed, message};
use super::worker::{LEASE, SECOND, Worker, at_once, ids, leases, only_id};

fn none() -> Vec<String> {
    Vec::new()
}

/// IBX-034, IBX-035, IBX-036: a claim returns the messages, and says who has them and until when.
pub async fn ibx_034_ibx_035_ibx_036_a_claim_is_a_lease<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["a", "b"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    assert_eq!(ids(&claimed), ["a", "b"]);
    for claimed in claimed {
        assert_eq!(claimed.lease.key.id, claimed.message.id);
        let (owner, until) = worker.record(claimed.message.id.as_str()).await.lease.expect("is leased");
        assert_eq!(owner, worker.owner.as_bytes());
        assert_eq!(until, fixture.clock().now().plus(LEASE));
    }
}

/// IBX-037, IBX-039: no more than asked for, the longest due first, and nothing when there is nothing.
pub async fn ibx_037_ibx_039_as_many_as_asked_for<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    assert_eq!(worker.claim_ids(10).await, none());
    for n in 0..5 {
        worker.put(message(&fixture, &format!("m{n}"), "billing")).await;
        fixture.clock().advance(SECOND);
    }
    assert_eq!(worker.claim_ids(2).await, ["m0", "m1"]);
    assert_eq!(worker.claim_ids(2).await, ["m2", "m3"]);
    assert_eq!(worker.claim_ids(2).await, ["m4"]);
    assert_eq!(worker.claim_ids(2).await, none());
}

/// IBX-039: scheduled messages and others are served by their turn: neither starves the other.
pub async fn ibx_039_the_longest_due_come_first_scheduled_or_not<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let now = fixture.clock().now();
    for n in [1, 3] {
        let sent = message(&fixture, &format!("s{n}"), "billing");
        worker.put(Message { available: now.plus(SECOND * n), ..sent }).await;
    }
    for n in [0, 2] {
        worker.put(message(&fixture, &format!("m{n}"), "billing")).await;
        fixture.clock().advance(SECOND * 2);
    }
    assert_eq!(worker.claim_ids(3).await, ["m0", "s1", "m2"]);
    assert_eq!(worker.claim_ids(3).await, ["s3"]);
}

/// IBX-033, IBX-106: what somebody has is not claimed again before the lease is over, not even by themselves.
pub async fn ibx_033_ibx_106_a_lease_is_exclusive<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (worker, other) = (Worker::new(&fixture, 1), Worker::new(&fixture, 2));
    worker.put(message(&fixture, "a", "billing")).await;
    let first = worker.only().await;
    assert_eq!((other.claim_ids(10).await, worker.claim_ids(10).await), (none(), none()));
    fixture.clock().advance(LEASE - SECOND);
    assert_eq!(other.claim_ids(10).await, none());
    fixture.clock().advance(SECOND);
    let second = other.only().await;
    assert!(second.lease.token > first.lease.token, "tokens grow (S5)");
}

/// IBX-030, IBX-103, IBX-106: many workers at the same time, and each message goes to one of them.
pub async fn ibx_030_ibx_103_ibx_106_workers_at_once_share_the_messages<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_many((0..60).map(|n| message(&fixture, &format!("m{n}"), "billing"))).await;
    let workers = at_once(8, |n| {
        let Worker { queue, owner, .. } = Worker::new(&fixture, n as u64);
        let store = fixture.store().clone();
        async move {
            let claim = Claim::new(owner, LEASE, 3).expect("legal");
            let mut mine = Vec::new();
            loop {
                let claimed = store.claim(&queue, &claim).await.expect("claims");
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(ids(&claimed));
            }
        }
    });
    let all: Vec<_> = workers.await.into_iter().flatten().collect();
    assert_eq!(all.len(), 60, "none twice");
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 60, "none left out");
}

/// IBX-031, IBX-038, IBX-064: what was only noticed, is Done or Dead is never claimed.
pub async fn ibx_031_ibx_038_only_open_messages_are_claimed<F: StoreFixture>() {
    use twobox_core::ports::DedupStore;
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let seen = super::worker::key("seen");
    fixture.store().already_processed(&worker.queue.consumer, &seen, None).await.expect("notices");
    worker.put_all(["done", "dead"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    worker.ack(&claimed[..1]).await;
    worker.fail(&claimed[1..]).await;
    fixture.clock().advance(SECOND * 3600);
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
    assert_eq!(worker.status("seen").await, InboxStatus::Seen);
    assert_eq!(worker.status("done").await, InboxStatus::Done);
    assert_eq!(worker.status("dead").await, InboxStatus::Dead);
}

/// IBX-032, IBX-042: neither before it is due nor before its back-off is over.
pub async fn ibx_032_ibx_042_the_back_off_is_kept<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    worker.abandon(&claimed).await;
    fixture.clock().advance(SECOND * 2 - SECOND / 1000);
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(SECOND / 1000);
    assert_eq!(worker.claim_ids(10).await, ["a"]);
}

/// S6, IBX-083: each worker that dies with a message is an attempt, and the last one makes it a dead letter.
pub async fn s6_ibx_083_a_crashed_worker_is_an_attempt<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "poison", "billing")).await;
    for attempts in 0..10 {
        let claimed = worker.only().await;
        assert_eq!(claimed.attempts, attempts);
        let said = claimed.last_error.is_some_and(|error| error.contains("its worker stopped"));
        assert_eq!(said, attempts > 0);
        fixture.clock().advance(LEASE);
    }
    assert_eq!(worker.claim_ids(10).await, none(), "ten workers have died of it");
    let letter = worker.dead().await.remove(0);
    assert_eq!((letter.reason, letter.attempts), (Reason::AttemptsExhausted, 10));
    assert!(letter.error.expect("says why").contains("its worker stopped"));
    let record = worker.record("poison").await;
    assert_eq!((record.status, record.lease), (InboxStatus::Dead, None));
}

/// S5: a lease of an earlier claim settles nothing, even of the same worker.
pub async fn s5_a_lease_of_an_earlier_claim_settles_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let stale = worker.claim(1).await;
    fixture.clock().advance(LEASE);
    let current = worker.claim(1).await;
    let (store, queue, owner) = (worker.store(), &worker.queue, worker.owner);
    assert_eq!(worker.ack(&stale).await + worker.abandon(&stale).await + worker.fail(&stale).await, 0);
    assert_eq!(store.give_back(queue, owner, &leases(&stale)).await.expect("settles"), 0);
    assert_eq!(store.renew(queue, owner, &leases(&stale), LEASE).await.expect("renews"), []);
    assert_eq!(worker.status("a").await, InboxStatus::Processing);
    assert_eq!(worker.record("a").await.attempts, 1, "the crash, and nothing else");
    assert_eq!(worker.ack(&current).await, 1);
}

/// IBX-8.3: what is past its time to live is not handed out; it is Expired, a dead letter, and can be replayed.
pub async fn ibx_8_3_expired_messages_are_set_aside<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let expires = fixture.clock().now().plus(SECOND * 60);
    worker.put(Message { expires, ..message(&fixture, "a", "billing") }).await;
    worker.put(message(&fixture, "b", "billing")).await;
    fixture.clock().advance(SECOND * 60);
    assert_eq!(worker.claim_ids(1).await, ["b"], "it takes no place in a claim");
    let record = worker.record("a").await;
    assert_eq!((record.status, record.reason), (InboxStatus::Expired, Some(Reason::Expired)));
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::Expired)]);
    worker.store().replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    assert_eq!(worker.claim_ids(1).await, ["a"], "its time to live is lifted");
}

/// S18: a claim does not bury any number of messages in one transaction, and reaches what is alive in the end.
pub async fn s18_a_claim_buries_a_little_at_a_time<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let expires = fixture.clock().now().plus(SECOND);
    let expiring = |n| Message { expires, ..message(&fixture, &format!("m{n}"), "billing") };
    worker.put_many((0..1_100).map(expiring)).await;
    fixture.clock().advance(SECOND);
    worker.put(message(&fixture, "alive", "billing")).await;
    let seen = worker.store().work_changed(0).await;
    assert_eq!(worker.claim_ids(1).await, none(), "it has done enough for now");
    assert!(worker.store().work_changed(seen).await > seen, "and says that there is more");
    let mut claims = 1;
    while worker.claim_ids(1).await.is_empty() {
        claims += 1;
        assert!(claims < 10, "never reached");
    }
    assert_eq!(worker.status("alive").await, InboxStatus::Processing);
}

/// S19: a row that cannot be decoded is a dead letter and hides nothing, also not the rest of its key.
pub async fn s19_an_undecodable_message_is_a_dead_letter<F: StoreFixture>() {
    for policy in [HeadPolicy::Block, HeadPolicy::StepOver] {
        let fixture = F::fresh().await;
        let worker = Worker::under(&fixture, policy);
        worker.put_all(["k1", "k2"].map(|id| keyed(&fixture, id, "k"))).await;
        worker.put_all([message(&fixture, "other", "billing")]).await;
        fixture.spoil_work("k1").await;
        assert_eq!(worker.claim_ids(10).await, ["other", "k2"], "{policy:?}");
        let letter = worker.dead().await.remove(0);
        assert_eq!((letter.id.as_str(), letter.reason), ("k1", Reason::Undecodable));
        assert!(letter.error.is_some() && !letter.blocks_key);
    }
}

/// S13: a clock that was ahead and comes back parks nothing longer than the longest back-off or lease.
pub async fn s13_a_clock_that_jumps_back_parks_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["leased", "failed"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    worker.abandon(&claimed[1..]).await;
    worker.put_all([message(&fixture, "ready", "billing")]).await;
    fixture.clock().step_back(SECOND * 3600 * 24 * 30);
    assert_eq!(worker.claim_ids(10).await, none());
    let seen = worker.store().work_changed(0).await;
    assert_eq!(worker.reap().await, 1, "the lease ends implausibly late");
    assert!(worker.store().work_changed(seen).await > seen);
    assert_eq!(worker.claim_ids(10).await, ["failed", "ready"]);
    fixture.clock().advance(SECOND * 2);
    assert_eq!(worker.claim_ids(10).await, ["leased"]);
}

/// S13, S18: what a clock has parked comes back a little at a time, and wakes the workers.
pub async fn s13_s18_what_was_parked_comes_back_in_parts<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["a", "b", "c"].map(|id| message(&fixture, id, "billing"))).await;
    fixture.clock().step_back(SECOND * 3600);
    for expected in [2, 1, 0] {
        let seen = worker.store().work_changed(0).await;
        assert_eq!(worker.store().reap(&worker.queue, 2).await.expect("reaps"), 0, "nothing was leased");
        if expected > 0 {
            assert!(worker.store().work_changed(seen).await > seen);
        }
        assert_eq!(worker.claim(10).await.len(), expected);
    }
}

/// S13: what somebody has scheduled is due when its date comes, however far that is.
pub async fn s13_what_was_scheduled_stays_scheduled<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let year = SECOND * 3600 * 24 * 365;
    let available = fixture.clock().now().plus(year);
    let expires = available.plus(year);
    worker.put(Message { available, expires, ..message(&fixture, "a", "billing") }).await;
    worker.reap().await;
    assert_eq!(worker.claim_ids(10).await, none());
    fixture.clock().advance(year);
    assert_eq!(worker.claim_ids(10).await, ["a"]);
}

/// IBX-082, IBX-084: back-off and number of attempts are the caller's choice.
pub async fn ibx_082_ibx_084_the_policy_can_be_chosen<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut worker = Worker::new(&fixture, 1);
    let two = std::num::NonZeroU32::MIN.saturating_add(1);
    let retry = worker.queue.retry.clone().attempts_max(two).base(SECOND * 5).max(SECOND * 5);
    worker.queue = Queue { retry, ..worker.queue };
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    worker.abandon(&claimed).await;
    assert_eq!(worker.record("a").await.ready, Some(fixture.clock().now().plus(SECOND * 5)));
    fixture.clock().advance(SECOND * 5);
    let claimed = worker.claim(1).await;
    worker.abandon(&claimed).await;
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::AttemptsExhausted)]);
}
