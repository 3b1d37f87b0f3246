//! Billing dies.

use crate::checks::{RESTART, is_delivered_once, is_not_acknowledged, is_not_processed};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_receiver_crashes_before_processing() {
    let world = World::new();
    let billing = world.start_dying_billing("inbox.claimed:1").await;
    let mut shop = world.start_shop().await.relay().await;
    shop.place(7).await;
    billing.dies().await;
    assert_eq!(world.runs(7), 0, "the handler has not begun");
    restarted_billing_processes(&world).await;
    assert_eq!(world.runs(7), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_receiver_crashes_after_processing_before_inbox_write() {
    // Before the inbox row gets its response, and when it has it but nothing is committed.
    for point in ["inbox.handled:1", "inbox.before-commit:1"] {
        let world = World::new();
        let billing = world.start_dying_billing(point).await;
        let mut shop = world.start_shop().await.relay().await;
        shop.place(7).await;
        billing.dies().await;
        assert_eq!(world.runs(7), 1, "{point}: the handler has run");
        restarted_billing_processes(&world).await;
        assert_eq!(world.runs(7), 2, "{point}: it has run again, the first time in vain");
    }
}

/// Nothing of the first attempt is there; the sender got no answer and tries again.
async fn restarted_billing_processes(world: &World) {
    is_not_processed(world);
    is_not_acknowledged(world, "the connection broke").await;
    let _billing = world.start_billing().await;
    is_delivered_once(world, RESTART, &[7]).await;
    let events = world.events();
    assert!(!events.iter().any(|event| event.contains("duplicate")), "{events:?}");
}
