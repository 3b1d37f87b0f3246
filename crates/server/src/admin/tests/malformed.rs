//! What is wrong is refused, in every way it can be wrong.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ask::Ask;
use super::world::{READ, SEND, WRITE, World};

#[tokio::test]
async fn s16_queries_that_make_no_sense_are_refused() {
    let world = World::full().await;
    let invalid = [
        "outbox/messages?status=sent",
        "outbox/messages?status=",
        "outbox/messages?createdFrom=yesterday",
        "outbox/messages?createdUntil=2026-02-30T00:00:00Z",
        "outbox/messages?destination=",
        "outbox/messages?endpoint=a%0Ab",
        "outbox/failed?reason=bad",
        "outbox/failed?diedBefore=1",
        "inbox/messages?status=Sent",
        "inbox/messages?receivedFrom=x",
        "inbox/failed?reason=",
        "outbox/messages/a%0Ab",
        "inbox/messages/%00",
    ];
    for path in invalid {
        world.read(&format!("/_rf/{path}")).await.refused(422, "invalid");
    }
    let long = "x".repeat(256);
    world.read(&format!("/_rf/outbox/messages?source={long}")).await.refused(422, "invalid");
    let malformed = [
        "outbox/messages?source=%ff",
        "outbox/messages/%ff",
        "outbox/failed?%80",
        "outbox/lanes?x=1",
        "audit?actor=%C3",
    ];
    for path in malformed {
        world.read(&format!("/_rf/{path}")).await.refused(400, "malformed");
    }
    world.stop().await;
}

#[tokio::test]
async fn s16_bodies_that_are_no_json_or_another_shape_are_refused() {
    let world = World::full().await;
    let post = |body: &[u8]| Ask::new("POST", "/_rf/outbox/replay").raw(body).token(WRITE);
    for body in [&b"{"[..], b"{]", b"nul", b"\xff", b"{\"all\":true}}", b"{\"all\":tru", b"{'all':true}"] {
        world.ask(post(body)).await.refused(400, "malformed");
    }
    for body in [
        "1",
        "null",
        "\"x\"",
        "[]",
        "{\"all\":1}",
        "{\"all\":true,\"limit\":-1}",
        "{\"all\":true,\"limit\":0}",
        "{\"all\":true,\"limit\":1001}",
        "{\"all\":true,\"limit\":1e9}",
        "{\"all\":true,\"perSecond\":0}",
        "{\"all\":true,\"perSecond\":10001}",
        "{\"all\":true,\"mode\":\"other\"}",
        "{\"all\":true,\"unknown\":1}",
        "{\"filter\":{\"unknown\":1}}",
        "{\"filter\":{\"reason\":\"x\"}}",
        "{\"all\":true,\"next\":\"x\"}",
        "{\"all\":true,\"next\":\"1.x\"}",
        "{\"all\":true,\"all\":true}",
    ] {
        world.ask(post(body.as_bytes())).await.refused(422, "invalid");
    }
    let deep = format!("{}{}", "[".repeat(100_000 / 4), "]".repeat(100_000 / 4));
    world.ask(post(deep.as_bytes())).await.refused(400, "malformed");
    world.stop().await;
}

#[tokio::test]
async fn s16_only_json_that_is_not_packed_is_taken() {
    let world = World::empty().await;
    let post = || Ask::post("/_rf/outbox/replay", &json!({ "all": true, "dryRun": true })).token(WRITE);
    let typed = |kind: &str| post().without("content-type").header("content-type", kind);
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""]
    {
        world.ask(typed(kind)).await.refused(415, "unsupported_media_type");
    }
    world.ask(post().without("content-type")).await.refused(415, "unsupported_media_type");
    world.ask(post().header("content-encoding", "gzip")).await.refused(415, "unsupported_media_type");
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(world.ask(typed(kind)).await.status, 200, "{kind}");
    }
    world.stop().await;
}

#[tokio::test]
async fn s16_bodies_are_limited_before_they_are_read() {
    let world = World::empty().await;
    let large = vec![b' '; (64 << 10) + 1];
    world
        .ask(Ask::new("POST", "/_rf/outbox/replay").raw(&large).token(WRITE))
        .await
        .refused(413, "too_large");
    world.ask(Ask::new("POST", "/_rf/outbox/replay").raw(&large)).await.refused(401, "unauthorized");
    world.ask(Ask::new("GET", "/_rf/health").raw(b"x").token(READ)).await.refused(413, "too_large");
    let head = Ask::new("POST", "/v1/messages").token(SEND).header("content-type", "application/json");
    // Announced, never sent: refused all the same.
    let huge = head.header("content-length", "999999999999");
    world.ask(huge).await.refused(413, "too_large");
    world.stop().await;
}

#[tokio::test]
async fn s16_heads_are_limited() {
    let world = World::empty().await;
    let many = (0..100).fold(Ask::get("/livez"), |ask, n| ask.header(&format!("x-{n}"), "y"));
    assert_eq!(world.ask(many).await.status, 431);
    let long = Ask::get("/livez").header("x", &"y".repeat(64 << 10));
    assert_eq!(world.ask(long).await.status, 431);
    assert_eq!(world.ask(Ask::get("/livez")).await.status, 200);
    world.stop().await;
}

/// A small body of a refused request is read to its end: the answer arrives, and the connection serves the next one.
#[tokio::test]
async fn s16_a_refused_request_does_not_spoil_the_next_on_its_connection() {
    let world = World::empty().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let body = r#"{"all":true}"#;
    let refused = format!(
        "POST /_rf/outbox/purge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(refused.as_bytes()).await.unwrap();
    stream.write_all(&Ask::get("/livez").bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    let statuses: Vec<&str> = answers.lines().filter(|line| line.contains("HTTP/1.1 ")).collect();
    assert_eq!(statuses.len(), 2, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 401") && answers.contains("HTTP/1.1 200"), "{answers}");
    world.stop().await;
}
