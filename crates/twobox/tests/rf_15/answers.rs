//! Billing has done its work, and shop does not hear of it.

use twobox_testkit::eventually;

use crate::checks::{INBOX, RESTART, is_delivered_once, is_not_acknowledged, is_not_processed, is_processed};
use crate::gate::Gate;
use crate::network::Weather;
use crate::process::EVER;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_receiver_processes_and_inbox_write_succeeds_ack_lost() {
    #[cfg(feature = "crash-points")]
    billing_dies_between_commit_and_answer().await;
    answer_is_lost_on_its_way().await;
}

#[cfg(feature = "crash-points")]
async fn billing_dies_between_commit_and_answer() {
    let world = World::new();
    let billing = world.start_dying_billing("http.before-answer").await;
    let mut shop = world.start_shop().await.relay().await;
    shop.place(7).await;
    billing.dies().await;
    let response = is_processed(&world);
    is_not_acknowledged(&world, "the connection broke").await;
    let _billing = world.start_billing().await;
    duplicate_gets(&world, &response).await;
}

async fn answer_is_lost_on_its_way() {
    let world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_shop().await.relay().await;
    world.network.set(Weather::LoseAnswers);
    shop.place(7).await;
    world.network.damaged().await;
    let response = is_processed(&world);
    is_not_acknowledged(&world, "the connection broke").await;
    world.network.set(Weather::Fair);
    duplicate_gets(&world, &response).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_receiver_processes_sender_retries_due_to_timeout() {
    answer_comes_too_late().await;
    handler_takes_too_long().await;
}

async fn answer_comes_too_late() {
    let world = World::new();
    let _billing = world.start_billing().await;
    let mut shop = world.start_hasty_shop().await.relay().await;
    world.network.set(Weather::HoldAnswers);
    shop.place(7).await;
    world.network.damaged().await;
    // What was damaged may be the answer to a probe, which does not wait for the disk.
    world.billing.becomes(EVER, INBOX, &["order-7 Done"]).await;
    let response = is_processed(&world);
    is_not_acknowledged(&world, "no answer within 1s").await;
    world.network.set(Weather::Fair);
    duplicate_gets(&world, &response).await;
}

/// Shop tries again while the handler is running; that does not start a second one.
async fn handler_takes_too_long() {
    let (world, gate) = (World::new(), Gate::new().await);
    let _billing = world.start_gated_billing(&gate).await;
    let mut shop = world.start_hasty_shop().await.relay().await;
    shop.place(7).await;
    let handler = gate.handler().await;
    let again = async || world.events().contains(&"order-7 in progress".into()).then_some(());
    eventually("shop tries again", EVER, again).await;
    is_not_processed(&world);
    drop(handler);
    is_delivered_once(&world, RESTART, &[7]).await;
    duplicate_gets(&world, &is_processed(&world)).await;
}

/// The sender tries again and gets the stored response, which names the process that has handled the message. The
/// handler does not run again.
async fn duplicate_gets(world: &World, response: &str) {
    is_delivered_once(world, RESTART, &[7]).await;
    assert_eq!(world.runs(7), 1);
    assert_eq!(is_processed(world), response);
    let events = world.events();
    assert_eq!(events.last(), Some(&format!("order-7 duplicate {response}")), "{events:?}");
}
