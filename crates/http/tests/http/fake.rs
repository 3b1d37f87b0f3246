//! Something else than a receiver at the receiver's address: it says what the test tells it to, until it gives the
//! address to a genuine one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use twobox_core::Timestamp;
use twobox_core::signing::{Key, SignedAnswer, request_sha256, sha256, sign_answer};
use twobox_core::wire::{ANSWER_TYPE, Limits, Probe, header, parse_batch};

use crate::world::{EVER, destination, source};

/// A request that arrived at the wrong place.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn is_probe(&self) -> bool {
        self.body == b"[]"
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The messages' ids, in order.
    pub(crate) fn ids(&self) -> Vec<twobox_core::MessageId> {
        let parsed = parse_batch(&self.body, &Limits::default()).unwrap();
        parsed.into_iter().map(|parsed| parsed.unwrap().message.id).collect()
    }

    fn sha256(&self) -> [u8; 32] {
        if self.is_probe() {
            return request_sha256([&Probe::read(|name| self.header(name)).unwrap().signature.mac]);
        }
        batch_sha256(&self.body)
    }

    fn sent(&self) -> Timestamp {
        if self.is_probe() {
            return Probe::read(|name| self.header(name)).unwrap().sent;
        }
        parse_batch(&self.body, &Limits::default()).unwrap().remove(0).unwrap().sent
    }
}

/// What names a batch in the signature of its answer.
pub(crate) fn batch_sha256(body: &[u8]) -> [u8; 32] {
    let parsed = parse_batch(body, &Limits::default()).unwrap();
    let macs: Vec<_> = parsed.into_iter().map(|parsed| parsed.unwrap().signature.unwrap().mac).collect();
    request_sha256(&macs)
}

/// What is done about a request.
pub(crate) enum Act {
    /// These bytes are written, and the connection is closed.
    Say(Vec<u8>),
    /// These bytes are written, and then nothing happens any more.
    Hang(Vec<u8>),
    /// The first bytes are written once, the second for ever, with pauses between them.
    Drone(Vec<u8>, Vec<u8>, Option<Duration>),
}

/// The bytes of an answer.
pub(crate) fn say(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str("connection: close\r\n\r\n");
    [bytes.as_bytes(), body].concat()
}

/// An answer with our content type and status 200, as whoever holds the key would sign it for billing.
pub(crate) fn say_signed(key: &Key, seen: &Seen, body: &[u8]) -> Vec<u8> {
    say_signed_by("billing", key, seen, body)
}

pub(crate) fn say_signed_by(name: &str, key: &Key, seen: &Seen, body: &[u8]) -> Vec<u8> {
    let answer = SignedAnswer {
        source: &source("shop"),
        destination: &destination(name),
        sent: seen.sent(),
        request_sha256: seen.sha256(),
        status: 200,
        body_sha256: sha256(body),
    };
    let mac = sign_answer(key, &answer).to_base64();
    let headers =
        [("content-type", ANSWER_TYPE), (header::KEY_ID, key.id().as_str()), (header::HMAC, mac.as_str())];
    say("200 OK", &headers, body)
}

type Script = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;

/// Listens at an address, and is not who it should be.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    connections: watch::Receiver<usize>,
    requests: watch::Receiver<usize>,
    forward: watch::Sender<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Fake {
    /// Does with every request what `script` says.
    pub(crate) async fn new(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::listening(listener, Arc::new(script), None)
    }

    /// Gives every connection to `to`, as a wire does.
    pub(crate) async fn wire(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::listening(listener, Arc::new(|_| Act::Say(Vec::new())), Some(to))
    }

    fn listening(listener: TcpListener, script: Script, to: Option<SocketAddr>) -> Self {
        let address = listener.local_addr().unwrap();
        let (forward, forwarded) = watch::channel(to);
        let (connected, connections) = watch::channel(0);
        let (requested, requests) = watch::channel(0);
        let requested = Arc::new(requested);
        let task = tokio::spawn(async move {
            // They end with the fake: nothing it keeps open outlives the test.
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connected.send_modify(|count| *count += 1);
                open.spawn(connection(
                    stream,
                    Arc::clone(&script),
                    Arc::clone(&requested),
                    forwarded.clone(),
                ));
                while open.try_join_next().is_some() {}
            }
        });
        Self { address, connections, requests, forward, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Waits until it has seen this many requests.
    pub(crate) async fn until_requests(&self, count: usize) {
        let mut requests = self.requests.clone();
        let seen = requests.wait_for(|seen| *seen >= count);
        tokio::time::timeout(EVER, seen).await.expect("requests keep coming").unwrap();
    }

    /// From now on the address belongs to `to`. What was open is cut.
    pub(crate) fn forward(&self, to: SocketAddr) {
        self.forward.send_replace(Some(to));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address that is taken but where nobody listens: connections are refused, and no other test gets it.
pub(crate) struct Vacant(TcpSocket);

impl Vacant {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Gives the address to `to`.
    pub(crate) fn open(self, to: SocketAddr) -> Fake {
        Fake::listening(self.0.listen(64).unwrap(), Arc::new(|_| Act::Say(Vec::new())), Some(to))
    }
}

async fn connection(
    mut stream: TcpStream,
    script: Script,
    requested: Arc<watch::Sender<usize>>,
    mut forwarded: watch::Receiver<Option<SocketAddr>>,
) {
    let to = *forwarded.borrow_and_update();
    let serving = async {
        if let Some(to) = to {
            let mut genuine = TcpStream::connect(to).await?;
            return copy_bidirectional(&mut stream, &mut genuine).await.map(drop);
        }
        while let Some(seen) = read(&mut stream).await? {
            let act = script(&seen);
            requested.send_modify(|count| *count += 1);
            perform(&mut stream, act).await?;
        }
        Ok(())
    };
    tokio::select! {
        // The client's end of it is what tests look at.
        _ = serving => {}
        _ = forwarded.changed() => {}
    }
}

/// Reads a request, or finds out that there is none.
async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Seen>> {
    let mut bytes = Vec::new();
    let body_at = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(bytes[..body_at].to_vec()).unwrap();
    let mut seen = Seen { head, body: bytes.split_off(body_at) };
    let length: usize = seen.header("content-length").map_or(0, |value| value.parse().unwrap());
    while seen.body.len() < length {
        if stream.read_buf(&mut seen.body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(seen))
}

async fn perform(stream: &mut TcpStream, act: Act) -> std::io::Result<()> {
    match act {
        Act::Say(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Act::Hang(bytes) => {
            stream.write_all(&bytes).await?;
            std::future::pending().await
        }
        Act::Drone(first, then, pause) => {
            stream.write_all(&first).await?;
            let mut ticks = pause.map(tokio::time::interval);
            loop {
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
                stream.write_all(&then).await?;
            }
        }
    }
}
