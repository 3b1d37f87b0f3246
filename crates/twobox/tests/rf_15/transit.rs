//! The network fails, for a while or for too long.

use crate::checks::{
    HELD, INBOX, INVOICES, ORDERS, OUTBOX, RESTART, is_delivered_once, is_not_acknowledged, is_not_processed,
};
use crate::network::Weather;
use crate::process::EVER;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_network_failure_during_send() {
    let mut world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_shop().await.relay().await;
    // Half of the request gets through, then nothing does.
    world.network.set(Weather::CutRequests);
    shop.place(7).await;
    world.network.damaged().await;
    is_not_acknowledged(&world, "the connection broke").await;
    world.network.refuse().await;
    is_not_acknowledged(&world, "cannot connect").await;
    is_not_processed(&world);

    world.network.set(Weather::Fair);
    world.network.accept();
    is_delivered_once(&world, RESTART, &[7]).await;
    assert_eq!(world.runs(7), 1);
    let lane = "SELECT held_since, held_error, next_probe_at, sent FROM outbox_lanes";
    world.shop.becomes(EVER, lane, &["NULL NULL NULL 1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_message_expires_before_delivery() {
    let mut world = World::new();
    let _billing = world.start_billing().await;
    world.network.refuse().await;
    let mut shop = world.start_shop().await.relay().await;
    shop.place_for(7, 300).await;
    shop.place(8).await;
    world.shop.becomes(EVER, OUTBOX, &["order-7 Expired", "order-8 Pending"]).await;
    // The application is told, and takes the order back.
    world.shop.becomes(EVER, ORDERS, &["7 cancelled: expired", "8 placed"]).await;
    world.shop.shows(HELD, "cannot connect").await;

    world.network.accept();
    world.shop.becomes(RESTART, OUTBOX, &["order-7 Expired", "order-8 Sent"]).await;
    assert_eq!(world.billing.rows(INVOICES), ["8"], "what has expired is not delivered any more");
    assert_eq!(world.billing.rows(INBOX), ["order-8 Done"]);
    assert_eq!((world.runs(7), world.runs(8)), (0, 1));
    assert_eq!(world.shop.rows("SELECT expired, sent, failed FROM outbox_lanes"), ["1 1 0"]);
}
