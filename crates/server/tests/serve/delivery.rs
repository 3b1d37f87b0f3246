//! From an insert in plain SQL to the user's program.

use std::process::Command;

use crate::program::{DONE, Down, Program};
use crate::world::World;

/// What any program can do with nothing but SQLite.
const PYTHON: &str = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30)
with connection:
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute("INSERT INTO orders VALUES (7)")
    connection.execute(
        "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload, correlation_id, headers) "
        "VALUES ('order-7', 'shop', 'billing', 'OrderPlaced', '{\"order\": 7}', 'cart-1', ?)",
        ['{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "a"}'],
    )
"#;

#[tokio::test(flavor = "multi_thread")]
async fn rf_06_what_another_program_inserts_reaches_the_program_at_the_other_end() {
    let program =
        Program::start(|_, _| Some(("201 Created", &[("content-type", "text/plain")], "invoice 7"))).await;
    let world = World::new();
    let (shop, billing) = world.start(&program.url()).await;
    let status = Command::new("python3").args(["-c", PYTHON]).arg(world.path("shop.db")).status().unwrap();
    assert!(status.success());

    let request = program.until_seen(1).await.remove(0);
    assert_eq!(request.line(), "POST /in/OrderPlaced HTTP/1.1");
    assert_eq!(request.body, br#"{"order": 7}"#);
    let expected = [
        ("content-type", "application/json"),
        ("idempotency-key", "order-7"),
        ("twobox-source", "shop"),
        ("twobox-endpoint", "OrderPlaced"),
        ("twobox-message-type", "Signal"),
        ("twobox-attempt", "1"),
        ("twobox-correlation-id", "cart-1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("twobox-header-tenant", "a"),
    ];
    for (name, value) in expected {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 1).await;
    let kept: Vec<u8> =
        world.read("billing", "SELECT CAST(response_payload AS BLOB) FROM inbox_messages").unwrap();
    assert_eq!(kept, b"invoice 7");
    billing.stop().await;
    shop.stop().await;
    assert_eq!(program.seen().len(), 1);
    let logs = [world.log("shop"), world.log("billing")].concat();
    assert!(!logs.contains("invoice 7") && !logs.contains("\"order\""), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_down_gets_everything_when_it_is_back() {
    let down = Down::new();
    let world = World::new();
    let (_shop, _billing) = world.start(&down.url()).await;
    world.enqueue((0..5).map(|n| format!("m{n}")));
    world.until("billing", "SELECT count(*) FROM inbox_work WHERE attempt >= 2", 5).await;
    // The sender does not wait for the program.
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 5).await;
    let error: String = world.read("billing", "SELECT last_error FROM inbox_work").unwrap();
    assert!(error.starts_with("cannot connect"), "{error}");

    let program = down.up();
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 5).await;
    let attempts: Vec<u32> =
        program.seen().iter().map(|seen| seen.header("twobox-attempt").unwrap().parse().unwrap()).collect();
    assert!(attempts.iter().all(|attempt| *attempt >= 3), "{attempts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_trouble_is_tried_again_and_a_refusal_is_a_dead_letter_with_its_reason() {
    let program = Program::start(|request, _| match (&*request.id(), request.header("twobox-attempt")) {
        ("bad", _) => Some(("422 Unprocessable Content", &[("twobox-reason", "no such customer")], "canary")),
        ("moved", _) => Some(("302 Found", &[("location", "http://127.0.0.1:1/")], "")),
        ("busy", Some("1")) => Some(("429 Too Many Requests", &[("retry-after", "86400")], "")),
        ("busy", Some("2")) => Some(("500 Internal Server Error", &[], "")),
        _ => DONE,
    })
    .await;
    let world = World::new();
    let (_shop, billing) = world.start(&program.url()).await;
    world.enqueue(["bad", "busy", "good"].map(Into::into));
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 2).await;
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Dead'", 1).await;
    let seen = |id: &str| program.seen().iter().filter(|seen| seen.id() == id).count();
    assert_eq!((seen("bad"), seen("busy"), seen("good")), (1, 3, 1));
    let error: String =
        world.read("billing", "SELECT last_error FROM inbox_work WHERE status = 'Dead'").unwrap();
    assert_eq!(error, "the handler answered 422: no such customer");

    world.enqueue(["moved".into()]);
    world.until("billing", "SELECT count(*) FROM inbox_work WHERE attempt >= 2", 1).await;
    let error: String =
        world.read("billing", "SELECT last_error FROM inbox_work WHERE message_id = 'moved'").unwrap();
    assert!(error.starts_with("the handler answered 302: redirects are not followed"), "{error}");
    billing.stop().await;
    assert!(!world.log("billing").contains("canary"));
}
