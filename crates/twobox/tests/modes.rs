//! The modes of handling, end to end: queued, external, claimed first, and the inbox by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::Notify;
use twobox::{
    Answer, ContentHash, Enqueued, InboxStatus, Message, MessageKey, NewWork, OnError, OwnerToken, Policy,
    Reason, Refusal, Signal, Sqlite, Twobox, WorkFilter,
};
use twobox_testkit::eventually;

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

impl Signal for Order {
    const NAME: &'static str = "Order";
}

const LIMIT: Duration = Duration::from_secs(20);

async fn database() -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let db = Sqlite::open(directory.path().join("boxes.db")).await.unwrap();
    db.migrate().await.unwrap();
    let create = "CREATE TABLE effects (id INTEGER)";
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(create, [])).await.unwrap();
    (directory, db)
}

async fn effects(db: &Sqlite) -> Vec<i64> {
    let read = |tx: &mut twobox::SqliteTx<'_>| {
        tx.query("SELECT id FROM effects ORDER BY rowid", [], |row| row.get(0))
    };
    db.transaction::<_, twobox::Error, _>(read).await.unwrap()
}

/// An order that was stamped by the shop but travels by our hand.
fn order(db: &Sqlite, id: i64) -> Arc<Message> {
    let shop = twobox_core::Stamp::new("shop".parse().unwrap(), db.clock(), db.random());
    Arc::new(shop.message(&Order { id }.to("billing").unwrap()).unwrap())
}

fn key(message: &Message) -> MessageKey {
    MessageKey { source: message.source.clone(), id: message.id.clone() }
}

async fn receive(service: &Twobox, message: &Arc<Message>) -> Answer {
    service.receiver().receive(vec![Arc::clone(message)], LIMIT).await.unwrap().remove(0)
}

async fn until_done(service: &Twobox, key: &MessageKey) {
    eventually("it is done", LIMIT, async || {
        service.inbox().get(key).await.unwrap().filter(|work| work.status == InboxStatus::Done)
    })
    .await;
}

/// ADR-04: stored and acknowledged before it is handled; then handled once.
#[tokio::test(flavor = "multi_thread")]
async fn adr_04_a_queued_handler_runs_after_the_acknowledgement() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle_queued(|tx, order: Order, _context| {
            tx.execute("INSERT INTO effects VALUES (?1)", [order.id])?;
            Ok("invoiced")
        })
        .build()
        .unwrap();
    let message = order(&db, 7);
    assert!(
        matches!(receive(&billing, &message).await, Answer::Done(_)),
        "nobody works yet, and it is stored"
    );
    assert!(effects(&db).await.is_empty());
    let running = billing.start();
    until_done(&billing, &key(&message)).await;
    let Answer::Duplicate(Some(stored)) = receive(&billing, &message).await else {
        panic!("not a duplicate")
    };
    assert_eq!(stored.body.as_bytes(), b"\"invoiced\"", "what the handler said is stored for duplicates");
    assert_eq!(effects(&db).await, [7]);
    running.shutdown().await;
}

/// External: at least once, with the message's id as idempotency key, and retries by policy.
#[tokio::test(flavor = "multi_thread")]
async fn ibx_077_an_external_handler_gets_the_same_idempotency_key_at_every_attempt() {
    let (_directory, db) = database().await;
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let called = Arc::clone(&calls);
    let billing = Twobox::builder("billing", &db)
        .retry(Policy::default().base(Duration::from_millis(10)).jitter(Duration::ZERO))
        .handle_external(move |_: Order, context| {
            let mut calls = called.lock().unwrap();
            calls.push((context.idempotency_key().clone(), context.attempts));
            let fails = calls.len() < 3;
            async move { if fails { Err(Refusal::retry("not now")) } else { Ok(()) } }
        })
        .build()
        .unwrap();
    let running = billing.start();
    let message = order(&db, 1);
    receive(&billing, &message).await;
    until_done(&billing, &key(&message)).await;
    let id = message.id.clone();
    assert_eq!(*calls.lock().unwrap(), [(id.clone(), 0), (id.clone(), 1), (id, 2)]);
    running.shutdown().await;
}

