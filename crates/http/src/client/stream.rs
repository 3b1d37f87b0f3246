//! What a request travels on.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A connection of whatever kind, which ends if what is written to it is not taken in time.
///
/// Whoever waits for an answer gives up, but the connection would write on: it is closed once everything is written,
/// which may be never, and then each attempt would leave one behind.
pub(super) struct Stream {
    wire: Wire,
    /// How long writing may take from when it is first stuck.
    patience: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

enum Wire {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn tcp(tcp: TcpStream, patience: Duration) -> Self {
        Self { wire: Wire::Tcp(tcp), patience, stuck: None }
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls(tls: tokio_rustls::client::TlsStream<TcpStream>, patience: Duration) -> Self {
        Self { wire: Wire::Tls(Box::new(tls)), patience, stuck: None }
    }

    /// What came of writing, or an error if it has been stuck for too long.
    fn in_time<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stuck.as_mut().poll(cx));
        let text = format!("what was written is not taken within {patience:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Calls the same method of whatever stream it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.wire {
            Wire::Tcp($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            #[cfg(feature = "tls")]
            Wire::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = each!(self, stream => stream.poll_write(cx, buf));
        self.in_time(written, cx)
    }

    /// Called when everything that is to be written is.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = each!(self, stream => stream.poll_flush(cx));
        if flushed.is_ready() {
            self.stuck = None;
        }
        self.in_time(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = each!(self, stream => stream.poll_shutdown(cx));
        self.in_time(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);
    /// More than the system takes for somebody who does not read.
    const LARGE: usize = 32 << 20;

    async fn connected(patience: Duration) -> (Stream, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Stream::tcp(client, patience), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn s16_whoever_reads_nothing_is_given_up() {
        let (mut stream, _deaf) = connected(PATIENCE).await;
        let error = stream.write_all(&vec![0; LARGE]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "what was written is not taken within 1s");
    }

    #[tokio::test]
    async fn s16_so_is_whoever_reads_too_slowly() {
        let (mut stream, mut slow) = connected(PATIENCE).await;
        let mut ticks = tokio::time::interval(PATIENCE / 10);
        let mut some = vec![0; 1 << 20];
        let reading = async {
            loop {
                ticks.tick().await;
                slow.read_exact(&mut some).await.unwrap();
            }
        };
        let large = vec![0; LARGE];
        let written = tokio::select! {
            written = stream.write_all(&large) => written,
            () = reading => unreachable!("it goes on for as long as there is something to read"),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn each_request_has_its_own_time() {
        let (mut stream, mut peer) = connected(60 * PATIENCE).await;
        let (large, mut read) = (vec![0; LARGE], vec![0; LARGE]);
        let writing = async {
            stream.write_all(&large).await?;
            assert!(stream.stuck.is_some(), "it did not go at once");
            stream.flush().await
        };
        let (written, taken) = tokio::join!(writing, peer.read_exact(&mut read));
        written.unwrap();
        taken.unwrap();
        assert!(stream.stuck.is_none());
    }
}
