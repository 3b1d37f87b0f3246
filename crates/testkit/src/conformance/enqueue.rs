//! Queueing messages: new ones, and known ones again.

use twobox_core::ports::{Claim, ContentHash, DedupStore, Enqueued, InboxStatus, QueueStore, Work};
use twobox_core::{Clock, Message, Payload, Timestamp};

use super::fixture::{HandlerScript, StoreFixture, keyed, message, message_from, name};
use super::worker::{LEASE, SECOND, Worker, at_once, ids, key, leases};

/// A message that says something else, under the same id.
fn changed<F: StoreFixture>(fixture: &F, id: &str) -> Message {
    let payload = Payload::new(b"changed".to_vec());
    Message { payload, endpoint: name("Refund"), ..message(fixture, id, "billing") }
}

/// The same message, to be handled later.
fn later(message: Message, due: Timestamp) -> Message {
    Message { available: due, ..message }
}

/// IBX-013, IBX-027: a queued message is durable, untried and to be processed.
pub async fn ibx_013_ibx_027_a_new_message_is_durable_and_untried<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let sent = message(&fixture, "a", "billing");
    assert_eq!(Worker::new(&fixture, 1).put(sent.clone()).await, Enqueued::New);
    let fixture = fixture.reopen().await;
    let worker = Worker::new(&fixture, 1);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.attempts, record.lease), (InboxStatus::Processing, 0, None));
    assert_eq!((record.topic, record.payload), (Some(name("Pay")), Some(sent.payload.clone())));
    let claimed = worker.only().await;
    assert_eq!(*claimed.message, sent, "all of it");
    assert_eq!((claimed.attempts, claimed.last_error), (0, None));
}

/// IBX-025, IBX-026: first and last seen are the store's time.
pub async fn ibx_025_ibx_026_when_it_was_seen<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let first = fixture.clock().now();
    let sent = message(&fixture, "a", "billing");
    fixture.clock().step_back(SECOND * 7);
    worker.put(sent.clone()).await;
    let record = worker.record("a").await;
    let seen = fixture.clock().now();
    assert!(record.first_seen == seen && record.last_seen == seen && seen != first, "not the message's date");
    fixture.clock().advance(SECOND);
    worker.put(sent).await;
    let record = worker.record("a").await;
    assert_eq!((record.first_seen, record.last_seen), (seen, seen.plus(SECOND)));
    let claimed = worker.only().await;
    assert_eq!((claimed.first_seen, claimed.last_seen), (seen, seen.plus(SECOND)));
}

/// IBX-014: queueing the same message again, also by many at once, leaves one.
pub async fn ibx_014_queued_again_is_one_message<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let sent = message(&fixture, "a", "billing");
    let callers = at_once(16, |_| {
        let (store, queue) = (fixture.store().clone(), worker.queue.clone());
        let work = Work { message: sent.clone(), hash: None };
        async move { store.enqueue_work(&queue, &work).await.expect("queues") }
    });
    let new = callers.await.into_iter().filter(|enqueued| *enqueued == Enqueued::New);
    assert_eq!(new.count(), 1);
    assert_eq!(worker.put(sent).await, Enqueued::Updated);
    assert_eq!(worker.claim_ids(10).await, ["a"]);
}

/// IBX-001: the same id from another source, or for another consumer, is another message.
pub async fn ibx_001_another_source_is_another_message<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let theirs = message_from(&fixture, "crm", "a", "billing");
    worker.put_all([message(&fixture, "a", "billing"), theirs]).await;
    let mut audit = Worker::new(&fixture, 1);
    audit.queue.consumer = name("audit");
    audit.put_all([message(&fixture, "a", "billing")]).await;
    assert_eq!(audit.claim_ids(10).await, ["a"], "each consumer has its own queue");
    let claimed = worker.claim(10).await;
    let sources: Vec<_> = claimed.iter().map(|claimed| claimed.message.source.to_string()).collect();
    assert_eq!(sources, ["shop", "crm"]);
    assert_eq!(worker.ack(&claimed[..1]).await, 1);
    assert_eq!(worker.ack(&claimed[1..]).await, 1, "each has a lease of its own");
}

