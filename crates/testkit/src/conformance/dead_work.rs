//! Dead letters of the queue: listed, run again, removed (IBX-8.2); and what cleaning up leaves of it.

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{
    Answer, DeadWork, DedupStore, Enqueued, InboxStatus, InboxStore, QueueStore, SweepPlan, SweepStore,
    Swept, WorkFilter,
};
use twobox_core::{Clock, Message, Response, Timestamp};

use super::fixture::{HandlerScript, StoreFixture, deliver, keyed, message, message_from, name};
use super::worker::{SECOND, Worker, key, only_id};

/// Queues messages and lets them die, one second after another.
async fn bury<F: StoreFixture>(worker: &Worker<'_, F>, fixture: &F, ids: &[&str]) {
    for id in ids {
        worker.put(message(fixture, id, "billing")).await;
        let claimed = worker.claim(1).await;
        worker.fail(&claimed).await;
        fixture.clock().advance(SECOND);
    }
}

async fn list<F: StoreFixture>(worker: &Worker<'_, F>, filter: &WorkFilter) -> Vec<String> {
    let found = worker.store().dead_work(&worker.queue.consumer, filter, None, 100).await.expect("lists");
    found.into_iter().map(|letter| letter.id).collect()
}

/// IBX-8.2: a dead letter says what it is, why and when it died.
pub async fn ibx_8_2_dead_letters_are_listed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let died: Timestamp = fixture.clock().now();
    worker.put(keyed(&fixture, "a", "k")).await;
    let claimed = worker.claim(1).await;
    worker.fail(&claimed).await;
    let mut letter = worker.dead().await.remove(0);
    letter.place = 0;
    let expected = DeadWork {
        place: 0,
        source: "shop".into(),
        id: "a".into(),
        topic: "Pay".into(),
        ordering_key: Some("k".into()),
        reason: Reason::Rejected,
        error: Some("never".into()),
        attempts: 1,
        died,
        blocks_key: true,
    };
    assert_eq!(letter, expected);
    let mut audit = Worker::new(&fixture, 1);
    audit.queue.consumer = name("audit");
    assert_eq!(audit.dead().await, [], "another consumer's");
}

/// IBX-8.2: filters by source, id, topic and reason.
pub async fn ibx_8_2_dead_letters_are_filtered<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    bury(&worker, &fixture, &["a", "b"]).await;
    let refund = Message { endpoint: name("Refund"), ..message_from(&fixture, "crm", "a", "billing") };
    worker.put(Message { expires: fixture.clock().now(), ..refund }).await;
    worker.claim(1).await;
    let all = WorkFilter::default();
    assert_eq!(list(&worker, &all).await, ["a", "b", "a"]);
    assert_eq!(list(&worker, &only_id("a")).await.len(), 2, "of whichever source");
    let source = WorkFilter { source: Some(name("crm")), ..only_id("a") };
    assert_eq!(list(&worker, &source).await, ["a"]);
    assert_eq!(list(&worker, &WorkFilter { source: Some(name("crm")), ..all.clone() }).await, ["a"]);
    assert_eq!(list(&worker, &WorkFilter { topic: Some(name("Pay")), ..all.clone() }).await, ["a", "b"]);
    assert_eq!(list(&worker, &WorkFilter { topic: Some(name("pay")), ..all.clone() }).await.len(), 0);
    assert_eq!(list(&worker, &WorkFilter { reason: Some(Reason::Expired), ..all.clone() }).await, ["a"]);
    let rejected = WorkFilter { reason: Some(Reason::Rejected), ..all };
    assert_eq!(list(&worker, &rejected).await, ["a", "b"]);
    assert_eq!(list(&worker, &only_id("unknown")).await.len(), 0);
}

