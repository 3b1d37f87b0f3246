//! Claiming before handling (CEB).

use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{
    ClaimFirst, ClaimOutcome, ContentHash, DedupStore, InboxStatus, QueueStore, SweepPlan, SweepStore,
    Unfinished, WorkFilter,
};
use twobox_core::{Clock, Consumer, Response};

use super::fixture::{StoreFixture, name};
use super::worker::{SECOND, Worker, at_once, key, only_id};

fn billing() -> Consumer {
    name("billing")
}

fn first(id: &str) -> ClaimFirst {
    ClaimFirst {
        key: key(id),
        topic: name("Pay"),
        handler: "charge-card".into(),
        hash: None,
        available: None,
        replay: 0,
    }
}

async fn claim<F: StoreFixture>(fixture: &F, id: &str) -> bool {
    fixture.store().claim_first(&billing(), &first(id)).await.expect("claims").is_some()
}

async fn release<F: StoreFixture>(fixture: &F, id: &str) -> bool {
    fixture.store().release_claim(&billing(), &key(id)).await.expect("releases")
}

async fn unfinished<F: StoreFixture>(fixture: &F, older_than: Duration) -> Vec<Unfinished> {
    fixture.store().unfinished(&billing(), older_than, 10).await.expect("lists")
}

/// CEB-1, CEB-6: of many who claim at the same time, exactly one gets the message.
pub async fn ceb_1_ceb_6_one_of_many_wins<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for round in 0..5 {
        let id = format!("m{round}");
        let racers = at_once(16, |_| {
            let (store, claim) = (fixture.store().clone(), first(&id));
            async move { store.claim_first(&billing(), &claim).await.expect("claims").is_some() }
        });
        let winners = racers.await.into_iter().filter(|won| *won);
        assert_eq!(winners.count(), 1, "{id}");
    }
}

/// CEB-1, CEB-6: duplicates are skipped, while the first is handled and afterwards.
pub async fn ceb_1_ceb_6_duplicates_are_skipped<F: StoreFixture>() {
    let fixture = F::fresh().await;
    assert!(claim(&fixture, "a").await);
    assert!(!claim(&fixture, "a").await, "somebody has it");
    assert!(claim(&fixture, "b").await, "another message");
    let audit = fixture.store().claim_first(&name("audit"), &first("a")).await.expect("claims").is_some();
    assert!(audit, "another consumer");
    fixture.store().mark_processed(&billing(), &key("a"), &Response::empty()).await.expect("marks");
    assert!(!claim(&fixture, "a").await, "it is done");
    let fixture = fixture.reopen().await;
    assert!(!claim(&fixture, "a").await && !claim(&fixture, "b").await, "a claim is durable");
}

/// CEB-2, CEB-6: a claim that is released can be had again; one that is kept cannot.
pub async fn ceb_2_ceb_6_a_claim_is_released_or_kept<F: StoreFixture>() {
    let fixture = F::fresh().await;
    assert!(!release(&fixture, "a").await, "there is none");
    claim(&fixture, "a").await;
    claim(&fixture, "kept").await;
    assert!(release(&fixture, "a").await);
    assert!(!release(&fixture, "a").await, "it is gone");
    assert!(claim(&fixture, "a").await);
    assert!(!claim(&fixture, "kept").await);
    fixture.store().mark_processed(&billing(), &key("a"), &Response::empty()).await.expect("marks");
    assert!(!release(&fixture, "a").await, "Done is final");
    assert!(!claim(&fixture, "a").await);
}

/// CEB-2: what a handler that failed keeps is a dead letter: listed, and claimable again after a replay.
pub async fn ceb_2_a_kept_claim_that_failed_is_a_dead_letter<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    claim(&fixture, "a").await;
    assert!(fixture.store().mark_dead(&billing(), &key("a"), "no such card").await.expect("marks"));
    assert!(!claim(&fixture, "a").await && !release(&fixture, "a").await);
    let letters = worker.dead().await;
    assert_eq!((letters[0].id.as_str(), letters[0].topic.as_str()), ("a", "Pay"));
    assert_eq!(letters[0].error.as_deref(), Some("no such card"));
    let rejected = WorkFilter { reason: Some(Reason::Rejected), ..only_id("a") };
    let listed = worker.store().dead_work(&worker.queue.consumer, &rejected, None, 10).await.expect("lists");
    assert_eq!(listed, letters, "found by the reason it is shown with");
    worker.store().replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    assert!(worker.dead().await.is_empty());
    assert!(claim(&fixture, "a").await, "as if it had never been seen");
    fixture.store().mark_dead(&billing(), &key("a"), "no such card").await.expect("marks");
    worker.store().purge_work(&worker.queue, &only_id("a"), 1).await.expect("purges");
    assert!(worker.dead().await.is_empty());
    assert!(!claim(&fixture, "a").await, "purged, and still recognised");
}

/// CEB-3: a claim says who handles the message, what it is about, and since when.
pub async fn ceb_3_a_claim_says_who_what_and_when<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let claimed = fixture.clock().now();
    let hash = ContentHash::of(b"content");
    let claim = ClaimFirst { hash: Some(hash.clone()), ..first("a") };
    assert!(fixture.store().claim_first(&billing(), &claim).await.expect("claims").is_some());
    fixture.clock().advance(SECOND);
    let expected = Unfinished {
        key: key("a"),
        status: InboxStatus::Processing,
        handler: Some("charge-card".into()),
        since: claimed,
    };
    assert_eq!(unfinished(&fixture, Duration::ZERO).await, [expected]);
    let record = fixture.store().work(&billing(), &key("a")).await.expect("looks").expect("is known");
    assert_eq!(record.topic, Some(name("Pay")));
    assert_eq!((record.first_seen, record.hash), (claimed, Some(hash)));
}

