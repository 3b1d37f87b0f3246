//! Messages from one database to another.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Receive, Transport};
use twobox_core::signing::Keyring;
use twobox_core::{Error, Message, Payload, Response};
use twobox_http::{ClientLimits, Http, HttpServer};

use crate::fake::{Act, Fake, Vacant, say};
use crate::world::{Billing, EVER, Shop, destination, key, keyring, keyrings, link, message};

#[tokio::test(flavor = "multi_thread")]
async fn rf_14_messages_are_delivered_over_http_and_marked_sent() {
    let billing = Billing::signed().await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let shop = Shop::start(&[("billing", Arc::new(http))]).await;
    shop.enqueue("billing", "m", 2_000).await;
    shop.until_sent("billing", 2_000).await;
    assert_eq!(billing.effects().await, 2_000);
    shop.stop().await;
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_14_requests_share_a_connection_until_it_was_idle_for_too_long() {
    let billing = Billing::signed().await;
    let often = async |idle_timeout| {
        let wire = Fake::wire(billing.address).await;
        let limits = ClientLimits { idle_timeout, ..ClientLimits::default() };
        let http = Http::signed(&wire.url(), keyring()).unwrap().limits(limits);
        for _ in 0..20 {
            http.deliver(&link(), vec![message("m")], EVER).await.unwrap();
        }
        wire.connections()
    };
    // The client may open another while an answer's connection is about to come back to it, and keeps both.
    let shared = often(EVER).await;
    assert!(shared <= 5, "{shared}");
    assert_eq!(often(Duration::ZERO).await, 20);
    billing.stop().await;
}

#[test]
fn rf_14_proxies_that_the_environment_names_are_not_asked() {
    // In a process of its own, because it is the process that has an environment.
    let delivery = "delivery::rf_14_messages_are_delivered_over_http_and_marked_sent";
    let vacant = Vacant::new();
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let upper = names.iter().map(|name| (name.to_string(), vacant.url()));
    let lower = names.iter().map(|name| (name.to_lowercase(), vacant.url()));
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([delivery, "--exact"])
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .envs(upper.chain(lower))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_08_a_duplicate_gets_the_stored_response() {
    let billing = Billing::signed().await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let stored =
        Some(Response { content_type: "application/json".into(), body: Payload::new("\"invoiced\"") });
    let first = http.deliver(&link(), vec![message("m")], EVER).await.unwrap();
    assert_eq!(first, [Answer::Done(stored.clone())]);
    let second = http.deliver(&link(), vec![message("m"), message("n")], EVER).await.unwrap();
    assert_eq!(second, [Answer::Duplicate(stored.clone()), Answer::Done(stored)]);
    assert_eq!(billing.effects().await, 2);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_a_probe_is_answered_and_has_no_effect() {
    let billing = Billing::signed().await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    assert_eq!(http.deliver(&link(), Vec::new(), EVER).await.unwrap(), []);
    assert_eq!(billing.effects().await, 0);
    let store = billing.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM inbox").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_operation_works_when_it_is_asked_for_on_both_sides() {
    let billing = Billing::unsigned().await;
    let http = Http::unsigned(&billing.url()).unwrap();
    assert_eq!(http.deliver(&link(), Vec::new(), EVER).await.unwrap(), []);
    let answers = http.deliver(&link(), vec![message("m")], EVER).await.unwrap();
    assert!(matches!(answers[..], [Answer::Done(Some(_))]));
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_receiver_without_our_key_holds_the_lane_and_charges_nobody() {
    let billing = Billing::signed().await;
    let strangers = Keyring::new([key("stranger", 9)]).unwrap();
    let http = Http::signed(&billing.url(), strangers).unwrap();
    let shop = Shop::start(&[("billing", Arc::new(http))]).await;
    shop.enqueue("billing", "m", 3).await;
    assert_eq!(shop.until_held("billing").await, "status 401: signature does not hold");
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
    assert_eq!(billing.effects().await, 0);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_09_a_plain_sender_may_post_single_messages_to_an_unsigned_server() {
    let billing = Billing::unsigned().await;
    let plain = r#"{"messageId":"m","sourceServiceId":"legacy","messageType":"Signal","endpoint":"order","payload":1}"#;
    for outcome in ["done", "duplicate"] {
        let answer = post(&billing, plain).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains(&format!(r#""outcome":"{outcome}""#)), "{answer}");
    }
    assert_eq!(billing.effects().await, 1);
    billing.stop().await;
}

/// Posts one envelope, as any program could.
async fn post(billing: &Billing, body: &str) -> String {
    let mut stream = TcpStream::connect(billing.address).await.unwrap();
    let head =
        "POST /_rf/receive HTTP/1.1\r\nHost: billing\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A receiver that nothing gets through to.
struct Unreached;

impl Receive for Unreached {
    fn receive(&self, _: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>, Error>> {
        Box::pin(async { Err(Error::invalid("this was not signed")) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_accepted_elsewhere_is_served_like_any_other() {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let (near, mut far) = tokio::io::duplex(1024);
    let receiver = Arc::new(Unreached);
    let serving = tokio::spawn(server.serve_stream(destination("billing"), receiver, near));
    far.write_all(b"POST /_rf/receive/batch HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n")
        .await
        .unwrap();
    far.write_all(b"Connection: close\r\nContent-Length: 2\r\n\r\n[]").await.unwrap();
    let mut said = String::new();
    far.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 401 "), "an unsigned probe: {said}");
    serving.await.unwrap();
}

#[test]
fn a_transport_says_where_it_sends() {
    let http = Http::unsigned("http://{destination}.internal:80/base/").unwrap();
    assert_eq!(http.address(&destination("crm")).unwrap(), "http://crm.internal:80/base/_rf/receive/batch");
    assert!(http.address(&destination("crm/")).is_err());
}

/// The receiver works for no longer than whoever is the first to give up, the relay or its transport.
#[tokio::test]
async fn w7_the_receiver_is_told_how_long_its_sender_waits() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let fake = Fake::new(move |seen| {
        tell.send(seen.header("rf-timeout-ms").map(str::to_owned)).unwrap();
        Act::Say(say("503 Service Unavailable", &[], b""))
    })
    .await;
    let http = Http::signed(&fake.url(), keyring()).unwrap();
    for (timeout, expected) in [(EVER, "10000"), (Duration::from_millis(1500), "1500")] {
        http.deliver(&link(), vec![message("m")], timeout).await.unwrap_err();
        assert_eq!(told.recv().await.flatten().as_deref(), Some(expected));
    }
}
