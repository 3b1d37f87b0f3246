//! What a signed server takes, and what it does not: whatever was changed on the way leaves no trace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Link, Transport};
use twobox_core::signing::{Key, Keyring, Keyrings, Mac, SignedProbe, request_sha256, sign, sign_probe};
use twobox_core::wire::{self, Draft, Limits, Probe, header};
use twobox_core::{
    Clock, CorrelationId, Headers, Message, MessageType, OrderingKey, Payload, Response, Timestamp,
};
use twobox_http::{Http, HttpServer};
use twobox_testkit::ManualClock;

use crate::fake::Fake;
use crate::post::{BATCH, Poster, Reply, seal, seal_batch, unsealed};
use crate::world::{Billing, EVER, Shop, destination, key, link, message, source};

/// Billing with the keys of two sources, and a clock for their signatures.
struct Court {
    billing: Billing,
    post: Poster,
    clock: Arc<ManualClock>,
}

impl Court {
    async fn new() -> Self {
        Self::known_as(&[]).await
    }

    async fn known_as(names: &[&str]) -> Self {
        let mut keyrings = Keyrings::new();
        keyrings
            .insert(&source("shop"), Keyring::new([key("shop-1", 1), key("shop-2", 2)]).unwrap())
            .unwrap();
        keyrings.insert(&source("bank"), Keyring::new([key("bank-1", 3)]).unwrap()).unwrap();
        let clock = Arc::new(ManualClock::default());
        let server = HttpServer::signed("127.0.0.1:0", keyrings).await.unwrap();
        let server = names.iter().fold(server, |server, name| server.also_known_as(destination(name)));
        let billing = Billing::start(server.clock(Arc::clone(&clock) as _)).await;
        Self { post: Poster::new(billing.address), billing, clock }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn seal(&self, message: &Message) -> Vec<u8> {
        seal(message, self.now(), &key("shop-1", 1))
    }

    /// Rows of inbox, peers and effects.
    async fn rows(&self) -> i64 {
        self.billing
            .store
            .count(
                "SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM inbox_peers) \
                 + (SELECT count(*) FROM effects)",
            )
            .await
    }

    /// Nothing was ever written: not even that somebody was here.
    async fn stays_untouched(self) {
        assert_eq!(self.rows().await, 0);
        self.billing.stop().await;
    }

    async fn refuses(&self, status: u16, outcome: &str, body: Vec<u8>, what: &str) -> Reply {
        let reply = self.post.one(body).await;
        assert_eq!((reply.status, &*reply.outcome()), (status, outcome), "{what}");
        // A signed refusal would say that somebody with the key has looked at it.
        assert_eq!(reply.header(header::HMAC), None, "{what}");
        reply
    }
}

/// A message of which every part says something, each something else.
fn rich(id: &str) -> Message {
    let plain = message(id);
    let mut headers = Headers::default();
    headers.insert("x-a", "one").unwrap();
    headers.insert("x-b", "two").unwrap();
    Message {
        message_type: MessageType::Command,
        // Also base64, so that it could be taken for another payload.
        payload: Payload::new("\"cGF5\""),
        content_type: "application/vnd.shop+json".into(),
        correlation_id: Some(CorrelationId::new("c-1").unwrap()),
        ordering_key: Some(OrderingKey::new("k-1").unwrap()),
        headers,
        available: plain.created.plus(Duration::from_micros(1)),
        replay: 1,
        ..(*plain).clone()
    }
}

fn parsed(envelope: &[u8]) -> Value {
    serde_json::from_slice(envelope).unwrap()
}

fn changed(envelope: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut value = parsed(envelope);
    change(&mut value);
    value.to_string().into_bytes()
}

fn at<'a>(envelope: &'a mut Value, pointer: &str) -> &'a mut Value {
    envelope.pointer_mut(pointer).unwrap()
}

