//! Typed messages.

use serde::Serialize;

use twobox_core::message::JSON;

use crate::{MessageType, NewMessage, Payload, Refusal, Response, Result};

/// A type that travels as a message under a stable name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no name to travel under",
    label = "implement `Signal` for it: `impl Signal for {Self} {{ const NAME: &'static str = \"…\"; }}`"
)]
pub trait Signal: Serialize + Sized {
    /// The endpoint it is sent to and handled under. Part of the wire format: renaming the type must not change it.
    const NAME: &'static str;

    /// What it means to the receiver.
    const TYPE: MessageType = MessageType::Signal;

    /// The message for `destination`, to be enqueued.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if a name is invalid or the value cannot be serialised.
    fn to(&self, destination: &str) -> Result<NewMessage> {
        Ok(NewMessage::json(destination, Self::NAME, self)?.message_type(Self::TYPE))
    }
}

/// Reads a payload. One that does not fit can never work, so it is rejected; its content stays out of the error.
pub(super) fn decode<T: serde::de::DeserializeOwned>(name: &str, payload: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(payload).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Refusal::reject(format!("the payload is no {name} ({:?} error at {line}:{column})", error.classify()))
    })
}

/// What a handler answers that returns an `R`, as far as its type says: one without content has nothing to say.
pub(super) fn usual<R>() -> Response {
    match size_of::<R>() {
        0 => Response { content_type: JSON.into(), body: Payload::new("null") },
        _ => Response::empty(),
    }
}

/// Writes a response.
pub(super) fn encode(value: &impl Serialize) -> Result<Response, Refusal> {
    Response::json(value).map_err(|error| Refusal::reject(error.chain()))
}
