//! Several destinations in one relay: what is dead or slow is so alone (S15). What that costs the others is
//! measured in the binary `fairness`.

use std::sync::Arc;

use tokio::sync::watch;
use twobox_core::ports::{Answer, Transport};
use twobox_core::wire::encode_answers;
use twobox_http::{ClientLimits, Http};
use twobox_testkit::Silent;

use crate::fake::{Act, Fake, Seen, Vacant, say, say_signed_by};
use crate::world::{EVER, Shop, Store, key, keyring};

/// More messages than a lane keeps in memory.
const BACKLOG: usize = 6_000;

/// A receiver of everything under the path of its destination, which the test can switch off for one of them.
async fn by_path(open: watch::Receiver<bool>) -> Fake {
    Fake::new(move |seen: &Seen| {
        let name = if seen.head.starts_with("POST /crm/") { "crm" } else { "billing" };
        if name == "crm" && !*open.borrow() {
            return Act::Say(say("502 Bad Gateway", &[("content-type", "text/html")], b"<html/>"));
        }
        let (ids, done) = (seen.ids(), Answer::Done(None));
        let body = encode_answers(ids.iter().zip(std::iter::repeat(&done)));
        Act::Say(say_signed_by(name, &key("shop-1", 1), seen, &body))
    })
    .await
}

fn to_each(fake: &Fake) -> Arc<dyn Transport> {
    Arc::new(Http::signed(&format!("{}/{{destination}}", fake.url()), keyring()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_destinations_behind_one_transport_have_breakers_of_their_own() {
    let (open, opened) = watch::channel(false);
    let fake = by_path(opened).await;
    let (to_billing, to_crm) = (("billing", to_each(&fake)), ("crm", to_each(&fake)));
    let shop = Shop::start(&[to_billing, to_crm]).await;
    shop.enqueue("crm", "c", 50).await;
    assert!(shop.until_held("crm").await.contains("502"));
    for (n, sent) in [100, 200, 300].into_iter().enumerate() {
        shop.enqueue("billing", &format!("b{n}-"), 100).await;
        shop.until_sent("billing", sent).await;
    }
    let (billing, crm) = (shop.lane("billing").await.unwrap(), shop.lane("crm").await.unwrap());
    assert_eq!((billing.held_since, billing.held_error), (None, None));
    assert!(crm.held_since.is_some());
    assert_eq!(crm.sent, 0);
    open.send_replace(true);
    shop.until_sent("crm", 50).await;
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_14_a_default_transport_is_enough() {
    let fake = by_path(watch::channel(true).1).await;
    let shop = Shop::by_default(Store::new().await, &[], to_each(&fake));
    for (n, name) in ["billing", "crm", "billing"].into_iter().enumerate() {
        shop.enqueue(name, &format!("m{n}-"), 10).await;
        shop.until_sent(name, if n == 2 { 20 } else { 10 }).await;
    }
    shop.stop().await;
}

/// Nobody is there to refuse: an attempt lasts as long as a request may.
#[tokio::test(flavor = "multi_thread")]
async fn s15_a_destination_that_swallows_connections_keeps_no_other_one_waiting() {
    let (silent, fake) = (Silent::new().await.unwrap(), by_path(watch::channel(true).1).await);
    let limits = ClientLimits { connect_timeout: EVER, answer_timeout: EVER, ..ClientLimits::default() };
    let to_silent = Http::signed(&format!("http://{}", silent.address()), keyring()).unwrap().limits(limits);
    let shop = Shop::start(&[("silent", Arc::new(to_silent)), ("billing", to_each(&fake))]).await;
    shop.enqueue("silent", "s", BACKLOG).await;
    shop.enqueue("billing", "a", 100).await;
    shop.until_sent("billing", 100).await;
    let lane = shop.lane("silent").await.unwrap();
    assert_eq!((lane.sent, lane.held_error), (0, None), "its first attempt is still under way");
    assert!(shop.until_held("silent").await.contains("no answer within 10s"));
    shop.enqueue("billing", "b", 100).await;
    shop.until_sent("billing", 200).await;
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_dead_destination_with_a_backlog_does_not_hide_new_ones() {
    let (dead, fake) = (Vacant::new(), by_path(watch::channel(true).1).await);
    let to_dead: Arc<dyn Transport> = Arc::new(Http::signed(&dead.url(), keyring()).unwrap());
    let shop = Shop::by_default(Store::new().await, &[("dead", to_dead)], to_each(&fake));
    shop.enqueue("dead", "d", BACKLOG).await;
    shop.until_held("dead").await;
    shop.enqueue("billing", "b", 10).await;
    shop.until_sent("billing", 10).await;
    shop.stop().await;
}
