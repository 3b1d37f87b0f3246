//! Shop and billing die together.

use crate::checks::{LEASED, ORDERS, OUTBOX, RESTART, is_delivered_once, is_not_processed};
use crate::gate::Gate;
use crate::process::kill_both;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_sender_and_receiver_both_crash_simultaneously() {
    let (world, gate) = (World::new(), Gate::new().await);
    let billing = world.start_gated_billing(&gate).await;
    let mut shop = world.start_shop().await.relay().await;
    shop.place(7).await;
    // The request is on its way, and its handler in the middle of its transaction.
    let handler = gate.handler().await;
    kill_both(shop.0, billing).await;
    drop(handler);
    assert_eq!(world.shop.rows(ORDERS), ["7 placed"]);
    let left = world.shop.rows(OUTBOX);
    assert!(left == ["order-7 Pending"] || left == ["order-7 Sending"], "{left:?}");
    is_not_processed(&world);
    assert_eq!(world.runs(7), 1);

    assert_eq!(world.shop.rows(LEASED), ["1"], "the dead shop holds its lane");
    let _billing = world.start_billing().await;
    let _shop = world.start_shop().await.relay().await;
    is_delivered_once(&world, RESTART, &[7]).await;
    assert_eq!(world.runs(7), 2, "it has run again, the first time in vain");
}
