//! The two sides of a siege: a client by hand, which sends what a test writes and when the test writes it, and an
//! honest sender, which must not notice.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use twobox_core::Response;
use twobox_core::ports::{Answer, Transport};
use twobox_http::{Http, HttpServer, ServerLimits};

use crate::post::{Reply, seal, seal_batch};
use crate::world::{Billing, EVER, key, keyring, keyrings, link, message};

/// Bytes of the response to a message whose id begins with `large`.
const LARGE: usize = 60 << 10;

/// The head of a request that begins with `line`, such as `POST /`.
pub(crate) fn head(line: &str, headers: &[&str]) -> Vec<u8> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("{line} HTTP/1.1\r\nhost: billing\r\n{headers}\r\n").into_bytes()
}

/// The head of a request for `path` that announces so many bytes of body.
pub(crate) fn post_head(path: &str, length: usize) -> Vec<u8> {
    head(&format!("POST {path}"), &["content-type: application/json", &format!("content-length: {length}")])
}

/// A whole request as a sender would send it.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    [&post_head(path, body.len()), body].concat()
}

/// A whole request in chunks of at most `size` bytes.
pub(crate) fn post_chunked(path: &str, body: &[u8], size: usize) -> Vec<u8> {
    let headers = ["content-type: application/json", "transfer-encoding: chunked"];
    let mut bytes = head(&format!("POST {path}"), &headers);
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// An envelope that billing takes.
pub(crate) fn envelope(id: &str) -> Vec<u8> {
    let message = message(id);
    seal(&message, message.created, &key("shop-1", 1))
}

/// A batch of one message that billing takes.
pub(crate) fn batch(id: &str) -> Vec<u8> {
    batch_of(&[id])
}

/// A batch that billing takes.
pub(crate) fn batch_of(ids: &[&str]) -> Vec<u8> {
    let (messages, key) = (ids.iter().map(|id| message(id)).collect::<Vec<_>>(), key("shop-1", 1));
    seal_batch(messages.iter().map(|message| (&**message, &key)), messages[0].created)
}

/// The same JSON, in exactly so many bytes.
pub(crate) fn padded(mut json: Vec<u8>, bytes: usize) -> Vec<u8> {
    assert!(json.len() <= bytes, "{} bytes do not fit into {bytes}", json.len());
    json.resize(bytes, b' ');
    json
}

/// A connection.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    /// What has arrived and belongs to no answer yet.
    unread: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        Self::from(Ipv4Addr::LOCALHOST, to).await.unwrap()
    }

    /// A connection from this address of ours.
    pub(crate) async fn from(address: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        Self::of(socket, to).await
    }

    /// A connection that can take in little before it is read.
    pub(crate) async fn narrow(to: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self::of(socket, to).await.unwrap()
    }

    async fn of(socket: TcpSocket, to: SocketAddr) -> io::Result<Self> {
        let stream = timeout(EVER, socket.connect(to)).await.expect("connecting comes to an end")?;
        // A byte that is written is sent.
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Writes, if the server still listens: one that has refused a request need not.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        _ = self.try_send(bytes).await;
    }

    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(EVER, self.stream.write_all(bytes)).await.expect("writing comes to an end")
    }

    /// The next answer, or none if the connection ends before it begins.
    pub(crate) async fn next(&mut self) -> Option<Reply> {
        timeout(EVER, self.read_answer()).await.expect("an answer or an end comes")
    }

    pub(crate) async fn answer(&mut self) -> Reply {
        self.next().await.expect("the server answers")
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Reply {
        self.send(request).await;
        self.answer().await
    }

    /// Waits until the server has closed the connection, and returns what it had still sent.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        let ending = async { while self.more().await {} };
        timeout(EVER, ending).await.expect("the server closes the connection");
        std::mem::take(&mut self.unread)
    }

    /// Sends one byte after the other until the server has answered or closed the connection.
    ///
    /// # Panics
    /// If it has done neither when all is sent.
    pub(crate) async fn drip(&mut self, bytes: &[u8], every: Duration) {
        let mut ticks = interval(every);
        for byte in bytes {
            ticks.tick().await;
            let mut arrived = [0; 1024];
            match self.stream.try_read(&mut arrived) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
                Ok(count) => return self.unread.extend_from_slice(&arrived[..count]),
            }
            if self.try_send(&[*byte]).await.is_err() {
                return;
            }
        }
        panic!("the server has taken all {} bytes", bytes.len());
    }

    async fn read_answer(&mut self) -> Option<Reply> {
        let body_at = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                assert!(self.unread.is_empty(), "the answer broke off");
                return None;
            }
        };
        let body = self.unread.split_off(body_at);
        let head = String::from_utf8(std::mem::replace(&mut self.unread, body)).unwrap();
        let (status, headers) = parse(&head);
        let length =
            headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
        while self.unread.len() < length {
            assert!(self.more().await, "the answer broke off");
        }
        let rest = self.unread.split_off(length);
        Some(Reply { status, headers, body: std::mem::replace(&mut self.unread, rest).into() })
    }

    /// Reads what comes next; `false` if nothing comes any more. A reset is an end like any other: it is what a
    /// server's kernel says when it closes a connection that it has not read to the end.
    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.unread).await.is_ok_and(|count| count > 0)
    }
}

