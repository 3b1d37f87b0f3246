//! Sending through the node: for programs in any language.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use twobox::{Headers, Once, OnceKey, Payload};
use twobox_core::message::JSON;
use twobox_core::wire::BATCH_ITEMS_MAX;
use twobox_core::{CorrelationId, Destination, Endpoint, ErrorKind, MessageId, MessageType, OrderingKey};

use super::extract::{is_list, parse, required, time};
use super::refusal::{Code, Refusal};
use super::{Admin, Answer, Shared};
use crate::api;
use crate::api::{SendAnswer, SendBody, Sent};

/// Names a request, so that repeating it does nothing.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// What bytes are unless something else is said.
const BYTES: &str = "application/octet-stream";

/// A message with the key that it is enqueued under once.
type Keyed = (Option<OnceKey>, twobox::NewMessage);

/// Enqueues a message, or a batch of at most 1,000, durably: the answer comes after the commit. A batch is enqueued as a
/// whole or not at all.
#[utoipa::path(post, path = "/v1/messages", tag = "messages", request_body = SendBody,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255,
        description = "Enqueues the message unless one was enqueued under this key before. Only for a single message: \
            those of a batch have an `idempotencyKey` each.")),
    responses((status = 200, body = SendAnswer)))]
pub(super) async fn send(State(admin): State<Shared>, headers: HeaderMap, body: Bytes) -> Answer<SendAnswer> {
    let messages =
        if is_list(&body) { read_batch(&body, &headers)? } else { vec![read_one(&body, &headers)?] };
    let messages = messages.iter().map(|message| admin.keyed(message));
    let messages: Vec<Keyed> = in_order(messages)?;
    let is_batch = messages.len() > 1;
    let outbox = admin.node.outbox.clone();
    let enqueueing = admin.node.db.transaction(move |tx| {
        let enqueue = |(place, (key, message)): (usize, &Keyed)| {
            let sent: twobox::Result<Sent> = match key {
                Some(key) => outbox.enqueue_once(tx, key, message).map(Into::into),
                None => outbox.enqueue(tx, message).map(Into::into),
            };
            sent.map_err(|error| if is_batch { placed(place, error) } else { error })
        };
        messages.iter().enumerate().map(enqueue).collect::<twobox::Result<Vec<Sent>>>()
    });
    Ok(Json(SendAnswer { messages: enqueueing.await? }))
}

fn read_one(body: &[u8], headers: &HeaderMap) -> Result<api::NewMessage, Refusal> {
    let mut message: api::NewMessage = parse(body)?;
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(message) };
    let key = key.to_str().map_err(|_| Code::Malformed.because("the Idempotency-Key is not plain text"))?;
    if message.idempotency_key.as_deref().is_some_and(|other| other != key) {
        return Err(Code::Invalid.because("the header Idempotency-Key and the field idempotencyKey differ"));
    }
    message.idempotency_key = Some(key.into());
    Ok(message)
}

fn read_batch(body: &[u8], headers: &HeaderMap) -> Result<Vec<api::NewMessage>, Refusal> {
    if headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(Code::Invalid
            .because("the header Idempotency-Key is for one message: give each an idempotencyKey"));
    }
    let messages: Vec<Box<RawValue>> = parse(body)?;
    if (1..=BATCH_ITEMS_MAX).contains(&messages.len()) {
        return in_order(messages.iter().map(|message| parse(message.get().as_bytes())));
    }
    let count = messages.len();
    Err(Code::Invalid.because(format!("a batch of {count} messages: send from 1 to {BATCH_ITEMS_MAX}")))
}

/// All of them, or the first that is refused, with its place.
fn in_order<T>(items: impl ExactSizeIterator<Item = Result<T, Refusal>>) -> Result<Vec<T>, Refusal> {
    let is_batch = items.len() > 1;
    let place =
        |place, refusal: Refusal| if is_batch { refusal.at(&format!("message {place}")) } else { refusal };
    items.enumerate().map(|(at, item)| item.map_err(|refusal| place(at, refusal))).collect()
}

