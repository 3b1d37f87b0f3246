//! Sending through a node: durable when answered, once per key, refused as a whole.

use serde_json::{Value, json};
use twobox_core::ports::OpsStore as _;

use super::ask::{Ask, EVER, Reply};
use super::world::{SEND, World};
use crate::api::{OutboxMessages, SendAnswer};

async fn send(world: &World, body: &Value) -> Reply {
    world.ask(Ask::post("/v1/messages", body).token(SEND)).await
}

fn message() -> Value {
    json!({ "destination": "billing", "endpoint": "Take", "payload": { "order": 7 } })
}

async fn enqueued(world: &World) -> u64 {
    world.db.outbox_stats(0).await.unwrap().enqueued
}

#[tokio::test]
async fn rf_01_a_message_is_committed_when_it_is_answered() {
    let world = World::empty().await;
    let sent: SendAnswer = send(&world, &message()).await.ok();
    assert!(!sent.messages[0].duplicate);
    let path = format!("/_rf/outbox/messages/{}", sent.messages[0].message_id);
    let found: OutboxMessages = world.read(&path).await.ok();
    assert_eq!(
        (found.messages[0].message.source.as_str(), &*found.messages[0].message.status),
        ("shop", "Pending")
    );
    let running = world.start();
    twobox_testkit::eventually("it is sent", EVER, async || {
        let found: OutboxMessages = world.read(&path).await.ok();
        (found.messages[0].message.status == "Sent").then_some(())
    })
    .await;
    running.shutdown().await;
    world.stop().await;
}

#[tokio::test]
async fn rf_01_everything_a_message_has_is_kept() {
    let world = World::empty().await;
    let body = json!({
        "destination": "billing", "endpoint": "Take", "messageType": "Command",
        "payloadBase64": "AAEC/w==", "contentType": "application/cbor",
        "messageId": "m-1", "correlationId": "c-1", "orderingKey": "k-1",
        "headers": { "x-a": "1" }, "due": "2099-01-01T00:00:00Z", "ttlSeconds": 60,
    });
    let sent: SendAnswer = send(&world, &body).await.ok();
    assert_eq!(sent.messages[0].message_id, "m-1");
    let found: OutboxMessages = world.read("/_rf/outbox/messages/m-1").await.ok();
    let detail = &found.messages[0];
    assert_eq!((detail.message.message_type.as_str(), detail.message.payload_bytes), ("Command", 4));
    assert_eq!(detail.message.content_type, "application/cbor");
    assert_eq!(detail.message.ordering_key.as_deref(), Some("k-1"));
    assert_eq!(detail.correlation_id.as_deref(), Some("c-1"));
    assert_eq!(detail.headers, ["x-a"]);
    assert_eq!(detail.message.due.as_deref(), Some("2099-01-01T00:00:00.000000Z"));
    assert_eq!(detail.expires.as_deref(), Some("2099-01-01T00:01:00.000000Z"));
    world.stop().await;
}

