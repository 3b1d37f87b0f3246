//! What a destination is left with among others that are dead or slow (S15). Rates are compared, so this is a binary of
//! its own: tests beside it would take their share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../http/fake.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod fake;
#[path = "../http/world.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod world;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Link, Receive, Transport};
use twobox_core::{Message, Response, Result};
use twobox_engine::relay::RelayOptions;
use twobox_http::{Http, HttpServer};

use crate::fake::Vacant;
use crate::world::{Billing, EVER, Shop, Store, destination, keyring, keyrings};

/// Messages to billing in one slice.
const SLICE: usize = 10_000;
/// They are enqueued in turns, so that the rows of all destinations lie among each other.
const TURNS: usize = 10;
/// Messages to each of the others: more than a lane keeps in memory.
const BACKLOG: usize = 4_000;

/// A receiver that thinks about every request for five seconds, half of what its sender waits, and counts those it thinks
/// about.
struct Slow(watch::Sender<usize>);

impl Receive for Slow {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        let thinking = self.0.clone();
        Box::pin(async move {
            thinking.send_modify(|requests| *requests += 1);
            let thought = tokio::time::timeout(Duration::from_secs(5), std::future::pending::<()>());
            assert!(thought.await.is_err());
            thinking.send_modify(|requests| *requests -= 1);
            Ok(vec![Answer::Done(None); messages.len()])
        })
    }
}

/// A transport that lets nothing through before it is opened, and counts who waits for that.
struct Gate {
    http: Arc<Http>,
    waiting: watch::Sender<usize>,
    open: watch::Receiver<bool>,
}

impl Transport for Gate {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (http, mut open, link) = (Arc::clone(&self.http), self.open.clone(), Arc::clone(link));
        self.waiting.send_modify(|requests| *requests += 1);
        Box::pin(async move {
            open.wait_for(|open| *open).await.unwrap();
            http.deliver(&link, batch, timeout).await
        })
    }
}

/// Two destinations that could keep a third one waiting, both with a backlog.
struct Others {
    dead: Vacant,
    slow: Billing,
    thinking: watch::Receiver<usize>,
}

impl Others {
    async fn new() -> Self {
        let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
        let server = server.also_known_as(destination("slow"));
        let (requests, thinking) = watch::channel(0);
        let slow = Billing::serving(&server, Store::new().await, Arc::new(Slow(requests)));
        Self { dead: Vacant::new(), slow, thinking }
    }

    fn transports(&self) -> [(&'static str, Arc<dyn Transport>); 2] {
        [("dead", self.dead.url()), ("slow", self.slow.url())].map(|(name, url)| (name, http(&url) as _))
    }

    /// Waits until one is given up and the other has as many requests as it may.
    async fn until_in_the_way(&mut self, shop: &Shop) {
        shop.until_held("dead").await;
        until_busy(&mut self.thinking).await;
    }

    async fn stop(self, shop: &Shop) {
        for name in ["dead", "slow"] {
            let sent = shop.lane(name).await.unwrap().sent;
            assert!(sent < BACKLOG as u64, "{name} had nothing left to delay others");
        }
        self.slow.stop().await;
    }
}

/// Waits until there are as many requests as one destination may have.
async fn until_busy(requests: &mut watch::Receiver<usize>) {
    let all = requests.wait_for(|requests| *requests >= RelayOptions::default().in_flight_max);
    tokio::time::timeout(EVER, all).await.expect("all requests that may be are sent").unwrap();
}

fn http(url: &str) -> Arc<Http> {
    Arc::new(Http::signed(url, keyring()).unwrap())
}

/// How long billing takes to handle a slice: alone, or while others have a backlog and are in the way already.
async fn drained_in(mut others: Option<Others>) -> Duration {
    let (handled, mut handles) = watch::channel(0);
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let billing = Billing::handling(server, move |_, _| {
        handled.send_modify(|count| *count += 1);
        Ok(Response::empty())
    })
    .await;
    let store = Store::new().await;
    let ((opening, open), (waiting, mut waits)) = (watch::channel(false), watch::channel(0));
    let gate = Gate { http: http(&billing.url()), waiting, open };
    let mut transports: Vec<(&str, Arc<dyn Transport>)> = vec![("billing", Arc::new(gate))];
    transports.extend(others.iter().flat_map(Others::transports));
    for turn in 0..TURNS {
        for (name, _) in &transports {
            let messages = if *name == "billing" { SLICE } else { BACKLOG };
            store.enqueue(name, &format!("{turn}-"), messages / TURNS).await;
        }
    }
    let shop = Shop::with(store, &transports, RelayOptions::default());
    if let Some(others) = &mut others {
        others.until_in_the_way(&shop).await;
    }
    until_busy(&mut waits).await;
    let begun = Instant::now();
    opening.send_replace(true);
    let all = handles.wait_for(|count| *count >= SLICE);
    tokio::time::timeout(EVER, all).await.expect("all are handled").unwrap();
    let lasted = begun.elapsed();
    shop.until_sent("billing", SLICE as u64).await;
    if let Some(others) = others {
        others.stop(&shop).await;
    }
    shop.stop().await;
    assert_eq!(billing.effects().await, i64::try_from(SLICE).unwrap());
    billing.stop().await;
    lasted
}

/// The rate among others, as a part of the rate alone. Slices take turns, so that both meet the same machine, and
/// the quickest of each counts, because what else the machine does only ever makes them slower.
async fn part_of_rate() -> f64 {
    let (mut alone, mut among) = (Duration::MAX, Duration::MAX);
    for _ in 0..2 {
        alone = alone.min(drained_in(None).await);
        among = among.min(drained_in(Some(Others::new().await)).await);
    }
    alone.as_secs_f64() / among.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_dead_and_a_slow_destination_leave_a_fast_one_four_fifths_of_its_rate() {
    let mut parts = Vec::new();
    while parts.len() < 3 && parts.iter().all(|part| *part < 0.8) {
        parts.push(part_of_rate().await);
    }
    assert!(parts.iter().any(|part| *part >= 0.8), "{parts:?}");
}
