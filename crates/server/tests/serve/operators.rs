//! The API of a node that runs: sending through it, looking at it, exchanging its tokens.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::program::{DONE, Program};
use crate::world::{EVER, Node, World};

/// Serves operators and programs as well, with these tokens.
pub(crate) fn serve_operators(world: &World, config: &Path, write: &str, send: &str) {
    let file = |name: &str, text: &str| {
        let path = world.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (write, send) = (file("write-tokens", write), file("send-tokens", send));
    let admin =
        format!("listen = \"127.0.0.1:0\"\nwrite_token_file = {write:?}\nsend_token_file = {send:?}\n");
    let text = std::fs::read_to_string(config).unwrap().replacen("listen = \"\"\n", &admin, 1);
    std::fs::write(config, text).unwrap();
}

pub(crate) fn address(node: &Node) -> SocketAddr {
    node.said().split_whitespace().find_map(|word| word.strip_prefix("admin=")).unwrap().parse().unwrap()
}

/// Status and body of the answer.
pub(crate) async fn ask(to: SocketAddr, line: &str, token: &str, body: &str) -> (u16, String) {
    let request = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(EVER, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_a_node_takes_messages_and_serves_operators() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let billing = Node::start(&world.configure_billing(&program.url(), "127.0.0.1:0", &["1"])).await;
    let config = world.configure_shop(billing.listen(), &["1"]);
    serve_operators(&world, &config, "alice write-token-0123456789\n", "send-token-0123456789\n");
    let shop = Node::start(&config).await;
    let to = address(&shop);

    let message =
        r#"{"destination":"billing","endpoint":"OrderPlaced","payload":{"order": 7},"idempotencyKey":"7"}"#;
    for duplicate in ["\"duplicate\":false", "\"duplicate\":true"] {
        let (status, body) = ask(to, "POST /v1/messages", "send-token-0123456789", message).await;
        assert!(status == 200 && body.contains(duplicate), "{status} {body}");
    }
    let request = program.until_seen(1).await.remove(0);
    assert_eq!(request.body, br#"{"order": 7}"#);
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;
    let (status, body) = ask(to, "GET /_rf/outbox/stats", "write-token-0123456789", "").await;
    assert!(status == 200 && body.contains("\"sent\":1"), "{status} {body}");
    let (status, _) = ask(to, "POST /_rf/outbox/lanes/billing/pause", "write-token-0123456789", "{}").await;
    assert_eq!(status, 200);
    let (_, body) = ask(to, "GET /_rf/audit", "write-token-0123456789", "").await;
    assert!(body.contains("\"actor\":\"alice\""), "{body}");

    serve_operators(&world, &config, "bob another-token-0123456789\n", "");
    std::fs::write(world.path("send-tokens"), "send-token-0123456789\n").unwrap();
    shop.signal(Signal::HUP);
    world.until_logged("shop", "keys and tokens are reloaded", 1).await;
    assert_eq!(ask(to, "GET /_rf/health", "write-token-0123456789", "").await.0, 401);
    assert_eq!(ask(to, "GET /_rf/health", "another-token-0123456789", "").await.0, 200);
    billing.stop().await;
    shop.stop().await;
    let logs = [world.log("shop"), world.log("billing")].concat();
    assert!(!logs.contains("-token-"), "{logs}");
}

/// Nothing is acknowledged any more until it is started again, which nobody would do for a node that says it is well.
#[tokio::test(flavor = "multi_thread")]
async fn s14_rf_22_a_node_whose_store_has_stopped_is_not_ready_and_says_why() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let billing = Node::start(&world.configure_billing(&program.url(), "127.0.0.1:0", &["1"])).await;
    let config = world.configure_shop(billing.listen(), &["1"]);
    let (write, send) = ("write-token-0123456789", "send-token-0123456789");
    serve_operators(&world, &config, &format!("alice {write}\n"), &format!("{send}\n"));
    let shop = Node::start(&config).await;
    let to = address(&shop);
    assert_eq!(ask(to, "GET /readyz", write, "").await.0, 200);
    std::fs::rename(world.path("shop.db"), world.path("elsewhere.db")).unwrap();
    let message = r#"{"destination":"billing","endpoint":"OrderPlaced","payload":{"order": 7}}"#;
    assert_eq!(ask(to, "POST /v1/messages", send, message).await.0, 503);
    assert_eq!(ask(to, "GET /readyz", write, "").await.0, 503);
    let (status, body) = ask(to, "GET /_rf/health", write, "").await;
    assert!(status == 200 && body.contains("\"store_stopped\""), "{status} {body}");
    shop.kill().await;
    billing.stop().await;
}
