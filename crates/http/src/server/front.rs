//! Anything else that speaks HTTP, behind the same accept loop and the same limits.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response};
use tokio::net::TcpListener;
use twobox_core::clock::BoxFuture;
use twobox_core::{Error, ErrorKind, Result, one_line};

use super::ServerLimits;
use super::accept::{self, Answering};
use super::body::{self, Read};
use super::connections::Connection;
use super::reply::{Body, Refusal, Why};
use super::room::Room;
use super::socket::Socket;

/// The most of a body that is read only to be thrown away: its sender gets to read the answer, and the connection can
/// be used again.
const DISCARDED_BYTES_MAX: usize = 64 << 10;
/// How long that may take.
const DISCARD_WAIT: Duration = Duration::from_secs(1);

/// What a [`Front`] serves.
pub trait Web: Send + Sync + 'static {
    /// Looks at the head of a request, before any of its body is read: how many bytes the body may have. What it
    /// finds out it can leave in the head's extensions.
    ///
    /// A request that may have a body makes room for no other from then on: let in only whom you know.
    ///
    /// # Errors
    /// The answer, if the request is refused because of its head.
    fn admit(&self, head: &mut Parts) -> Result<usize, Box<Response<Bytes>>>;

    /// Answers a request whose body has arrived within the limits. It runs to its end even if nobody waits for the
    /// answer any more.
    fn answer(&self, request: Request<Bytes>) -> impl Future<Output = Response<Bytes>> + Send;

    /// The answer to a request that was turned away.
    fn refuse(&self, turned_away: TurnedAway) -> Response<Bytes>;
}

/// Why a request gets no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnedAway {
    /// The body broke off.
    Broken,
    /// The body is larger than it may be.
    TooLarge,
    /// The body did not come in time.
    TimedOut,
    /// Too many requests are handled, or too many bytes are received, at the moment.
    Busy,
    /// What should have answered has panicked.
    Failed,
}

impl From<&Refusal> for TurnedAway {
    fn from(refusal: &Refusal) -> Self {
        match refusal.why() {
            Why::TooLarge => Self::TooLarge,
            Why::TimedOut => Self::TimedOut,
            Why::Busy | Why::NoRoom => Self::Busy,
            _ => Self::Broken,
        }
    }
}

/// Serves a [`Web`] on a socket: everything is limited before it is looked at (S16).
///
/// Of the limits, those of envelopes and the time for receivers mean nothing here.
pub struct Front {
    socket: Socket,
    limits: ServerLimits,
}

impl Front {
    /// Serves on a socket that is bound already.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the socket has no address, [`Misconfigured`](ErrorKind::Misconfigured)
    /// if nothing could get through under these limits.
    pub fn new(listener: TcpListener, limits: ServerLimits) -> Result<Self> {
        limits.check()?;
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "the socket has no address").with_source(error);
        Ok(Self { socket: Socket::of(listener).map_err(failed)?, limits })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.address
    }

    /// Serves until `shutdown` completes, then lets requests finish within the stated time (S20).
    pub async fn serve(self, web: impl Web, shutdown: BoxFuture<'static, ()>) {
        let Self { socket, limits } = self;
        // Connections of operators are not among those of senders, which the figures count.
        let meters = Arc::default();
        let room = Room::new(&limits, &meters);
        let service = Served { room, limits: limits.clone(), web: Arc::new(web) };
        accept::serve(socket, (limits, meters), Arc::new(service), shutdown).await;
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("address", &self.socket.address)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A web at work.
struct Served<W> {
    web: Arc<W>,
    limits: ServerLimits,
    room: Room,
}

impl<W: Web> Answering for Served<W> {
    async fn answer(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let response = match self.web.admit(&mut head) {
            Ok(bytes_max) => self.admitted(head, body, bytes_max, connection).await,
            Err(response) => settled(*response, discard(body).await),
        };
        if response.status().is_success() {
            connection.prove();
        }
        response.map(Full::new)
    }
}

impl<W: Web> Served<W> {
    async fn admitted(
        &self,
        head: Parts,
        body: Incoming,
        bytes_max: usize,
        connection: &Arc<Connection>,
    ) -> Response<Bytes> {
        // Whoever may send a body is known by the head, so this is nobody who only takes up a place.
        if bytes_max > 0 {
            connection.begin().await;
        }
        let read = body::read(body, bytes_max, &self.limits, &self.room, connection).await;
        let Read { bytes, room } = match read {
            Ok(read) => read,
            Err(refusal) => return settled(self.web.refuse((&refusal).into()), false),
        };
        let held = match self.room.turn(room).await {
            Ok(held) => held,
            Err(refusal) => return self.web.refuse((&refusal).into()),
        };
        let (web, request) = (Arc::clone(&self.web), Request::from_parts(head, bytes));
        // In a task of its own: whoever hangs up must not leave something half done, nor make room for more of it.
        let answering = tokio::spawn(async move {
            let response = web.answer(request).await;
            drop(held);
            response
        });
        answering.await.unwrap_or_else(|error| {
            tracing::error!(error = one_line(&error), "a request could not be answered");
            self.web.refuse(TurnedAway::Failed)
        })
    }
}

/// Reads a small body to its end and forgets it. `false` if there is more of it.
async fn discard(mut body: Incoming) -> bool {
    if body.size_hint().lower() > DISCARDED_BYTES_MAX as u64 {
        return false;
    }
    let discarding = async {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DISCARDED_BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DISCARD_WAIT, discarding).await.unwrap_or(false)
}

/// Ends the connection unless the whole request was read: what is left would be taken for the next one.
fn settled(mut response: Response<Bytes>, is_read: bool) -> Response<Bytes> {
    if !is_read {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Refuses what would have to be unpacked or guessed before it could be limited (S16).
///
/// # Errors
/// What is wrong, in words.
pub fn check_json(headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_ascii_lowercase();
    if headers.get_all(CONTENT_ENCODING).iter().any(|encoding| text(encoding) != "identity") {
        return Err("compressed bodies are not taken: send it as it is");
    }
    let content_type = headers.get(CONTENT_TYPE).map(text).unwrap_or_default();
    if content_type.split(';').next().is_some_and(|essence| essence.trim() == "application/json") {
        return Ok(());
    }
    Err("the content type is not application/json")
}
