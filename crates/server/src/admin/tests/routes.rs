//! What the routes that look answer.

use serde_json::{Value, json};
use twobox_core::ports::ops::{AuditFilter, OpsStore as _};

use super::ask::Ask;
use super::world::{CANARY, READ, WRITE, World};
use crate::api::{
    Alive, BlockedInboxKey, BlockedOutboxKey, Health, HealthStatus, InboxMessages, InboxStats, Items, Lane,
    OutboxFailed, OutboxMessages, OutboxStats, Page,
};

#[tokio::test]
async fn rf_22_whether_anybody_is_there_is_open_and_says_no_more() {
    let world = World::full().await;
    for path in ["/livez", "/readyz"] {
        let reply = world.ask(Ask::get(path)).await;
        assert_eq!(reply.ok::<Alive>().status, "ok");
        assert_eq!(reply.text(), r#"{"status":"ok"}"#);
    }
    world.stop().await;
}

#[tokio::test]
async fn rf_21_figures_are_given_to_whoever_may_read() {
    let world = World::full().await;
    let reply = world.read("/metrics").await;
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    assert!(reply.text().contains("# TYPE ") && !reply.text().contains(CANARY), "{}", reply.text());
    world.stop().await;
}

#[tokio::test]
async fn rf_22_health_names_what_needs_somebody() {
    let empty = World::empty().await;
    let health: Health = empty.read("/_rf/health").await.ok();
    assert_eq!((health.status, health.source.as_str()), (HealthStatus::Healthy, "shop"));
    assert!(health.problems.is_empty());
    empty.stop().await;

    let full = World::full().await;
    full.write("/_rf/outbox/lanes/billing/pause", &json!({ "reason": "deploy" })).await;
    let health: Health = full.read("/_rf/health").await.ok();
    assert_eq!(health.status, HealthStatus::Degraded);
    let codes: Vec<&str> = health.problems.iter().map(|problem| problem.code.as_str()).collect();
    assert_eq!(codes, ["lane_paused", "outbox_dead_letters", "inbox_dead_letters"]);
    full.stop().await;
}

#[tokio::test]
async fn rf_22_both_boxes_in_numbers() {
    let world = World::full().await;
    let outbox: OutboxStats = world.read("/_rf/outbox/stats").await.ok();
    assert_eq!((outbox.enqueued, outbox.sent, outbox.failed, outbox.dead), (8, 3, 3, 3));
    assert_eq!((outbox.retrying, outbox.held, outbox.pending), (1, 1, 0));
    let inbox: InboxStats = world.read("/_rf/inbox/stats").await.ok();
    assert_eq!((inbox.total.queued, inbox.total.dead, inbox.total.rows), (1, 3, 4));
    assert_eq!(inbox.peers.len(), 1);
    assert_eq!((inbox.peers[0].source.as_str(), inbox.peers[0].consumer.as_str()), ("warehouse", "shop"));
    world.stop().await;
}

#[tokio::test]
async fn rf_22_dead_letters_say_why_they_died() {
    let world = World::full().await;
    let page: Page<OutboxFailed> = world.read("/_rf/outbox/failed").await.ok();
    let ids: Vec<&str> = page.items.iter().map(|letter| letter.message_id.as_str()).collect();
    assert_eq!(ids, ["dead-0", "dead-1", "key-head"]);
    assert!(page.items.iter().all(|letter| letter.reason == "rejected"));
    assert_eq!(page.items[0].error.as_deref(), Some("no such customer"));
    assert_eq!(page.items[2].ordering_key.as_deref(), Some("k1"));
    assert!(page.items[2].blocks_key && page.next.is_none());
    for (query, count) in [
        ("reason=rejected", 3),
        ("reason=expired", 0),
        ("endpoint=Reject&destination=billing&source=shop", 3),
        ("destination=nobody", 0),
        ("messageId=dead-1", 1),
        ("diedBefore=2020-01-01T00:00:00Z", 0),
    ] {
        let page: Page<OutboxFailed> = world.read(&format!("/_rf/outbox/failed?{query}")).await.ok();
        assert_eq!(page.items.len(), count, "{query}");
    }
    for (query, count) in [("", 3), ("?reason=rejected", 3), ("?source=shop", 0), ("?messageId=in-head", 1)] {
        let page: Page<Value> = world.read(&format!("/_rf/inbox/failed{query}")).await.ok();
        assert_eq!(page.items.len(), count, "{query}");
    }
    world.stop().await;
}

/// ADR-09: a message's life can be read attempt by attempt.
#[tokio::test]
async fn rf_22_adr_09_a_message_is_shown_attempt_by_attempt_without_its_payload() {
    let world = World::full().await;
    let found: OutboxMessages = world.read("/_rf/outbox/messages/later-0").await.ok();
    let [detail] = &found.messages[..] else { panic!("{found:?}") };
    assert_eq!((detail.message.status.as_str(), detail.message.attempts), ("Pending", 1));
    assert_eq!(detail.history.len(), 1);
    assert_eq!((detail.history[0].attempt, detail.history[0].error.as_str()), (1, "not now"));
    let trace = detail.trace.as_ref().unwrap();
    assert_eq!(trace.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(detail.headers, ["traceparent", "x-secret"]);
    let json = serde_json::to_string(CANARY).unwrap();
    assert_eq!(detail.message.payload_bytes, json.len() as u64);
    assert_eq!(detail.payload_sha256.len(), 64);
    let found: InboxMessages = world.read("/_rf/inbox/messages/in-head").await.ok();
    assert_eq!(found.messages[0].message.status, "Dead");
    assert_eq!(found.messages[0].queued.as_ref().unwrap().reason.as_deref(), Some("rejected"));
    for path in ["/_rf/outbox/messages/none", "/_rf/inbox/messages/none"] {
        world.read(path).await.refused(404, "message_not_found");
    }
    world.stop().await;
}

#[tokio::test]
async fn rf_22_lanes_and_blocked_keys_are_listed() {
    let world = World::full().await;
    let lanes: Items<Lane> = world.read("/_rf/outbox/lanes").await.ok();
    assert_eq!(lanes.items.len(), 1);
    let lane = &lanes.items[0];
    assert_eq!((lane.source.as_str(), lane.destination.as_str()), ("shop", "billing"));
    assert_eq!((lane.sent, lane.dead, lane.retrying, lane.held), (3, 3, 1, 1));
    let keys: Items<BlockedOutboxKey> = world.read("/_rf/outbox/keys").await.ok();
    assert_eq!((keys.items[0].ordering_key.as_str(), keys.items[0].waiting), ("k1", 1));
    let keys: Items<BlockedInboxKey> = world.read("/_rf/inbox/keys?limit=1").await.ok();
    assert_eq!((keys.items[0].ordering_key.as_str(), keys.items[0].waiting), ("k2", 1));
    assert_eq!((keys.items[0].message_id.as_str(), keys.more), ("in-head", false));
    world.stop().await;
}

#[tokio::test]
async fn s17_no_answer_holds_a_payload_or_a_value_of_a_header() {
    let world = World::full().await;
    let lists = [
        "/_rf/health",
        "/_rf/outbox/stats",
        "/_rf/outbox/failed",
        "/_rf/outbox/messages",
        "/_rf/outbox/messages/dead-0",
        "/_rf/outbox/messages/ok-0",
        "/_rf/outbox/lanes",
        "/_rf/outbox/keys",
        "/_rf/inbox/stats",
        "/_rf/inbox/failed",
        "/_rf/inbox/messages",
        "/_rf/inbox/messages/in-dead-0",
        "/_rf/inbox/keys",
        "/_rf/audit",
    ];
    for path in lists {
        let reply = world.read(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert!(!reply.text().contains(CANARY), "{path}: {}", reply.text());
    }
    let wrong = Ask::post("/v1/messages", &json!(CANARY)).token(super::world::SEND);
    let reply = world.ask(wrong).await;
    reply.refused(422, "invalid");
    assert!(!reply.text().contains(CANARY), "{}", reply.text());
    world.stop().await;
}

#[tokio::test]
async fn rf_22_what_looks_leaves_no_row_in_the_audit_trail() {
    let world = World::full().await;
    for path in ["/_rf/outbox/failed", "/_rf/outbox/messages", "/_rf/audit"] {
        assert_eq!(world.ask(Ask::get(path).token(WRITE)).await.status, 200);
    }
    let dry = json!({ "all": true, "dryRun": true });
    assert_eq!(world.write("/_rf/outbox/replay", &dry).await.status, 200);
    let page = world.db.audit_list(&AuditFilter::default(), None, 10).await.unwrap();
    assert!(page.items.is_empty(), "{page:?}");
    world.stop().await;
}

#[tokio::test]
async fn rf_22_head_and_get_agree_and_other_methods_are_refused() {
    let world = World::empty().await;
    let head = world.ask(Ask::new("HEAD", "/_rf/health").token(READ)).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "POST"] {
        let reply = world.ask(Ask::new(method, "/_rf/health").token(WRITE)).await;
        reply.refused(405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some("GET,HEAD"), "{method}");
    }
    world.ask(Ask::get("/_rf/outbox/replay").token(READ)).await.refused(405, "method_not_allowed");
    world.read("/_rf/nothing").await.refused(404, "not_found");
    world.ask(Ask::get("/_rf/nothing")).await.refused(401, "unauthorized");
    world.stop().await;
}
