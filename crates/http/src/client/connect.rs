//! One connector for every kind of stream a request can travel on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

/// Connects within a time-out. No proxies, no redirects: it goes where the URL says.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) timeout: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
}

impl Connector {
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS depends on the URL"))]
    pub(super) fn new(is_https: bool, timeout: Duration) -> Self {
        Self {
            timeout,
            // A machine that trusts nobody is no mistake yet: authorities may be named later.
            #[cfg(feature = "tls")]
            tls: is_https
                .then(crate::TlsRoots::of_this_machine)
                .and_then(Result::ok)
                .map(|roots| roots.connector()),
        }
    }

    async fn connect(self, uri: Uri) -> io::Result<Stream> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let connecting = async {
            let tcp = self.reach(&host, port).await?;
            // Requests are written whole; waiting for more to send would only delay them.
            tcp.set_nodelay(true)?;
            if is_https { self.agree(&host, tcp).await } else { Ok(Stream::Tcp(tcp)) }
        };
        tokio::time::timeout(self.timeout, connecting).await.unwrap_or_else(|_| Err(late(self.timeout)))
    }

    async fn reach(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses = tokio::net::lookup_host((host, port)).await?.take(ADDRESSES_MAX);
        first_of(addresses.collect(), self.timeout).await
    }

    #[cfg(feature = "tls")]
    async fn agree(&self, host: &str, tcp: TcpStream) -> io::Result<Stream> {
        let name = tokio_rustls::rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let tls = self.tls.as_ref().ok_or_else(|| {
            io::Error::other(
                "no certificate authority is known: install ca-certificates, or name one with Http::roots",
            )
        })?;
        Ok(Stream::Tls(Box::new(tls.connect(name, tcp).await?)))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "the same shape as with TLS")]
    async fn agree(&self, _: &str, _: TcpStream) -> io::Result<Stream> {
        Err(io::Error::other("https needs the feature tls"))
    }
}

/// Tries the addresses of a host in turn. None of them may use up the time of the others.
async fn first_of(addresses: Vec<SocketAddr>, timeout: Duration) -> io::Result<TcpStream> {
    let share = timeout / u32::try_from(addresses.len()).unwrap_or(1).max(1);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = late(share),
        }
    }
    Err(failed)
}

fn late(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {timeout:?}"))
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.clone().connect(uri);
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}

/// What a request travels on.
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Calls the same method of whatever stream it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            #[cfg(feature = "tls")]
            Self::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Longer than a connection on this machine takes.
    const STUCK: Duration = Duration::from_millis(500);

    /// An address at which nobody answers: its queue is full, and Linux drops whoever knocks.
    struct Silent {
        address: SocketAddr,
        _full: (TcpListener, Vec<TcpStream>),
    }

    impl Silent {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(1).unwrap();
            let address = listener.local_addr().unwrap();
            let mut queued = Vec::new();
            while let Ok(tcp) = tokio::time::timeout(STUCK, TcpStream::connect(address)).await {
                queued.push(tcp.unwrap());
            }
            Self { address, _full: (listener, queued) }
        }
    }

    #[tokio::test]
    async fn s16_a_host_that_does_not_answer_is_given_up_after_the_connect_timeout() {
        let silent = Silent::new().await;
        let uri = format!("http://{}", silent.address).parse().unwrap();
        let error = Connector::new(false, STUCK).connect(uri).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not connected within 500ms");
    }

    #[tokio::test]
    async fn s16_an_address_that_does_not_answer_leaves_the_others_their_time() {
        let (silent, listener) = (Silent::new().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
        let good = listener.local_addr().unwrap();
        let addresses = vec![silent.address, silent.address, good];
        let connected = first_of(addresses, STUCK * 3).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), good);
    }
}