/// An error of the message itself, with its place; others are about all of them.
fn placed(place: usize, error: twobox::Error) -> twobox::Error {
    match error.kind() {
        ErrorKind::Invalid => twobox::Error::invalid(format!("message {place}: {error}")),
        _ => error,
    }
}

impl Admin {
    fn keyed(&self, message: &api::NewMessage) -> Result<Keyed, Refusal> {
        let key =
            message.idempotency_key.as_deref().map(|key| required("idempotencyKey", key)).transpose()?;
        let message = domain(message)?;
        if self.node.destinations.contains(&message.destination) {
            return Ok((key, message));
        }
        Err(Code::UnknownDestination.because(format!("the node does not send to {:?}", message.destination)))
    }
}

/// The message as the outbox takes it.
fn domain(message: &api::NewMessage) -> Result<twobox::NewMessage, Refusal> {
    let optional = |name: &'static str, text: &Option<String>| text.clone().map(|text| (name, text));
    let destination: Destination = required("destination", &message.destination)?;
    let endpoint: Endpoint = required("endpoint", &message.endpoint)?;
    let (payload, content_type) = body(message)?;
    let mut new = twobox::NewMessage::raw(destination, endpoint, content_type, payload)
        .message_type(message.message_type.into())
        .headers(headers(message)?);
    if let Some((name, id)) = optional("messageId", &message.message_id) {
        new = new.id(required::<MessageId>(name, &id)?);
    }
    if let Some((name, id)) = optional("correlationId", &message.correlation_id) {
        new = new.correlation_id(required::<CorrelationId>(name, &id)?);
    }
    if let Some((name, key)) = optional("orderingKey", &message.ordering_key) {
        new = new.ordering_key(required::<OrderingKey>(name, &key)?);
    }
    if let Some(due) = time("due", message.due.as_deref())? {
        new = new.due(due);
    }
    match message.ttl_seconds {
        Some(0) => {
            Err(Code::Invalid.because("ttlSeconds: a message that is worth nothing: give it at least 1"))
        }
        Some(seconds) => Ok(new.ttl(std::time::Duration::from_secs(seconds.into()))),
        None => Ok(new),
    }
}

fn body(message: &api::NewMessage) -> Result<(Payload, &str), Refusal> {
    let content_type = message.content_type.as_deref();
    // Some write what they leave out as null.
    let json =
        message.payload.as_ref().filter(|json| json.get() != "null" || message.payload_base64.is_none());
    match (json, &message.payload_base64) {
        (Some(json), None) => {
            Ok((Payload::new(json.get().as_bytes().to_vec()), content_type.unwrap_or(JSON)))
        }
        (None, Some(text)) => {
            let invalid = |_| Code::Invalid.because("payloadBase64: not base64 with padding");
            Ok((Payload::new(STANDARD.decode(text).map_err(invalid)?), content_type.unwrap_or(BYTES)))
        }
        _ => Err(Code::Invalid.because("give either payload or payloadBase64")),
    }
}

fn headers(message: &api::NewMessage) -> Result<Headers, Refusal> {
    let mut headers = Headers::default();
    for (name, value) in &message.headers {
        headers.insert(name, value).map_err(|error| Refusal::from(error).at("headers"))?;
    }
    Ok(headers)
}

impl From<MessageId> for Sent {
    fn from(id: MessageId) -> Self {
        Self { message_id: id.to_string(), duplicate: false }
    }
}

impl From<Once> for Sent {
    fn from(once: Once) -> Self {
        Self { message_id: once.id().to_string(), duplicate: matches!(once, Once::Already(_)) }
    }
}

impl From<api::MessageType> for MessageType {
    fn from(kind: api::MessageType) -> Self {
        match kind {
            api::MessageType::Signal => Self::Signal,
            api::MessageType::Command => Self::Command,
            api::MessageType::PushCall => Self::PushCall,
            api::MessageType::Response => Self::Response,
        }
    }
}
