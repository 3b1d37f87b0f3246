//! What a server says about those it turns away. There is one log per process, so this is a binary of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Listen, Receive};
use twobox_core::{Destination, Message, Result};
use twobox_http::{HttpServer, ServerLimits};
use twobox_testkit::{Log, eventually};

/// Longer than anything takes that works.
const EVER: Duration = Duration::from_secs(60);
/// Far more than there are lines for.
const STRANGERS: usize = 200;
const ENVELOPE: &str =
    r#"{"messageId":"m","sourceServiceId":"shop","messageType":"Signal","endpoint":"order","payload":1}"#;

/// Says when it has begun, and never ends.
struct Stuck(mpsc::UnboundedSender<()>);

impl Receive for Stuck {
    fn receive(&self, _: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
        _ = self.0.send(());
        Box::pin(std::future::pending::<Result<Vec<Answer>>>())
    }
}

/// Connects, and waits to be turned away.
async fn turned_away(from: SocketAddr) {
    let (mut stream, mut said) = (TcpStream::connect(from).await.unwrap(), Vec::new());
    timeout(EVER, stream.read_to_end(&mut said)).await.expect("the server closes the connection").unwrap();
    assert!(said.is_empty(), "nothing was asked");
}

fn lines(log: &Log) -> Vec<String> {
    log.lines().into_iter().filter(|line| line.contains("connection turned away")).collect()
}

#[tokio::test]
async fn s16_strangers_who_are_turned_away_cannot_fill_the_log() {
    let log = Log::install();
    let limits = ServerLimits { connections_max: 1, budget: EVER, ..ServerLimits::default() };
    let server = HttpServer::unsigned("127.0.0.1:0").await.unwrap().limits(limits);
    let (address, (entering, mut entered)) = (server.local_addr(), mpsc::unbounded_channel());
    let (name, never) = (Destination::new("billing").unwrap(), std::future::pending::<()>());
    let serving = tokio::spawn(server.serve(name, Arc::new(Stuck(entering)), Box::pin(never)));
    let mut at_work = TcpStream::connect(address).await.unwrap();
    let head = "POST /_rf/receive HTTP/1.1\r\nHost: billing\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{ENVELOPE}", ENVELOPE.len());
    at_work.write_all(request.as_bytes()).await.unwrap();
    timeout(EVER, entered.recv()).await.expect("the request arrives").unwrap();
    let begun = Instant::now();
    for _ in 0..STRANGERS {
        turned_away(address).await;
    }
    // Ten in a second, and two more seconds are touched: that in which it began and that in which it ended.
    let (said, seconds) = (lines(&log).len() as u64, begun.elapsed().as_secs());
    assert!(said > 0 && said <= 10 * (seconds + 2), "{said} lines in {seconds} s");
    eventually("it is told how many were left out", EVER, async || {
        turned_away(address).await;
        lines(&log).into_iter().find(|line| !line.contains("left_out=0"))
    })
    .await;
    serving.abort();
}
