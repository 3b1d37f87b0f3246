//! One connector for every kind of stream a request can travel on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::ClientLimits;
use super::stream::Stream;

/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;

/// The longest that a connection may be stuck with a request, for those who give answers all the time in the world.
const PATIENCE_MAX: Duration = Duration::from_secs(600);

/// A little longer than anybody waits for the answer, so that it is the request that is given up, and not its connection.
fn patience(limits: &ClientLimits) -> Duration {
    limits.answer_timeout.saturating_add(Duration::from_secs(1)).min(PATIENCE_MAX)
}

/// Connects within a time-out. No proxies, no redirects: it goes where the URL says.
#[derive(Clone)]
pub(super) struct Connector {
    timeout: Duration,
    /// How long the connection may be stuck with a request.
    patience: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
}

impl Connector {
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS depends on the URL"))]
    pub(super) fn new(is_https: bool, limits: &ClientLimits) -> Self {
        Self {
            timeout: limits.connect_timeout,
            patience: patience(limits),
            // A machine that trusts nobody is no mistake yet: authorities may be named later.
            #[cfg(feature = "tls")]
            tls: is_https
                .then(crate::TlsRoots::of_this_machine)
                .and_then(Result::ok)
                .map(|roots| roots.connector()),
        }
    }

    pub(super) fn limit(&mut self, limits: &ClientLimits) {
        (self.timeout, self.patience) = (limits.connect_timeout, patience(limits));
    }

    async fn connect(self, uri: Uri) -> io::Result<Stream> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let connecting = async {
            let tcp = self.reach(&host, port).await?;
            // Requests are written whole; waiting for more to send would only delay them.
            tcp.set_nodelay(true)?;
            if is_https { self.agree(&host, tcp).await } else { Ok(Stream::tcp(tcp, self.patience)) }
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
        Ok(Stream::tls(tls.connect(name, tcp).await?, self.patience))
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use twobox_testkit::Silent;

    use super::*;

    /// Longer than a connection on this machine takes.
    const STUCK: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn s16_a_host_that_does_not_answer_is_given_up_after_the_connect_timeout() {
        let silent = Silent::new().await.unwrap();
        let uri = format!("http://{}", silent.address()).parse().unwrap();
        let limits = ClientLimits { connect_timeout: STUCK, ..ClientLimits::default() };
        let error = Connector::new(false, &limits).connect(uri).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not connected within 500ms");
    }

    #[tokio::test]
    async fn s16_an_address_that_does_not_answer_leaves_the_others_their_time() {
        let silent = Silent::new().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        let addresses = vec![silent.address(), silent.address(), good];
        let connected = first_of(addresses, STUCK * 3).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), good);
    }
}
