//! Dedup records by hand: noticed, being processed, processed, dead.

use twobox_core::ports::{
    Answer, ContentHash, DedupStore, InboxStatus, MessageKey, Noticed, QueueStore, WorkRecord,
};
use twobox_core::{Consumer, Payload, Response};

use super::fixture::{HandlerScript, StoreFixture, deliver, message, name};
use super::worker::{SECOND, Worker, at_once, key};

fn billing() -> Consumer {
    name("billing")
}

async fn notice<F: StoreFixture>(fixture: &F, key: &MessageKey, hash: Option<&ContentHash>) -> Noticed {
    fixture.store().already_processed(&billing(), key, hash).await.expect("notices")
}

async fn processed<F: StoreFixture>(fixture: &F, key: &MessageKey) -> bool {
    fixture.store().mark_processed(&billing(), key, &Response::empty()).await.expect("marks")
}

async fn dead<F: StoreFixture>(fixture: &F, key: &MessageKey) -> bool {
    fixture.store().mark_dead(&billing(), key, "never").await.expect("marks")
}

async fn processing<F: StoreFixture>(fixture: &F, key: &MessageKey) -> bool {
    fixture.store().mark_processing(&billing(), key).await.expect("marks")
}

async fn record<F: StoreFixture>(fixture: &F, key: &MessageKey) -> Option<WorkRecord> {
    fixture.store().work(&billing(), key).await.expect("looks")
}

/// IBX-002, IBX-003, IBX-004: what is not known is noted as Seen; what is Done has been processed.
pub async fn ibx_002_ibx_003_ibx_004_seen_until_it_is_done<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let a = key("a");
    assert_eq!(record(&fixture, &a).await, None);
    let first = notice(&fixture, &a, None).await;
    assert_eq!(first, Noticed { status: InboxStatus::Seen, differs: false });
    assert!(!first.is_processed());
    let seen = record(&fixture, &a).await.expect("is known");
    assert_eq!((seen.status, &seen.topic, &seen.payload), (InboxStatus::Seen, &None, &None));
    assert!(processed(&fixture, &a).await);
    assert!(notice(&fixture, &a, None).await.is_processed());
    assert_eq!(record(&fixture, &a).await.expect("is known").status, InboxStatus::Done);
}

/// IBX-001: ids are unique within their source, and each consumer has its own records.
pub async fn ibx_001_the_key_is_source_and_id<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let ours = key("a");
    let theirs = MessageKey { source: name("crm"), ..ours.clone() };
    let other = key("A");
    for key in [&ours, &theirs, &other] {
        assert_eq!(notice(&fixture, key, None).await.status, InboxStatus::Seen, "{key}");
    }
    assert!(processed(&fixture, &ours).await);
    assert!(notice(&fixture, &ours, None).await.is_processed());
    assert!(!notice(&fixture, &theirs, None).await.is_processed());
    assert!(!notice(&fixture, &other, None).await.is_processed(), "ids are case-sensitive");
    let audit = fixture.store().already_processed(&name("audit"), &ours, None).await.expect("notices");
    assert!(!audit.is_processed(), "another consumer");
}

/// IBX-005: what is not Done is noted as seen again, and keeps its state.
pub async fn ibx_005_seen_again_is_noted<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for (id, status) in [("s", InboxStatus::Seen), ("p", InboxStatus::Processing), ("d", InboxStatus::Dead)] {
        let key = key(id);
        notice(&fixture, &key, None).await;
        if status == InboxStatus::Processing {
            assert!(processing(&fixture, &key).await);
        } else if status == InboxStatus::Dead {
            assert!(dead(&fixture, &key).await);
        }
        let before = record(&fixture, &key).await.expect("is known");
        fixture.clock().advance(SECOND);
        assert_eq!(notice(&fixture, &key, None).await.status, status);
        let after = record(&fixture, &key).await.expect("is known");
        assert_eq!(after.first_seen, before.first_seen);
        assert_eq!(after.last_seen, before.last_seen.plus(SECOND));
        assert_eq!(after.status, status);
    }
    let done = key("done");
    notice(&fixture, &done, None).await;
    processed(&fixture, &done).await;
    let before = record(&fixture, &done).await;
    fixture.clock().advance(SECOND);
    notice(&fixture, &done, None).await;
    assert_eq!(record(&fixture, &done).await, before, "Done is final");
}

/// IBX-006: many callers at once leave one record and see no error.
pub async fn ibx_006_callers_at_once_leave_one_record<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let notices = at_once(16, |_| {
        let store = fixture.store().clone();
        async move { store.already_processed(&billing(), &key("a"), None).await.expect("notices") }
    });
    assert!(notices.await.iter().all(|noticed| noticed.status == InboxStatus::Seen));
    assert!(processed(&fixture, &key("a")).await);
    assert!(!processed(&fixture, &key("a")).await, "there is one record, and it is Done");
}

