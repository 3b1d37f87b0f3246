//! Shop dies.

use crate::checks::{LEASED, NONE, ORDERS, OUTBOX, RESTART, is_delivered_once, is_not_processed};
use crate::world::World;

/// The commit of the business transaction. Before it come those of the migration and of the orders' table.
const BEFORE_COMMIT: &str = "writer.before-commit:3";
const AFTER_COMMIT: &str = "writer.after-commit:3";

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_sender_crashes_before_outbox_write() {
    let world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_dying_shop(BEFORE_COMMIT).await;
    // The order and its message are written, and then it dies: neither must be there.
    shop.write(7).await;
    shop.0.dies().await;
    assert_eq!(world.shop.rows(ORDERS), NONE);
    assert_eq!(world.shop.rows(OUTBOX), NONE);

    // The operation never happened, so it can be repeated: a second order of the same number would be refused.
    let mut shop = world.start_shop().await.relay().await;
    shop.place(7).await;
    is_delivered_once(&world, RESTART, &[7]).await;
    assert_eq!(world.runs(7), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_sender_crashes_after_outbox_write_before_send() {
    // Before anybody could learn that it was written.
    let world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_dying_shop(AFTER_COMMIT).await;
    shop.write(7).await;
    shop.0.dies().await;
    assert_eq!(world.shop.rows(OUTBOX), ["order-7 Pending"]);
    restarted_shop_delivers(&world).await;

    // When the relay was about to send it. Whether that is shown already is a race between two of its tasks.
    let world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_dying_shop("relay.before-send:1").await;
    shop.place(7).await;
    shop.relay().await.0.dies().await;
    let left = world.shop.rows(OUTBOX);
    assert!(left == ["order-7 Pending"] || left == ["order-7 Sending"], "{left:?}");
    assert_eq!(world.shop.rows(LEASED), ["1"], "the dead shop holds its lane");
    restarted_shop_delivers(&world).await;
}

async fn restarted_shop_delivers(world: &World) {
    assert_eq!(world.shop.rows(ORDERS), ["7 placed"]);
    is_not_processed(world);
    let _shop = world.start_shop().await.relay().await;
    is_delivered_once(world, RESTART, &[7]).await;
    assert_eq!(world.runs(7), 1);
}
