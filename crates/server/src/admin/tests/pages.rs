//! Lists are walked page by page, and every row is met once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::world::World;
use crate::api::Page;

async fn walk(world: &World, list: &str, limit: usize, name: &str) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), None::<String>);
    loop {
        let after = next.map_or_else(String::new, |next| format!("&next={next}"));
        let page: Page<Value> = world.read(&format!("{list}?limit={limit}{after}")).await.ok();
        assert!(page.items.len() <= limit, "{list} by {limit}: {} items", page.items.len());
        found.extend(page.items.iter().map(|item| item[name].to_string()));
        let Some(token) = page.next else { return found };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        assert!(token.chars().all(is_plain), "{token} needs no encoding in a URL");
        next = Some(token);
    }
}

#[tokio::test]
async fn rf_22_pages_walk_all_rows_exactly_once() {
    let world = World::full().await;
    for n in 0..5 {
        let path = format!("/_rf/outbox/none-{n}/retry");
        assert_eq!(world.write(&path, &serde_json::json!({})).await.status, 404);
    }
    let lists = [
        ("/_rf/outbox/messages", "messageId", 8),
        ("/_rf/outbox/failed", "messageId", 3),
        ("/_rf/inbox/messages", "messageId", 4),
        ("/_rf/inbox/failed", "messageId", 3),
        ("/_rf/audit", "subject", 5),
    ];
    for (list, name, count) in lists {
        for limit in [1, 2, 3, 7, 1000] {
            let found = walk(&world, list, limit, name).await;
            let unique: BTreeSet<&String> = found.iter().collect();
            assert_eq!((found.len(), unique.len()), (count, count), "{list} by {limit}: {found:?}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn rf_22_pages_are_bounded_and_their_tokens_checked() {
    let world = World::full().await;
    let lists = ["outbox/messages", "outbox/failed", "inbox/messages", "inbox/failed", "audit"];
    for list in lists {
        for limit in ["0", "1001", "4294967296"] {
            let reply = world.read(&format!("/_rf/{list}?limit={limit}")).await;
            reply.refused(422, "invalid");
        }
        for limit in ["-1", "x", "", "1.5", "99999999999999999999999"] {
            let reply = world.read(&format!("/_rf/{list}?limit={limit}")).await;
            reply.refused(400, "malformed");
        }
        for next in ["x", "", "..", "%00", "999999999999999999999999", "é"] {
            let reply = world.read(&format!("/_rf/{list}?next={next}")).await;
            assert!([400, 422].contains(&reply.status), "{list} {next}: {} {}", reply.status, reply.text());
        }
        world.read(&format!("/_rf/{list}?limt=1")).await.refused(400, "malformed");
        world.read(&format!("/_rf/{list}?limit=1&limit=2")).await.refused(400, "malformed");
    }
    world.stop().await;
}
