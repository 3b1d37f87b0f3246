//! What has to be true on both sides, in SQL.

use std::time::Duration;

use crate::process::EVER;
use crate::world::World;

/// After a restart everything is through within this time.
pub(crate) const RESTART: Duration = Duration::from_secs(10);

pub(crate) const ORDERS: &str = "SELECT id, state FROM orders ORDER BY id";
pub(crate) const OUTBOX: &str = "SELECT message_id, status FROM outbox_messages ORDER BY seq";
pub(crate) const INVOICES: &str = "SELECT order_id FROM invoices ORDER BY order_id";
pub(crate) const INBOX: &str =
    "SELECT message_id, status FROM inbox_messages ORDER BY length(message_id), message_id";
/// Why the lane is held, if it is, and will be tried again.
pub(crate) const HELD: &str = "SELECT held_error FROM outbox_lanes WHERE next_probe_at > held_since";
/// Whether somebody holds the lane for longer than a restart may take.
pub(crate) const LEASED: &str = "SELECT (lease_until / 1e6) > unixepoch('subsec') + 10 FROM outbox_lanes";

/// No rows.
pub(crate) const NONE: [&str; 0] = [];

/// Waits until everything is through, then looks at both sides: nothing is lost, every effect is there once.
pub(crate) async fn is_delivered_once(world: &World, limit: Duration, orders: &[i64]) {
    let each = |of: &dyn Fn(&i64) -> String| orders.iter().map(of).collect::<Vec<String>>();
    let sent = each(&|order| format!("order-{order} Sent"));
    let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    world.shop.becomes(limit, OUTBOX, &sent).await;
    assert_eq!(world.shop.rows(ORDERS), each(&|order| format!("{order} placed")));
    assert_eq!(world.billing.rows(INVOICES), each(&i64::to_string));
    assert_eq!(world.billing.rows(INBOX), each(&|order| format!("order-{order} Done")));
    for database in [&world.shop, &world.billing] {
        assert_eq!(database.rows("PRAGMA integrity_check"), ["ok"], "{}", database.0.display());
    }
}

/// Neither the effect nor the inbox row is there.
pub(crate) fn is_not_processed(world: &World) {
    assert_eq!(world.billing.rows(INVOICES), NONE);
    assert_eq!(world.billing.rows(INBOX), NONE);
}

/// The sender has no answer. It keeps the message and will try again; the outage is charged to the lane.
pub(crate) async fn is_not_acknowledged(world: &World, why: &str) {
    world.shop.shows(HELD, why).await;
    world.shop.becomes(EVER, OUTBOX, &["order-7 Pending"]).await;
}

/// The effect and the inbox row are there. Returns the stored response.
pub(crate) fn is_processed(world: &World) -> String {
    assert_eq!(world.billing.rows(INVOICES), ["7"]);
    assert_eq!(world.billing.rows(INBOX), ["order-7 Done"]);
    let response = world.billing.rows("SELECT response_payload FROM inbox_messages");
    response.into_iter().next().unwrap()
}
