//! A server that has enough to do: requests and bytes at a time, receivers that do not answer, and being stopped (S16,
//! S20).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Link, Receive, Transport};
use twobox_core::wire::Limits;
use twobox_core::{Message, Result};
use twobox_http::{Http, HttpServer, ServerLimits};
use twobox_testkit::eventually;

use crate::hostile::assert_refused;
use crate::post::BATCH;
use crate::raw::{Raw, batch, head, padded, post, post_head};
use crate::world::{Billing, EVER, Store, keyring, keyrings, link, message};

/// A time-out that a test waits for.
const SHORT: Duration = Duration::from_millis(500);

/// A receiver that answers when the gate is opened.
struct Gated {
    entered: mpsc::UnboundedSender<()>,
    gate: watch::Receiver<bool>,
}

impl Receive for Gated {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        let (entered, mut gate) = (self.entered.clone(), self.gate.clone());
        Box::pin(async move {
            // As with the engine's receiver, hanging up does not stop what has begun.
            let handling = tokio::spawn(async move {
                _ = entered.send(());
                _ = gate.wait_for(|open| *open).await;
                messages.iter().map(|_| Answer::Done(None)).collect()
            });
            Ok(handling.await.unwrap())
        })
    }
}

/// A server whose receiver is gated.
pub(crate) struct Gate {
    pub(crate) billing: Billing,
    entered: mpsc::UnboundedReceiver<()>,
    pub(crate) gate: watch::Sender<bool>,
    /// Whoever has built a service keeps what it was built of.
    _server: HttpServer,
}

impl Gate {
    pub(crate) async fn new(limits: ServerLimits) -> Self {
        let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
        let (entering, entered) = mpsc::unbounded_channel();
        let (gate, gated) = watch::channel(false);
        let receiver = Arc::new(Gated { entered: entering, gate: gated });
        let billing = Billing::serving(&server, Store::new().await, receiver);
        Self { billing, entered, gate, _server: server }
    }

    /// A request that the receiver has and does not answer yet.
    pub(crate) async fn in_flight(&mut self) -> Raw {
        let mut raw = Raw::connect(self.billing.address).await;
        raw.send(&post(BATCH, &batch("in-flight"))).await;
        timeout(EVER, self.entered.recv()).await.expect("the request arrives").unwrap();
        raw
    }

