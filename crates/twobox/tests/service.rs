//! The facade: typed, raw and prepared handlers, follow-ups, refusals, configuration.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use twobox::ports::{DeadLetterStore, InboxStore, LaneStore};
use twobox::replay::{Bulk, OutboxLetters, Progress};
use twobox::{
    Answer, ClientLimits, DeadLetterFilter, ErrorKind, HandlerResult, Http, NewMessage, OnceKey, OrRefuse,
    Reason, Refusal, RelayOptions, Replay, Response, Shutdown, Signal, Sqlite, SweepPlan, SystemTimer,
    Twobox,
};
use twobox_testkit::{ScriptedTransport, eventually};

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

impl Signal for Order {
    const NAME: &'static str = "Order";
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    order: i64,
}

impl Signal for Receipt {
    const NAME: &'static str = "Receipt";
}

const LIMIT: Duration = Duration::from_secs(20);

async fn database() -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let db = Sqlite::open(directory.path().join("boxes.db")).await.unwrap();
    db.migrate().await.unwrap();
    let create = "CREATE TABLE effects (name TEXT, id INTEGER)";
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(create, [])).await.unwrap();
    (directory, db)
}

async fn effects(db: &Sqlite) -> Vec<(String, i64)> {
    let read = |tx: &mut twobox::SqliteTx<'_>| {
        tx.query("SELECT name, id FROM effects ORDER BY name, id", [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    db.transaction::<_, twobox::Error, _>(read).await.unwrap()
}

async fn send(service: &Twobox, db: &Sqlite, message: NewMessage) -> twobox::MessageId {
    let outbox = service.outbox();
    db.transaction(move |tx| outbox.enqueue(tx, &message)).await.unwrap()
}

async fn until(db: &Sqlite, id: &twobox::MessageId, status: &str) {
    eventually(&format!("{id} is {status}"), LIMIT, async || {
        db.message_status(id).await.unwrap().filter(|message| message.status == status)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_handlers_follow_ups_and_stored_responses() {
    let (_directory, db) = database().await;
    let mail = Twobox::builder("mail", &db)
        .handle(|tx, receipt: Receipt, _context| {
            tx.execute("INSERT INTO effects VALUES ('receipt', ?1)", [receipt.order])?;
            Ok(())
        })
        .build()
        .unwrap();
    let billing = Twobox::builder("billing", &db)
        .handle(|tx, order: Order, context| {
            tx.execute("INSERT INTO effects VALUES ('invoice', ?1)", [order.id])?;
            context.enqueue(tx, &Receipt { order: order.id }.to("mail")?)?;
            Ok(format!("invoice {}", order.id))
        })
        .destination("mail", mail.in_process())
        .build()
        .unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let (running_shop, running_billing) = (shop.start(), billing.start());
    let id = send(&shop, &db, Order { id: 7 }.to("billing").unwrap()).await;
    until(&db, &id, "Sent").await;
    eventually("the follow-up arrives", LIMIT, async || (effects(&db).await.len() == 2).then_some(())).await;
    assert_eq!(effects(&db).await, [("invoice".into(), 7), ("receipt".into(), 7)]);
    let record =
        db.inbox_record(&"billing".parse().unwrap(), &"shop".parse().unwrap(), &id).await.unwrap().unwrap();
    assert_eq!(record.response.unwrap().body.as_bytes(), b"\"invoice 7\"");
    running_shop.shutdown().await;
    running_billing.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_the_stored_response_is_what_the_handler_answered_usual_or_not() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle(|_, _: Receipt, _| Ok(()))
        .handle(|_, order: Order, _| Ok((order.id > 0).then_some(order.id)))
        .handle_raw("Empty", |_, _, _| Ok(Response::empty()))
        .handle_raw("Echo", |_, message, _| {
            Ok(Response { content_type: "text/plain".into(), body: message.payload.clone() })
        })
        .build()
        .unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let running = shop.start();
    let echo = NewMessage::json("billing", "Echo", &7).unwrap();
    let cases = [
        (Receipt { order: 1 }.to("billing").unwrap(), "application/json", &b"null"[..]),
        (Order { id: 0 }.to("billing").unwrap(), "application/json", b"null"),
        (Order { id: 5 }.to("billing").unwrap(), "application/json", b"5"),
        (NewMessage::json("billing", "Empty", &7).unwrap(), "application/json", b""),
        (echo, "text/plain", b"7"),
    ];
    for (message, content_type, body) in cases {
        let id = send(&shop, &db, message).await;
        until(&db, &id, "Sent").await;
        let record = db.inbox_record(&"billing".parse().unwrap(), &"shop".parse().unwrap(), &id).await;
        let response = record.unwrap().unwrap().response.unwrap();
        assert_eq!((response.content_type.as_str(), response.body.as_bytes()), (content_type, body));
    }
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_handler_that_removes_its_own_row_has_no_effect_whatever_it_answers() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle(|tx, order: Order, _| {
            tx.execute("INSERT INTO effects VALUES ('lost', ?1)", [order.id])?;
            tx.execute("DELETE FROM inbox", [])?;
            Ok(())
        })
        .handle(|tx, receipt: Receipt, _| {
            tx.execute("INSERT INTO effects VALUES ('lost', ?1)", [receipt.order])?;
            tx.execute("DELETE FROM inbox", [])?;
            Ok("something else than usual")
        })
        .build()
        .unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let running = shop.start();
    for message in [Order { id: 1 }.to("billing").unwrap(), Receipt { order: 2 }.to("billing").unwrap()] {
        let id = send(&shop, &db, message).await;
        let failed = eventually("it is refused", LIMIT, async || {
            db.message_status(&id).await.unwrap().filter(|message| message.attempts > 0)
        });
        let error = failed.await.last_error.unwrap();
        assert!(error.contains("not as it was written"), "{error}");
    }
    assert_eq!(effects(&db).await, []);
    running.shutdown().await;
}

/// Answers nothing before it is told to.
fn held_back() -> (ScriptedTransport, tokio::sync::watch::Sender<bool>) {
    let (tell, told) = tokio::sync::watch::channel(false);
    let transport = ScriptedTransport::with_futures(move |_, batch| {
        let (answers, mut told) = (vec![Answer::Done(None); batch.len()], told.clone());
        Box::pin(async move {
            let _: Result<_, _> = told.wait_for(|told| *told).await;
            Ok(answers)
        })
    });
    (transport, tell)
}

/// S15: that holds for destinations which take their time, whoever's messages come meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn s15_callers_give_way_to_a_relay_that_is_a_moment_behind_and_to_nobody_else() {
    let (_directory, db) = database().await;
    let (transport, tell) = held_back();
    let shop = Twobox::builder("shop", &db).destination("billing", transport).build().unwrap();
    let total = AtomicU64::new(0);
    let enqueue = async |messages: u64| {
        let outbox = shop.outbox();
        let many = move |tx: &mut twobox::SqliteTx<'_>| {
            (0..messages).try_for_each(|_| outbox.enqueue(tx, &Order { id: 1 }.to("billing")?).map(drop))
        };
        db.transaction::<_, twobox::Error, _>(many).await.unwrap();
        total.fetch_add(messages, Ordering::Relaxed);
    };
    let pauses = || db.meters().store.gave_way.get();
    enqueue(300).await;
    assert_eq!(pauses(), 0, "nobody relays");
    let running = shop.start();
    let all_sent = async || {
        tell.send_replace(true);
        eventually("everything is sent", LIMIT, async || {
            let sent: u64 = db.lanes().await.unwrap().iter().map(|lane| lane.sent).sum();
            (sent == total.load(Ordering::Relaxed)).then_some(())
        })
        .await;
    };
    eventually("callers wait for the relay", LIMIT, async || {
        enqueue(1).await;
        all_sent().await; // now it is known how quick it can be
        tell.send_replace(false);
        for _ in 0..5 {
            enqueue(60).await;
        }
        let waited = pauses() > 0;
        all_sent().await;
        waited.then_some(())
    })
    .await;
    let nobody_waits = async |why: &str| {
        // Sooner than the request is given up, which would end the wait in any case.
        eventually(why, Duration::from_secs(5), async || {
            let before = pauses();
            for _ in 0..3 {
                enqueue(1).await;
            }
            (pauses() == before).then_some(())
        })
        .await;
    };
    let fall_behind = async || {
        tell.send_replace(false);
        for _ in 0..5 {
            enqueue(60).await;
        }
    };
    fall_behind().await;
    nobody_waits("for a receiver that hangs").await;
    all_sent().await;
    fall_behind().await;
    let stopping = tokio::spawn(running.shutdown());
    nobody_waits("for a relay that is being stopped").await;
    assert!(!stopping.is_finished(), "its request is still under way");
    tell.send_replace(true);
    stopping.await.unwrap();
    let before = pauses();
    enqueue(300).await;
    assert_eq!(pauses(), before, "nobody relays any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn w8_prepared_handlers_await_first_and_write_once() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle_async(|order: Order, message| async move {
            tokio::task::yield_now().await; // anything that has to be waited for
            let rate = if order.id < 0 { return Err(Refusal::reject("no such order")) } else { 2 };
            Ok(move |tx: &mut twobox::SqliteTx<'_>, context: &twobox::Context<'_>| {
                assert_eq!(context.id(), &message.id);
                tx.execute("INSERT INTO effects VALUES ('rated', ?1)", [order.id * rate])?;
                Ok(order.id * rate)
            })
        })
        .build()
        .unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let running = shop.start();
    let good = send(&shop, &db, Order { id: 21 }.to("billing").unwrap()).await;
    let bad = send(&shop, &db, Order { id: -1 }.to("billing").unwrap()).await;
    until(&db, &good, "Sent").await;
    until(&db, &bad, "Failed").await;
    assert_eq!(effects(&db).await, [("rated".into(), 42)]);
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_payload_that_does_not_fit_is_rejected_without_being_quoted() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db).handle(|_, _: Order, _| Ok(())).build().unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let running = shop.start();
    let message = NewMessage::json("billing", "Order", &"hunter2-canary").unwrap();
    let id = send(&shop, &db, message).await;
    until(&db, &id, "Failed").await;
    let letter = db.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().remove(0);
    assert_eq!(letter.reason, Reason::Rejected);
    assert!(!letter.error.as_ref().unwrap().contains("canary"), "{letter:?}");
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_05_l9_the_dead_are_looked_at_replayed_and_purged() {
    let (_directory, db) = database().await;
    let reject = |_: &mut twobox::SqliteTx<'_>, _: Order, _: &twobox::Context<'_>| -> HandlerResult<()> {
        Err(Refusal::reject("no such account"))
    };
    let billing = Twobox::builder("billing", &db).handle(reject).build().unwrap();
    let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build().unwrap();
    let running = shop.start();
    let id = send(&shop, &db, Order { id: 1 }.to("billing").unwrap()).await;
    until(&db, &id, "Failed").await;
    let one = DeadLetterFilter { message_id: Some(id.clone()), ..DeadLetterFilter::default() };
    let (_stop, shutdown) = Shutdown::new();
    let bulk = Bulk::new(Arc::new(SystemTimer::default()));
    let again = OutboxLetters::replay(db.clone(), one.clone(), Replay::SameId, LIMIT);
    assert_eq!(bulk.run(again, shutdown.clone(), |_| {}).await.unwrap().done, 1);
    until(&db, &id, "Failed").await;
    let life = db.message_status(&id).await.unwrap().unwrap().history;
    let life: Vec<_> = life.iter().map(|attempt| (attempt.replay, attempt.error.as_str())).collect();
    assert_eq!(life, [(0, "no such account"), (1, "no such account")]);
    assert_eq!(db.dead_letter_count(&one, 10).await.unwrap(), 1);
    let progress = bulk.run(OutboxLetters::purge(db.clone(), one), shutdown, |_| {}).await.unwrap();
    assert_eq!(progress, Progress { done: 1, finished: true });
    assert_eq!(db.message_status(&id).await.unwrap(), None);
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_handlers_see_the_message_and_say_what_they_want() {
    let (_directory, db) = database().await;
    let billing = Twobox::builder("billing", &db)
        .handle_raw("Raw", |tx, message, _context| {
            let text = std::str::from_utf8(message.payload.as_bytes()).rejected()?;
            tx.execute("INSERT INTO effects VALUES (?1, 0)", [text])?;
            Ok(Response::empty())
        })
        .build()
        .unwrap();
    let shop = Twobox::builder("shop", &db).build().unwrap();
    let (_, insert) = shop.outbox().insert(&NewMessage::json("billing", "Raw", &"x").unwrap()).unwrap();
    assert!(insert.sql.contains("INSERT INTO outbox_log"));
    let stamped = twobox::Payload::new(&b"\"x\""[..]);
    let answers = billing.receiver().receive(vec![message(&db, stamped).into()], LIMIT).await.unwrap();
    assert!(matches!(answers[0], Answer::Done(_)), "{answers:?}");
    assert_eq!(effects(&db).await, [("\"x\"".into(), 0)]);
}

fn message(db: &Sqlite, payload: twobox::Payload) -> twobox::Message {
    let now = db.clock().now();
    twobox::Message {
        id: "m1".parse().unwrap(),
        source: "shop".parse().unwrap(),
        destination: "billing".parse().unwrap(),
        endpoint: "Raw".parse().unwrap(),
        message_type: twobox::MessageType::PushCall,
        payload,
        content_type: "application/json".into(),
        correlation_id: None,
        ordering_key: None,
        headers: twobox::Headers::default(),
        created: now,
        available: now,
        expires: now.plus(LIMIT),
        replay: 0,
    }
}

#[tokio::test]
async fn l8_enqueue_once_enqueues_once() {
    let (_directory, db) = database().await;
    let shop = Twobox::builder("shop", &db).build().unwrap();
    let key = OnceKey::new("order-7").unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let (outbox, key) = (shop.outbox(), key.clone());
        let order = Order { id: 7 }.to("billing").unwrap();
        let once = db.transaction(move |tx| outbox.enqueue_once(tx, &key, &order)).await.unwrap();
        ids.push(once.id().clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]));
    let count =
        |tx: &mut twobox::SqliteTx<'_>| tx.query("SELECT seq FROM outbox_log", [], |row| row.get::<i64>(0));
    assert_eq!(db.transaction::<_, twobox::Error, _>(count).await.unwrap().len(), 1);
}

/// RF-20: two handlers under one name are refused before anything runs.
#[tokio::test]
async fn s10_a_service_that_contradicts_itself_is_not_built() {
    let (_directory, db) = database().await;
    let kind = |builder: twobox::Builder| builder.build().unwrap_err().kind();
    let shop = || Twobox::builder("shop", &db);
    assert_eq!(kind(Twobox::builder("", &db)), ErrorKind::Invalid);
    let twice = shop().handle(|_, _: Order, _| Ok(())).handle(|_, _: Order, _| Ok(()));
    assert_eq!(kind(twice), ErrorKind::Misconfigured, "endpoint names are unique");
    let short = SweepPlan { dedup_window: Duration::from_secs(3600), ..SweepPlan::default() };
    assert_eq!(kind(shop().sweep(short, LIMIT)), ErrorKind::Misconfigured);
    let mut options = RelayOptions::default();
    options.timing.lease = Duration::from_secs(1);
    assert_eq!(kind(shop().relay(options)), ErrorKind::Misconfigured);
    let spin = RelayOptions { batch_messages_max: 0, ..RelayOptions::default() };
    assert_eq!(kind(shop().relay(spin)), ErrorKind::Misconfigured);
    let hasty = ClientLimits { connect_timeout: Duration::ZERO, ..ClientLimits::default() };
    let http = Http::unsigned("http://127.0.0.1:1").unwrap().limits(hasty);
    assert_eq!(kind(shop().destination("billing", http.clone())), ErrorKind::Misconfigured);
    assert_eq!(kind(shop().default_transport(http)), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn payloads_beyond_the_limit_are_refused_with_the_remedy() {
    let (_directory, db) = database().await;
    let shop = Twobox::builder("shop", &db).payload_bytes_max(10).build().unwrap();
    let outbox = shop.outbox();
    let large = NewMessage::json("billing", "Order", &"0123456789").unwrap();
    let error = db.transaction(move |tx| outbox.enqueue(tx, &large)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("payload_bytes_max"), "{error}");
}