#[tokio::test]
async fn rf_01_json_is_kept_byte_for_byte() {
    let world = World::empty().await;
    let payload = r#"{"b" : 1.0, "a":12345678901234567890123, "b": 2}"#;
    let body =
        format!(r#"{{"destination":"billing","endpoint":"Take","messageId":"raw","payload":{payload}}}"#);
    let reply = world.ask(Ask::new("POST", "/v1/messages").raw(body.as_bytes()).token(SEND)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let found: OutboxMessages = world.read("/_rf/outbox/messages/raw").await.ok();
    let hash: String =
        twobox::Payload::new(payload.as_bytes().to_vec()).sha256().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(found.messages[0].payload_sha256, hash);
    let mut null = message();
    (null["payload"], null["messageId"]) = (Value::Null, "null".into());
    assert_eq!(send(&world, &null).await.status, 200);
    let found: OutboxMessages = world.read("/_rf/outbox/messages/null").await.ok();
    assert_eq!(found.messages[0].message.payload_bytes, 4);
    world.stop().await;
}

#[tokio::test]
async fn rf_01_an_idempotency_key_makes_repeating_harmless() {
    let world = World::empty().await;
    let keyed = || Ask::post("/v1/messages", &message()).token(SEND).header("idempotency-key", "order-7");
    let first: SendAnswer = world.ask(keyed()).await.ok();
    let second: SendAnswer = world.ask(keyed()).await.ok();
    assert_eq!(first.messages[0].message_id, second.messages[0].message_id);
    assert_eq!((first.messages[0].duplicate, second.messages[0].duplicate), (false, true));
    let mut body = message();
    body["idempotencyKey"] = "order-7".into();
    assert!(send(&world, &body).await.ok::<SendAnswer>().messages[0].duplicate);
    body["idempotencyKey"] = "order-8".into();
    let both = Ask::post("/v1/messages", &body).token(SEND).header("idempotency-key", "order-7");
    world.ask(both).await.refused(422, "invalid");
    assert_eq!(enqueued(&world).await, 1);
    world.stop().await;
}

#[tokio::test]
async fn rf_01_a_batch_is_enqueued_as_a_whole_or_not_at_all() {
    let world = World::empty().await;
    let mut keyed = message();
    keyed["idempotencyKey"] = "a".into();
    let batch = json!([message(), keyed, keyed, message()]);
    let sent: SendAnswer = send(&world, &batch).await.ok();
    let duplicates: Vec<bool> = sent.messages.iter().map(|sent| sent.duplicate).collect();
    assert_eq!(duplicates, [false, false, true, false]);
    assert_eq!(enqueued(&world).await, 3);
    let mut wrong = message();
    wrong["endpoint"] = "".into();
    let reply = send(&world, &json!([message(), message(), wrong])).await;
    reply.refused(422, "invalid");
    assert!(reply.text().contains("message 2: endpoint"), "{}", reply.text());
    for (field, value) in
        [("contentType", json!("text/plain\n")), ("endpoint", json!(7)), ("surprise", json!(1))]
    {
        let mut wrong = message();
        wrong[field] = value;
        let reply = send(&world, &json!([message(), message(), wrong])).await;
        assert!(reply.text().contains("message 2: "), "{field}: {}", reply.text());
    }
    let large: Value = vec![message(); 1001].into();
    send(&world, &large).await.refused(422, "invalid");
    send(&world, &json!([])).await.refused(422, "invalid");
    let header = Ask::post("/v1/messages", &json!([message()])).token(SEND).header("idempotency-key", "b");
    world.ask(header).await.refused(422, "invalid");
    assert_eq!(enqueued(&world).await, 3);
    let full: Value = vec![message(); 1000].into();
    assert_eq!(send(&world, &full).await.ok::<SendAnswer>().messages.len(), 1000);
    assert_eq!(enqueued(&world).await, 1003);
    world.stop().await;
}

#[tokio::test]
async fn s16_messages_that_make_no_sense_are_refused() {
    let world = World::empty().await;
    let with = |name: &str, value: Value| {
        let mut body = message();
        body[name] = value;
        body
    };
    let without = |name: &str| {
        let mut body = message();
        body.as_object_mut().unwrap().remove(name);
        body
    };
    for body in [
        without("destination"),
        without("endpoint"),
        without("payload"),
        with("destination", "".into()),
        with("destination", 7.into()),
        with("endpoint", "x".repeat(256).into()),
        with("endpoint", "a\u{0}b".into()),
        with("messageType", "signal".into()),
        with("payloadBase64", "AAAA".into()),
        with("due", "tomorrow".into()),
        with("ttlSeconds", 0.into()),
        with("ttlSeconds", (-1).into()),
        with("ttlSeconds", 4_294_967_296_u64.into()),
        with("headers", json!({ "rf-hmac": "x" })),
        with("headers", json!({ "Upper": "x" })),
        with("headers", json!({ "a": 1 })),
        with("contentType", "a\nb".into()),
        with("idempotencyKey", "".into()),
        with("unknown", 1.into()),
        with("payload", "x".repeat(64 << 10).into()),
    ] {
        let reply = send(&world, &body).await;
        reply.refused(422, "invalid");
    }
    send(&world, &with("destination", "nobody".into())).await.refused(422, "unknown_destination");
    let mut odd = without("payload");
    odd["payloadBase64"] = "not base64!".into();
    send(&world, &odd).await.refused(422, "invalid");
    for body in ["", "   ", "{", "[", "\u{feff}{}"] {
        let reply = world.ask(Ask::new("POST", "/v1/messages").raw(body.as_bytes()).token(SEND)).await;
        reply.refused(400, "malformed");
    }
    world.ask(Ask::new("POST", "/v1/messages").token(SEND)).await.refused(400, "malformed");
    let deep =
        with("payload", serde_json::from_str(&format!("{}{}", "[".repeat(64), "]".repeat(64))).unwrap());
    send(&world, &deep).await.refused(400, "malformed");
    assert_eq!(enqueued(&world).await, 0);
    world.stop().await;
}