    /// A connection between two requests, which a server that stops closes at once.
    async fn idle(&self) -> Raw {
        let mut idle = Raw::connect(self.billing.address).await;
        assert_eq!(idle.ask(&head("GET /", &[])).await.status, 404);
        idle
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_beyond_the_requests_at_a_time_the_server_is_busy_and_then_works_again() {
    let mut gate = Gate::new(ServerLimits { requests_max: 1, ..ServerLimits::default() }).await;
    let http = Http::signed(&gate.billing.url(), keyring()).unwrap();
    let mut in_flight = gate.in_flight().await;
    let mut raw = Raw::connect(gate.billing.address).await;
    let request = post(BATCH, &batch("busy"));
    let (reply, refused) = tokio::join!(raw.ask(&request), http.deliver(&link(), vec![message("m")], EVER));
    assert_refused(&reply, 503, "busy");
    assert_eq!(reply.header("retry-after"), Some("1"));
    let refused = refused.unwrap_err();
    assert_eq!((refused.is_ambiguous(), refused.retry_after()), (false, Some(Duration::from_secs(1))));
    assert!(gate.entered.try_recv().is_err(), "nothing of it has reached the receiver");
    gate.gate.send_replace(true);
    assert_eq!(in_flight.answer().await.status, 200);
    assert_eq!(raw.ask(&request).await.status, 200);
    assert_eq!(http.deliver(&link(), vec![message("m")], EVER).await.unwrap(), [Answer::Done(None)]);
    gate.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_sender_that_hangs_up_makes_no_room_for_more_requests_at_a_time() {
    let mut gate = Gate::new(ServerLimits { requests_max: 1, ..ServerLimits::default() }).await;
    drop(gate.in_flight().await);
    let mut raw = Raw::connect(gate.billing.address).await;
    let request = post(BATCH, &batch("next"));
    tokio::select! {
        _ = gate.entered.recv() => panic!("two requests are handled at a time, and there may be one"),
        reply = raw.ask(&request) => assert_refused(&reply, 503, "busy"),
    }
    gate.gate.send_replace(true);
    let done = async || Some(raw.ask(&request).await).filter(|reply| reply.status == 200);
    eventually("there is room again", EVER, done).await;
    gate.billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_beyond_the_bytes_of_bodies_at_a_time_the_server_is_busy_and_then_works_again() {
    let room = 64 << 10;
    let wire = Limits { envelope_bytes: room, batch_bytes: room, ..Limits::default() };
    let limits = ServerLimits { wire, bodies_bytes_max: 2 * room, ..ServerLimits::default() };
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
    let billing = Billing::start(server).await;
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    let proved = async || {
        let mut raw = Raw::connect(billing.address).await;
        assert_eq!(raw.ask(&post(BATCH, &batch("known"))).await.status, 200);
        raw
    };
    // Neither are strangers.
    let mut asking = proved().await;
    http.deliver(&link(), vec![message("known")], EVER).await.unwrap();
    let probe = head(&format!("POST {BATCH}"), &["content-type: application/json", "content-length: 200"]);
    let probe = [probe, vec![b' '; 200]].concat();
    // Takes all the room there is but a hundred bytes, and does not go on.
    let body = padded(batch("hoarded"), room);
    let hoarded = [&post_head(BATCH, room), &body[..room - 100]].concat();
    let mut hoarders = Vec::new();
    // A hoarder that comes while a probe has its share is refused itself, and another one has to come.
    let busy = eventually("there is no room", EVER, async || {
        let mut hoarder = proved().await;
        hoarder.send(&hoarded).await;
        hoarders.push(hoarder);
        Some(asking.ask(&probe).await).filter(|reply| reply.status == 503)
    });
    let busy = busy.await;
    assert_refused(&busy, 503, "busy");
    assert_eq!(busy.header("retry-after"), Some("1"));
    let refused = http.deliver(&link(), vec![message("m")], EVER).await.unwrap_err();
    assert_eq!((refused.is_ambiguous(), refused.retry_after()), (false, Some(Duration::from_secs(1))));
    let store = |sql| billing.store.count(sql);
    assert_eq!((billing.effects().await, store("SELECT count(*) FROM inbox").await), (1, 1));
    drop(hoarders);
    let deliver = async || http.deliver(&link(), vec![message("m")], EVER).await.ok();
    let answers = eventually("there is room again", EVER, deliver).await;
    assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    assert_eq!((billing.effects().await, store("SELECT count(*) FROM inbox").await), (2, 2));
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_strangers_who_hoard_the_room_for_bodies_make_room_for_an_honest_newcomer() {
    let room = 64 << 10;
    let wire = Limits { envelope_bytes: room, batch_bytes: room, ..Limits::default() };
    let limits = ServerLimits { wire, bodies_bytes_max: 2 * room, ..ServerLimits::default() };
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
    let billing = Billing::start(server).await;
    // Each has a quarter of the room, and all of them together the whole of it.
    let hoarded = [post_head(BATCH, room), vec![b' '; room / 4]].concat();
    let mut hoarders = Vec::new();
    for _ in 0..8 {
        let mut hoarder = Raw::connect(billing.address).await;
        hoarder.send(&hoarded).await;
        hoarders.push(hoarder);
        let http = Http::signed(&billing.url(), keyring()).unwrap(); // a newcomer each time
        let answers = http.deliver(&link(), vec![message(&"x".repeat(hoarders.len()))], EVER).await.unwrap();
        assert!(matches!(answers[..], [Answer::Done(_)]), "{answers:?}");
    }
    assert_eq!(hoarders[0].closed().await, b"", "whoever came first has made room");
    assert_eq!(billing.effects().await, 8);
    drop(hoarders);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_receiver_that_does_not_answer_is_given_up_and_keeps_its_turn() {
    let limits = ServerLimits { requests_max: 1, budget: SHORT, ..ServerLimits::default() };
    let mut gate = Gate::new(limits).await;
    let reply = gate.in_flight().await.answer().await;
    assert_refused(&reply, 503, "unavailable");
    assert_eq!(reply.header("retry-after"), Some("1"));
    let request = post(BATCH, &batch("next"));
    let mut raw = Raw::connect(gate.billing.address).await;
    assert_refused(&raw.ask(&request).await, 503, "busy");
    gate.gate.send_replace(true);
    let done = async || Some(raw.ask(&request).await).filter(|reply| reply.status == 200);
    eventually("there is a turn again", EVER, done).await;
    gate.billing.stop().await;
}

/// A receiver whose store does not say which it is.
struct Nameless;

impl Receive for Nameless {
    fn receive(&self, messages: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        Box::pin(async move { Ok(vec![Answer::Done(None); messages.len()]) })
    }

    fn meet(&self, _: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_store_that_does_not_say_which_it_is_keeps_nobody_waiting() {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let billing = Billing::serving(&server, Store::new().await, Arc::new(Nameless));
    let http = Http::signed(&billing.url(), keyring()).unwrap();
    for messages in [vec![], vec![message("m")]] {
        let expected = vec![Answer::Done(None); messages.len()];
        assert_eq!(http.deliver(&link(), messages, EVER).await.unwrap(), expected);
    }
    assert_eq!(http.inbox(&link()), None);
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s20_a_request_in_flight_is_answered_before_the_server_has_stopped() {
    let mut gate = Gate::new(ServerLimits { shutdown_timeout: EVER, ..ServerLimits::default() }).await;
    let mut idle = gate.idle().await;
    let mut in_flight = gate.in_flight().await;
    let stopping = tokio::spawn(gate.billing.stop());
    assert_eq!(idle.closed().await, b"");
    assert!(!stopping.is_finished(), "there is a request in flight");
    gate.gate.send_replace(true);
    let reply = in_flight.answer().await;
    assert_eq!((reply.status, reply.outcomes()), (200, vec!["done".to_owned()]));
    assert_eq!(in_flight.closed().await, b"");
    timeout(EVER / 2, stopping).await.expect("it stops when all is answered").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s20_a_server_that_stops_refuses_connections() {
    let mut gate = Gate::new(ServerLimits { shutdown_timeout: EVER, ..ServerLimits::default() }).await;
    let (address, mut idle) = (gate.billing.address, gate.idle().await);
    let mut in_flight = gate.in_flight().await;
    let stopping = tokio::spawn(gate.billing.stop());
    assert_eq!(idle.closed().await, b"");
    // A sender that is refused goes elsewhere or comes back; one that is let in and not served waits in vain.
    let refused = async || Raw::from(Ipv4Addr::LOCALHOST, address).await.err();
    let error = eventually("connections are refused", Duration::from_secs(5), refused).await;
    // Reset: it was in the queue of those to be accepted when the socket went.
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset};
    assert!(matches!(error.kind(), ConnectionRefused | ConnectionReset), "{error}");
    gate.gate.send_replace(true);
    assert_eq!(in_flight.answer().await.status, 200);
    timeout(EVER, stopping).await.expect("it stops").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s20_what_is_stuck_is_cut_after_the_shutdown_timeout() {
    let mut gate = Gate::new(ServerLimits { shutdown_timeout: SHORT, ..ServerLimits::default() }).await;
    let mut in_flight = gate.in_flight().await;
    let mut half = gate.idle().await;
    half.send(b"POST /_rf/receive/batch HTTP/1.1\r\nhost: bil").await;
    let begun = Instant::now();
    timeout(EVER / 2, gate.billing.stop()).await.expect("it stops although a request is stuck");
    assert!(begun.elapsed() >= SHORT, "stopped after {:?}", begun.elapsed());
    assert_eq!(in_flight.closed().await, b"");
    assert_eq!(half.closed().await, b"");
}
