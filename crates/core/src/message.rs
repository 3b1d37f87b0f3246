//! Messages: as users write them ([`NewMessage`]) and as they are kept and delivered ([`Message`]).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;

use crate::sha256::{Hash256, sha256};
use crate::{
    ContentType, CorrelationId, Destination, Endpoint, Error, MessageId, OrderingKey, Result, Source,
    Timestamp, mutant,
};

/// The largest payload accepted unless configured otherwise: 1 MiB. Larger things belong in a store of their
/// own, with a reference in the message.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The most user headers a message may carry.
pub const HEADERS_MAX: usize = 64;
/// The most bytes all user headers of a message may have together.
pub const HEADER_BYTES_MAX: usize = 16 << 10;
/// The content type of a payload unless said otherwise.
pub const JSON: &str = "application/json";
/// User headers may not start with this: it marks what the envelope itself carries.
pub const RESERVED_HEADER_PREFIX: &str = "rf-";

/// What a message means to its receiver (RF-10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// Something happened.
    #[default]
    Signal,
    /// Do something.
    Command,
    /// A method was called.
    PushCall,
    /// The answer to an earlier message, named by its correlation id.
    Response,
}

impl MessageType {
    /// The name on the wire and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "Signal",
            Self::Command => "Command",
            Self::PushCall => "PushCall",
            Self::Response => "Response",
        }
    }
}

impl FromStr for MessageType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Signal, Self::Command, Self::PushCall, Self::Response]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| Error::invalid("message type is none of Signal, Command, PushCall, Response"))
    }
}

/// A message body: opaque bytes, never re-serialised and never shown in logs (S17).
#[derive(Clone, Default)]
pub struct Payload {
    bytes: Bytes,
    /// Their hash, once somebody has needed it: signature and dedup row both do.
    sha256: OnceLock<Hash256>,
    /// Whether they are known to be one JSON value, with nothing around it.
    is_json: bool,
}

impl Payload {
    /// Wraps bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), sha256: OnceLock::new(), is_json: false }
    }

    /// Serialises a value, as one JSON value: an implementation of `Serialize` by hand that leaves something out of it,
    /// such as the value of a key, makes a payload that receivers refuse.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if it cannot be.
    pub fn json(value: &impl serde::Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Error::invalid("cannot serialise to JSON").with_source(error))?;
        // What most handlers answer.
        let bytes = if bytes == b"null" { Bytes::from_static(b"null") } else { bytes.into() };
        Ok(Self { is_json: true, ..Self::new(bytes) })
    }

    /// The same, for somebody who keeps it: small ones are copied. To free memory that another thread has allocated
    /// takes longer than that.
    pub(crate) fn detached(&self) -> Self {
        const SMALL: usize = 1024;
        if self.len() > SMALL {
            return self.clone();
        }
        let bytes = Bytes::copy_from_slice(&self.bytes);
        Self { bytes, sha256: self.sha256.clone(), is_json: self.is_json }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the bytes are known to be one JSON value, with nothing around it. Others may be one as well.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// SHA-256 of the bytes.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        *self.sha256.get_or_init(|| sha256(&self.bytes))
    }

    /// Takes note of what the hash is.
    pub(crate) fn note_sha256(&self, hash: Hash256) {
        let noted = *self.sha256.get_or_init(|| hash);
        debug_assert_eq!(noted, hash, "a payload has one hash");
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Payload {}

impl std::hash::Hash for Payload {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if mutant!(PayloadShown) {
            return write!(f, "{}", String::from_utf8_lossy(&self.bytes));
        }
        write!(f, "[{} bytes]", self.bytes.len())
    }
}

/// What a handler answered; stored and given again to duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Media type of the body.
    pub content_type: ContentType,
    /// The body.
    pub body: Payload,
}

impl Response {
    /// An answer without content.
    #[must_use]
    pub fn empty() -> Self {
        Self { content_type: ContentType::JSON, body: Payload::default() }
    }

    /// A JSON answer.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if `value` cannot be serialised.
    pub fn json(value: &impl serde::Serialize) -> Result<Self> {
        Ok(Self { content_type: ContentType::JSON, body: Payload::json(value)? })
    }
}

/// Headers a user attaches to a message: names in lower case, values without control characters.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, String>);

impl fmt::Debug for Headers {
    /// Shows the names: values may be secrets (S17).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Headers {
    /// Adds a header, replacing one of the same name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the name is not made of `a-z 0-9 - _ .`, starts with `rf-`,
    /// the value contains a control character, or the limits of number and size are exceeded.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.".contains(&c);
        if name.is_empty() || !name.bytes().all(legal) {
            return Err(Error::invalid(format!(
                "header name {name:?} is not made of a-z, 0-9, '-', '_', '.'"
            )));
        }
        if name.starts_with(RESERVED_HEADER_PREFIX) {
            return Err(Error::invalid(format!("header name {name:?} starts with the reserved rf-")));
        }
        if value.chars().any(char::is_control) {
            return Err(Error::invalid(format!("header {name:?} has a control character in its value")));
        }
        self.0.insert(name, value);
        self.check()
    }

    fn check(&self) -> Result<()> {
        let bytes: usize = self.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.0.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{} headers of {bytes} bytes exceed the limit of {HEADERS_MAX} headers and {HEADER_BYTES_MAX} bytes",
                self.0.len()
            )));
        }
        Ok(())
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All headers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers as a JSON object, as databases keep them.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("a map of strings serialises")
    }

    /// Reads what [`to_json`](Self::to_json) wrote, with the same checks as [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if it is not a JSON object of strings within the limits.
    pub fn from_json(json: &str) -> Result<Self> {
        // The cause would quote what it met (S17).
        let map: BTreeMap<String, String> = serde_json::from_str(json)
            .map_err(|_| Error::invalid("headers are not a JSON object of strings"))?;
        let mut headers = Self::default();
        for (name, value) in map {
            headers.insert(name, value)?;
        }
        Ok(headers)
    }
}

