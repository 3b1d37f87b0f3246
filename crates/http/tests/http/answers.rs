//! What the receiver says, as status, headers and body, for one message and for a batch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};
use twobox_core::clock::BoxFuture;
use twobox_core::config::CLOCK_SKEW_MAX;
use twobox_core::ports::{Answer, Receive, SweepPlan, SweepStore, Transport};
use twobox_core::system::SystemClock;
use twobox_core::wire::{ANSWER_TYPE, encode_refusal, header};
use twobox_core::{
    Clock, Endpoint, Error, ErrorKind, HandlerResult, Message, OrderingKey, Payload, Refusal, Response,
    Result, Timestamp,
};
use twobox_http::{Http, HttpServer};
use twobox_sqlite::{Sqlite, SqliteTx};
use twobox_testkit::ManualClock;

use crate::fake::{Act, Fake, say};
use crate::post::{BATCH, ONE, Poster, Reply, seal, seal_batch};
use crate::world::{Billing, EVER, Shop, Store, key, keyring, keyrings, link, message};

/// Billing whose clock, that of signatures and that of its database, stands still.
struct Desk {
    billing: Billing,
    post: Poster,
    clock: Arc<ManualClock>,
}

impl Desk {
    async fn new(
        then: impl Fn(&mut SqliteTx<'_>, &Message) -> HandlerResult<Response> + Send + Sync + 'static,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Store::open(Sqlite::builder().clock(Arc::clone(&clock) as _)).await.with_effects().await;
        let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
        let billing = Billing::resumed(&server.clock(Arc::clone(&clock) as _), store, then);
        Self { post: Poster::new(billing.address), billing, clock }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A message dated now, changed as the test needs it.
    fn message(&self, id: &str, change: impl FnOnce(&mut Message)) -> Message {
        let mut message = (*message(id)).clone();
        (message.created, message.available) = (self.now(), self.now());
        message.expires = self.now().plus(Duration::from_secs(86_400));
        change(&mut message);
        message
    }

    /// Asks about one message and checks that the answer is signed, whatever it says.
    async fn one(&self, message: &Message, headers: &[(&str, String)]) -> Reply {
        let body = seal(message, self.now(), &key("shop-1", 1));
        let reply = self.post.post(ONE, headers, body.clone()).await;
        assert!(reply.is_signed(&key("shop-1", 1), self.now(), &body), "{reply:?}");
        reply
    }

    /// Asks about a batch, as above.
    async fn batch(&self, messages: &[&Message], headers: &[(&str, String)]) -> Vec<Value> {
        let shop = key("shop-1", 1);
        let body = seal_batch(messages.iter().map(|message| (*message, &shop)), self.now());
        let reply = self.post.post(BATCH, headers, body.clone()).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(ANSWER_TYPE)));
        assert_eq!(reply.header("retry-after"), None, "each item says for itself");
        assert!(reply.is_signed(&shop, self.now(), &body), "{reply:?}");
        reply.json()["answers"].as_array().unwrap().clone()
    }

    /// Asks about a message alone, checks the whole answer, and that a batch gets the same as an item, but for what its
    /// outcome says already.
    async fn says(&self, message: &Message, status: u16, retry_after: Option<&str>, body: Value) {
        self.says_within(&[], message, status, retry_after, body).await;
    }

    async fn says_within(
        &self,
        headers: &[(&str, String)],
        message: &Message,
        status: u16,
        retry_after: Option<&str>,
        body: Value,
    ) {
        let reply = self.one(message, headers).await;
        assert_eq!((reply.status, reply.json()), (status, body.clone()));
        assert_eq!(reply.header("content-type"), Some(ANSWER_TYPE), "{body}");
        assert_eq!(reply.header("retry-after"), retry_after, "{body}");
        if body["outcome"] != "done" {
            assert_eq!(self.batch(&[message], headers).await, [item(body)]);
        }
    }
}

/// Does what the message's id says.
fn obedient(_: &mut SqliteTx<'_>, message: &Message) -> HandlerResult<Response> {
    match message.id.as_str().split('-').next().unwrap() {
        "retry" => Err(Refusal::retry("no paper")),
        "wait" => Err(Refusal::retry_after(Duration::from_millis(1_500), "no ink")),
        "reject" => Err(Refusal::reject("no such order")),
        "text" => Ok(Response { content_type: "text/plain".into(), body: Payload::new("hi") }),
        "nothing" => Ok(Response::empty()),
        _ => Ok(Response::json(&"invoiced").unwrap()),
    }
}

/// The answer to one message as it stands in the answer to a batch.
fn item(mut body: Value) -> Value {
    let members = body.as_object_mut().unwrap();
    ["acknowledged", "duplicateDetected"].into_iter().for_each(|flag| _ = members.remove(flag));
    body
}

