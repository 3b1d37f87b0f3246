//! What is checked of a request before its body is read: where it thinks it is, where it comes from, who sends it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use twobox_core::Live;
use twobox_core::wire::Limits;

use super::refusal::{Code, Refusal};
use super::token::{Scope, Tokens};

/// The most bytes of a body that asks for something. Filters and reasons are far shorter.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Whatever is below this takes messages.
const SENDING: &str = "/v1/";
/// Open to everybody, and without any detail.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

/// Who sends a request: the name of a token.
#[derive(Clone, Debug)]
pub(super) struct Actor(pub(super) Arc<str>);

/// What a request needs; `None` if anybody may send it. The document is generated from the same rule.
pub(super) fn scope(method: &Method, path: &str) -> Option<Scope> {
    if OPEN.contains(&path) {
        None
    } else if path.starts_with(SENDING) {
        Some(Scope::Send)
    } else if method == Method::GET || method == Method::HEAD {
        Some(Scope::Read)
    } else {
        Some(Scope::Write)
    }
}

/// Checks the heads of requests.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) tokens: Live<Tokens>,
    /// Names by which the node may be called beside addresses and `localhost`.
    pub(super) hosts: Vec<String>,
    pub(super) payload_bytes_max: usize,
}

impl Guard {
    /// Lets a request through and notes who sends it; returns how many bytes its body may have.
    pub(super) fn admit(&self, head: &mut Parts) -> Result<usize, Refusal> {
        let host = self.check_host(head)?;
        check_origin(&head.headers, &host)?;
        let scope = scope(&head.method, head.uri.path());
        if let Some(scope) = scope {
            let actor = self.authorize(&head.headers, scope)?;
            head.extensions.insert(actor);
        }
        let bytes_max = match scope {
            Some(Scope::Send) => Limits::for_payloads(self.payload_bytes_max).batch_bytes,
            Some(Scope::Write) => REQUEST_BYTES_MAX,
            _ => 0,
        };
        if bytes_max > 0 && has_body(&head.headers) {
            twobox::check_json(&head.headers).map_err(|why| Code::UnsupportedMediaType.because(why))?;
        }
        Ok(bytes_max)
    }

    /// A page of another site can lead its own name to our address (DNS rebinding), but then it says that name here.
    fn check_host(&self, head: &Parts) -> Result<Authority, Refusal> {
        let mut values = head.headers.get_all(HOST).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Code::Malformed.because("a request needs exactly one Host header"));
        };
        let named = value.to_str().ok().and_then(|value| value.parse::<Authority>().ok());
        let named = named.ok_or_else(|| Code::Malformed.because("the Host header names no host"))?;
        if self.is_ours(&named) && head.uri.authority().is_none_or(|name| self.is_ours(name)) {
            return Ok(named);
        }
        Err(Code::HostRefused.because("the Host header names another host than this one"))
    }

    fn is_ours(&self, name: &Authority) -> bool {
        let host = name.host();
        // An address cannot be led elsewhere.
        let is_address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
        let is_called = |name: &str| host.eq_ignore_ascii_case(name);
        let has_user = name.as_str().contains('@');
        !has_user && (is_address || is_called("localhost") || self.hosts.iter().any(|name| is_called(name)))
    }

    fn authorize(&self, headers: &HeaderMap, scope: Scope) -> Result<Actor, Refusal> {
        let unauthorized = || Code::Unauthorized.because("there is no token that this node knows");
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Err(unauthorized()) };
        let presented = bearer(value.as_bytes()).ok_or_else(unauthorized)?;
        let tokens = self.tokens.get();
        let token = tokens.find(presented).ok_or_else(unauthorized)?;
        if token.allows(scope) {
            return Ok(Actor(Arc::clone(token.name())));
        }
        Err(Code::ScopeMissing.because(format!("the token does not have the scope `{}`", scope.as_str())))
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii()).filter(|token| !token.is_empty())
}

/// Browsers say where a request comes from. Nothing here is for pages of other sites.
fn check_origin(headers: &HeaderMap, host: &Authority) -> Result<(), Refusal> {
    let is_own = |origin: &str| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
    };
    if headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_own)) {
        return Ok(());
    }
    Err(Code::OriginRefused.because("the request comes from a page of another site"))
}

fn has_body(headers: &HeaderMap) -> bool {
    let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length.as_bytes() == b"0");
    !is_empty || headers.contains_key(TRANSFER_ENCODING)
}