/// A message as its author writes it; the outbox adds id, source and dates.
#[derive(Clone, Debug)]
#[must_use = "a message does nothing until it is enqueued"]
pub struct NewMessage {
    /// Where it goes.
    pub destination: Destination,
    /// What is called there.
    pub endpoint: Endpoint,
    /// What it means.
    pub message_type: MessageType,
    /// The body.
    pub payload: Payload,
    /// Media type of the body.
    pub content_type: ContentType,
    /// Id of the author's choosing; minted if absent.
    pub id: Option<MessageId>,
    /// Links it to another message.
    pub correlation_id: Option<CorrelationId>,
    /// Messages with the same key stay in order.
    pub ordering_key: Option<OrderingKey>,
    /// User headers.
    pub headers: Headers,
    /// Not before this time.
    pub due: Option<Timestamp>,
    /// How long it is worth delivering, counted from when it becomes available.
    pub ttl: Option<Duration>,
}

impl NewMessage {
    /// A signal with raw bytes.
    pub fn raw(destination: Destination, endpoint: Endpoint, content_type: &str, payload: Payload) -> Self {
        Self {
            destination,
            endpoint,
            message_type: MessageType::Signal,
            payload,
            content_type: content_type.into(),
            id: None,
            correlation_id: None,
            ordering_key: None,
            headers: Headers::default(),
            due: None,
            ttl: None,
        }
    }

    /// A signal with a JSON body.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if a name is invalid or `body` cannot be serialised.
    pub fn json(destination: &str, endpoint: &str, body: &impl serde::Serialize) -> Result<Self> {
        Ok(Self::raw(Destination::new(destination)?, Endpoint::new(endpoint)?, JSON, Payload::json(body)?))
    }

    /// Sets the message type. Default: [`MessageType::Signal`].
    pub fn message_type(mut self, message_type: MessageType) -> Self {
        self.message_type = message_type;
        self
    }

    /// Sets the id instead of having one minted.
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Links the message to another one.
    pub fn correlation_id(mut self, id: CorrelationId) -> Self {
        self.correlation_id = Some(id);
        self
    }

    /// Keeps messages of the same key in order (S12).
    pub fn ordering_key(mut self, key: OrderingKey) -> Self {
        self.ordering_key = Some(key);
        self
    }

    /// Attaches user headers.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Holds the message back until `due`.
    pub fn due(mut self, due: Timestamp) -> Self {
        self.due = Some(due);
        self
    }

    /// Gives up on the message `ttl` after it became available.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// A message as it is kept and delivered. Built by outboxes, stores and transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Identity within the source.
    pub id: MessageId,
    /// Who sent it.
    pub source: Source,
    /// Where it goes.
    pub destination: Destination,
    /// What is called there.
    pub endpoint: Endpoint,
    /// What it means.
    pub message_type: MessageType,
    /// The body.
    pub payload: Payload,
    /// Media type of the body.
    pub content_type: ContentType,
    /// Links it to another message.
    pub correlation_id: Option<CorrelationId>,
    /// Messages with the same key stay in order.
    pub ordering_key: Option<OrderingKey>,
    /// User headers.
    pub headers: Headers,
    /// When it was enqueued.
    pub created: Timestamp,
    /// When it became deliverable: the later of creation and due date. Immutable and signed; time to live
    /// and the receiver's watermark count from it (L5, S9).
    pub available: Timestamp,
    /// When it stops being worth delivering.
    pub expires: Timestamp,
    /// How often an operator sent it again (L10).
    pub replay: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_10_message_types_round_trip() {
        for kind in [MessageType::Signal, MessageType::Command, MessageType::PushCall, MessageType::Response]
        {
            assert_eq!(kind.as_str().parse::<MessageType>().unwrap(), kind);
        }
        assert!("signal".parse::<MessageType>().is_err());
    }

    #[test]
    fn s17_debug_shows_no_payload() {
        let mut message = NewMessage::json("billing", "Pay", &"hunter2-canary").unwrap();
        message.headers.insert("authorization", "Bearer canary").unwrap();
        let shown = format!("{message:?}");
        assert!(shown.contains("authorization") && !shown.contains("canary"), "{shown}");
        let error = Headers::from_json("\"canary\"").unwrap_err();
        let damaged = Headers::from_json("canary").unwrap_err();
        assert!(!format!("{error:?}{damaged:?}").contains("canary"));
    }

    #[test]
    fn header_limits_hold() {
        let mut headers = Headers::default();
        assert!(headers.insert("rf-hmac", "x").is_err());
        assert!(headers.insert("Upper", "x").is_err());
        assert!(headers.insert("a", "line\nbreak").is_err());
        assert!(headers.insert("big", "x".repeat(HEADER_BYTES_MAX)).is_err());
        let mut headers = Headers::default();
        headers.insert("traceparent", "00-ab-cd-01").unwrap();
        assert_eq!(Headers::from_json(&headers.to_json()).unwrap(), headers);
    }
}
