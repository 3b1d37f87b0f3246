//! Several destinations in one relay: what is dead or slow is so alone (S15).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Receive, Transport};
use twobox_core::wire::encode_answers;
use twobox_core::{Message, Response, Result};
use twobox_engine::relay::RelayOptions;
use twobox_http::{Http, HttpServer};

use crate::fake::{Act, Fake, Seen, Vacant, say, say_signed_by};
use crate::world::{Billing, EVER, Shop, Store, destination, key, keyring, keyrings};

/// Messages to billing in one slice.
const SLICE: usize = 5_000;
/// They are enqueued in turns, so that the rows of all destinations lie among each other.
const TURNS: usize = 10;
/// Messages to each of the others: more than a lane keeps in memory.
const BACKLOG: usize = 3_000;

/// A receiver that thinks about every request for two seconds.
struct Slow;

impl Receive for Slow {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        Box::pin(async move {
            let thinking = tokio::time::timeout(Duration::from_secs(2), std::future::pending::<()>());
            assert!(thinking.await.is_err());
            Ok(vec![Answer::Done(None); messages.len()])
        })
    }
}

/// How long it takes until billing has handled a slice, with a backlog for each of the others.
async fn drained_in(others: &[(&str, Arc<dyn Transport>)]) -> Duration {
    let (handled, mut handles) = watch::channel(0);
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let billing = Billing::handling(server, move |_, _| {
        handled.send_modify(|count| *count += 1);
        Ok(Response::empty())
    })
    .await;
    let store = Store::new().await;
    for turn in 0..TURNS {
        for (name, _) in others {
            store.enqueue(name, &format!("{turn}-"), BACKLOG / TURNS).await;
        }
        store.enqueue("billing", &format!("{turn}-"), SLICE / TURNS).await;
    }
    let http: Arc<dyn Transport> = Arc::new(Http::signed(&billing.url(), keyring()).unwrap());
    let transports: Vec<_> = others.iter().cloned().chain([("billing", http)]).collect();
    let begun = Instant::now();
    let shop = Shop::with(store, &transports, RelayOptions::default());
    let all = handles.wait_for(|count| *count >= SLICE);
    tokio::time::timeout(EVER, all).await.expect("all are handled").unwrap();
    let lasted = begun.elapsed();
    shop.until_sent("billing", SLICE as u64).await;
    for (name, _) in others {
        assert!(
            shop.lane(name).await.unwrap().sent < BACKLOG as u64,
            "{name} had nothing left to delay others"
        );
    }
    shop.stop().await;
    assert_eq!(billing.effects().await, i64::try_from(SLICE).unwrap());
    billing.stop().await;
    lasted
}

/// The rate among others, as a part of the rate alone. Slices take turns, so that both meet the same machine, and
/// the quickest of each counts, because what else the machine does only ever makes them slower.
async fn part_of_rate(others: &[(&str, Arc<dyn Transport>)]) -> f64 {
    let (mut alone, mut among) = (Duration::MAX, Duration::MAX);
    for _ in 0..2 {
        alone = alone.min(drained_in(&[]).await);
        among = among.min(drained_in(others).await);
    }
    alone.as_secs_f64() / among.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_dead_and_a_slow_destination_leave_a_fast_one_four_fifths_of_its_rate() {
    let dead = Vacant::new();
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let server = server.also_known_as(destination("slow"));
    let slow = Billing::serving(&server, Store::new().await, Arc::new(Slow));
    let transport = |url: &str| Arc::new(Http::signed(url, keyring()).unwrap()) as Arc<dyn Transport>;
    let others = [("dead", transport(&dead.url())), ("slow", transport(&slow.url()))];
    let mut parts = Vec::new();
    while parts.len() < 3 && parts.iter().all(|part| *part < 0.8) {
        parts.push(part_of_rate(&others).await);
    }
    assert!(parts.iter().any(|part| *part >= 0.8), "{parts:?}");
    slow.stop().await;
}

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

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_dead_destination_with_a_backlog_does_not_hide_new_ones() {
    let (dead, fake) = (Vacant::new(), by_path(watch::channel(true).1).await);
    let to_dead: Arc<dyn Transport> = Arc::new(Http::signed(&dead.url(), keyring()).unwrap());
    let shop = Shop::by_default(Store::new().await, &[("dead", to_dead)], to_each(&fake));
    shop.enqueue("dead", "d", 2 * BACKLOG).await;
    shop.until_held("dead").await;
    shop.enqueue("billing", "b", 10).await;
    shop.until_sent("billing", 10).await;
    shop.stop().await;
}