/// Where an envelope says something: its fields, then its headers.
fn places(envelope: &[u8]) -> Vec<String> {
    let value = parsed(envelope);
    let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let fields = names(&value).into_iter().filter(|name| name != "headers").map(|name| format!("/{name}"));
    let headers = names(&value["headers"]).into_iter().map(|name| format!("/headers/{name}"));
    fields.chain(headers).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_11_what_is_signed_is_taken_and_answered_under_the_same_key() {
    let court = Court::new().await;
    let (old, new) = (key("shop-1", 1), key("shop-2", 2));
    let one = seal(&rich("one"), court.now(), &old);
    let reply = court.post.one(one.clone()).await;
    assert_eq!((reply.status, &*reply.outcome()), (200, "done"));
    assert!(reply.is_signed(&old, court.now(), &one));
    let (two, three) = (rich("two"), message("three"));
    let batch = seal_batch([(&two, &new), (&*three, &new)], court.now());
    let reply = court.post.batch(batch.clone()).await;
    assert_eq!((reply.status, reply.outcomes()), (200, vec!["done".into(), "done".into()]));
    assert!(reply.is_signed(&new, court.now(), &batch));
    assert!(!reply.is_signed(&new, court.now(), &one), "an answer is to one request");
    assert_eq!(court.billing.effects().await, 3);
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_11_no_part_of_an_envelope_can_be_changed() {
    let court = Court::new().await;
    let sealed = court.seal(&rich("m"));
    let later = |value: &Value| (value.as_str().unwrap().parse::<i64>().unwrap() + 1).to_string();
    let original = parsed(&sealed);
    let (created, available, expires) = (
        later(&original["headers"]["rf-created"]),
        later(&original["headers"]["rf-available"]),
        later(&original["headers"]["rf-expires"]),
    );
    let other_mac = Mac::from_bytes([7; 32]).to_base64();
    for (place, value) in [
        ("/messageId", "n"),
        ("/correlationId", "c-2"),
        ("/sourceServiceId", "bank"),
        ("/messageType", "Signal"),
        ("/endpoint", "refund"),
        ("/payload", "cGF6"),
        ("/headers/rf-timestamp", "2026-05-28T20:26:41Z"),
        ("/headers/rf-hmac", &other_mac),
        ("/headers/rf-key-id", "shop-2"),
        ("/headers/rf-key-id", "bank-1"),
        ("/headers/rf-key-id", "nobody"),
        ("/headers/rf-destination", "crm"),
        ("/headers/rf-created", &created),
        ("/headers/rf-available", &available),
        ("/headers/rf-expires", &expires),
        ("/headers/rf-replay", "0"),
        ("/headers/rf-replay", "2"),
        ("/headers/rf-outbox", "outbox-2"),
        ("/headers/rf-content-type", "application/json"),
        ("/headers/rf-ordering-key", "k-2"),
        ("/headers/x-a", "two"),
    ] {
        let tampered = changed(&sealed, |envelope| *at(envelope, place) = value.into());
        court.refuses(401, "unauthentic", tampered, &format!("{place} = {value}")).await;
    }
    for (name, value) in [("x-c", "three"), ("rf-encoding", "base64")] {
        let tampered = changed(&sealed, |envelope| envelope["headers"][name] = value.into());
        court.refuses(401, "unauthentic", tampered, name).await;
    }
    let of_another_version = changed(&sealed, |envelope| *at(envelope, "/headers/rf-version") = "3.0".into());
    court.refuses(400, "malformed", of_another_version, "rf-version").await;
    court.stays_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_11_no_part_of_an_envelope_can_be_left_out() {
    let court = Court::new().await;
    let sealed = court.seal(&rich("m"));
    for place in places(&sealed) {
        let without = changed(&sealed, |envelope| {
            let (parent, name) = place.rsplit_once('/').unwrap();
            at(envelope, parent).as_object_mut().unwrap().remove(name).unwrap();
        });
        // What has a default is still read, and then is not what was signed.
        let (status, outcome) = match &*place {
            "/headers/rf-version" => continue, // see what_is_not_signed_means_nothing
            "/correlationId"
            | "/headers/rf-replay"
            | "/headers/rf-content-type"
            | "/headers/rf-ordering-key"
            | "/headers/x-a"
            | "/headers/x-b" => (401, "unauthentic"),
            _ => (400, "malformed"),
        };
        court.refuses(status, outcome, without, &place).await;
    }
    let headless = changed(&sealed, |envelope| drop(envelope.as_object_mut().unwrap().remove("headers")));
    court.refuses(400, "malformed", headless, "headers").await;
    court.stays_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_11_no_two_parts_of_an_envelope_can_be_swapped() {
    let court = Court::new().await;
    let sealed = court.seal(&rich("m"));
    let places = places(&sealed);
    for (n, one) in places.iter().enumerate() {
        for other in &places[n + 1..] {
            let swapped = changed(&sealed, |envelope| {
                let value = at(envelope, one).take();
                let value = std::mem::replace(at(envelope, other), value);
                *at(envelope, one) = value;
            });
            let reply = court.post.one(swapped).await;
            assert!(matches!(reply.status, 400 | 401), "{one} and {other}: {}", reply.status);
        }
    }
    court.stays_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_what_is_not_signed_means_nothing() {
    let court = Court::new().await;
    let sealed = court.seal(&rich("m"));
    assert_eq!(court.post.one(sealed.clone()).await.outcome(), "done");
    let rows = court.rows().await;
    let text = String::from_utf8(sealed.clone()).unwrap();
    let same = [
        changed(&sealed, |envelope| *at(envelope, "/headers/rf-version") = "2.7".into()),
        changed(&sealed, |envelope| {
            drop(at(envelope, "/headers").as_object_mut().unwrap().remove("rf-version"));
        }),
        changed(&sealed, |envelope| envelope["headers"]["rf-unknown"] = "x".into()),
        changed(&sealed, |envelope| envelope["unknown"] = json!({"messageId": "n"})),
        serde_json::to_vec_pretty(&parsed(&sealed)).unwrap(),
        text.replace("\"shop\"", "\"\\u0073hop\"").into_bytes(),
    ];
    for (n, envelope) in same.into_iter().enumerate() {
        assert_ne!(envelope, sealed, "{n}");
        let reply = court.post.one(envelope.clone()).await;
        assert_eq!((reply.status, &*reply.outcome()), (200, "duplicate"), "{n}");
        assert_eq!(reply.json()["messageId"], "m", "{n}");
        assert!(reply.is_signed(&key("shop-1", 1), court.now(), &envelope), "{n}");
    }
    assert_eq!(court.rows().await, rows);
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_every_bit_of_a_signature_counts() {
    let court = Court::new().await;
    let (message, now) = (message("m"), court.now());
    let draft = Draft::new(&message);
    let mac = sign(&key("shop-1", 1), &draft.signed(now, "outbox-1")).mac;
    let sealed = court.seal(&message);
    for bit in 0..256 {
        let mut bytes = *mac.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let flipped = Mac::from_bytes(bytes).to_base64();
        let tampered = changed(&sealed, |envelope| *at(envelope, "/headers/rf-hmac") = flipped.into());
        court.refuses(401, "unauthentic", tampered, &format!("bit {bit}")).await;
    }
    assert_eq!(court.rows().await, 0);
    assert_eq!(court.post.one(sealed).await.outcome(), "done", "the signature as it was");
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_no_flipped_bit_makes_another_message_of_an_envelope() {
    let court = Court::new().await;
    let original = message("m");
    let sealed = court.seal(&original);
    assert_eq!(court.post.one(sealed.clone()).await.outcome(), "done");
    let rows = court.rows().await;
    for bit in 0..sealed.len() * 8 {
        let mut flipped = sealed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let reply = court.post.one(flipped.clone()).await;
        match reply.status {
            400 | 401 => assert_eq!(reply.header(header::HMAC), None, "bit {bit}"),
            // A header of another name, which had said what is the default; a `z` for a `Z`.
            200 => {
                let read = wire::parse(&flipped, &Limits::default()).unwrap();
                assert_eq!((&read.message, read.sent), (&*original, court.now()), "bit {bit}");
                assert_eq!(reply.outcome(), "duplicate", "bit {bit}");
                assert_eq!(reply.json()["messageId"], "m", "bit {bit}");
            }
            other => panic!("bit {bit}: status {other}"),
        }
    }
    assert_eq!(court.rows().await, rows);
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_unknown_key_and_a_wrong_signature_look_the_same() {
    let court = Court::new().await;
    let (sealed, other) = (court.seal(&rich("m")), court.seal(&rich("n")));
    let with = |place: &str, value: Value| changed(&sealed, |envelope| *at(envelope, place) = value);
    let elsewhere = parsed(&other)["headers"]["rf-hmac"].clone();
    let mut replies = Vec::new();
    for (what, body) in [
        ("unknown key", seal(&rich("m"), court.now(), &key("nobody", 1))),
        ("known secret under an unknown name", with("/headers/rf-key-id", "nobody".into())),
        ("somebody else's key", seal(&rich("m"), court.now(), &key("bank-1", 3))),
        ("wrong secret", seal(&rich("m"), court.now(), &key("shop-1", 9))),
        ("signature of another message", with("/headers/rf-hmac", elsewhere)),
        ("no signature", unsealed(&rich("m"), court.now())),
    ] {
        let mut reply = court.refuses(401, "unauthentic", body, what).await;
        reply.headers.remove("date");
        replies.push(reply);
    }
    for reply in &replies {
        assert_eq!(reply.body, replies[0].body);
        assert_eq!(reply.headers, replies[0].headers);
    }
    court.stays_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_source_cannot_speak_for_another() {
    let court = Court::new().await;
    let of_shop = rich("m");
    let of_bank = Message { source: source("bank"), ..of_shop.clone() };
    let now = court.now();
    court.refuses(401, "unauthentic", seal(&of_bank, now, &key("shop-1", 1)), "shop as bank").await;
    court.refuses(401, "unauthentic", seal(&of_shop, now, &key("bank-1", 3)), "bank as shop").await;
    assert_eq!(court.rows().await, 0);
    // The same id from two sources is two messages.
    for sealed in [seal(&of_shop, now, &key("shop-1", 1)), seal(&of_bank, now, &key("bank-1", 3))] {
        assert_eq!(court.post.one(sealed).await.outcome(), "done");
    }
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_what_was_sent_300_seconds_ago_or_ahead_is_taken_and_301_is_stale() {
    let court = Court::new().await;
    let (now, shop) = (court.now(), key("shop-1", 1));
    let seconds = Duration::from_secs;
    for (n, stale) in [now.minus(seconds(301)), now.plus(seconds(301))].into_iter().enumerate() {
        let envelope = seal(&rich("m"), stale, &shop);
        court.refuses(401, "stale", envelope, &n.to_string()).await;
        let batch = seal_batch([(&rich("m"), &shop)], stale);
        let reply = court.post.batch(batch).await;
        assert_eq!((reply.status, &*reply.outcome()), (401, "stale"));
        // Only whoever holds the key is told about clocks.
        let forged = seal(&rich("m"), stale, &key("shop-1", 9));
        court.refuses(401, "unauthentic", forged, &n.to_string()).await;
    }
    assert_eq!(court.rows().await, 0);
    let fresh = seal(&rich("m"), now, &shop);
    court.clock.advance(seconds(300));
    assert_eq!(court.post.one(fresh.clone()).await.outcome(), "done");
    court.clock.advance(seconds(1));
    court.refuses(401, "stale", fresh.clone(), "recorded").await;
    court.clock.step_back(seconds(601));
    assert_eq!(court.post.one(fresh).await.outcome(), "duplicate");
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_one_tampered_item_and_nothing_of_its_batch_is_handled() {
    let court = Court::new().await;
    let shop = key("shop-1", 1);
    let messages: Vec<Message> = (0..5).map(|n| rich(&format!("m{n}"))).collect();
    let sealed = seal_batch(messages.iter().map(|message| (message, &shop)), court.now());
    for n in 0..messages.len() {
        for (place, value, status, outcome) in [
            ("payload", json!("cGF6"), 401, "unauthentic"),
            ("headers/rf-destination", json!("crm"), 401, "unauthentic"),
            ("messageType", json!("Shout"), 400, "malformed"),
            ("headers/rf-hmac", json!("short"), 400, "malformed"),
        ] {
            let tampered = changed(&sealed, |batch| *at(batch, &format!("/{n}/{place}")) = value);
            let reply = court.post.batch(tampered).await;
            assert_eq!((reply.status, &*reply.outcome()), (status, outcome), "{place} of {n}");
        }
    }
    assert_eq!(court.rows().await, 0);
    assert_eq!(court.post.batch(sealed).await.outcomes(), ["done"; 5]);
    court.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_the_messages_of_a_batch_have_one_key_and_one_source() {
    let court = Court::new().await;
    let (shop, of_bank) = (rich("m"), Message { source: source("bank"), ..rich("n") });
    let (old, new, bank) = (key("shop-1", 1), key("shop-2", 2), key("bank-1", 3));
    for batch in [[(&shop, &old), (&shop, &new)], [(&shop, &old), (&of_bank, &bank)]] {
        let reply = court.post.batch(seal_batch(batch, court.now())).await;
        assert_eq!((reply.status, &*reply.outcome()), (400, "malformed"));
    }
    let unsigned = format!("[{}]", String::from_utf8(unsealed(&shop, court.now())).unwrap());
    assert_eq!(court.post.batch(unsigned).await.outcome(), "unauthentic");
    court.stays_untouched().await;
}

fn probe(link: &Link, sent: Timestamp, key: &Key) -> Probe {
    let signature = sign_probe(key, &SignedProbe { link, sent });
    Probe { link: link.clone(), sent, signature }
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_probe_cannot_be_changed_either() {
    let court = Court::new().await;
    let (link, now, shop) = (link(), court.now(), key("shop-1", 1));
    let genuine = probe(&link, now, &shop);
    let headers = genuine.headers();
    let asked = async |headers: &[(&str, String)]| court.post.post(BATCH, headers, "[]").await;
    let reply = asked(&headers).await;
    assert_eq!((reply.status, reply.json().to_string()), (200, r#"{"answers":[]}"#.into()));
    assert!(reply.is_signed_for(&shop, now, request_sha256([&genuine.signature.mac])));
    let of_message = sign(&shop, &Draft::new(&message("m")).signed(now, "outbox-1")).mac.to_base64();
    for (n, (name, value)) in headers.iter().enumerate() {
        let others: &[&str] = match *name {
            header::SOURCE => &["bank", "", "%"],
            header::DESTINATION => &["crm", ""],
            header::OUTBOX => &["outbox-2", "%00"],
            header::TIMESTAMP => &["2026-05-28T20:26:41Z", "now"],
            header::KEY_ID => &["shop-2", "bank-1", "nobody", "no body"],
            _ => &["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "short", &of_message],
        };
        for other in others {
            assert_ne!(other, value);
            let mut tampered = headers.clone();
            tampered[n].1 = (*other).into();
            let reply = asked(&tampered).await;
            assert_eq!((reply.status, &*reply.outcome()), (401, "unauthentic"), "{name} = {other}");
        }
        let without: Vec<_> = headers.iter().filter(|(of, _)| of != name).cloned().collect();
        let reply = asked(&without).await;
        assert_eq!((reply.status, &*reply.outcome()), (401, "unauthentic"), "without {name}");
    }
    let stale = probe(&link, now.minus(Duration::from_secs(301)), &shop).headers();
    assert_eq!(asked(&stale).await.outcome(), "stale");
    court.stays_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_11_what_is_meant_for_another_service_is_misdirected_unless_this_is_it_too() {
    let (court, crm) = (Court::new().await, Court::known_as(&["crm", "mail"]).await);
    let shop = key("shop-1", 1);
    let elsewhere = Message { destination: destination("crm"), ..rich("m") };
    let sealed = court.seal(&elsewhere);
    court.refuses(421, "misdirected", sealed.clone(), "crm").await;
    let (here, batch) = (rich("n"), [&rich("n"), &elsewhere]);
    let mixed = seal_batch(batch.map(|message| (message, &shop)), court.now());
    assert_eq!(court.post.batch(mixed.clone()).await.status, 421);
    let to_crm = Link { destination: destination("crm"), ..(*link()).clone() };
    let asking = probe(&to_crm, court.now(), &shop).headers();
    assert_eq!(court.post.post(BATCH, &asking, "[]").await.status, 421);
    court.stays_untouched().await;
    assert_eq!(crm.post.one(sealed).await.outcome(), "done");
    assert_eq!(crm.post.batch(mixed).await.outcomes(), ["done", "duplicate"]);
    assert_eq!(crm.post.post(BATCH, &asking, "[]").await.status, 200);
    assert_eq!(crm.post.one(crm.seal(&here)).await.outcome(), "duplicate", "its own name still holds");
    crm.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_an_unsigned_server_answers_without_a_signature() {
    let billing = Billing::handling(HttpServer::unsigned("127.0.0.1:0").await.unwrap(), |_, _| {
        Ok(Response::json(&"invoiced").unwrap())
    })
    .await;
    let (post, now) = (Poster::new(billing.address), ManualClock::default().now());
    // It cannot judge signatures, so it makes no difference whether there is one.
    for (body, outcome) in
        [(unsealed(&rich("m"), now), "done"), (seal(&rich("m"), now, &key("nobody", 9)), "duplicate")]
    {
        let reply = post.one(body).await;
        assert_eq!((reply.status, &*reply.outcome()), (200, outcome));
        assert_eq!((reply.header(header::HMAC), reply.header(header::KEY_ID)), (None, None));
    }
    billing.stop().await;
}

/// A transport that remembers what went wrong.
struct Tap {
    http: Http,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Transport for Tap {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (delivering, errors) = (self.http.deliver(link, batch, timeout), Arc::clone(&self.errors));
        Box::pin(async move {
            delivering.await.inspect_err(|error| errors.lock().unwrap().push(error.to_string()))
        })
    }
}

async fn server_knowing(keys: impl IntoIterator<Item = Key>, clock: &Arc<ManualClock>) -> HttpServer {
    let mut keyrings = Keyrings::new();
    keyrings.insert(&source("shop"), Keyring::new(keys).unwrap()).unwrap();
    HttpServer::signed("127.0.0.1:0", keyrings).await.unwrap().clock(Arc::clone(clock) as _)
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_keys_are_exchanged_without_a_refused_message() {
    let clock = Arc::new(ManualClock::default());
    let change = clock.now().plus(Duration::from_secs(120));
    let (old, new, day) = (key("shop-1", 1), key("shop-2", 2), Duration::from_secs(86_400));
    // The receiver's copies hold longer on both sides, as the documentation of keys asks for.
    let known = [
        old.clone().not_after(change.plus(Duration::from_secs(60)).plus(day)),
        new.clone().not_before(change.minus(day)),
    ];
    let billing = Billing::start(server_knowing(known, &clock).await).await;
    let wire = Fake::wire(billing.address).await;
    let ring = [old.not_after(change.plus(Duration::from_secs(60))), new.clone().not_before(change)];
    let http = Http::signed(&wire.url(), Keyring::new(ring).unwrap()).unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let tap = Tap { http: http.clock(Arc::clone(&clock) as _), errors: Arc::clone(&errors) };
    let shop = Shop::start(&[("billing", Arc::new(tap))]).await;
    let (mut enqueued, mut before) = (0, 0);
    while clock.now() < change.plus(Duration::from_secs(120)) {
        shop.enqueue("billing", &format!("m{enqueued}-"), 20).await;
        enqueued += 20;
        // Now and then the relay gets ahead of us, so that messages travel at every time of the change.
        if enqueued % 100 == 0 {
            shop.until_sent("billing", enqueued).await;
        }
        if clock.now() < change {
            before = enqueued;
        }
        clock.advance(Duration::from_secs(5));
    }
    shop.until_sent("billing", enqueued).await;
    assert!(before >= 400 && enqueued >= before + 400, "{before} of {enqueued} before the change");
    assert!(errors.lock().unwrap().is_empty(), "{:?}", errors.lock().unwrap());

    let store = billing.stop().await;
    let server = server_knowing([new], &clock).await;
    let billing = Billing::resumed(&server, store, |_, _| Ok(Response::empty()));
    wire.forward(billing.address);
    shop.enqueue("billing", "last", 50).await;
    shop.until_sent("billing", enqueued + 50).await;
    let refused: Vec<String> =
        errors.lock().unwrap().iter().filter(|error| error.contains("status")).cloned().collect();
    assert!(refused.is_empty(), "{refused:?}");
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE status <> 'Sent'").await, 0);
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
    assert_eq!(billing.effects().await, i64::try_from(enqueued).unwrap() + 50);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_key_out_of_its_time_signs_nothing_and_opens_nothing() {
    let clock = Arc::new(ManualClock::default());
    let now = clock.now();
    let old = key("shop-1", 1).not_after(now);
    let billing = Billing::start(server_knowing([old.clone()], &clock).await).await;
    let post = Poster::new(billing.address);
    let http = Http::signed(&billing.url(), Keyring::new([old]).unwrap()).unwrap();
    let http = http.clock(Arc::clone(&clock) as _);
    assert!(matches!(http.deliver(&link(), vec![message("m")], EVER).await.unwrap()[..], [Answer::Done(_)]));
    clock.advance(Duration::from_micros(1));
    let error = http.deliver(&link(), vec![message("n")], EVER).await.unwrap_err();
    assert!(!error.is_ambiguous() && error.to_string().contains("no key"), "{error}");
    // As if its clock were behind: the receiver's own decides.
    let reply = post.one(seal(&message("n"), now, &key("shop-1", 1))).await;
    assert_eq!((reply.status, &*reply.outcome()), (401, "unauthentic"));
    assert_eq!(billing.effects().await, 1);
    billing.stop().await;
}
