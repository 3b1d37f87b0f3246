//! Anything else that speaks HTTP, behind the same accept loop and the same limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use twobox_core::ErrorKind;
use twobox_engine::{Shutdown, ShutdownHandle};
use twobox_http::{Front, ServerLimits, TurnedAway, Web};
use twobox_testkit::eventually;

use crate::raw::{Raw, head, post_chunked};
use crate::world::EVER;

const BYTES_MAX: usize = 1_000;

/// Answers with the body; `/door` waits until it is let through, `/panic` panics.
struct Echo {
    door: Arc<Semaphore>,
    answered: Arc<AtomicUsize>,
}

fn status(status: u16) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

impl Web for Echo {
    fn admit(&self, head: &mut Parts) -> Result<usize, Box<Response<Bytes>>> {
        head.extensions.insert("seen");
        if head.uri.path() == "/secret" { Err(Box::new(status(403))) } else { Ok(BYTES_MAX) }
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        assert_eq!(request.extensions().get::<&str>(), Some(&"seen"));
        match request.uri().path() {
            "/panic" => panic!("on purpose"),
            "/door" => self.door.acquire().await.unwrap().forget(),
            _ => {}
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        Response::new(request.into_body())
    }

    fn refuse(&self, turned_away: TurnedAway) -> Response<Bytes> {
        status(match turned_away {
            TurnedAway::Broken => 400,
            TurnedAway::TooLarge => 413,
            TurnedAway::TimedOut => 408,
            TurnedAway::Busy => 503,
            _ => 500,
        })
    }
}

struct Served {
    address: SocketAddr,
    door: Arc<Semaphore>,
    answered: Arc<AtomicUsize>,
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

impl Served {
    async fn new(limits: ServerLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = Front::new(listener, limits).unwrap();
        let (address, door, answered) = (front.local_addr(), Arc::new(Semaphore::new(0)), Arc::default());
        let echo = Echo { door: Arc::clone(&door), answered: Arc::clone(&answered) };
        let (stop, mut shutdown) = Shutdown::new();
        let stopped = Box::pin(async move { shutdown.requested().await });
        let task = tokio::spawn(front.serve(echo, stopped));
        Self { address, door, answered, stop, task }
    }

    async fn stop(self) {
        self.stop.request();
        self.task.await.unwrap();
    }
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    [&head(&format!("POST {path}"), &[&format!("content-length: {}", body.len())]), body].concat()
}

#[tokio::test]
async fn s16_bodies_are_read_within_their_limit_and_refused_beyond() {
    let served = Served::new(ServerLimits::default()).await;
    let mut raw = Raw::connect(served.address).await;
    for body in [&b""[..], b"hello", &[b'x'; BYTES_MAX]] {
        let reply = raw.ask(&post("/", body)).await;
        assert_eq!((reply.status, &*reply.body), (200, body));
    }
    let reply = raw.ask(&post("/", &[b'x'; BYTES_MAX + 1])).await;
    assert_eq!(reply.status, 413);
    raw.closed().await;
    let mut raw = Raw::connect(served.address).await;
    assert_eq!(raw.ask(&post_chunked("/", &[b'x'; BYTES_MAX + 1], 100)).await.status, 413);
    raw.closed().await;
    served.stop().await;
}

#[tokio::test]
async fn s16_the_body_of_a_refused_request_is_never_taken_for_a_request() {
    let served = Served::new(ServerLimits::default()).await;
    let mut raw = Raw::connect(served.address).await;
    // A small one is read to its end, and the connection goes on.
    let hidden = post("/", b"hidden");
    assert_eq!(raw.ask(&post("/secret", &hidden)).await.status, 403);
    assert_eq!(&*raw.ask(&post("/", b"next")).await.body, b"next");
    // A large one is not, and ends the connection.
    let large = [hidden, vec![b'x'; 100 << 10]].concat();
    assert_eq!(raw.ask(&post("/secret", &large)).await.status, 403);
    raw.closed().await;
    assert_eq!(served.answered.load(Ordering::Relaxed), 1);
    served.stop().await;
}

#[tokio::test]
async fn s16_a_body_that_stands_still_is_given_up_and_half_of_one_is_never_answered() {
    let limits = ServerLimits { body_grace: Duration::from_millis(100), ..ServerLimits::default() };
    let served = Served::new(limits).await;
    let mut raw = Raw::connect(served.address).await;
    let whole = post("/", b"hello");
    assert_eq!(raw.ask(&whole[..whole.len() - 2]).await.status, 408);
    raw.closed().await;
    assert_eq!(served.answered.load(Ordering::Relaxed), 0);
    served.stop().await;
}

#[tokio::test]
async fn s16_beyond_the_requests_at_a_time_a_front_is_busy_and_then_works_again() {
    let served = Served::new(ServerLimits { requests_max: 1, ..ServerLimits::default() }).await;
    let mut first = Raw::connect(served.address).await;
    first.send(&post("/door", b"first")).await;
    let mut second = Raw::connect(served.address).await;
    eventually("there is no turn left", EVER, async || {
        (second.ask(&post("/", b"second")).await.status == 503).then_some(())
    })
    .await;
    served.door.add_permits(1);
    assert_eq!(&*first.answer().await.body, b"first");
    assert_eq!(&*second.ask(&post("/", b"second")).await.body, b"second");
    served.stop().await;
}

#[tokio::test]
async fn s16_whoever_is_let_in_with_a_body_makes_no_room_for_a_newcomer() {
    let served = Served::new(ServerLimits { connections_max: 1, ..ServerLimits::default() }).await;
    let mut raw = Raw::connect(served.address).await;
    // The server asks for the body when it begins to read it.
    let asked = head("POST /", &["content-length: 5", "expect: 100-continue"]);
    assert_eq!(raw.ask(&asked).await.status, 100);
    assert_eq!(Raw::connect(served.address).await.closed().await, b"", "a newcomer is turned away");
    assert_eq!(&*raw.ask(b"hello").await.body, b"hello");
    served.stop().await;
}

#[tokio::test]
async fn s20_what_was_begun_ends_even_if_its_sender_hangs_up() {
    let served = Served::new(ServerLimits { requests_max: 1, ..ServerLimits::default() }).await;
    let mut raw = Raw::connect(served.address).await;
    raw.send(&post("/door", b"gone")).await;
    let mut other = Raw::connect(served.address).await;
    eventually("it is being answered", EVER, async || {
        (other.ask(&post("/", b"")).await.status == 503).then_some(())
    })
    .await;
    let before = served.answered.load(Ordering::Relaxed);
    drop(raw);
    served.door.add_permits(1);
    eventually("it ends", EVER, async || (served.answered.load(Ordering::Relaxed) > before).then_some(()))
        .await;
    assert_eq!(other.ask(&post("/", b"")).await.status, 200);
    served.stop().await;
}

#[tokio::test]
async fn s6_a_panic_is_one_failed_request() {
    let served = Served::new(ServerLimits::default()).await;
    let mut raw = Raw::connect(served.address).await;
    assert_eq!(raw.ask(&post("/panic", b"")).await.status, 500);
    assert_eq!(raw.ask(&post("/", b"")).await.status, 200);
    served.stop().await;
}

#[tokio::test]
async fn s10_limits_that_let_nothing_through_are_refused_by_a_front_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = ServerLimits { requests_max: 0, ..ServerLimits::default() };
    assert_eq!(Front::new(listener, limits).unwrap_err().kind(), ErrorKind::Misconfigured);
}
