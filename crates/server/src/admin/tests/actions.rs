//! What the routes that change something do, and what they leave in the audit trail.

use serde_json::{Value, json};

use super::ask::Ask;
use super::world::{READ, WRITE, World};
use crate::api::{
    AuditRow, BulkAnswer, Items, Lane, OutboxFailed, OutboxStats, Page, PauseAnswer, ReleaseAnswer,
    RetryAnswer,
};

async fn dead(world: &World, of: &str) -> Vec<String> {
    let page: Page<Value> = world.read(&format!("/_rf/{of}/failed?limit=1000")).await.ok();
    page.items.iter().map(|letter| letter["messageId"].as_str().unwrap().to_owned()).collect()
}

async fn audit(world: &World, query: &str) -> Vec<AuditRow> {
    world.read(&format!("/_rf/audit{query}")).await.ok::<Page<AuditRow>>().items
}

#[tokio::test]
async fn rf_22_rf_05_one_dead_letter_is_tried_again() {
    let world = World::full().await;
    let done: RetryAnswer = world.ask(Ask::new("POST", "/_rf/outbox/dead-0/retry").token(WRITE)).await.ok();
    assert_eq!(done.replayed, 1);
    assert_eq!(dead(&world, "outbox").await, ["dead-1", "key-head"]);
    world.write("/_rf/outbox/dead-0/retry", &json!({})).await.refused(409, "not_dead");
    world.write("/_rf/outbox/ok-0/retry", &json!({})).await.refused(409, "not_dead");
    world.write("/_rf/outbox/none/retry", &json!({})).await.refused(404, "message_not_found");
    let done: RetryAnswer = world.write("/_rf/outbox/dead-1/retry", &json!({ "mode": "newId" })).await.ok();
    assert_eq!(done.replayed, 1);

    let done: RetryAnswer = world.ask(Ask::new("POST", "/_rf/inbox/in-dead-0/retry").token(WRITE)).await.ok();
    assert_eq!(done.replayed, 1);
    assert_eq!(dead(&world, "inbox").await, ["in-dead-1", "in-head"]);
    world.write("/_rf/inbox/none/retry", &json!({})).await.refused(404, "message_not_found");
    let rows = audit(&world, "?action=outbox.retry&subject=dead-0").await;
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].outcome.as_str(), rows[1].outcome.as_str()), ("refused", "done"));
    assert_eq!(rows[1].actor, "operator");
    assert_eq!(rows[1].result, Some(json!({ "replayed": 1 })));
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_message_whose_id_is_no_plain_word_is_found_in_the_path() {
    let world = World::empty().await;
    world.enqueue("a/b %?#é", "Reject", 1).await;
    let reply = world.read("/_rf/outbox/messages/a%2Fb%20%25%3F%23%C3%A9-0").await;
    assert_eq!(reply.json()["messages"][0]["message"]["messageId"], "a/b %?#é-0");
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_dry_run_counts_and_changes_nothing() {
    let world = World::full().await;
    for (route, count) in [("outbox/replay", 3), ("outbox/purge", 3), ("inbox/replay", 3), ("inbox/purge", 3)]
    {
        let body = json!({ "all": true, "dryRun": true });
        let answer: BulkAnswer = world.write(&format!("/_rf/{route}"), &body).await.ok();
        let matched = answer.matched.unwrap();
        assert_eq!((matched.value, matched.at_least, answer.done, answer.dry_run), (count, false, 0, true));
        let body = json!({ "filter": { "messageId": "dead-1" }, "dryRun": true });
        let answer: BulkAnswer = world.write(&format!("/_rf/{route}"), &body).await.ok();
        assert_eq!(answer.matched.unwrap().value, u64::from(route.starts_with("outbox")));
    }
    assert_eq!(dead(&world, "outbox").await.len() + dead(&world, "inbox").await.len(), 6);
    world.stop().await;
}

#[tokio::test]
async fn rf_22_nobody_means_all_by_accident() {
    let world = World::full().await;
    for route in ["outbox/replay", "outbox/purge", "inbox/replay", "inbox/purge"] {
        let path = format!("/_rf/{route}");
        world.write(&path, &json!({})).await.refused(422, "invalid");
        world.ask(Ask::new("POST", &path).token(WRITE)).await.refused(422, "invalid");
        let both = json!({ "all": true, "filter": { "messageId": "dead-0" } });
        world.write(&path, &both).await.refused(422, "invalid");
    }
    assert_eq!(dead(&world, "outbox").await.len() + dead(&world, "inbox").await.len(), 6);
    world.stop().await;
}

#[tokio::test]
async fn rf_22_dead_letters_are_replayed_and_purged_batch_by_batch() {
    let world = World::full().await;
    let all = json!({ "all": true, "limit": 2, "perSecond": 10_000 });
    let one = |id: &str| json!({ "filter": { "messageId": id, "endpoint": null }, "perSecond": 10_000 });
    assert_eq!(patiently(&world, "/_rf/outbox/purge", one("dead-0")).await, [1]);
    world.read("/_rf/outbox/messages/dead-0").await.refused(404, "message_not_found");
    assert_eq!(patiently(&world, "/_rf/outbox/replay", all.clone()).await.iter().sum::<u64>(), 2);
    assert!(dead(&world, "outbox").await.is_empty());
    assert_eq!(patiently(&world, "/_rf/inbox/purge", one("in-dead-0")).await, [1]);
    assert_eq!(patiently(&world, "/_rf/inbox/replay", all).await.iter().sum::<u64>(), 2);
    assert!(dead(&world, "inbox").await.is_empty());
    let rows = audit(&world, "?action=outbox.replay").await;
    assert!(rows.iter().all(|row| row.actor == "operator" && row.outcome != "begun"), "{rows:?}");
    assert_eq!(rows[0].detail["limit"], 2);
    world.stop().await;
}

/// Calls again and again until nothing is left, as a client does. Returns what each call did.
async fn patiently(world: &World, route: &str, mut body: Value) -> Vec<u64> {
    let mut done = Vec::new();
    loop {
        let reply = world.write(route, &body).await;
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
            continue; // the pace of these tests is a millisecond
        }
        let answer: BulkAnswer = reply.ok();
        done.push(answer.done);
        let Some(next) = answer.next else { return done };
        body["next"] = next.into();
    }
}

