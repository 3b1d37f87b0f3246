//! Messages between two services over HTTP, and what is counted and said about them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tempfile::TempDir;
use tracing::Level;
use twobox::meters::{AnswerOutcome, HttpOutcome, RequestOutcome};
use twobox::prometheus::scrape;
use twobox::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox::{
    Builder, Consumer, Destination, Http, HttpServer, MessageId, NewMessage, Policy, Refusal, RelayOptions,
    Response, Running, Source, Sqlite, Timing, Twobox,
};
use twobox_testkit::{Log, eventually};

use crate::page::{Figure, Labels, parse};

const EVER: Duration = Duration::from_secs(60);
/// What a hostile or careless handler says: it would clear the line, begin another one, and turn it around.
const FORGED: &str = "no\u{1b}[2K\r\nERROR forged\u{2028}line\u{202e}enil";
/// An id that is legal and would turn the rest of its line around.
const TURNED: &str = "id-\u{202e}-6";

fn keyring(byte: u8) -> Keyring {
    Keyring::new([Key::new(KeyId::new("shop-1").unwrap(), SecretKey::new(&[byte; 32]).unwrap())]).unwrap()
}

async fn open(folder: &TempDir, name: &str) -> Sqlite {
    let db = Sqlite::open(folder.path().join(name)).await.unwrap();
    db.migrate().await.unwrap();
    db
}

/// Two attempts, a moment apart.
fn hasty(builder: Builder) -> Builder {
    let moment = Duration::from_millis(1);
    let retry =
        Policy::default().attempts_max(NonZeroU32::new(2).unwrap()).base(moment).max(moment).jitter(moment);
    let probe = Policy::default().base(moment).max(Duration::from_millis(20)).jitter(moment);
    let timing = Timing { retry, ..Timing::default() };
    builder.relay(RelayOptions { timing, probe, ..RelayOptions::default() })
}

/// A receiver that takes, rejects and refuses.
async fn billing(db: &Sqlite) -> (Running, String) {
    let mut keyrings = Keyrings::new();
    keyrings.insert(&Source::new("shop").unwrap(), keyring(1)).unwrap();
    let server = HttpServer::signed("127.0.0.1:0", keyrings).await.unwrap().meters(db.meters());
    let url = format!("http://{}", server.local_addr());
    let billing = Twobox::builder("billing", db)
        .handle_raw("Pay", |_, _, _| Ok(Response::empty()))
        .handle_raw("Reject", |_, _, _| Err(Refusal::reject(FORGED)))
        .handle_raw("Refuse", |_, _, _| Err(Refusal::retry("not today")))
        .listen(server)
        .build()
        .unwrap();
    (billing.start(), url)
}

fn shop(db: &Sqlite, name: &str, url: &str, key: u8) -> Twobox {
    let transport = Http::signed(url, keyring(key)).unwrap();
    hasty(Twobox::builder(name, db).destination("billing", transport)).build().unwrap()
}

/// Enqueues messages, each an endpoint and an id.
async fn enqueue(db: &Sqlite, of: &Twobox, messages: &'static [(&str, &str)]) {
    let outbox = of.outbox();
    let enqueued = db.transaction::<_, twobox::Error, _>(move |tx| {
        messages.iter().try_for_each(|(endpoint, id)| {
            let message = NewMessage::json("billing", endpoint, &"secret-payload")?.id(MessageId::new(id)?);
            outbox.enqueue(tx, &message).map(drop)
        })
    });
    enqueued.await.unwrap();
}