/// CEB-2: what a crashed process has left is visible by its age, and can be released by it.
pub async fn ceb_2_what_nobody_finished_is_visible_and_released_by_age<F: StoreFixture>() {
    let fixture = F::fresh().await;
    claim(&fixture, "old").await;
    fixture.store().already_processed(&billing(), &key("noticed"), None).await.expect("notices");
    claim(&fixture, "finished").await;
    fixture.store().mark_processed(&billing(), &key("finished"), &Response::empty()).await.expect("marks");
    fixture.clock().advance(SECOND * 60);
    claim(&fixture, "young").await;
    let minute = SECOND * 60;
    let ids = |unfinished: Vec<Unfinished>| -> Vec<String> {
        unfinished.into_iter().map(|unfinished| unfinished.key.id.to_string()).collect()
    };
    assert_eq!(ids(unfinished(&fixture, Duration::ZERO).await), ["old", "noticed", "young"]);
    assert_eq!(ids(unfinished(&fixture, minute).await), ["old", "noticed"]);
    assert_eq!(ids(fixture.store().unfinished(&billing(), minute, 1).await.expect("lists")), ["old"]);
    let release = async |limit| fixture.store().release_unfinished(&billing(), minute, limit).await;
    assert_eq!(release(1).await.expect("releases"), 1, "at most as many as asked for");
    assert_eq!(release(10).await.expect("releases"), 1);
    assert_eq!(ids(unfinished(&fixture, Duration::ZERO).await), ["young"]);
    assert!(claim(&fixture, "old").await && claim(&fixture, "noticed").await);
    assert!(!claim(&fixture, "young").await && !claim(&fixture, "finished").await);
}

/// CEB-2: who begins to process what was noticed long ago has just begun.
pub async fn ceb_2_age_counts_from_the_beginning_of_the_work<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.store().already_processed(&billing(), &key("a"), None).await.expect("notices");
    fixture.clock().advance(SECOND * 60);
    assert!(fixture.store().mark_processing(&billing(), &key("a")).await.expect("marks"));
    assert_eq!(unfinished(&fixture, SECOND * 60).await, []);
    fixture.clock().advance(SECOND * 60);
    assert_eq!(unfinished(&fixture, SECOND * 60).await[0].status, InboxStatus::Processing);
}

/// A message that is queued is nobody's claim.
pub async fn ceb_2_releasing_never_touches_the_queue<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    claim(&fixture, "a").await;
    worker.put(super::fixture::message(&fixture, "a", "billing")).await;
    assert!(!claim(&fixture, "a").await);
    assert!(!release(&fixture, "a").await);
    fixture.clock().advance(SECOND);
    assert_eq!(unfinished(&fixture, Duration::ZERO).await, []);
    assert_eq!(
        fixture.store().release_unfinished(&billing(), Duration::ZERO, 10).await.expect("releases"),
        0
    );
    assert_eq!(worker.claim_ids(10).await, ["a"]);
}

/// CEB-5, CEB-6: what is done is forgotten after the retention; what is claimed or dead never is.
pub async fn ceb_5_ceb_6_cleanup_keeps_what_is_not_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for id in ["done", "claimed", "dead"] {
        claim(&fixture, id).await;
    }
    fixture.store().mark_processed(&billing(), &key("done"), &Response::empty()).await.expect("marks");
    fixture.store().mark_dead(&billing(), &key("dead"), "never").await.expect("marks");
    let plan = SweepPlan { dedup_window: SECOND * 3600, ..SweepPlan::default() };
    fixture.clock().advance(SECOND * 3600 - SECOND);
    claim(&fixture, "new").await;
    fixture.store().mark_processed(&billing(), &key("new"), &Response::empty()).await.expect("marks");
    assert_eq!(fixture.store().sweep(&plan).await.expect("sweeps").purged, 0, "not yet");
    fixture.clock().advance(SECOND);
    claim(&fixture, "newer").await;
    fixture.store().mark_processed(&billing(), &key("newer"), &Response::empty()).await.expect("marks");
    assert_eq!(fixture.store().sweep(&plan).await.expect("sweeps").purged, 1);
    assert!(claim(&fixture, "done").await, "forgotten");
    for id in ["claimed", "dead", "new", "newer"] {
        assert!(!claim(&fixture, id).await, "{id} is still known");
    }
}

/// S5, CEB-2: after a claim was released by age and made anew, the first owner can neither finish nor release it.
pub async fn s5_ceb_2_a_released_claim_settles_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store();
    let one = store.claim_first(&billing(), &first("a")).await.expect("claims").expect("is the first");
    assert!(release(&fixture, "a").await);
    let two = store.claim_first(&billing(), &first("a")).await.expect("claims").expect("is free");
    let done = ClaimOutcome::Done(twobox_core::Response::empty());
    for outcome in [done.clone(), ClaimOutcome::Kept("late".into()), ClaimOutcome::Released] {
        let settled = store.settle_claim(&billing(), &key("a"), one, &outcome).await.expect("settles");
        assert!(!settled, "{outcome:?}");
    }
    assert!(!claim(&fixture, "a").await, "it is still the second one's");
    assert!(store.settle_claim(&billing(), &key("a"), two, &done).await.expect("settles"));
    assert!(!store.settle_claim(&billing(), &key("a"), two, &ClaimOutcome::Released).await.expect("settles"));
    assert!(!claim(&fixture, "a").await, "done is final");
}