fn claimed(db: &Sqlite, on_error: OnError, claims: bool, runs: &Arc<AtomicUsize>, fails: usize) -> Twobox {
    let runs = Arc::clone(runs);
    Twobox::builder("billing", db)
        .claims_on_error(on_error)
        .claims(claims)
        .handle_claimed(move |order: Order, _message| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                if run < fails { Err(Refusal::retry("not now")) } else { Ok(order.id) }
            }
        })
        .build()
        .unwrap()
}

/// CEB-1: duplicates are skipped, also when they come together; the stored response answers them.
#[tokio::test(flavor = "multi_thread")]
async fn ceb_1_of_many_deliveries_one_runs() {
    let (_directory, db) = database().await;
    while_one_runs(&db).await;
    let runs = Arc::new(AtomicUsize::new(0));
    // Two services under one consumer: like two processes, they know nothing of each other's deliveries.
    let (one, two) =
        (claimed(&db, OnError::Keep, true, &runs, 0), claimed(&db, OnError::Keep, true, &runs, 0));
    let message = order(&db, 3);
    let deliveries = (0..20).map(|n| {
        let (service, message) =
            (if n % 2 == 0 { one.receiver() } else { two.receiver() }, Arc::clone(&message));
        tokio::spawn(async move { service.receive(vec![message], LIMIT).await.unwrap().remove(0) })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        let answer = delivery.await.unwrap();
        let fine = matches!(
            answer,
            Answer::Done(_) | Answer::Duplicate(_) | Answer::InProgress { .. } | Answer::Retry { .. }
        );
        assert!(fine, "{answer:?}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let Answer::Duplicate(Some(stored)) = receive(&one, &message).await else { panic!("not a duplicate") };
    assert_eq!(stored.body.as_bytes(), b"3");
}

/// A delivery that is certain to come while another service is at it; of many, most come too late for that.
async fn while_one_runs(db: &Sqlite) {
    let (runs, begun, go_on) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = || {
        let (runs, begun, go_on) = (Arc::clone(&runs), Arc::clone(&begun), Arc::clone(&go_on));
        let handler = move |_: Order, _| {
            let (run, begun, go_on) =
                (runs.fetch_add(1, Ordering::SeqCst), Arc::clone(&begun), Arc::clone(&go_on));
            async move {
                if run == 0 {
                    begun.notify_one();
                    go_on.notified().await;
                }
                Ok(())
            }
        };
        Twobox::builder("billing", db).claims(true).handle_claimed(handler).build().unwrap()
    };
    let (one, two, message) = (service(), service(), order(db, 4));
    let (receiver, first) = (one.receiver(), vec![Arc::clone(&message)]);
    let first = tokio::spawn(async move { receiver.receive(first, LIMIT).await.unwrap().remove(0) });
    begun.notified().await;
    let second = receive(&two, &message).await;
    assert!(matches!(second, Answer::InProgress { .. } | Answer::Retry { .. }), "{second:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    go_on.notify_one();
    assert!(matches!(first.await.unwrap(), Answer::Done(_) | Answer::Duplicate(_)));
}

/// CEB-2: a claim is kept on error by default, and the message is a dead letter; released when asked for.
#[tokio::test(flavor = "multi_thread")]
async fn ceb_2_a_failed_claim_is_kept_or_released() {
    let (_directory, db) = database().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let keeps = claimed(&db, OnError::Keep, true, &runs, 1);
    let message = order(&db, 3);
    for _ in 0..3 {
        assert!(matches!(receive(&keeps, &message).await, Answer::Rejected { .. }));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "at most once");
    let dead = keeps.inbox().dead_letters(&WorkFilter::default(), None, 10).await.unwrap();
    assert_eq!((dead.len(), dead[0].id.as_str(), dead[0].reason), (1, message.id.as_str(), Reason::Rejected));
    assert_eq!(keeps.inbox().replay(&WorkFilter::default(), 10).await.unwrap().replayed, 1);
    assert!(matches!(receive(&keeps, &message).await, Answer::Done(_)), "it runs when it is delivered again");
    assert_eq!(runs.load(Ordering::SeqCst), 2);

    let runs = Arc::new(AtomicUsize::new(0));
    let releases = claimed(&db, OnError::Release, true, &runs, 1);
    let message = order(&db, 4);
    assert!(matches!(receive(&releases, &message).await, Answer::Retry { .. }));
    assert!(matches!(receive(&releases, &message).await, Answer::Done(_)), "at least once");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// CEB-2, CEB-3: a claim that a dead process has left is visible with its handler and time, and released by age.
#[tokio::test(flavor = "multi_thread")]
async fn ceb_2_ceb_3_a_claim_that_was_left_behind_is_visible_and_released_by_age() {
    let (_directory, db) = database().await;
    let begun = Arc::new(tokio::sync::Semaphore::new(0));
    let tells = Arc::clone(&begun);
    let hangs = Twobox::builder("billing", &db)
        .handle_claimed(move |_: Order, _message| {
            tells.add_permits(1);
            std::future::pending::<Result<(), Refusal>>()
        })
        .build()
        .unwrap();
    let message = order(&db, 5);
    let (receiver, sent) = (hangs.receiver(), Arc::clone(&message));
    let delivery = tokio::spawn(async move { receiver.receive(vec![sent], LIMIT).await });
    begun.acquire().await.unwrap().forget();
    delivery.abort();
    let left = hangs.inbox().unfinished(Duration::ZERO, 10).await.unwrap();
    assert_eq!((left.len(), &left[0].key, left[0].handler.as_deref()), (1, &key(&message), Some("Order")));
    assert_eq!(hangs.inbox().unfinished(Duration::from_secs(3600), 10).await.unwrap(), []);
    let runs = Arc::new(AtomicUsize::new(0));
    let works = claimed(&db, OnError::Keep, true, &runs, 0);
    assert!(matches!(receive(&works, &message).await, Answer::InProgress { .. }), "never OK (S7)");
    assert_eq!(works.inbox().release_unfinished(Duration::ZERO, 10).await.unwrap(), 1);
    assert!(matches!(receive(&works, &message).await, Answer::Done(_)));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// CEB-4: all claimed handlers are wrapped when they are registered, and one option switches that off.
#[tokio::test(flavor = "multi_thread")]
async fn ceb_4_claims_are_switched_off_by_option() {
    let (_directory, db) = database().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let plain = claimed(&db, OnError::Keep, false, &runs, 1);
    let message = order(&db, 6);
    assert!(matches!(receive(&plain, &message).await, Answer::Retry { .. }), "no claim is kept");
    assert!(matches!(receive(&plain, &message).await, Answer::Done(_)));
    assert!(matches!(receive(&plain, &message).await, Answer::Duplicate(_)), "what is done is still known");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// ADR-05: a command to oneself exists exactly if the transaction commits, and is handled once.
#[tokio::test(flavor = "multi_thread")]
async fn adr_05_internal_commands_commit_with_the_transaction_and_run_once() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle_queued(|tx, order: Order, _context| {
            tx.execute("INSERT INTO effects VALUES (?1)", [order.id])?;
            Ok(())
        })
        .build()
        .unwrap();
    let running = billing.start();
    let now = db.clock().now();
    let inbox = billing.inbox();
    let id = db
        .transaction(move |tx| inbox.schedule(tx, &Order { id: 1 }, now.plus(Duration::from_millis(300))))
        .await
        .unwrap();
    let inbox = billing.inbox();
    let rolled_back: Result<(), twobox::Error> = db
        .transaction(move |tx| {
            inbox.schedule(tx, &Order { id: 2 }, now)?;
            Err(twobox::Error::invalid("changed my mind"))
        })
        .await;
    assert!(rolled_back.is_err());
    let key = MessageKey::new("billing", id).unwrap();
    until_done(&billing, &key).await;
    assert_eq!(effects(&db).await, [1]);
    assert!(db.clock().now() >= now.plus(Duration::from_millis(300)));
    running.shutdown().await;
}

/// The flow of a webhook: noticed, queued, handled; a redelivery is recognised (IBX-002…IBX-004, IBX-013, IBX-028).
#[tokio::test(flavor = "multi_thread")]
async fn ibx_013_ibx_028_a_webhook_is_noticed_queued_handled_and_recognised() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle_queued_raw("stripe.payment", |tx, message, _context| {
            tx.execute(
                "INSERT INTO effects VALUES (?1)",
                [i64::try_from(message.payload.len()).unwrap_or(0)],
            )?;
            Ok(twobox::Response::empty())
        })
        .build()
        .unwrap();
    let (inbox, body) = (billing.inbox(), br#"{"id":"evt_1"}"#);
    let webhook = MessageKey::new("stripe", "evt_1").unwrap();
    let hash = ContentHash::of(body);
    assert!(!inbox.already_processed(&webhook, Some(&hash)).await.unwrap().is_processed());
    let new = NewWork::new("stripe.payment", "stripe", "evt_1", *body).unwrap().hash(hash.clone());
    assert_eq!(inbox.enqueue(&new).await.unwrap(), Enqueued::New);
    assert_eq!(inbox.enqueue(&new).await.unwrap(), Enqueued::Updated);
    let running = billing.start();
    until_done(&billing, &webhook).await;
    assert!(inbox.already_processed(&webhook, Some(&hash)).await.unwrap().is_processed());
    assert_eq!(inbox.enqueue(&new).await.unwrap(), Enqueued::Done);
    assert_eq!(effects(&db).await, [14]);
    running.shutdown().await;
}

/// Workers of the user's own: claim, renew, abandon, fail, ack by hand; the empty payload is legal (IBX-019).
#[tokio::test(flavor = "multi_thread")]
async fn ibx_019_ibx_030_the_queue_can_be_worked_by_hand() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db).build().unwrap();
    let inbox = billing.inbox();
    for id in ["a", "b", "c"] {
        inbox.enqueue(&NewWork::new("by.hand", "crm", id, "").unwrap()).await.unwrap();
    }
    let owner = OwnerToken::mint(&*db.random());
    let lease = Duration::from_secs(30);
    let leases: Vec<_> =
        inbox.claim(owner, lease, 10).await.unwrap().into_iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.len(), 3);
    assert!(inbox.claim(owner, lease, 10).await.unwrap().is_empty(), "nothing is leased twice");
    assert_eq!(inbox.renew(owner, &leases, lease).await.unwrap(), leases);
    assert_eq!(inbox.ack(owner, &leases[..1]).await.unwrap(), 1);
    assert_eq!(inbox.fail(owner, &leases[1..2], "never").await.unwrap(), 1);
    assert_eq!(inbox.abandon(owner, &leases[2..], Some("not now"), None).await.unwrap(), 1);
    assert_eq!(inbox.ack(owner, &leases).await.unwrap(), 0, "all of them are settled");
    let state = async |id: &str| {
        let found = inbox.get(&MessageKey::new("crm", id).unwrap()).await.unwrap().unwrap();
        (found.status, found.attempts)
    };
    assert_eq!(state("a").await, (InboxStatus::Done, 0));
    assert_eq!(state("b").await, (InboxStatus::Dead, 1));
    assert_eq!(state("c").await, (InboxStatus::Processing, 1));
    let too_large = NewWork::new("by.hand", "crm", "d", vec![b'x'; 2 << 20]).unwrap();
    assert!(inbox.enqueue(&too_large).await.is_err());
    assert_eq!(inbox.purge(&WorkFilter::default(), 10).await.unwrap().purged, 1);
    assert!(inbox.dead_letters(&WorkFilter::default(), None, 10).await.unwrap().is_empty());
    assert_eq!(state("b").await.0, InboxStatus::Dead, "it is still recognised");
}

/// Topics without a handler of their own are for whoever takes the others; without it they are unknown.
#[tokio::test(flavor = "multi_thread")]
async fn adr_04_other_topics_have_a_handler_too() {
    let (_directory, db) = database().await;
    let nobody = Twobox::builder("billing", &db).build().unwrap();
    let message = order(&db, 7);
    assert!(matches!(receive(&nobody, &message).await, Answer::UnknownEndpoint));

    let topics = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&topics);
    let billing = Twobox::builder("billing", &db)
        .handle_external_raw("Refund", |_| async { Err(Refusal::reject("not this one")) })
        .handle_others_external_raw(move |context| {
            noted.lock().unwrap().push(context.message.endpoint.to_string());
            async { Ok(twobox::Response::empty()) }
        })
        .build()
        .unwrap();
    let running = billing.start();
    assert!(matches!(receive(&billing, &message).await, Answer::Done(_)));
    until_done(&billing, &key(&message)).await;
    assert_eq!(*topics.lock().unwrap(), ["Order"]);
    running.shutdown().await;
}
