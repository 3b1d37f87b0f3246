//! Answers in the making.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use twobox_core::handler::shorten;
use twobox_core::meters::{Case, HttpOutcome};
use twobox_core::ports::Answer;
use twobox_core::wire::{
    ANSWER_TYPE, Asker, answer_status, encode_answer, encode_answers, encode_refusal, header, with_inbox,
};
use twobox_core::{Message, MessageId};

pub(super) type Body = Full<Bytes>;

/// Why a request is refused as a whole. It has written nothing, unless it is `Unavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not what this route takes.
    Malformed,
    /// It is not signed by anybody known.
    Unauthentic,
    /// It was sent too long ago, or will be.
    Stale,
    /// There is nothing at this path.
    NotFound,
    /// The path takes only POST.
    MethodNotAllowed,
    /// The body did not come in time.
    TimedOut,
    /// The body is too large.
    TooLarge,
    /// The body is of a type or in an encoding that is not taken.
    Unsupported,
    /// It is meant for another service.
    Misdirected,
    /// There is too much to do.
    Busy,
    /// There is no room for its body.
    NoRoom,
    /// The receiver's store cannot answer, or a handler takes too long. What became of the messages is not known: they
    /// are to be sent again under the same ids.
    Unavailable,
}

impl Why {
    fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unauthentic | Self::Stale => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Busy | Self::NoRoom | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What it is called, in answers and in figures.
    fn outcome(self) -> HttpOutcome {
        match self {
            Self::Malformed => HttpOutcome::Malformed,
            Self::Unauthentic => HttpOutcome::Unauthentic,
            Self::Stale => HttpOutcome::Stale,
            Self::NotFound => HttpOutcome::NotFound,
            Self::MethodNotAllowed => HttpOutcome::MethodNotAllowed,
            Self::TimedOut => HttpOutcome::TimedOut,
            Self::TooLarge => HttpOutcome::TooLarge,
            Self::Unsupported => HttpOutcome::Unsupported,
            Self::Misdirected => HttpOutcome::Misdirected,
            Self::Busy | Self::NoRoom => HttpOutcome::Busy,
            Self::Unavailable => HttpOutcome::Unavailable,
        }
    }

    /// A refusal with its reason in words.
    pub(super) fn because(self, error: impl Into<String>) -> Refusal {
        Refusal { why: self, error: error.into() }
    }
}

/// A request that is refused as a whole.
#[derive(Debug)]
pub(super) struct Refusal {
    why: Why,
    error: String,
}

impl Refusal {
    pub(super) fn why(&self) -> Why {
        self.why
    }

    /// What it is called in figures.
    pub(super) fn outcome(&self) -> HttpOutcome {
        self.why.outcome()
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let Refusal { why, error } = refusal;
        let outcome = why.outcome().as_str();
        tracing::debug!(outcome, error = shorten(&error), "request refused");
        let mut reply = Self::new(why.status(), encode_refusal(outcome, &error));
        match why {
            Why::Busy | Why::NoRoom | Why::Unavailable => reply.retry_after_seconds = Some(1),
            Why::MethodNotAllowed => reply.allows_post = true,
            _ => {}
        }
        // The rest of a body that was not read would be taken for the next request.
        reply.closes = matches!(
            why,
            Why::TimedOut
                | Why::TooLarge
                | Why::NoRoom
                | Why::NotFound
                | Why::MethodNotAllowed
                | Why::Unsupported
        );
        reply
    }
}

/// An answer that is not signed yet.
pub(super) struct Reply {
    status: StatusCode,
    body: Vec<u8>,
    retry_after_seconds: Option<u64>,
    closes: bool,
    allows_post: bool,
    signature: Option<(HeaderValue, HeaderValue)>,
}

impl Reply {
    fn new(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body, retry_after_seconds: None, closes: false, allows_post: false, signature: None }
    }

    /// The answer to one message.
    pub(super) fn to_one(message: &Message, answer: &Answer) -> Self {
        let status = StatusCode::from_u16(answer_status(answer)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut reply = Self::new(status, encode_answer(&message.id, answer));
        reply.retry_after_seconds = match answer {
            Answer::InProgress { after } | Answer::TooEarly { after } => Some(*after),
            Answer::Retry { after, .. } => *after,
            _ => None,
        }
        // Rounded up: a sender that comes back too early only has to come again.
        .map(|after| after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)));
        reply
    }

    /// The answer to a batch.
    pub(super) fn to_batch<'a>(answers: impl IntoIterator<Item = (&'a MessageId, &'a Answer)>) -> Self {
        Self::new(StatusCode::OK, encode_answers(answers))
    }

    /// Says which inbox gives the answer, if that is known. Before it is signed.
    pub(super) fn of_inbox(mut self, inbox: Option<&str>) -> Self {
        if let Some(inbox) = inbox {
            self.body = with_inbox(self.body, inbox);
        }
        self
    }

    /// Signs it with the key of the request, if that was signed.
    pub(super) fn signed(mut self, asker: &Asker<'_>) -> Self {
        let value = |text: &str| HeaderValue::from_str(text).ok();
        let signature = asker.sign(self.status.as_u16(), &self.body);
        self.signature =
            signature.and_then(|(key_id, mac)| value(key_id.as_str()).zip(value(&mac.to_base64())));
        self
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Full::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ANSWER_TYPE));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.allows_post {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        if let Some((key_id, mac)) = self.signature {
            headers.insert(header::KEY_ID, key_id);
            headers.insert(header::HMAC, mac);
        }
        response
    }
}