/// IBX-019, IBX-022, IBX-118: any payload is carried as it is: empty, no text, large.
pub async fn ibx_019_ibx_022_ibx_118_any_payload_is_carried<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let large: Vec<u8> = (0..4 << 20).map(|n: u32| n.to_be_bytes()[3]).collect();
    let payloads = [Vec::new(), vec![0xff, 0, b'{'], b"[[[".to_vec(), large].map(Payload::new);
    for (n, payload) in payloads.iter().enumerate() {
        let id = format!("m{n}");
        let sent = Message { payload: payload.clone(), ..message(&fixture, &id, "billing") };
        worker.put_all([sent]).await;
        assert_eq!(worker.record(&id).await.payload.as_ref(), Some(payload), "{id}");
    }
    let claimed: Vec<_> =
        worker.claim(10).await.iter().map(|claimed| claimed.message.payload.clone()).collect();
    assert!(claimed == payloads);
}

/// IBX-020, IBX-021: topics are case-sensitive and may have 255 characters.
pub async fn ibx_020_ibx_021_topics_are_what_they_are<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let topics = ["Order.Created".to_owned(), "order.created".to_owned(), "é".repeat(255)];
    for (n, topic) in topics.iter().enumerate() {
        let sent = Message { endpoint: name(topic), ..message(&fixture, &format!("m{n}"), "billing") };
        worker.put_all([sent]).await;
    }
    let claimed = worker.claim(10).await;
    let found: Vec<_> = claimed.iter().map(|claimed| claimed.message.endpoint.as_str()).collect();
    assert_eq!(found, topics);
}

/// IBX-023, IBX-024: a message is claimed when it is due, and at once if that is in the past.
pub async fn ibx_023_ibx_024_not_before_it_is_due<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let now = fixture.clock().now();
    let mut past = later(message(&fixture, "past", "billing"), now.minus(SECOND));
    past.created = now.minus(SECOND * 2);
    let due = now.plus(SECOND * 60);
    worker.put_all([later(message(&fixture, "future", "billing"), due), past]).await;
    assert_eq!(worker.claim_ids(10).await, ["past"]);
    let record = worker.record("future").await;
    assert_eq!((record.due, record.ready), (Some(due), Some(due)));
    fixture.clock().advance(SECOND * 60 - SECOND / 1000);
    assert_eq!(worker.claim_ids(1).await, ["past"], "that lease is over, but it is not time yet");
    fixture.clock().advance(SECOND / 1000);
    assert_eq!(worker.claim_ids(10).await, ["future"]);
}

/// IBX-028: what is Done stays as it is.
pub async fn ibx_028_done_is_not_queued_again<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    assert_eq!(worker.ack(&claimed).await, 1);
    let before = worker.record("a").await;
    fixture.clock().advance(SECOND);
    assert_eq!(worker.put(changed(&fixture, "a")).await, Enqueued::Done);
    assert_eq!(worker.record("a").await, before);
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new());
}

/// IBX-029: what was noticed before is queued; what waits gets the new topic, content, hash and due time.
pub async fn ibx_029_seen_and_waiting_messages_are_updated<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    fixture.store().already_processed(&worker.queue.consumer, &key("seen"), None).await.expect("notices");
    assert_eq!(worker.put(changed(&fixture, "seen")).await, Enqueued::New);
    assert_eq!(worker.status("seen").await, InboxStatus::Processing);
    worker.put(message(&fixture, "waits", "billing")).await;
    let due = fixture.clock().now().plus(SECOND * 60);
    assert_eq!(worker.put(later(changed(&fixture, "waits"), due)).await, Enqueued::Updated);
    let record = worker.record("waits").await;
    assert_eq!(record.topic, Some(name("Refund")));
    assert_eq!(record.payload, Some(Payload::new(b"changed".to_vec())));
    assert_eq!((record.hash, record.due), (Some(ContentHash::of(b"changed")), Some(due)));
    let claimed = worker.only().await;
    assert_eq!((claimed.message.id.as_str(), claimed.message.endpoint.as_str()), ("seen", "Refund"));
    worker.ack(&[claimed]).await;
    assert_eq!(worker.put(message(&fixture, "waits", "billing")).await, Enqueued::Updated);
    assert_eq!(worker.only().await.message.payload, Payload::new(b"\"waits\"".to_vec()), "due at once again");
}

