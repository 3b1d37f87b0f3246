//! Sending messages through a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A message to be sent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewMessage {
    /// The service it goes to.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) destination: String,
    /// What is called there.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) endpoint: String,
    /// What it means. Default: a signal.
    #[serde(default)]
    pub(crate) message_type: MessageType,
    /// The body as JSON; it is sent byte for byte as it stands here. Either this or `payloadBase64`.
    #[serde(default, deserialize_with = "as_it_stands", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// The body as bytes, in base64.
    #[schema(content_encoding = "base64")]
    pub(crate) payload_base64: Option<String>,
    /// Media type of the body. Default: `application/json`, or `application/octet-stream` with `payloadBase64`.
    #[schema(max_length = 255)]
    pub(crate) content_type: Option<String>,
    /// An id of your own choosing; minted if absent.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) message_id: Option<String>,
    /// Enqueues the message unless one was enqueued under this key before. For a single message the header
    /// `Idempotency-Key` does the same.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) idempotency_key: Option<String>,
    /// Links it to another message.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) correlation_id: Option<String>,
    /// Messages with the same key stay in order.
    #[schema(min_length = 1, max_length = 255)]
    pub(crate) ordering_key: Option<String>,
    /// Headers for the receiver: names in lower case, none that begins with `rf-`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Not before this time (RFC 3339, UTC).
    #[schema(format = DateTime)]
    pub(crate) due: Option<String>,
    /// How long it is worth delivering. Default: the node's setting.
    #[schema(minimum = 1)]
    pub(crate) ttl_seconds: Option<u32>,
}

/// Also `null` is JSON.
fn as_it_stands<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(json).map(Some)
}

/// What a message means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum MessageType {
    /// Something has happened.
    #[default]
    Signal,
    /// Something is to be done, and answered.
    Command,
    /// Something is to be called.
    PushCall,
    /// The answer to a command.
    Response,
}

/// One message, or a batch of at most 1,000 that are enqueued together or not at all.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is for the document; what arrives is read as the one or the other")]
pub(crate) enum SendBody {
    /// One message.
    One(Box<NewMessage>),
    /// A batch.
    Batch(Vec<NewMessage>),
}

/// Messages that are committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SendAnswer {
    /// One per message, in their order.
    pub(crate) messages: Vec<Sent>,
}

/// A message that is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sent {
    /// Its id.
    pub(crate) message_id: String,
    /// Whether it had been enqueued before under the same idempotency key: nothing was written now.
    pub(crate) duplicate: bool,
}
