//! When all places are taken: who has to give up theirs, and who is turned away.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use twobox_core::ports::{Answer, Transport};
use twobox_http::{Http, HttpServer, ServerLimits};

use crate::busy::Gate;
use crate::post::BATCH;
use crate::raw::{Raw, batch, head};
use crate::world::{Billing, EVER, keyring, keyrings, link, message};

/// Few enough to take them all by hand.
const PLACES: usize = 4;
/// Longer than a server takes to read what it has room for.
const STUCK: Duration = Duration::from_millis(500);

/// Sends the head of a request, and waits until the server asks for its body: then it is reading it.
async fn until_body_is_read(raw: &mut Raw, length: usize) {
    let length = format!("content-length: {length}");
    let headers: [&str; 3] = ["content-type: application/json", "expect: 100-continue", &length];
    assert_eq!(raw.ask(&head(&format!("POST {BATCH}"), &headers)).await.status, 100);
}

/// A stranger who sends a good head and half a body.
async fn half(to: SocketAddr) -> Raw {
    let mut raw = Raw::connect(to).await;
    until_body_is_read(&mut raw, 100_000).await;
    raw.send(&[b' '; 1_000]).await;
    raw
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_strangers_with_half_bodies_make_room_for_an_honest_newcomer() {
    let all = ServerLimits { connections_max: PLACES, ..ServerLimits::default() };
    let of_one_peer = ServerLimits { peer_connections_max: PLACES, ..ServerLimits::default() };
    for limits in [all, of_one_peer] {
        let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
        let billing = Billing::start(server).await;
        let mut strangers = Vec::new();
        for _ in 0..PLACES {
            strangers.push(half(billing.address).await);
        }
        let http = Http::signed(&billing.url(), keyring()).unwrap();
        let answers = http.deliver(&link(), vec![message("honest")], EVER).await.unwrap();
        assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
        assert_eq!(strangers[0].closed().await, b"", "the first one has made room");
        // By now the honest one has proved itself: strangers displace each other.
        strangers.push(half(billing.address).await);
        assert_eq!(strangers[1].closed().await, b"", "the next one has made room");
        let answers = http.deliver(&link(), vec![message("again")], EVER).await.unwrap();
        assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
        assert_eq!(billing.effects().await, 2);
        drop(strangers); // or the server would wait for their bodies
        billing.stop().await;
    }
}

/// A stranger who asks until nobody takes any more of it, and reads none of the refusals.
async fn deaf(to: SocketAddr) -> Raw {
    let mut raw = Raw::narrow(to).await;
    let requests = head(&format!("POST {BATCH}"), &["content-type: application/json", "content-length: 0"])
        .repeat(1_000);
    // What is written in part is written on; that it stands still shows that every buffer is full.
    let mut written = 0;
    while let Ok(wrote) = timeout(STUCK, raw.stream.write(&requests[written % requests.len()..])).await {
        written += wrote.unwrap();
    }
    raw
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_strangers_who_do_not_read_their_refusals_make_room_for_an_honest_newcomer() {
    let limits = ServerLimits { connections_max: PLACES, answer_timeout: EVER, ..ServerLimits::default() };
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
    let billing = Billing::start(server).await;
    let mut strangers = Vec::new();
    for _ in 0..PLACES {
        strangers.push(deaf(billing.address).await);
    }
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    for id in ["honest", "again"] {
        let answers = http.deliver(&link(), vec![message(id)], EVER).await.unwrap();
        assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    }
    assert_eq!(billing.effects().await, 2);
    drop(strangers);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_what_is_at_work_makes_no_room_for_a_newcomer() {
    let limits = ServerLimits { connections_max: 1, budget: EVER, ..ServerLimits::default() };
    let mut gate = Gate::new(limits).await;
    let address = gate.billing.address;
    let is_turned_away = async || Raw::connect(address).await.closed().await.is_empty();
    // Its first request, but an authentic one.
    let mut raw = gate.in_flight().await;
    assert!(is_turned_away().await);
    gate.gate.send_replace(true);
    assert_eq!(raw.answer().await.status, 200);
    // It has proved itself, so its bodies may take their time.
    let body = batch("next");
    until_body_is_read(&mut raw, body.len()).await;
    assert!(is_turned_away().await);
    let reply = raw.ask(&body).await;
    assert_eq!((reply.status, reply.outcomes()), (200, vec!["done".to_owned()]));
    gate.billing.stop().await;
}