#[tokio::test]
async fn rf_22_a_replay_keeps_its_pace_over_all_callers() {
    let world = World::full().await;
    let body = json!({ "all": true, "limit": 1, "perSecond": 1 });
    let answer: BulkAnswer = world.write("/_rf/outbox/replay", &body).await.ok();
    assert_eq!((answer.done, answer.wait_ms), (1, 1000));
    let reply = world.write("/_rf/outbox/replay", &body).await;
    reply.refused(429, "too_fast");
    assert_eq!(reply.header("retry-after"), Some("1"));
    world.write("/_rf/outbox/purge", &body).await.refused(429, "too_fast");
    // The other box has a pace of its own.
    assert_eq!(world.write("/_rf/inbox/replay", &body).await.ok::<BulkAnswer>().done, 1);
    let rows = audit(&world, "?action=outbox.purge").await;
    assert_eq!((rows.len(), rows[0].outcome.as_str()), (1, "refused"));
    world.stop().await;
}

#[tokio::test]
async fn rf_22_what_dies_after_the_first_call_is_left_alone() {
    let world = World::full().await;
    let body = json!({ "all": true, "limit": 2, "perSecond": 10_000 });
    let answer: BulkAnswer = world.write("/_rf/outbox/purge", &body).await.ok();
    let next = answer.next.unwrap();
    let running = world.start();
    world.enqueue("young", "Reject", 5).await;
    twobox_testkit::eventually("five more are dead", super::ask::EVER, async || {
        (dead(&world, "outbox").await.len() == 6).then_some(())
    })
    .await;
    running.shutdown().await;
    let mut body = body;
    body["next"] = next.into();
    let done = patiently(&world, "/_rf/outbox/purge", body).await;
    assert_eq!(done.iter().sum::<u64>(), 1);
    assert_eq!(dead(&world, "outbox").await.len(), 5);
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_destination_is_paused_and_resumed() {
    let world = World::full().await;
    let pause = json!({ "reason": "deploy" });
    let answer: PauseAnswer = world.write("/_rf/outbox/lanes/billing/pause", &pause).await.ok();
    assert_eq!((answer.paused, answer.changed), (true, true));
    let again: PauseAnswer =
        world.ask(Ask::new("POST", "/_rf/outbox/lanes/billing/pause").token(WRITE)).await.ok();
    assert!(!again.changed);
    let lanes: Items<Lane> = world.read("/_rf/outbox/lanes").await.ok();
    assert_eq!(lanes.items[0].paused_by.as_deref(), Some("operator"));
    assert_eq!(lanes.items[0].pause_reason.as_deref(), Some("deploy"));
    let answer: PauseAnswer = world.write("/_rf/outbox/lanes/billing/resume", &json!({})).await.ok();
    assert_eq!((answer.paused, answer.changed), (false, true));
    for verb in ["pause", "resume"] {
        let path = format!("/_rf/outbox/lanes/nobody/{verb}");
        world.write(&path, &json!({})).await.refused(404, "lane_not_found");
    }
    let long = json!({ "reason": "x".repeat(501) });
    world.write("/_rf/outbox/lanes/billing/pause", &long).await.refused(422, "invalid");
    let rows = audit(&world, "?subject=billing").await;
    let actions: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.action, &*row.outcome)).collect();
    assert_eq!(
        actions,
        [("lane.pause", "refused"), ("lane.resume", "done"), ("lane.pause", "done"), ("lane.pause", "done")]
    );
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_blocked_key_is_released() {
    let world = World::full().await;
    let outbox = json!({ "destination": "billing", "orderingKey": "k1" });
    assert!(world.write("/_rf/outbox/keys/release", &outbox).await.ok::<ReleaseAnswer>().released);
    world.write("/_rf/outbox/keys/release", &outbox).await.refused(404, "key_not_blocked");
    let inbox = json!({ "source": "warehouse", "orderingKey": "k2" });
    assert!(world.write("/_rf/inbox/keys/release", &inbox).await.ok::<ReleaseAnswer>().released);
    world.write("/_rf/inbox/keys/release", &inbox).await.refused(404, "key_not_blocked");
    for of in ["outbox", "inbox"] {
        assert_eq!(world.read(&format!("/_rf/{of}/keys")).await.json()["items"], json!([]));
    }
    let running = world.start();
    twobox_testkit::eventually("what waited is sent", super::ask::EVER, async || {
        let stats: OutboxStats = world.read("/_rf/outbox/stats").await.ok();
        (stats.sent == 4).then_some(())
    })
    .await;
    running.shutdown().await;
    // The dead letter itself stays.
    let page: Page<OutboxFailed> = world.read("/_rf/outbox/failed?messageId=key-head").await.ok();
    assert_eq!(page.items.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn rf_22_every_action_leaves_a_row_and_nothing_is_done_without() {
    let world = World::full().await;
    let all = json!({ "all": true, "perSecond": 10_000 });
    let actions = [
        ("/_rf/outbox/dead-0/retry", json!({}), "outbox.retry"),
        ("/_rf/inbox/in-dead-0/retry", json!({}), "inbox.retry"),
        ("/_rf/outbox/replay", all.clone(), "outbox.replay"),
        ("/_rf/inbox/replay", all, "inbox.replay"),
        ("/_rf/outbox/purge", json!({ "filter": { "messageId": "x" } }), "outbox.purge"),
        ("/_rf/inbox/purge", json!({ "filter": { "messageId": "x" } }), "inbox.purge"),
        ("/_rf/outbox/lanes/billing/pause", json!({}), "lane.pause"),
        ("/_rf/outbox/lanes/billing/resume", json!({}), "lane.resume"),
        (
            "/_rf/outbox/keys/release",
            json!({ "destination": "billing", "orderingKey": "x" }),
            "outbox.release",
        ),
        ("/_rf/inbox/keys/release", json!({ "source": "a", "orderingKey": "x" }), "inbox.release"),
    ];
    for (path, body, action) in &actions {
        let reply = world.write(path, body).await;
        assert!([200, 404, 429].contains(&reply.status), "{path}: {}", reply.text());
        let rows = audit(&world, &format!("?action={action}")).await;
        assert_eq!(rows.len(), 1, "{action}");
        assert_eq!(rows[0].outcome == "done", reply.status == 200, "{action}: {:?}", rows[0]);
    }
    let refused = world.ask(Ask::post("/_rf/outbox/replay", &json!({ "all": true })).token(READ)).await;
    refused.refused(403, "scope_missing");
    assert_eq!(audit(&world, "").await.len(), actions.len());
    // Without its row, an action does not happen.
    let sql = "CREATE TRIGGER no_audit BEFORE INSERT ON twobox_audit BEGIN SELECT RAISE(ABORT, 'full'); END";
    world.db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(sql, [])).await.unwrap();
    let reply = world.write("/_rf/outbox/lanes/billing/pause", &json!({})).await;
    reply.refused(500, "internal");
    let lanes: Items<Lane> = world.read("/_rf/outbox/lanes").await.ok();
    assert_eq!(lanes.items[0].paused_by, None);
    world.stop().await;
}
