//! Plain requests to somebody who is no receiver of ours: a program of the user's, or the API of a node.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::client::legacy::Client;
use twobox_core::ports::DeliveryError;
use twobox_core::{Error, ErrorKind, Result};

use super::connect::Connector;
use super::exchange::retry_after;
use super::{ClientLimits, client};
use crate::url;

/// Makes plain requests within limits: no redirects, no proxies, nothing is unpacked. Cheap to clone; clones share
/// their connections.
#[derive(Clone)]
pub struct HttpClient {
    limits: ClientLimits,
    /// Most bytes of an answer that are kept.
    body_bytes_max: usize,
    client: Client<Connector, Full<Bytes>>,
}

/// A request to be made.
#[derive(Clone)]
#[must_use = "a call does nothing until it is made"]
pub struct Call(Request<Full<Bytes>>);

/// What came back.
#[derive(Clone)]
#[non_exhaustive]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body; `None` if it is larger than what is kept.
    pub body: Option<Bytes>,
    headers: HeaderMap,
}

impl Reply {
    /// A header that is plain text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// How long the other side asks to be left alone, if it says so in seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }
}

impl HttpClient {
    /// A client that keeps up to `body_bytes_max` bytes of an answer. With the feature `tls` it also speaks
    /// `https://`, and believes the authorities this machine trusts. Limits that come from elsewhere are to be checked
    /// before: [`ClientLimits::check`].
    #[must_use]
    pub fn new(limits: ClientLimits, body_bytes_max: usize) -> Self {
        let connector = Connector::new(true, &limits);
        Self { client: client(&connector, &limits), limits, body_bytes_max }
    }

    /// Makes a request and reads its answer, whatever its status code.
    ///
    /// # Errors
    /// [`DeliveryError`] if there is no whole answer; it says whether the request may have arrived.
    pub async fn call(&self, call: Call) -> Result<Reply, DeliveryError> {
        let answer = super::exchange::send(&self.client, self.limits.answer_timeout, call.0).await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(Reply { status, headers, body: self.body(answer).await? })
    }

    async fn body(&self, answer: Response<Incoming>) -> Result<Option<Bytes>, DeliveryError> {
        let timeout = self.limits.body_timeout;
        let reading = Limited::new(answer.into_body(), self.body_bytes_max).collect();
        match tokio::time::timeout(timeout, reading).await {
            Ok(Ok(body)) => Ok(Some(body.to_bytes())),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Ok(None),
            Ok(Err(error)) => Err(DeliveryError::ambiguous("the answer broke off").with_source(error)),
            Err(_) => Err(DeliveryError::ambiguous(format!("the answer did not end within {timeout:?}"))),
        }
    }
}

impl Call {
    /// A request: its method, where it goes, and its body.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the method or the URL cannot be used. The URL is not shown.
    pub fn new(method: &str, url: &str, body: impl Into<Bytes>) -> Result<Self> {
        Self::check_url(url)?;
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|error| Error::invalid("not a method of HTTP").with_source(error))?;
        Request::builder()
            .method(method)
            .uri(url)
            .body(Full::from(body.into()))
            .map(Self)
            .map_err(|error| Error::invalid("not a URL").with_source(error))
    }

    /// Refuses a URL that no request could be made to: `http://host[:port][/path]`, or `https://…` with the feature
    /// `tls`; user names and fragments would be lost, so they are refused.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), without the URL, which may hold a password.
    pub fn check_url(url: &str) -> Result<()> {
        // A query is part of the request, unlike in the base of a route.
        let base = url.split_once('?').map_or(url, |(base, _)| base);
        url::check(base)
            .map_err(|problem| Error::new(ErrorKind::Misconfigured, format!("the URL {problem}")))?;
        if url.contains('#') {
            return Err(Error::new(ErrorKind::Misconfigured, "the URL has a fragment, which would be lost"));
        }
        Ok(())
    }

    /// Adds a header. A value may be any text without control characters.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if it cannot stand in the head of a request. The value is not shown.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let illegal = || Error::invalid(format!("{name:?} cannot stand in the head of a request"));
        let name_of = HeaderName::from_bytes(name.as_bytes()).map_err(|_| illegal())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| illegal())?;
        self.0.headers_mut().append(name_of, value);
        Ok(self)
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for Call {
    /// Shows neither headers nor body: there are tokens and payloads in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("method", self.0.method()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}
