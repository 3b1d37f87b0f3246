//! Keys that are replaced under a running relay and a running server.

use std::sync::Arc;

use twobox_core::ports::{Answer, Transport as _};
use twobox_core::signing::{Keyring, Keyrings};
use twobox_core::{ErrorKind, Response};
use twobox_http::{Http, HttpServer};

use crate::world::{Billing, EVER, Shop, Store, key, link, message, source};

fn ring(bytes: &[u8]) -> Keyring {
    Keyring::new(bytes.iter().map(|byte| key(&format!("shop-{byte}"), *byte))).unwrap()
}

fn rings(bytes: &[u8]) -> Keyrings {
    let mut keyrings = Keyrings::new();
    keyrings.insert(&source("shop"), ring(bytes)).unwrap();
    keyrings
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_keys_are_replaced_while_both_sides_run() {
    let server = HttpServer::signed("127.0.0.1:0", rings(&[1])).await.unwrap();
    let keys_of_server = server.clone();
    let billing = Billing::start(server).await;
    let http = Http::signed(&format!("http://{}", billing.address), ring(&[1])).unwrap();
    let shop = Shop::start(&[("billing", Arc::new(http.clone()))]).await;
    let mut sent = 0;
    for generation in 2..=6 {
        shop.enqueue("billing", &format!("a{generation}-"), 20).await;
        keys_of_server.replace_keys(rings(&[generation - 1, generation])).unwrap();
        shop.enqueue("billing", &format!("b{generation}-"), 20).await;
        http.replace_keys(ring(&[generation])).unwrap();
        shop.enqueue("billing", &format!("c{generation}-"), 20).await;
        sent += 60;
        // What was signed with the old key has been answered before the receiver forgets it.
        shop.until_sent("billing", sent).await;
        keys_of_server.replace_keys(rings(&[generation])).unwrap();
    }
    let store = shop.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM outbox_messages WHERE retry_count > 0").await, 0);
    assert_eq!(billing.effects().await, i64::try_from(sent).unwrap());
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_request_ends_with_the_keys_it_began_with() {
    let server = HttpServer::signed("127.0.0.1:0", rings(&[1])).await.unwrap();
    let http = Http::signed(&format!("http://{}", server.local_addr()), ring(&[1])).unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let billing = Billing::resumed(&server, Store::new().await.with_effects().await, move |_, _| {
        begun.send(()).unwrap();
        gone.lock().unwrap().recv_timeout(EVER).unwrap();
        Ok(Response::empty())
    });
    let delivering = tokio::spawn(http.deliver(&link(), vec![message("m")], EVER));
    tokio::task::spawn_blocking(move || has_begun.recv_timeout(EVER).unwrap()).await.unwrap();
    server.replace_keys(rings(&[2])).unwrap();
    http.replace_keys(ring(&[2])).unwrap();
    go.send(()).unwrap();
    let answers = delivering.await.unwrap().unwrap();
    assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    billing.stop().await;
}

#[tokio::test]
async fn s11_what_is_unsigned_has_no_keys_to_replace() {
    let server = HttpServer::unsigned("127.0.0.1:0").await.unwrap();
    assert_eq!(server.replace_keys(rings(&[1])).unwrap_err().kind(), ErrorKind::Misconfigured);
    let http = Http::unsigned("http://127.0.0.1:1").unwrap();
    assert_eq!(http.replace_keys(ring(&[1])).unwrap_err().kind(), ErrorKind::Misconfigured);
}
