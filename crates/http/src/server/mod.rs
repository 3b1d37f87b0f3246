//! The server: takes batches, authenticates them, and lets a receiver handle them.

mod accept;
mod body;
mod connections;
mod flood;
mod front;
mod limits;
mod reply;
mod request;
mod room;
mod socket;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::ToSocketAddrs;
use twobox_core::clock::BoxFuture;
use twobox_core::meters::Meters;
use twobox_core::ports::{Listen, Receive};
use twobox_core::signing::Keyrings;
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Destination, Error, ErrorKind, Live, Result, crash_point};

use self::accept::Answering;
use self::connections::Connection;
use self::reply::Body;
use self::room::Room;
use self::socket::Socket;

pub use self::front::{Front, TurnedAway, Web, check_json};
pub use self::limits::ServerLimits;

use self::flood::Flood;

/// Listens for messages by HTTP. It is bound at once, so that its address is known, and serves when it is started.
#[derive(Clone)]
pub struct HttpServer {
    socket: Socket,
    keyrings: Option<Live<Keyrings>>,
    names: Vec<Destination>,
    limits: ServerLimits,
    clock: Arc<dyn Clock>,
    meters: Arc<Meters>,
}

impl HttpServer {
    /// A server that takes only messages signed with one of these keys. The owner of the key is the source.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the address cannot be bound.
    pub async fn signed(address: impl ToSocketAddrs, keyrings: Keyrings) -> Result<Self> {
        Self::bind(address, Some(Live::new(keyrings))).await
    }

    /// A server that believes everybody. Whoever can reach it can send in any name: only for hosts and networks that
    /// are yours alone.
    ///
    /// # Errors
    /// As [`signed`](Self::signed).
    pub async fn unsigned(address: impl ToSocketAddrs) -> Result<Self> {
        Self::bind(address, None).await
    }

    async fn bind(address: impl ToSocketAddrs, keyrings: Option<Live<Keyrings>>) -> Result<Self> {
        Ok(Self {
            socket: Socket::bind(address).await?,
            keyrings,
            names: Vec::new(),
            limits: ServerLimits::default(),
            clock: Arc::new(SystemClock::default()),
            meters: Arc::default(),
        })
    }

    /// Exchanges the keys of this server and its clones while it serves. A request that is being answered ends with the
    /// keys it began with.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the server is unsigned.
    pub fn replace_keys(&self, keyrings: Keyrings) -> Result<()> {
        let unsigned = "the server is unsigned, so it has no keys to replace";
        self.keyrings
            .as_ref()
            .map(|live| live.set(keyrings))
            .ok_or_else(|| Error::new(ErrorKind::Misconfigured, unsigned))
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.address
    }

    /// Takes messages for this destination too. Default: only those for the service's own name.
    #[must_use]
    pub fn also_known_as(mut self, name: Destination) -> Self {
        self.names.push(name);
        self
    }

    /// Other limits than the default ones.
    #[must_use]
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Where the time that signatures are compared with comes from. Default: the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    #[must_use]
    pub fn meters(mut self, meters: Arc<Meters>) -> Self {
        self.meters = meters;
        self
    }

    /// Serves `https://` under this identity, and nothing else.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, identity: &crate::TlsIdentity) -> Self {
        self.socket.tls = Some(identity.acceptor());
        self
    }

    /// Talks with one peer over a stream that was accepted elsewhere: a Unix socket, a tunnel, memory. TLS, if there
    /// is to be any, has been agreed on already.
    ///
    /// Every request is limited as usual. How many such streams there are, how much room they take together and how long
    /// each may be silent, or take for the head of a request, is for whoever accepts them: they are not among this
    /// server's own connections.
    pub fn serve_stream<S>(
        &self,
        name: Destination,
        receiver: Arc<dyn Receive>,
        stream: S,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        accept::serve_stream(self.limits.clone(), self.service(name, receiver), stream)
    }

    fn service(&self, name: Destination, receiver: Arc<dyn Receive>) -> Arc<Service> {
        let mut server = self.clone();
        server.names.push(name);
        let (room, unauthentic) = (Room::new(&server.limits, &server.meters), Flood::default());
        Arc::new(Service { room, server, receiver, unauthentic })
    }
}

impl Listen for HttpServer {
    fn serve(
        &self,
        name: Destination,
        receiver: Arc<dyn Receive>,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()> {
        let service = self.service(name, receiver);
        let limited = (self.limits.clone(), Arc::clone(&self.meters));
        Box::pin(accept::serve(self.socket.clone(), limited, service, shutdown))
    }

    fn check(&self) -> Result<()> {
        self.limits.check()
    }
}

/// A server at work.
struct Service {
    server: HttpServer,
    receiver: Arc<dyn Receive>,
    room: Room,
    /// Lines about signatures that do not hold.
    unauthentic: Flood,
}

impl Answering for Service {
    async fn answer(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Response<Body> {
        let reply = self.handle(request, connection).await;
        crash_point!("http.before-answer");
        reply.into_response()
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("address", &self.socket.address)
            .field("signed", &self.keyrings.is_some())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