fn done(id: &str) -> Value {
    json!({"messageId": id, "outcome": "done", "acknowledged": true, "duplicateDetected": false,
        "payload": "invoiced"})
}

fn duplicate(id: &str) -> Value {
    json!({"messageId": id, "outcome": "duplicate", "acknowledged": true, "duplicateDetected": true,
        "payload": "invoiced"})
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_done_and_duplicate_are_200_and_carry_the_stored_response() {
    let desk = Desk::new(obedient).await;
    let plain = desk.message("m", |_| {});
    desk.says(&plain, 200, None, done("m")).await;
    desk.says(&plain, 200, None, duplicate("m")).await;
    let of = |id: &str, duplicate: bool, payload: &str| {
        let outcome = if duplicate { "duplicate" } else { "done" };
        json!({"messageId": id, "outcome": outcome, "acknowledged": true, "duplicateDetected": duplicate,
            "payload": payload, "encoding": "base64"})
    };
    let (text, nothing) = (desk.message("text", |_| {}), desk.message("nothing", |_| {}));
    for again in [false, true] {
        let mut body = of("text", again, "aGk=");
        body["contentType"] = "text/plain".into();
        desk.says(&text, 200, None, body).await;
        desk.says(&nothing, 200, None, of("nothing", again, "")).await;
    }
    assert_eq!(desk.billing.effects().await, 3);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_what_failed_is_500_or_422_and_leaves_no_effect() {
    let desk = Desk::new(obedient).await;
    let body = json!({"messageId": "retry", "outcome": "retry", "error": "no paper"});
    desk.says(&desk.message("retry", |_| {}), 500, None, body).await;
    let body = json!({"messageId": "wait", "outcome": "retry", "error": "no ink", "retryAfterMs": 1_500});
    desk.says(&desk.message("wait", |_| {}), 500, Some("2"), body).await;
    let body = json!({"messageId": "reject", "outcome": "rejected", "error": "no such order"});
    desk.says(&desk.message("reject", |_| {}), 422, None, body.clone()).await;
    desk.says(&desk.message("reject", |_| {}), 422, None, body).await; // a duplicate gets the same answer
    let to_nobody = desk.message("m", |message| message.endpoint = Endpoint::new("refund").unwrap());
    desk.says(&to_nobody, 404, None, json!({"messageId": "m", "outcome": "unknown_endpoint"})).await;
    assert_eq!(desk.billing.effects().await, 0);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_another_body_under_a_known_id_is_409_and_the_first_effect_is_kept() {
    let desk = Desk::new(obedient).await;
    desk.says(&desk.message("m", |_| {}), 200, None, done("m")).await;
    let other = desk.message("m", |message| message.payload = Payload::new("\"other\""));
    desk.says(&other, 409, None, json!({"messageId": "m", "outcome": "conflict"})).await;
    desk.says(&desk.message("m", |_| {}), 200, None, duplicate("m")).await;
    assert_eq!(desk.billing.effects().await, 1);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_dates_beyond_what_the_receiver_remembers_or_believes_are_410_and_425() {
    let desk = Desk::new(obedient).await;
    let ahead = CLOCK_SKEW_MAX + Duration::from_millis(2_500);
    let early = desk.message("early", |message| message.available = desk.now().plus(ahead));
    let body = json!({"messageId": "early", "outcome": "too_early", "retryAfterMs": 2_500});
    desk.says(&early, 425, Some("3"), body).await;
    desk.says(&desk.message("m", |_| {}), 200, None, done("m")).await;
    let plan = SweepPlan { dedup_window: Duration::ZERO, ..SweepPlan::default() };
    assert_eq!(desk.billing.store.db.sweep(&plan).await.unwrap().purged, 1);
    let body = |id: &str| json!({"messageId": id, "outcome": "too_old"});
    desk.says(&desk.message("m", |_| {}), 410, None, body("m")).await;
    desk.says(&desk.message("old", |_| {}), 410, None, body("old")).await;
    assert_eq!(desk.billing.effects().await, 1);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_what_is_being_handled_is_409_and_what_was_not_reached_is_503() {
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let desk = Desk::new(move |_, _| {
        begun.send(()).unwrap();
        goes.lock().unwrap().recv_timeout(EVER).unwrap();
        Ok(Response::json(&"invoiced").unwrap())
    })
    .await;
    let slow = desk.message("m", |_| {});
    let first = {
        let (post, body) = (desk.post.clone(), seal(&slow, desk.now(), &key("shop-1", 1)));
        tokio::spawn(async move { post.one(body).await })
    };
    tokio::time::timeout(EVER, begins.recv()).await.unwrap().unwrap();
    // A sender that hardly waits, so that the receiver does not either.
    let hurry = |millis: u32| [(header::TIMEOUT, millis.to_string())];
    let body = json!({"messageId": "m", "outcome": "in_progress", "retryAfterMs": 1_000});
    desk.says_within(&hurry(100), &slow, 409, Some("1"), body).await;
    go.send(()).unwrap();
    let reply = tokio::time::timeout(EVER, first).await.unwrap().unwrap();
    assert_eq!((reply.status, reply.json()), (200, done("m")));
    let late = desk.message("late", |_| {});
    let body = json!({"messageId": "late", "outcome": "not_reached"});
    desk.says_within(&hurry(0), &late, 503, None, body).await;
    assert_eq!(desk.billing.effects().await, 1);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_a_batch_is_answered_item_by_item() {
    let desk = Desk::new(obedient).await;
    let keyed = |id: &str, key: &str| {
        desk.message(id, |message| message.ordering_key = Some(OrderingKey::new(key).unwrap()))
    };
    desk.says(&desk.message("known", |_| {}), 200, None, done("known")).await;
    let messages = [
        desk.message("m", |_| {}),
        desk.message("known", |_| {}),
        keyed("retry-1", "k"),
        keyed("behind", "k"),
        keyed("beside", "l"),
        desk.message("known", |message| message.payload = Payload::new("\"other\"")),
        desk.message("reject", |_| {}),
        desk.message("n", |message| message.endpoint = Endpoint::new("refund").unwrap()),
    ];
    let answers = desk.batch(&messages.iter().collect::<Vec<_>>(), &[]).await;
    let expected = [
        item(done("m")),
        item(duplicate("known")),
        json!({"messageId": "retry-1", "outcome": "retry", "error": "no paper"}),
        json!({"messageId": "behind", "outcome": "held"}),
        item(done("beside")),
        json!({"messageId": "known", "outcome": "conflict"}),
        json!({"messageId": "reject", "outcome": "rejected", "error": "no such order"}),
        json!({"messageId": "n", "outcome": "unknown_endpoint"}),
    ];
    assert_eq!(answers, expected);
    assert_eq!(desk.billing.effects().await, 3);
    desk.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_responses_that_do_not_fit_a_batch_are_left_out_and_got_singly() {
    let large = || Response::json(&"x".repeat(60 << 10)).unwrap();
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let billing = Billing::handling(server, move |_, message| {
        Ok(if message.id.as_str() == "small" { Response::empty() } else { large() })
    })
    .await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let batch: Vec<_> = ["a", "b", "c", "d", "e", "f", "small"].map(message).into();
    for again in [false, true] {
        let answer = |response| if again { Answer::Duplicate(response) } else { Answer::Done(response) };
        let answers = http.deliver(&link(), batch.clone(), EVER).await.unwrap();
        // Four of them are within 256 KiB; a small one still fits behind those that do not.
        let expected =
            [Some(large()), Some(large()), Some(large()), Some(large()), None, None, Some(Response::empty())];
        assert!(answers == expected.map(answer), "in a batch, again: {again}");
    }
    assert!(
        http.deliver(&link(), vec![message("f")], EVER).await.unwrap() == [Answer::Duplicate(Some(large()))]
    );
    let sealed = seal(&message("f"), SystemClock::default().now(), &key("shop-1", 1));
    let reply = Poster::new(billing.address).one(sealed).await;
    assert_eq!((reply.status, &*reply.outcome()), (200, "duplicate"));
    assert_eq!(reply.json()["payload"].as_str().unwrap().len(), 60 << 10);
    assert_eq!(billing.effects().await, 7);
    billing.stop().await;
}

/// RF-18: signed answers to messages and to probes say which inbox gives them, and the receiver meets the outbox.
#[tokio::test(flavor = "multi_thread")]
async fn rf_18_answers_name_the_inbox_and_the_receiver_notes_the_outbox() {
    let billing = Billing::signed().await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    assert_eq!(http.inbox(&link()), None, "nobody has answered yet");
    http.deliver(&link(), Vec::new(), EVER).await.unwrap();
    let named = http.inbox(&link());
    assert!(named.as_deref().is_some_and(|inbox| inbox.len() == 32), "{named:?}");
    http.deliver(&link(), vec![message("m")], EVER).await.unwrap();
    assert_eq!(http.inbox(&link()), named);
    billing.stop().await;
}

/// A receiver that says what the test tells it to.
struct Stub<F>(F);

impl<F: Fn(&[Arc<Message>]) -> Result<Vec<Answer>> + Send + Sync + 'static> Receive for Stub<F> {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        let answers = (self.0)(&messages);
        Box::pin(async move { answers })
    }
}

async fn stubbed(answer: impl Fn(&[Arc<Message>]) -> Result<Vec<Answer>> + Send + Sync + 'static) -> Billing {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    Billing::serving(&server, Store::new().await, Arc::new(Stub(answer)))
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_every_answer_comes_back_to_the_sender_as_it_was_given() {
    let error = String::from("Papier ist aus \"heute\"");
    let response = |content_type: &str, body: &'static [u8]| {
        Some(Response { content_type: content_type.into(), body: Payload::new(body) })
    };
    let after = Duration::from_millis(1_234);
    let given = vec![
        Answer::Done(None),
        Answer::Done(response("application/json", b"null")),
        Answer::Done(response("application/octet-stream", b"\0\xff")),
        Answer::Duplicate(None),
        Answer::Duplicate(response("application/json", b"{\"a\":1}")),
        Answer::InProgress { after },
        Answer::Held,
        Answer::NotReached,
        Answer::TooEarly { after },
        Answer::Retry { after: None, error: error.clone() },
        Answer::Retry { after: Some(after), error: error.clone() },
        Answer::Rejected { error },
        Answer::Conflict,
        Answer::TooOld,
        Answer::UnknownEndpoint,
    ];
    let answers = given.clone();
    let billing = stubbed(move |_| Ok(answers.clone())).await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let batch = (0..given.len()).map(|n| message(&format!("m{n}"))).collect();
    assert_eq!(http.deliver(&link(), batch, EVER).await.unwrap(), given);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_a_delay_without_end_is_told_as_the_longest_that_can_be_written() {
    let billing = stubbed(|_| Ok(vec![Answer::InProgress { after: Duration::MAX }])).await;
    let sealed = seal(&message("m"), SystemClock::default().now(), &key("shop-1", 1));
    let reply = Poster::new(billing.address).one(sealed).await;
    let longest = u64::MAX.to_string();
    assert_eq!((reply.status, reply.header("retry-after")), (409, Some(&*longest)));
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_l3_a_store_in_trouble_is_503_and_no_message_is_to_blame() {
    let broken = |_: &[Arc<Message>]| Err(Error::new(ErrorKind::Unavailable, "canary: disk full"));
    let miscounting = |messages: &[Arc<Message>]| Ok(vec![Answer::Done(None); messages.len() + 1]);
    for billing in [stubbed(broken).await, stubbed(miscounting).await] {
        let (post, now) = (Poster::new(billing.address), SystemClock::default().now());
        let shop = key("shop-1", 1);
        let replies = [
            post.one(seal(&message("m"), now, &shop)).await,
            post.batch(seal_batch([(&*message("m"), &shop)], now)).await,
        ];
        for reply in replies {
            assert_eq!((reply.status, &*reply.outcome()), (503, "unavailable"));
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert!(
                !String::from_utf8_lossy(&reply.body).contains("canary"),
                "what broke is nobody's business"
            );
        }
        let http = Http::signed(&billing.url(), keyring()).unwrap();
        let error = http.deliver(&link(), vec![message("m")], EVER).await.unwrap_err();
        assert!(error.to_string().starts_with("status 503"), "{error}");
        assert!(!error.is_ambiguous());
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(http.deliver(&link(), Vec::new(), EVER).await.unwrap(), [], "a probe needs no store");
        billing.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_messages_outlast_a_store_in_trouble_without_being_charged() {
    let asked = AtomicUsize::new(0);
    let billing = stubbed(move |messages| {
        if asked.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(Error::new(ErrorKind::Unavailable, "disk full"));
        }
        Ok(vec![Answer::Done(None); messages.len()])
    })
    .await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let shop = Shop::start(&[("billing", Arc::new(http))]).await;
    shop.enqueue("billing", "m", 1).await;
    assert!(shop.until_held("billing").await.contains("503"));
    shop.until_sent("billing", 1).await;
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_a_refused_request_blames_a_message_only_where_one_may_be_why() {
    for (status, ambiguous) in [
        ("400 Bad Request", true),
        ("401 Unauthorized", false),
        ("404 Not Found", false),
        ("405 Method Not Allowed", false),
        ("408 Request Timeout", false),
        ("413 Content Too Large", true),
        ("415 Unsupported Media Type", false),
        ("421 Misdirected Request", false),
        ("431 Request Header Fields Too Large", true),
        ("503 Service Unavailable", false),
    ] {
        let headers = [("content-type", ANSWER_TYPE), ("retry-after", "7")];
        let refusal = say(status, &headers, &encode_refusal("because", "no\nreason"));
        let fake = Fake::new(move |_| Act::Say(refusal.clone())).await;
        let http = Http::signed(&fake.url(), keyring()).unwrap();
        let error = http.deliver(&link(), vec![message("m")], EVER).await.unwrap_err();
        assert_eq!(error.is_ambiguous(), ambiguous, "{status}");
        assert_eq!(error.to_string(), format!("status {}: no reason", &status[..3]), "on one line");
        let wish = (!ambiguous).then_some(Duration::from_secs(7));
        assert_eq!(error.retry_after(), wish, "{status}");
    }
}