/// IBX-029: a message that was tried keeps its attempts, and does not jump its back-off or its delay.
pub async fn ibx_029_an_update_is_no_way_around_the_back_off<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["backs off", "delayed"].map(|id| message(&fixture, id, "billing"))).await;
    let claimed = worker.claim(10).await;
    worker.abandon(&claimed[..1]).await;
    worker.abandon_for(&claimed[1..], Some(SECOND * 3600)).await;
    for id in ["backs off", "delayed"] {
        assert_eq!(worker.put(changed(&fixture, id)).await, Enqueued::Updated);
        assert_eq!(worker.record(id).await.attempts, 1);
    }
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new());
    worker.reap().await;
    fixture.clock().advance(SECOND * 2);
    let retried = worker.only().await;
    assert_eq!((retried.message.id.as_str(), retried.message.endpoint.as_str()), ("backs off", "Refund"));
    worker.ack(&[retried]).await;
    fixture.clock().advance(SECOND * 3600 - SECOND * 3);
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new(), "a delay that was asked for is kept");
    fixture.clock().advance(SECOND);
    assert_eq!(worker.claim_ids(10).await, ["delayed"]);
}

/// IBX-029, S8: while somebody handles a message, what it says cannot change under them.
pub async fn ibx_029_a_leased_message_is_left_alone<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    fixture.clock().advance(SECOND);
    assert_eq!(worker.put(changed(&fixture, "a")).await, Enqueued::Leased);
    let record = worker.record("a").await;
    assert_eq!((record.topic, record.payload), (Some(name("Pay")), Some(Payload::new(b"\"a\"".to_vec()))));
    assert_eq!(record.last_seen, fixture.clock().now(), "but it was seen");
    assert_eq!(worker.ack(&claimed).await, 1);
}

/// IBX-029, S5: once its lease is over it is updated, and whoever had it can no longer settle what they have not seen.
pub async fn ibx_029_s5_an_update_ends_a_lease_that_is_over<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    fixture.clock().advance(LEASE + SECOND);
    assert_eq!(worker.put(changed(&fixture, "a")).await, Enqueued::Updated);
    let record = worker.record("a").await;
    assert_eq!((record.attempts, record.lease), (1, None), "a worker that stood still has tried it (S6)");
    let outcome = worker.handle(claimed.clone(), |_| HandlerScript::Effect).await;
    assert_eq!(outcome, [twobox_core::ports::Handled::LeaseLost]);
    assert_eq!(worker.ack(&claimed).await, 0);
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    fixture.clock().advance(SECOND * 2);
    assert_eq!(worker.only().await.message.payload, Payload::new(b"changed".to_vec()));
}

/// IBX-029: a dead message gets the new content and stays dead until it is replayed.
pub async fn ibx_029_a_dead_message_is_updated_and_stays_dead<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "a", "billing")).await;
    let claimed = worker.claim(1).await;
    worker.fail(&claimed).await;
    let due = fixture.clock().now().plus(SECOND * 60);
    assert_eq!(worker.put(later(changed(&fixture, "a"), due)).await, Enqueued::Dead);
    let record = worker.record("a").await;
    assert_eq!((record.status, record.topic), (InboxStatus::Dead, Some(name("Refund"))));
    assert_eq!(worker.dead().await[0].topic, "Refund");
    fixture.clock().advance(SECOND * 60);
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new());
    worker.store().replay_work(&worker.queue, &Default::default(), 10).await.expect("replays");
    assert_eq!(worker.only().await.message.payload, Payload::new(b"changed".to_vec()));
}

