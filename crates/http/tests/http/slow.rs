//! Slow bodies, and who has to wait for them.

use std::time::Duration;

use twobox_core::ports::{Answer, Transport};
use twobox_core::wire::Limits;
use twobox_http::{Http, HttpServer, ServerLimits};

use crate::post::BATCH;
use crate::raw::{Raw, batch, besieged, padded, post_head};
use crate::world::{Billing, EVER, keyring, keyrings, link, message};

const GRACE: Duration = Duration::from_millis(300);
const DRIP: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_body_that_comes_too_slowly_is_given_up_after_the_grace() {
    // Nobody who drips is silent for so long, however busy the machine is.
    let limits = ServerLimits { body_grace: Duration::from_secs(2), ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut raw = Raw::connect(address).await;
        let body = padded(batch("slow"), 4_000);
        raw.send(&post_head(BATCH, body.len())).await;
        raw.drip(&body, DRIP).await;
        let reply = raw.answer().await;
        assert_eq!((reply.status, reply.json()["error"].as_str()), (408, Some("the body comes too slowly")));
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_body_that_stands_still_is_given_up_after_the_grace() {
    let limits = ServerLimits { body_grace: GRACE, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut raw = Raw::connect(address).await;
        let body = padded(batch("still"), 4_000);
        let reply = raw.ask(&[&post_head(BATCH, body.len()), &body[..3_000]].concat()).await;
        assert_eq!((reply.status, reply.json()["error"].as_str()), (408, Some("the body stands still")));
        0
    })
    .await;
}

/// Strangers who take all the room they have do not take that of a sender who has proved itself.
#[tokio::test(flavor = "multi_thread")]
async fn s16_strangers_cannot_take_the_room_of_those_who_have_sent_something_good() {
    let room = 64 << 10;
    let wire = Limits { envelope_bytes: room, batch_bytes: room, ..Limits::default() };
    let limits = ServerLimits { wire, bodies_bytes_max: 2 * room, ..ServerLimits::default() };
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
    let billing = Billing::start(server).await;
    let known = Http::signed(&billing.url(), keyring()).unwrap();
    known.deliver(&link(), vec![message("first")], EVER).await.unwrap();
    let hoarded = [&post_head(BATCH, room)[..], &vec![b' '; room - 100]].concat();
    let hoard = async || {
        let mut hoarder = Raw::connect(billing.address).await;
        hoarder.send(&hoarded).await;
        hoarder
    };
    // One of them has to make room for the other.
    let (mut one, mut other) = (hoard().await, hoard().await);
    let is_other = tokio::select! {
        said = one.closed() => { assert_eq!(said, b""); true }
        said = other.closed() => { assert_eq!(said, b""); false }
    };
    let mut left = if is_other { other } else { one };
    let answers = known.deliver(&link(), vec![message("second")], EVER).await.unwrap();
    assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    assert_eq!(left.ask(&[b' '; 100]).await.status, 400, "nobody needed its room");
    billing.stop().await;
}
