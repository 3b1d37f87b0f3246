//! A server that is served again while its address is still taken: whoever served it before has been told to stop, and
//! has not let go of it yet.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Listen, Receive, Transport};
use twobox_core::{Message, Result};
use twobox_http::{Http, HttpServer};
use twobox_testkit::eventually;

use crate::world::{EVER, destination, keyring, keyrings, link, message};

/// Has done everything it is given.
struct Done;

impl Receive for Done {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        Box::pin(async move { Ok(vec![Answer::Done(None); messages.len()]) })
    }
}

fn serve(server: &HttpServer, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
    server.serve(destination("billing"), Arc::new(Done), shutdown)
}

fn never() -> BoxFuture<'static, ()> {
    Box::pin(std::future::pending::<()>())
}

/// Lets it begin: it has the address, or has found it taken. It must not end.
async fn begin(serving: &mut BoxFuture<'static, ()>) {
    tokio::select! {
        biased;
        () = serving => panic!("it has given up"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn s20_a_server_that_is_started_again_serves_as_soon_as_its_address_is_free() {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let mut before = serve(&server, never());
    begin(&mut before).await;
    let mut again = serve(&server, never());
    begin(&mut again).await;
    drop(before);
    let again = tokio::spawn(again);
    let http = Http::signed(&format!("http://{}", server.local_addr()), keyring()).unwrap();
    let deliver = async || http.deliver(&link(), vec![message("m")], EVER).await.ok();
    let answers = eventually("it listens again", EVER, deliver).await;
    assert_eq!(answers, [Answer::Done(None)]);
    again.abort();
}

#[tokio::test]
async fn s20_a_server_that_waits_for_its_address_stops_when_it_is_told_to() {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let mut before = serve(&server, never());
    begin(&mut before).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut again = serve(&server, Box::pin(async move { _ = stopped.await }));
    begin(&mut again).await;
    stop.send(()).unwrap();
    timeout(EVER, again).await.expect("it stops although its address is never free");
}