/// IBX-007, IBX-008: the first hash is kept; another content is told, and is no error.
pub async fn ibx_007_ibx_008_another_content_is_told<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let a = key("a");
    let (first, other) = (ContentHash::of(b"first"), ContentHash::of(b"other"));
    assert!(!notice(&fixture, &a, None).await.differs);
    assert!(!notice(&fixture, &a, Some(&first)).await.differs, "nothing was known to compare with");
    assert_eq!(record(&fixture, &a).await.expect("is known").hash.as_ref(), Some(&first));
    assert!(!notice(&fixture, &a, Some(&first)).await.differs);
    assert!(!notice(&fixture, &a, None).await.differs);
    let noticed = notice(&fixture, &a, Some(&other)).await;
    assert_eq!(noticed, Noticed { status: InboxStatus::Seen, differs: true });
    processed(&fixture, &a).await;
    let noticed = notice(&fixture, &a, Some(&other)).await;
    assert_eq!(noticed, Noticed { status: InboxStatus::Done, differs: true });
    assert_eq!(record(&fixture, &a).await.expect("is known").hash, Some(first));
}

/// IBX-8.4, IBX-129: a hash is kept with its algorithm; hashes of two algorithms cannot differ.
pub async fn ibx_8_4_ibx_129_a_hash_keeps_its_algorithm<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let a = key("a");
    let foreign = ContentHash::new("sha-512", vec![7; 64]).expect("legal");
    notice(&fixture, &a, Some(&foreign)).await;
    assert_eq!(record(&fixture, &a).await.expect("is known").hash, Some(foreign));
    assert!(!notice(&fixture, &a, Some(&ContentHash::of(b"content"))).await.differs);
    assert!(
        notice(&fixture, &a, Some(&ContentHash::new("sha-512", vec![8; 64]).expect("legal"))).await.differs
    );
}

/// What is not known cannot be marked, and Done and Dead stay what they are.
pub async fn marks_apply_to_what_is_open<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let a = key("a");
    assert!(!processing(&fixture, &a).await && !processed(&fixture, &a).await && !dead(&fixture, &a).await);
    assert_eq!(record(&fixture, &a).await, None, "asking leaves nothing");
    notice(&fixture, &a, None).await;
    assert!(processing(&fixture, &a).await);
    assert_eq!(record(&fixture, &a).await.expect("is known").status, InboxStatus::Processing);
    assert!(dead(&fixture, &a).await);
    assert!(!dead(&fixture, &a).await && !processing(&fixture, &a).await);
    let letter = record(&fixture, &a).await.expect("is known");
    assert_eq!((letter.status, letter.last_error.as_deref()), (InboxStatus::Dead, Some("never")));
    assert!(processed(&fixture, &a).await, "somebody has done it after all");
    assert!(!processed(&fixture, &a).await && !dead(&fixture, &a).await && !processing(&fixture, &a).await);
    assert_eq!(record(&fixture, &a).await.expect("is known").status, InboxStatus::Done);
}

/// IBX-8.2: what somebody has called dead is listed like what died in the queue, and goes when it is replayed.
pub async fn ibx_8_2_dead_by_hand_is_a_dead_letter<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    notice(&fixture, &key("noticed"), None).await;
    dead(&fixture, &key("noticed")).await;
    worker.put(message(&fixture, "queued", "billing")).await;
    worker.abandon(&worker.claim(1).await).await;
    dead(&fixture, &key("queued")).await;
    let letters = worker.dead().await;
    let seen: Vec<_> =
        letters.iter().map(|letter| (letter.id.as_str(), letter.attempts, letter.error.as_deref())).collect();
    assert_eq!(seen, [("noticed", 0, Some("never")), ("queued", 1, Some("never"))]);
    let replayed = worker.store().replay_work(&worker.queue, &Default::default(), 10).await.expect("replays");
    assert_eq!(replayed.replayed, 2);
    assert_eq!(record(&fixture, &key("noticed")).await, None, "it runs when it comes again");
    assert_eq!(worker.claim_ids(10).await, ["queued"]);
}

/// What is processed by hand is out of the queue, whoever has it, and duplicates get the response.
pub async fn processed_by_hand_is_not_claimed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let response = Response { content_type: "text/plain".into(), body: Payload::new(b"done".to_vec()) };
    let messages = ["waits", "leased"].map(|id| message(&fixture, id, "billing"));
    worker.put(messages[1].clone()).await;
    let claimed = worker.claim(1).await;
    worker.put(messages[0].clone()).await;
    for id in ["waits", "leased"] {
        let marked = fixture.store().mark_processed(&billing(), &key(id), &response).await.expect("marks");
        assert!(marked, "{id}");
    }
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new());
    assert_eq!(worker.ack(&claimed).await, 0, "the lease is over");
    let answers = deliver(&fixture, &messages, |_| Some(HandlerScript::Effect)).await;
    assert_eq!(answers, [Answer::Duplicate(Some(response.clone())), Answer::Duplicate(Some(response))]);
    assert_eq!(fixture.effects().await, Vec::<String>::new());
}

/// Records survive a restart.
pub async fn records_survive_a_reopening<F: StoreFixture>() {
    let fixture = F::fresh().await;
    notice(&fixture, &key("seen"), None).await;
    notice(&fixture, &key("done"), None).await;
    processed(&fixture, &key("done")).await;
    let fixture = fixture.reopen().await;
    assert_eq!(notice(&fixture, &key("seen"), None).await.status, InboxStatus::Seen);
    assert!(notice(&fixture, &key("done"), None).await.is_processed());
}