/// IBX-8.2: the list has pages, with every filter.
pub async fn ibx_8_2_dead_letters_are_paged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    bury(&worker, &fixture, &["a", "b"]).await;
    // Two that died at the same time.
    worker.put_all(["c", "d"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(2).await;
    worker.fail(&claimed).await;
    for (filter, expected) in [(WorkFilter::default(), vec!["a", "b", "c", "d"]), (only_id("b"), vec!["b"])] {
        let mut seen: Vec<DeadWork> = Vec::new();
        loop {
            let after = seen.last();
            let page =
                worker.store().dead_work(&worker.queue.consumer, &filter, after, 1).await.expect("lists");
            assert!(page.len() <= 1 && seen.len() <= 4, "{seen:?}");
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen.iter().map(|letter| letter.id.as_str()).collect::<Vec<_>>(), expected);
    }
}

/// IBX-8.2: one, those that match, or all are run again, from the beginning.
pub async fn ibx_8_2_dead_letters_are_replayed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    bury(&worker, &fixture, &["a", "b", "c", "d"]).await;
    let replay = async |filter: &WorkFilter, limit| {
        let replayed = worker.store().replay_work(&worker.queue, filter, limit).await.expect("replays");
        (replayed.replayed, replayed.more)
    };
    assert_eq!(replay(&only_id("b"), 10).await, (1, false));
    let record = worker.record("b").await;
    assert_eq!((record.status, record.attempts, record.reason), (InboxStatus::Processing, 0, None));
    assert_eq!(replay(&only_id("b"), 10).await, (0, false), "it is no longer dead");
    let claimed = worker.only().await;
    assert_eq!((claimed.message.id.as_str(), claimed.attempts), ("b", 0));
    worker.ack(&[claimed]).await;
    let expired = WorkFilter { reason: Some(Reason::Expired), ..WorkFilter::default() };
    assert_eq!(replay(&expired, 10).await, (0, false));
    assert_eq!(replay(&WorkFilter::default(), 2).await, (2, true), "a little at a time");
    assert_eq!(replay(&WorkFilter::default(), 2).await, (1, false));
    assert_eq!(worker.claim_ids(10).await, ["a", "c", "d"]);
    assert!(worker.dead().await.is_empty());
}

/// IBX-8.2: what is replayed and fails again is a dead letter again.
pub async fn ibx_8_2_a_replay_can_die_again<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    bury(&worker, &fixture, &["a"]).await;
    worker.store().replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    let fixture = fixture.reopen().await;
    let worker = Worker::new(&fixture, 1);
    let claimed = vec![worker.only().await];
    worker.handle(claimed, |_| HandlerScript::EffectThenReject).await;
    assert_eq!(worker.deaths().await, [("a".to_owned(), Reason::Rejected)]);
    worker.store().replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    let claimed = vec![worker.only().await];
    worker.handle(claimed, |_| HandlerScript::Effect).await;
    assert_eq!(worker.status("a").await, InboxStatus::Done);
    assert_eq!(fixture.effects().await, ["a"]);
}

/// IBX-8.2, S13: whoever means one death does not mean the next one of the same message, nor another consumer's.
pub async fn ibx_8_2_only_the_deaths_that_are_meant_are_replayed_or_purged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let store = worker.store();
    bury(&worker, &fixture, &["a", "b", "c"]).await;
    let consumer = &worker.queue.consumer;
    let page = store.dead_work_page(consumer, &WorkFilter::default(), None, 2).await.expect("lists");
    assert!(page.more && page.letters.len() == 2);
    let deaths = page.deaths();
    let mut audit = worker.queue.clone();
    audit.consumer = name("audit");
    assert_eq!(store.replay_work_deaths(&audit, deaths.clone()).await.expect("replays"), 0);
    assert_eq!(store.purge_work_deaths(&audit, deaths.clone()).await.expect("purges"), 0);
    assert_eq!(store.replay_work_deaths(&worker.queue, deaths.clone()).await.expect("replays"), 2);
    let claimed = worker.claim(1).await;
    worker.fail(&claimed).await;
    assert_eq!(store.replay_work_deaths(&worker.queue, deaths.clone()).await.expect("replays"), 0);
    assert_eq!(store.purge_work_deaths(&worker.queue, deaths).await.expect("purges"), 0);
    assert_eq!(list(&worker, &WorkFilter::default()).await, ["c", "a"], "it died another death");
    assert_eq!(worker.claim_ids(10).await, ["b"]);
    assert_eq!(store.purge_work_deaths(&worker.queue, Vec::new()).await.expect("purges"), 0);
}

