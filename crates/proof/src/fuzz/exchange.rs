//! A conversation with the real HTTP server, in memory.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use twobox_core::ports::Receive;
use twobox_core::signing::Keyrings;
use twobox_core::{BoxError, Destination};
use twobox_http::HttpServer;
use twobox_testkit::ManualClock;

/// Shorter than any time-out of the server: it passes only when nothing else can happen any more.
const SILENCE: Duration = Duration::from_millis(1);
/// Longer than all of them together.
const EVER: Duration = Duration::from_secs(3600);

/// A runtime on which time passes only when there is nothing to do.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// A server that takes what is signed with these keys, at the time of a [`ManualClock`]. It is bound, because servers
/// are, but nobody connects to it.
pub(super) fn server(keyrings: Keyrings) -> Result<HttpServer, BoxError> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let server = runtime.block_on(HttpServer::signed("127.0.0.1:0", keyrings))?;
    Ok(server.clock(Arc::new(ManualClock::default())))
}

/// Gives the server a request in two parts, the first of them of `first` bytes, then silence and then the end; returns
/// what it said.
pub(super) async fn exchange(
    server: &HttpServer,
    receiver: &Arc<dyn Receive>,
    request: &[u8],
    first: usize,
) -> Result<Vec<u8>, BoxError> {
    let far = Arc::new(Mutex::new(Far::default()));
    let pipe = Pipe { request: request.to_vec(), read: 0, first, far: Arc::clone(&far) };
    let mut talking = pin!(server.serve_stream(Destination::new("billing")?, Arc::clone(receiver), pipe));
    let in_time = async {
        tokio::select! {
            biased;
            () = &mut talking => {}
            () = tokio::time::sleep(SILENCE) => {
                lock(&far).end();
                talking.await;
            }
        }
    };
    let ended = tokio::time::timeout(EVER, in_time).await;
    let said = std::mem::take(&mut lock(&far).said);
    ended.map(|()| said).map_err(|_| "the connection did not end".into())
}

/// What the other side of a [`Pipe`] knows.
#[derive(Default)]
struct Far {
    said: Vec<u8>,
    ended: bool,
    waiting: Option<Waker>,
}

impl Far {
    fn end(&mut self) {
        self.ended = true;
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

fn lock(far: &Mutex<Far>) -> MutexGuard<'_, Far> {
    far.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server's end of the conversation.
struct Pipe {
    request: Vec<u8>,
    read: usize,
    first: usize,
    far: Arc<Mutex<Far>>,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let end =
            if self.read < self.first { self.first.min(self.request.len()) } else { self.request.len() };
        let rest = &self.request[self.read..end];
        let count = rest.len().min(buf.remaining());
        if count > 0 {
            buf.put_slice(&rest[..count]);
            self.read += count;
            return Poll::Ready(Ok(()));
        }
        let mut far = lock(&self.far);
        if far.ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        far.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.far).said.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One answer of the server.
pub(super) struct Said {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Said {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|of| of.eq_ignore_ascii_case(name));
        self.head.lines().find(named).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }
}

/// Takes apart what the server said. Answers to HEAD have a length and no body, so a body is taken only as far as it
/// is not the next answer.
pub(super) fn answers(mut said: &[u8]) -> Result<Vec<Said>, BoxError> {
    let mut answers = Vec::new();
    while !said.is_empty() {
        let end = said.windows(4).position(|four| four == b"\r\n\r\n").ok_or("half a head was said")?;
        let head = String::from_utf8(said[..end].to_vec())?;
        let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or("no status was said")?;
        said = &said[end + 4..];
        let mut answer = Said { status, head, body: Vec::new() };
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if !said.starts_with(b"HTTP/1.1 ") {
            let (body, rest) = said.split_at(said.len().min(length));
            (answer.body, said) = (body.to_vec(), rest);
        }
        answers.push(answer);
    }
    Ok(answers)
}
