//! What must never be shown is shown nowhere: not by the API, not in figures, not in the log (S17).

use std::net::SocketAddr;

use twobox_testkit::leaks;

use crate::operators::{address, ask, serve_operators};
use crate::program::Program;
use crate::world::{Node, World};

const PAYLOAD: &str = "canary-of-the-payload-4711";
const HEADER: &str = "canary-of-the-header-4711";
const REPEATED: &str = "{\"you sent\": \"canary-of-the-payload-4711\"}";
const WRITE: &str = "canary-of-the-write-token-4711";
const SEND: &str = "canary-of-the-send-token-4711";
/// How the world's keys begin.
const KEY: &str = "generation 1 of a secret";

/// Every page that the node has of a message, as its own description lists them.
async fn pages(of: SocketAddr, id: &str) -> String {
    let (_, description) = ask(of, "GET /_rf/openapi.json", WRITE, "").await;
    let paths = serde_json::from_str::<serde_json::Value>(&description).unwrap()["paths"].clone();
    let mut all = description;
    for (path, methods) in paths.as_object().unwrap() {
        if methods.get("get").is_some() {
            let line = format!("GET {}", path.replace("{messageId}", id));
            let (status, page) = ask(of, &line, WRITE, "").await;
            assert!(matches!(status, 200 | 404), "{line}: {status}");
            all.push_str(&page);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_no_payload_header_key_or_token_is_shown_anywhere() {
    let program = Program::start(|_, _| Some(("422 No", &[("Twobox-Reason", "not today")], REPEATED))).await;
    let world = World::new();
    let (write, send) = (format!("alice {WRITE}\n"), format!("{SEND}\n"));
    let start = async |config: std::path::PathBuf| {
        serve_operators(&world, &config, &write, &send);
        Node::start_with(&config, &["--set", "log.level=\"trace\""]).await
    };
    let billing = start(world.configure_billing(&program.url(), "127.0.0.1:0", &["1"])).await;
    let shop = start(world.configure_shop(billing.listen(), &["1"])).await;

    let message = format!(
        r#"{{"destination":"billing","endpoint":"Pay","messageId":"m-1","payload":{{"card":"{PAYLOAD}"}},"headers":{{"x-card":"{HEADER}"}}}}"#
    );
    assert_eq!(ask(address(&shop), "POST /v1/messages", SEND, &message).await.0, 200);
    assert_eq!(
        ask(address(&shop), "POST /v1/messages", SEND, &message.replace("\"card\"", "card")).await.0,
        400
    );
    assert_eq!(ask(address(&shop), "GET /_rf/health", HEADER, "").await.0, 401);
    world.until("billing", "SELECT count(*) FROM inbox WHERE status = 'Dead'", 1).await;
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;
    let (status, _) = ask(address(&billing), "POST /_rf/inbox/m-1/retry", WRITE, "{}").await;
    assert_eq!(status, 200);
    // They did flow.
    let request = program.until_seen(2).await.remove(0);
    assert!(String::from_utf8_lossy(&request.body).contains(PAYLOAD));
    world.until("billing", "SELECT count(*) FROM inbox WHERE status = 'Dead'", 1).await;

    let mut said = [pages(address(&shop), "m-1").await, pages(address(&billing), "m-1").await].concat();
    shop.stop().await;
    billing.stop().await;
    said.push_str(&world.log("shop"));
    said.push_str(&world.log("billing"));
    for words in
        ["\"m-1\"", "not today", "inbox.retry", "alice", "x-card", "rf_outbox_pending_count", "enqueued"]
    {
        assert!(said.contains(words), "nobody said {words}: {said}");
    }
    assert_eq!(leaks(&said, &[PAYLOAD, HEADER, WRITE, SEND, KEY]), Vec::<&str>::new());
}