/// IBX-8.2: what is purged is gone from the list and from the queue, and is still recognised.
pub async fn ibx_8_2_purged_is_gone_and_still_recognised<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    bury(&worker, &fixture, &["a", "b", "c"]).await;
    let purge = async |filter: &WorkFilter, limit| {
        let purged = worker.store().purge_work(&worker.queue, filter, limit).await.expect("purges");
        (purged.purged, purged.more)
    };
    assert_eq!(purge(&only_id("a"), 10).await, (1, false));
    assert_eq!(purge(&WorkFilter::default(), 1).await, (1, true));
    assert_eq!(purge(&WorkFilter::default(), 1).await, (1, false));
    assert!(worker.dead().await.is_empty());
    let record = worker.record("a").await;
    assert_eq!((record.status, record.payload), (InboxStatus::Dead, None));
    assert_eq!(worker.put(message(&fixture, "a", "billing")).await, Enqueued::Dead);
    assert!(worker.claim(10).await.is_empty());
    let again = [message(&fixture, "a", "billing")];
    let answers = deliver(&fixture, &again, |_| Some(HandlerScript::Effect)).await;
    assert!(matches!(&answers[0], Answer::Rejected { error } if error == "never"), "{answers:?}");
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    worker.put(Message { expires: fixture.clock().now(), ..message(&fixture, "late", "billing") }).await;
    assert!(worker.claim(10).await.is_empty(), "it has expired");
    assert_eq!(purge(&only_id("late"), 10).await, (1, false));
    assert_eq!(worker.put(message(&fixture, "late", "billing")).await, Enqueued::Dead);
    assert_eq!(worker.status("late").await, InboxStatus::Expired);
    assert!(worker.claim(10).await.is_empty());
}

async fn sweep<F: StoreFixture>(fixture: &F, batch: usize) -> Swept {
    let plan = SweepPlan { dedup_window: SECOND * 3600, batch, ..SweepPlan::default() };
    fixture.store().sweep(&plan).await.expect("sweeps")
}

/// Queues messages and acknowledges them.
async fn finish<F: StoreFixture>(worker: &Worker<'_, F>, fixture: &F, ids: &[&str]) {
    for id in ids {
        worker.put(message(fixture, id, "billing")).await;
        let claimed = worker.claim(1).await;
        assert_eq!(worker.ack(&claimed).await, 1);
    }
}

/// IBX-098, IBX-099, IBX-100: what was done is forgotten after the retention; nothing else ever is.
pub async fn ibx_098_ibx_099_ibx_100_only_old_done_messages_are_swept<F: StoreFixture>() {
    use twobox_core::ports::DedupStore;
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    finish(&worker, &fixture, &["done"]).await;
    bury(&worker, &fixture, &["dead"]).await;
    let seen = super::worker::key("seen");
    fixture.store().already_processed(&worker.queue.consumer, &seen, None).await.expect("notices");
    worker.put(message(&fixture, "open", "billing")).await;
    let later = fixture.clock().now().plus(SECOND * 3600 * 24 * 300);
    worker.put(Message { available: later, ..message(&fixture, "later", "billing") }).await;
    assert_eq!(sweep(&fixture, 100).await.purged, 0);
    fixture.clock().advance(SECOND * 3600 * 24);
    let claimed = worker.claim(1).await;
    assert_eq!(claimed.len(), 0, "it expired, and that is not done either");
    finish(&worker, &fixture, &["new"]).await;
    assert_eq!(sweep(&fixture, 100).await.purged, 1);
    let known = async |id| {
        let found = worker.store().work(&worker.queue.consumer, &super::worker::key(id)).await;
        found.expect("looks").map(|record| record.status)
    };
    assert_eq!(known("done").await, None, "forgotten");
    assert_eq!(known("dead").await, Some(InboxStatus::Dead));
    assert_eq!(known("seen").await, Some(InboxStatus::Seen));
    assert_eq!(known("open").await, Some(InboxStatus::Expired));
    assert_eq!(known("later").await, Some(InboxStatus::Processing));
    assert_eq!(known("new").await, Some(InboxStatus::Done));
}

/// IBX-101: cleaning up goes in small batches and says when there is more.
pub async fn ibx_101_sweeping_goes_in_small_batches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    for id in ["a", "b", "c", "d", "e"] {
        finish(&worker, &fixture, &[id]).await;
        fixture.clock().advance(SECOND);
    }
    fixture.clock().advance(SECOND * 3600 * 24);
    worker.put(message(&fixture, "new", "billing")).await;
    let claimed = worker.claim(1).await;
    worker.handle(claimed, |_| HandlerScript::Effect).await;
    let mut sweeps = Vec::new();
    loop {
        let swept = sweep(&fixture, 2).await;
        sweeps.push(swept.purged);
        if !swept.more {
            break;
        }
    }
    assert_eq!(sweeps.iter().sum::<u64>(), 5, "{sweeps:?}");
    assert!(sweeps.iter().all(|purged| *purged <= 2), "{sweeps:?}");
}

