//! The accept loop: every connection in a task of its own, within its limits.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use twobox_core::AtOnce;
use twobox_core::clock::BoxFuture;
use twobox_core::meters::Meters;
use twobox_core::one_line;

use super::ServerLimits;
use super::connections::{Connection, Connections, Phase, Place, Watched};
use super::flood::Flood;
use super::reply::Body;
use super::socket::Socket;

/// How often connections are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After a failed accept (most likely there are too many files open) this long passes before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Between two attempts to listen at an address that is taken: short beside a restart, and long beside an attempt.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);

/// What answers the requests that arrive on connections.
pub(super) trait Answering: Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// What every connection needs to know.
struct Site<A> {
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
    limits: ServerLimits,
    service: Arc<A>,
}

/// Serves until `shutdown` completes, then lets requests finish within the stated time (S20).
pub(super) async fn serve<A: Answering>(
    socket: Socket,
    (limits, meters): (ServerLimits, Arc<Meters>),
    service: Arc<A>,
    mut shutdown: BoxFuture<'static, ()>,
) {
    let Some(listener) = listen(&socket, &mut shutdown).await else { return };
    let connections = CutOnDrop(Arc::new(Connections::new(Arc::clone(&meters))));
    let site = Arc::new(Site {
        #[cfg(feature = "tls")]
        tls: socket.tls,
        limits,
        service,
    });
    let connections = &connections.0;
    let door = Door { meters, lines: Flood::default(), opened: Instant::now() };
    let (stop, stopping) = watch::channel(false);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            _ = look.tick() => connections.cut_overdue(&site.limits),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match connections.enter(peer.ip(), &site.limits) {
                    Some(place) => start(&site, stream, place, stopping.clone()),
                    None => door.turn_away(peer),
                },
                Err(error) => {
                    tracing::warn!(error = one_line(&error), "cannot accept connections");
                    connections.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener); // newcomers are refused, rather than left waiting for somebody to accept them
    stop.send_replace(true);
    connections.cut_new();
    let finished = tokio::time::timeout(site.limits.shutdown_timeout, connections.emptied()).await;
    if finished.is_err() {
        connections.cut_all();
        connections.emptied().await;
    }
}

/// What to listen on, or `None` if `shutdown` completes before there is anything. Whoever served the socket before may
/// take a moment to let go of its address, so one that is taken is waited for.
async fn listen(socket: &Socket, shutdown: &mut BoxFuture<'static, ()>) -> Option<TcpListener> {
    let mut has_failed = false;
    loop {
        let address = || socket.address.to_string();
        match socket.take_listener().await {
            Ok(listener) => {
                if has_failed {
                    tracing::info!(address = address(), "listening again");
                }
                return Some(listener);
            }
            // Once is enough: it is the same until it ends.
            Err(error) if !has_failed => {
                tracing::error!(error = one_line(&error), address = address(), "cannot listen again");
                has_failed = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = &mut *shutdown => return None,
            () = tokio::time::sleep(LISTEN_PAUSE) => {}
        }
    }
}

/// Where those are turned away for whom there is no place.
struct Door {
    meters: Arc<Meters>,
    /// Lines about them.
    lines: Flood,
    opened: Instant,
}

impl Door {
    fn turn_away(&self, peer: SocketAddr) {
        self.meters.http.turned_away.one();
        if let Some(left_out) = self.lines.room(self.opened.elapsed()) {
            let peer = peer.to_string();
            tracing::warn!(peer, left_out, "connection turned away: all others are at work");
        }
    }
}

/// Serves one stream, whoever accepted it, until either side ends it.
pub(super) async fn serve_stream<A, S>(limits: ServerLimits, service: Arc<A>, stream: S)
where
    A: Answering,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connection = Arc::new(Connection::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
    // Nobody asks it to stop: whoever accepted the stream drops it.
    let (_running, stopping) = watch::channel(false);
    talk(&limits, &service, stream, &connection, stopping).await;
}

/// Connections end with whoever serves them, also if that is simply dropped.
struct CutOnDrop(Arc<Connections>);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut_all();
    }
}

fn start<A: Answering>(
    site: &Arc<Site<A>>,
    stream: TcpStream,
    place: Place,
    stopping: watch::Receiver<bool>,
) {
    let site = Arc::clone(site);
    tokio::spawn(async move {
        let connection = Arc::clone(&place.connection);
        tokio::select! {
            biased;
            () = connection.cut.notified() => {}
            () = connected(&site, stream, &connection, stopping) => {}
        }
        drop(place);
    });
}

async fn connected<A: Answering>(
    site: &Site<A>,
    stream: TcpStream,
    connection: &Arc<Connection>,
    stopping: watch::Receiver<bool>,
) {
    // Answers are written whole; waiting for more to send would only delay them.
    let _: Result<(), _> = stream.set_nodelay(true);
    #[cfg(feature = "tls")]
    if let Some(tls) = &site.tls {
        match tls.accept(stream).await {
            Ok(stream) => talk(&site.limits, &site.service, stream, connection, stopping).await,
            Err(error) => tracing::debug!(error = one_line(&error), "no agreement on TLS"),
        }
        return;
    }
    talk(&site.limits, &site.service, stream, connection, stopping).await;
}

async fn talk<A: Answering, S: AsyncRead + AsyncWrite + Unpin>(
    limits: &ServerLimits,
    service: &Arc<A>,
    stream: S,
    connection: &Arc<Connection>,
    mut stopping: watch::Receiver<bool>,
) {
    let io = TokioIo::new(Watched::new(stream, Arc::clone(connection)));
    let answering = service_fn(|request| answer(service, connection, request));
    let mut talking = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None) // it would also end silence between requests; phases tell the two apart
            .max_headers(limits.headers_max)
            .max_buf_size(limits.head_bytes_max)
            .serve_connection(io, answering)
    );
    let ending = pin!(async {
        tokio::select! {
            biased;
            ended = &mut talking => ended,
            () = stopped(&mut stopping) => {
                talking.as_mut().graceful_shutdown();
                talking.await
            }
        }
    });
    // Whoever reads a body and the connection that it comes from wake each other.
    if let Err(error) = AtOnce::new(ending).await {
        tracing::debug!(error = one_line(&error), "connection broken");
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that whoever could stop us is gone, which is the same.
    let _: Result<_, _> = stopping.wait_for(|stop| *stop).await;
}

async fn answer<A: Answering>(
    service: &Arc<A>,
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    connection.enter(Phase::Body);
    let response = service.answer(request, connection).await;
    connection.enter(Phase::Answering);
    Ok(response)
}
