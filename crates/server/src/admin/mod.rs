//! The API of a node: for operators under `/_rf`, for programs that send under `/v1` (RF-22).
//!
//! Everything is limited before it is looked at, authorised before its body is read, bounded in what it may cost, and
//! answers neither payloads nor secrets. What every route takes and answers is in `docs/openapi.json`, which is
//! generated from this code; docs/ADMIN.md explains it.

mod audit;
mod bulk;
mod extract;
mod guard;
mod health;
mod inbox;
mod lanes;
mod messages;
mod openapi;
mod outbox;
mod pace;
mod refusal;
#[cfg(test)]
mod tests;
mod token;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CACHE_CONTROL, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{Request, Response};
use tower_service::Service;
use twobox::ports::BoxFuture;
use twobox::{Front, ServerLimits, TurnedAway, Web};
use twobox_core::one_line;
use twobox_core::wire::Limits;

use self::guard::{Actor, Guard};
use self::pace::Pace;
use self::refusal::{Code, Refusal};
use crate::node::{AdminLimits, AdminSettings, Node};

pub(crate) use self::token::{Scope, Token, Tokens};

/// What the routes share, for each of them.
type Shared = Arc<Admin>;

/// What an answer may be, when all is well.
type Answer<T> = Result<axum::Json<T>, Refusal>;

/// How many bodies of the largest size are kept at a time, for each of those who are known and those who are not.
const LARGEST_BODIES: usize = 4;
/// The least room for bodies.
const BODIES_BYTES_MIN: usize = 16 << 20;

/// What the routes share.
#[derive(Debug)]
struct Admin {
    node: Node,
    /// How fast dead letters of the outbox may be replayed or purged.
    outbox_pace: Pace,
    /// The same for the inbox.
    inbox_pace: Pace,
}

/// Serves the API until `shutdown` completes, then lets requests finish within the stated time.
///
/// # Errors
/// If nothing could get through under these limits.
pub(crate) async fn serve(
    node: Node,
    settings: AdminSettings,
    shutdown: BoxFuture<'static, ()>,
) -> twobox::Result<()> {
    let AdminSettings { listener, tokens, hosts, limits } = settings;
    let front = Front::new(listener, server_limits(&limits, node.payload_bytes_max))?;
    let guard = Guard { tokens, hosts, payload_bytes_max: node.payload_bytes_max };
    let admin = Admin { node, outbox_pace: Pace::default(), inbox_pace: Pace::default() };
    front.serve(Api { guard, router: router(admin) }, shutdown).await;
    Ok(())
}

fn server_limits(limits: &AdminLimits, payload_bytes_max: usize) -> ServerLimits {
    let wire = Limits::for_payloads(payload_bytes_max);
    let largest = wire.batch_bytes.saturating_mul(2 * LARGEST_BODIES);
    ServerLimits {
        bodies_bytes_max: largest.max(BODIES_BYTES_MIN),
        wire,
        connections_max: limits.connections_max,
        peer_connections_max: limits.connections_max,
        requests_max: limits.requests_max,
        head_timeout: limits.request_timeout,
        body_timeout: limits.request_timeout,
        body_grace: limits.request_timeout.min(Duration::from_secs(5)),
        shutdown_timeout: limits.shutdown_timeout,
        ..ServerLimits::default()
    }
}

fn router(admin: Admin) -> Router {
    let (router, _) = openapi::routes().split_for_parts();
    router
        .fallback(async || Code::NotFound.because("there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Code::MethodNotAllowed.because("the path does not take this method")
        })
        // Bodies were read, and limited, before they come here.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(admin))
}

/// The API behind its guard.
struct Api {
    guard: Guard,
    router: Router,
}

impl Web for Api {
    fn admit(&self, head: &mut Parts) -> Result<usize, Box<Response<Bytes>>> {
        self.guard.admit(head).map_err(|refusal| Box::new(plain(refusal)))
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        routed(&self.router, request).await
    }

    fn refuse(&self, turned_away: TurnedAway) -> Response<Bytes> {
        plain(match turned_away {
            TurnedAway::Broken => Code::Malformed.because("the body broke off"),
            TurnedAway::TooLarge => Code::TooLarge.because("the body is larger than this route takes"),
            TurnedAway::TimedOut => Code::TimedOut.because("the body did not come in time"),
            TurnedAway::Busy => Code::Busy.because("too much is being asked at the moment"),
            _ => Code::Internal.because("the request could not be answered"),
        })
    }
}

async fn routed(router: &Router, request: Request<Bytes>) -> Response<Bytes> {
    let mut router = router.clone();
    let response: Result<_, Infallible> = router.call(request.map(Body::from)).await;
    let Ok(response) = response;
    let (head, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => dressed(Response::from_parts(head, bytes)),
        Err(error) => {
            tracing::error!(error = one_line(&error), "an answer broke off");
            plain(Code::Internal.because("the answer broke off"))
        }
    }
}

/// The same routes without a network: for whoever has the database file in their hands, and could change it anyway.
#[derive(Debug)]
pub(crate) struct Direct {
    router: Router,
    actor: Actor,
}

impl Direct {
    /// Acts on this node's database. What it does stands in the audit trail under the name of `actor`.
    pub(crate) fn new(node: Node, actor: &str) -> Self {
        let admin = Admin { node, outbox_pace: Pace::default(), inbox_pace: Pace::default() };
        Self { router: router(admin), actor: Actor(actor.into()) }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, mut request: Request<Bytes>) -> Response<Bytes> {
        request.extensions_mut().insert(self.actor.clone());
        routed(&self.router, request).await
    }
}

/// A refusal that did not come from a route.
fn plain(refusal: Refusal) -> Response<Bytes> {
    dressed(refusal.into())
}

/// Answers are for whoever asked, now, and are what they say they are.
fn dressed(mut response: Response<Bytes>) -> Response<Bytes> {
    let fixed: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