/// IBX-8.2, IBX-029: who dies before it was queued has no content; if it comes later, a replay runs it.
pub async fn ibx_8_2_ibx_029_a_dead_letter_that_gets_its_content_later_can_be_replayed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let (store, consumer) = (fixture.store(), &worker.queue.consumer);
    store.already_processed(consumer, &key("a"), None).await.expect("notices");
    store.mark_dead(consumer, &key("a"), "broken").await.expect("marks");
    let late = keyed(&fixture, "a", "k");
    assert_eq!(worker.put(late.clone()).await, Enqueued::Dead);
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new(), "it is as dead as before");
    let letter = worker.dead().await.remove(0);
    assert_eq!(
        (letter.id.as_str(), letter.error.as_deref(), letter.blocks_key),
        ("a", Some("broken"), false)
    );
    let replayed = store.replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    assert_eq!(replayed.replayed, 1);
    let claimed = worker.only().await;
    assert_eq!(
        (&claimed.message.payload, &claimed.message.ordering_key),
        (&late.payload, &late.ordering_key)
    );
}

/// S18: also if all of them have the same date.
pub async fn s18_messages_of_one_date_are_swept_in_small_batches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let (ids, consumer) = (["a", "b", "c", "d", "e"], &worker.queue.consumer);
    finish(&worker, &fixture, &ids).await;
    fixture.clock().advance(SECOND * 3600);
    finish(&worker, &fixture, &["new"]).await;
    let mut left = 5;
    while left > 0 {
        let mut found = 0;
        for id in ids {
            let known =
                fixture.store().inbox_record(consumer, &name("shop"), &name(id)).await.expect("looks");
            found += u64::from(known.is_some());
        }
        assert_eq!(found, left, "what is left is recognised");
        let swept = sweep(&fixture, 2).await;
        assert_eq!((swept.purged, swept.more), (left.min(2), left >= 2));
        left -= swept.purged;
    }
}

/// S9: what is done before it is due has a date to come; nothing else is forgotten for that.
pub async fn s9_scheduled_work_that_ends_early_makes_nobody_forget<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    finish(&worker, &fixture, &["a"]).await;
    let (month, a) = (SECOND * 3600 * 24 * 30, message(&fixture, "a", "billing"));
    let available = fixture.clock().now().plus(month);
    let scheduled = message(&fixture, "s", "billing");
    worker.put(Message { available, expires: available.plus(month), ..scheduled }).await;
    let consumer = &worker.queue.consumer;
    fixture.store().mark_processed(consumer, &key("s"), &Response::empty()).await.expect("marks");
    sweep(&fixture, 100).await;
    assert_eq!(worker.put(a).await, Enqueued::Done);
    fixture.clock().advance(month * 2);
    finish(&worker, &fixture, &["new"]).await;
    sweep(&fixture, 100).await;
    let left = fixture.store().inbox_record(consumer, &name("shop"), &name("s")).await;
    assert_eq!(left.expect("looks"), None, "and it is forgotten when its time has come");
}

/// S9: a message that was scheduled for long is remembered for as long as any other after it was handled.
pub async fn s9_a_scheduled_message_is_remembered_after_it_was_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let month = SECOND * 3600 * 24 * 30;
    let available = fixture.clock().now().plus(month);
    let later = |message| Message { available, expires: available.plus(month), ..message };
    let scheduled = ["s", "put off"].map(|id| later(message(&fixture, id, "billing")));
    worker.put(message(&fixture, "put off", "billing")).await;
    for message in scheduled.clone() {
        worker.put(message).await;
    }
    fixture.clock().advance(month);
    let claimed = worker.claim(10).await;
    worker.handle(claimed, |_| HandlerScript::Effect).await;
    finish(&worker, &fixture, &["new"]).await;
    sweep(&fixture, 100).await;
    for message in scheduled {
        assert_eq!(worker.put(message).await, Enqueued::Done);
    }
    assert_eq!(fixture.effects().await.len(), 2);
}