/// IBX-007, IBX-129: the hash is SHA-256 of the payload unless the caller brings one.
pub async fn ibx_129_the_hash_is_made_for_the_caller<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put(message(&fixture, "ours", "billing")).await;
    assert_eq!(worker.record("ours").await.hash, Some(ContentHash::of(b"\"ours\"")));
    let hash = ContentHash::new("sha-512", vec![7; 64]).expect("legal");
    let work = Work { message: message(&fixture, "theirs", "billing"), hash: Some(hash.clone()) };
    worker.store().enqueue_work(&worker.queue, &work).await.expect("queues");
    assert_eq!(worker.record("theirs").await.hash, Some(hash));
}

/// L5: what is put off to later leaves its ordering key until then, and what waited behind it goes on.
pub async fn l5_an_update_to_later_leaves_the_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["k1", "k2", "k3"].map(|id| keyed(&fixture, id, "k"))).await;
    let due = fixture.clock().now().plus(SECOND * 20);
    for id in ["k1", "k3"] {
        assert_eq!(worker.put(later(keyed(&fixture, id, "k"), due)).await, Enqueued::Updated);
    }
    let second = worker.only().await;
    assert_eq!(second.message.id.as_str(), "k2");
    fixture.clock().advance(SECOND * 20);
    assert_eq!(worker.claim_ids(10).await, Vec::<String>::new(), "they have joined behind the second");
    worker.ack(&[second]).await;
    for id in ["k1", "k3"] {
        let next = worker.only().await;
        assert_eq!(next.message.id.as_str(), id);
        worker.ack(&[next]).await;
    }
}

/// A worker that waits hears of new work at once.
pub async fn a_queued_message_wakes_whoever_watches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    assert_eq!(worker.store().next_work(&worker.queue.consumer).await.expect("looks"), None);
    let store = fixture.store().clone();
    let waiting = tokio::spawn(async move { store.work_changed(0).await });
    worker.put(message(&fixture, "a", "billing")).await;
    let seen = waiting.await.expect("wakes");
    assert!(seen > 0);
    let next = async || worker.store().next_work(&worker.queue.consumer).await.expect("looks");
    assert_eq!(next().await, Some(std::time::Duration::ZERO));
    let claimed = worker.claim(1).await;
    assert_eq!(next().await, Some(LEASE), "when the lease is over");
    worker.store().give_back(&worker.queue, worker.owner, &leases(&claimed)).await.expect("gives back");
    assert!(worker.store().work_changed(seen).await > seen, "what is given back is news");
    let due = fixture.clock().now().plus(SECOND * 60);
    assert_eq!(ids(&worker.claim(1).await), ["a"]);
    worker.put(later(message(&fixture, "b", "billing"), due)).await;
    assert_eq!(next().await, Some(LEASE));
    fixture.clock().advance(LEASE - SECOND);
    assert_eq!(next().await, Some(SECOND));
}

/// IBX-119, IBX-120: every lease and batch that is recommended is taken.
pub async fn ibx_119_ibx_120_recommended_sizes_work<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    for n in 0..101 {
        worker.put(message(&fixture, &format!("m{n:03}"), "billing")).await;
    }
    for (seconds, limit) in [(300, 100), (10, 1)] {
        let claim = Claim::new(worker.owner, SECOND * seconds, limit).expect("legal");
        let claimed = worker.store().claim(&worker.queue, &claim).await.expect("claims");
        assert_eq!(claimed.len(), limit);
        let (_, until) = worker.record(claimed[0].message.id.as_str()).await.lease.expect("is leased");
        assert_eq!(until, fixture.clock().now().plus(SECOND * seconds));
    }
}