fn parse(head: &str) -> (u16, HeaderMap) {
    let mut lines = head.trim_end().lines();
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)).expect("a status line");
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").expect("a header");
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    });
    (status.parse().unwrap(), headers.collect())
}

/// Sends one message after the other, each of which must be done.
pub(crate) struct Honest {
    delivered: watch::Receiver<i64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Honest {
    /// Has delivered once when this returns.
    async fn start(billing: &Billing) -> Self {
        let http = Http::signed(&billing.url(), keyring()).unwrap();
        let (count, delivered) = watch::channel(0);
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(async move {
            // Not faster, so that there is something left of the machine for the siege.
            let mut ticks = interval(Duration::from_millis(5));
            while !*stopping.borrow() {
                ticks.tick().await;
                let id = format!("honest-{}", *count.borrow());
                let answers = timeout(EVER, http.deliver(&link(), vec![message(&id)], EVER)).await;
                let answers = answers.expect("an honest sender is answered");
                assert!(matches!(answers.as_deref(), Ok([Answer::Done(Some(_))])), "{id}: {answers:?}");
                count.send_modify(|count| *count += 1);
            }
        });
        let mut honest = Self { delivered, stop, task };
        honest.goes_on(1).await;
        honest
    }

    /// Waits until `count` more messages are delivered.
    pub(crate) async fn goes_on(&mut self, count: i64) {
        let until = *self.delivered.borrow() + count;
        let delivered = timeout(EVER, self.delivered.wait_for(|delivered| *delivered >= until)).await;
        // If it has ended, then by a panic that says why.
        assert!(delivered.expect("honest deliveries go on").is_ok(), "an honest delivery failed");
    }

    /// How many messages it has delivered.
    async fn stop(self) -> i64 {
        self.stop.send_replace(true);
        self.task.await.expect("every honest delivery succeeds");
        *self.delivered.borrow()
    }
}

/// Lays siege to a server with these limits. `attack` returns how many messages of its own were taken: nothing may
/// be written but those and the honest ones, whatever else it sent.
pub(crate) async fn besieged(limits: ServerLimits, attack: impl AsyncFnOnce(SocketAddr, &mut Honest) -> i64) {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap().limits(limits);
    let billing = Billing::handling(server, |_, message| {
        let size = if message.id.as_str().starts_with("large") { LARGE } else { 8 };
        Ok(Response::json(&"x".repeat(size)).unwrap())
    })
    .await;
    let mut honest = Honest::start(&billing).await;
    let taken = attack(billing.address, &mut honest).await;
    honest.goes_on(3).await;
    let expected = honest.stop().await + taken;
    assert_eq!(billing.effects().await, expected, "effects");
    let store = billing.stop().await;
    assert_eq!(store.count("SELECT count(*) FROM inbox").await, expected, "rows of the inbox");
}
