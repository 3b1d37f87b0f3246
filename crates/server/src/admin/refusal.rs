//! Errors as their callers see them: one shape, stable codes, the right status.

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use twobox_core::{Error, ErrorKind, one_line};

use crate::api::{ErrorAnswer, ErrorDetail};

macro_rules! codes {
    ($($name:ident = $status:literal $code:literal $remedy:literal;)*) => {
        /// Everything that can go wrong with a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Code {
            $($name,)*
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];

            pub(super) fn status(self) -> StatusCode {
                let status = match self {
                    $(Self::$name => $status,)*
                };
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// Stable: programs depend on it.
            pub(super) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// What to do about it.
            fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                }
            }
        }
    };
}

codes! {
    Malformed = 400 "malformed" "correct the request: docs/ADMIN.md shows an example of each";
    Unauthorized = 401 "unauthorized" "send `Authorization: Bearer <token>` with a token of this node";
    ScopeMissing = 403 "scope_missing" "use a token that has the scope";
    HostRefused = 403 "host_refused" "use the address, localhost, or a name that is listed under the admin hosts";
    OriginRefused = 403 "origin_refused" "pages of other sites may not use this API";
    NotFound = 404 "not_found" "GET /_rf/openapi.json lists what there is";
    MessageNotFound = 404 "message_not_found" "check the id; what was finished long ago is no longer kept";
    LaneNotFound = 404 "lane_not_found" "check the name; GET /_rf/outbox/lanes lists those there are";
    KeyNotBlocked = 404 "key_not_blocked" "list the blocked keys: somebody may have released it already";
    MethodNotAllowed = 405 "method_not_allowed" "use a method of the header `Allow`";
    TimedOut = 408 "timed_out" "send the body at once";
    NotDead = 409 "not_dead" "only dead letters can be tried again: look at the message's status";
    TooLarge = 413 "too_large" "send less at a time, or raise the limit in the configuration";
    UnsupportedMediaType = 415 "unsupported_media_type" "send JSON, not packed, as `Content-Type: application/json`";
    Invalid = 422 "invalid" "correct the value";
    UnknownDestination = 422 "unknown_destination" "check the name, or add the destination to the configuration";
    TooFast = 429 "too_fast" "wait as long as the header `Retry-After` says";
    Internal = 500 "internal" "look into the node's log";
    Busy = 503 "busy" "try again in a moment";
    NotReady = 503 "not_ready" "look into the node's log if it lasts";
    Unavailable = 503 "unavailable" "try again in a moment";
    ReadOnly = 503 "read_only" "make the database file and its folder writable";
    DiskFull = 503 "disk_full" "make room on the disk";
    Damaged = 503 "damaged" "restore a backup";
    Stopped = 503 "stopped" "look into the node's log, then start it again";
    OutcomeUnknown = 503 "outcome_unknown" "repeat it with the same Idempotency-Key, or look whether it was done";
}

impl Code {
    /// A refusal with its reason in words.
    pub(super) fn because(self, message: impl Into<String>) -> Refusal {
        Refusal { code: self, message: message.into(), retry_after_seconds: None }
    }
}

/// A request that is refused, or failed.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
    retry_after_seconds: Option<u64>,
}

impl Refusal {
    /// Says when to come back.
    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Says what it is about: which message of a batch, which parameter.
    pub(super) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => Code::Invalid,
            ErrorKind::CommitUnknown => Code::OutcomeUnknown,
            ErrorKind::ReadOnly => Code::ReadOnly,
            ErrorKind::Full => Code::DiskFull,
            ErrorKind::Corrupt => Code::Damaged,
            ErrorKind::Stopped => Code::Stopped,
            _ if error.is_transient() => Code::Unavailable,
            _ => Code::Internal,
        };
        if code != Code::Invalid {
            tracing::warn!(error = one_line(&error), "the store cannot answer the API");
        }
        code.because(error.to_string())
    }
}

impl From<Refusal> for Response<Bytes> {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, retry_after_seconds } = refusal;
        let error = ErrorDetail { code: code.as_str().into(), message, remedy: code.remedy().into() };
        let body = serde_json::to_vec(&ErrorAnswer { error }).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"twobox\""));
        }
        let is_temporary = code.status() == StatusCode::SERVICE_UNAVAILABLE;
        if let Some(seconds) = retry_after_seconds.or(is_temporary.then_some(1)) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        Response::<Bytes>::from(self).map(Body::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_codes_are_unique_and_documented() {
        let page = include_str!("../../../../docs/ADMIN.md");
        for (place, code) in Code::ALL.iter().enumerate() {
            let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
            assert!(page.contains(&row), "docs/ADMIN.md has no row {row}");
            assert!(Code::ALL[..place].iter().all(|other| other.as_str() != code.as_str()), "{code:?}");
        }
    }
}