async fn until(db: &Sqlite, id: &str, status: &str) {
    let id = MessageId::new(id).unwrap();
    eventually(status, EVER, async || {
        db.message_status(&id).await.unwrap().filter(|message| message.status == status).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_21_rf_23_s17_a_messages_life_is_counted_and_told() {
    let (log, folder) = (Log::install(), tempfile::tempdir().unwrap());
    let (shop_db, billing_db) = (open(&folder, "shop.db").await, open(&folder, "billing.db").await);
    let (billing, url) = billing(&billing_db).await;
    let service = shop(&shop_db, "shop", &url, 1);
    let running = service.start();
    enqueue(
        &shop_db,
        &service,
        &[("Pay", "pay-1"), ("Reject", "reject-1"), ("Refuse", "refuse-1"), ("Pay", TURNED)],
    )
    .await;
    until(&shop_db, "pay-1", "Sent").await;
    until(&shop_db, "reject-1", "Failed").await;
    until(&shop_db, "refuse-1", "Failed").await;
    until(&shop_db, TURNED, "Sent").await;
    // The same id and content again: the receiver knows it.
    enqueue(&shop_db, &service, &[("Pay", "pay-1")]).await;
    eventually("duplicate", EVER, async || log.has(Level::WARN, &["duplicate", "pay-1"]).then_some(())).await;
    eventually("settled", EVER, async || (lane(&shop_db).retries.steps().1 == 5).then_some(())).await;

    told(&log);
    counted(&shop_db, &billing_db);
    scraped(&shop_db, &billing_db).await;
    running.shutdown().await;
    assert_eq!(lane(&shop_db).leased.get(), 0, "the lane was given back");

    // Somebody else under shop's name.
    let intruder_db = open(&folder, "intruder.db").await;
    let intruder = shop(&intruder_db, "shop", &url, 9);
    let running = intruder.start();
    enqueue(&intruder_db, &intruder, &[("Pay", "forged-1")]).await;
    let words = ["HMAC verification failed", "shop", "forged-1", "signature does not hold"];
    eventually("HMAC", EVER, async || log.has(Level::WARN, &words).then_some(())).await;
    eventually("held", EVER, async || log.has(Level::WARN, &["lane held", "401"]).then_some(())).await;
    assert!(billing_db.meters().http.requests.get(HttpOutcome::Unauthentic) > 0);
    running.shutdown().await;
    billing.shutdown().await;

    let lines = log.lines();
    let hidden = |c: char| c.is_control() || ['\u{2028}', '\u{202e}'].contains(&c);
    assert!(lines.iter().all(|line| !line.contains(hidden)), "a line can be forged");
    assert!(lines.iter().any(|line| line.contains("ERROR forged")), "the words themselves are kept");
    assert!(lines.iter().all(|line| !line.contains("secret-payload")));
}

fn told(log: &Log) {
    let shop = ["source=\"shop\"", "destination=\"billing\""];
    let has = |level, words: &[&str]| assert!(log.has(level, words), "{words:?} in {:#?}", log.lines());
    let outbox = |level, words: &[&str]| has(level, &[&shop[..], words].concat());
    outbox(Level::INFO, &["enqueued", "endpoint=\"Pay\"", "message_id=\"pay-1\""]);
    outbox(Level::INFO, &["sent", "endpoint=\"Pay\"", "message_id=\"pay-1\"", "duration_ms="]);
    outbox(Level::WARN, &["send failed", "refuse-1", "attempt=1", "attempts_max=2", "not today"]);
    outbox(Level::ERROR, &["permanently failed", "refuse-1", "attempt=2", "attempts-exhausted", "not today"]);
    outbox(Level::ERROR, &["permanently failed", "reject-1", "attempt=1", "reason=\"rejected\""]);
    has(
        Level::INFO,
        &["processed", "source=\"shop\"", "endpoint=\"Pay\"", "message_id=\"pay-1\"", "duration_ms="],
    );
    has(Level::WARN, &["rejected", "reject-1"]);
    has(Level::WARN, &["handling failed", "refuse-1", "not today"]);
    has(Level::DEBUG, &["span send", "destination=\"billing\"", "messages="]);
    has(Level::DEBUG, &["span receive", "consumer=\"billing\""]);
    let sent =
        log.lines().iter().filter(|line| line.contains("message=sent") && line.contains("pay-1")).count();
    assert_eq!(sent, 2, "once for each copy");
}

fn lane(db: &Sqlite) -> std::sync::Arc<twobox::meters::LaneMeters> {
    db.meters().lane(&Source::new("shop").unwrap(), &Destination::new("billing").unwrap())
}

fn counted(shop: &Sqlite, billing: &Sqlite) {
    let lane = lane(shop);
    assert!(lane.requests.get(RequestOutcome::Answered) >= 2);
    assert_eq!((lane.leased.get(), lane.breaker.get()), (1, 0));
    let (steps, all) = lane.retries.steps();
    assert_eq!((steps[0], steps[1], all), ((0, 4), (1, 5), 5), "refuse-1 was retried once");
    assert!(lane.send.steps().1 >= 6, "refuse-1 travelled twice");
    let inbox = billing.meters().inbox(&Consumer::new("billing").unwrap());
    let answers = |outcome| inbox.answers.get(outcome);
    assert_eq!(answers(AnswerOutcome::Done), 2);
    assert_eq!(answers(AnswerOutcome::Duplicate), 1);
    assert_eq!(answers(AnswerOutcome::Rejected), 1);
    assert_eq!(answers(AnswerOutcome::Retry), 2);
    assert_eq!(inbox.process.steps().1, 6);
    let meters = billing.meters();
    assert_eq!(meters.http.requests.get(HttpOutcome::Answered), lane.requests.get(RequestOutcome::Answered));
    assert!(meters.http.connections.get() > 0 && meters.store.synced.steps().1 > 0);
    assert!(shop.meters().store.group.steps().1 > 0);
}

/// What is on the page of each, beside what the process has counted: what their stores maintain.
async fn scraped(shop: &Sqlite, billing: &Sqlite) {
    let page = |db: Sqlite| async move { parse(&scrape(&db, &db.meters(), db.clock().now()).await) };
    let (shop, billing) = (page(shop.clone()).await, page(billing.clone()).await);
    let one = |page: &BTreeMap<String, Figure>, name: &str, labels: &[(&str, &str)]| {
        let labels: Labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let found = page[name].samples.iter().find(|(_, of, _)| *of == labels);
        found.unwrap_or_else(|| panic!("{name} {labels:?} is not among {:?}", page[name])).2
    };
    let lane = [("source", "shop"), ("destination", "billing")];
    assert_eq!(one(&shop, "twobox_store_readable", &[]), 1.0);
    assert_eq!(one(&shop, "rf_outbox_pending_count", &[]), 0.0);
    assert_eq!(one(&shop, "twobox_outbox_enqueued_total", &[]), 5.0);
    assert_eq!(one(&shop, "twobox_outbox_sent_total", &lane), 3.0);
    assert_eq!(one(&shop, "rf_outbox_failed_count", &lane), 2.0);
    assert_eq!(one(&shop, "rf_outbox_expired_count", &lane), 0.0);
    assert_eq!(one(&shop, "twobox_outbox_dead_letters", &lane), 2.0);
    let peer = [("consumer", "billing"), ("source", "shop")];
    assert_eq!(one(&billing, "rf_inbox_size", &peer), 3.0, "two done, one rejected");
    assert_eq!(one(&billing, "rf_inbox_duplicate_count", &peer), 1.0);
    assert_eq!(one(&billing, "twobox_inbox_done_total", &peer), 2.0);
    let done = [("consumer", "billing"), ("outcome", "done")];
    assert_eq!(one(&billing, "twobox_inbox_answers_total", &done), 2.0);
}
