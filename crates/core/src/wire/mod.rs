//! The JSON envelope (RF-09) and its limits (S16).
//!
//! An envelope has the fields of RF-09 under exactly their names: `messageId`, `correlationId` (optional),
//! `sourceServiceId`, `messageType`, `endpoint`, `payload`, `headers`. What RF-09 has no field for travels as
//! headers with the reserved prefix ([`header`]); the user's own headers stand beside them. Fields and `rf-`
//! headers that are not known are ignored, duplicates are refused.
//!
//! The payload is kept as raw text from end to end. JSON stands in the envelope as it is, byte for byte;
//! everything else travels as a base64 string ([`Encoding`]). A batch is a JSON array of envelopes; the empty
//! array is a probe.
//!
//! ```
//! use twobox_core::wire::{self, Draft, Limits, Stamp};
//! # use twobox_core::{Destination, Endpoint, Headers, Message, MessageId, MessageType, Payload, Source, Timestamp};
//! # let created = Timestamp::from_micros(1_771_070_400_000_000);
//! # let message = Message {
//! #     id: MessageId::new("m-1")?, source: Source::new("shop")?, destination: Destination::new("billing")?,
//! #     endpoint: Endpoint::new("OrderApproved")?, message_type: MessageType::Signal,
//! #     payload: Payload::new(&br#"{"order":7}"#[..]), content_type: "application/json".into(),
//! #     correlation_id: None, ordering_key: None, headers: Headers::default(),
//! #     created, available: created, expires: Timestamp::MAX, replay: 0,
//! # };
//! # let sent = created;
//! let draft = Draft::new(&message);
//! // Signing, if the peer has keys, happens here: `sign(key, &draft.signed(sent, "outbox-1"))`.
//! let bytes = draft.encode(&Stamp { sent, outbox: "outbox-1", signature: None });
//!
//! let parsed = wire::parse(&bytes, &Limits::default())?;
//! assert_eq!(parsed.message, message);
//! # Ok::<(), twobox_core::Error>(())
//! ```

mod answer;
mod draft;
mod envelope;
mod exchange;
pub mod header;
mod instant;
mod json;
mod limits;
mod parse;
mod payload;
mod probe;
mod scan;

pub use self::answer::{
    ANSWER_BYTES_MAX, ANSWER_TYPE, BatchAnswer, RESPONSES_BYTES_MAX, ResponseRoom, answer_status,
    encode_answer, encode_answers, encode_refusal, parse_answer, parse_answers, parse_batch_answer,
    parse_refusal, with_inbox,
};
pub use self::draft::{Batch, Draft, Stamp};
pub use self::envelope::Envelope;
pub use self::exchange::{Asked, Asker};
pub use self::instant::{format as format_instant, parse as parse_instant};
pub use self::limits::{
    BATCH_EXTRA_BYTES, BATCH_ITEMS_MAX, DEPTH_MAX, ENVELOPE_EXTRA_BYTES, ENVELOPE_FIELDS_MAX, Limits,
    RF_HEADER_BYTES_MAX, RF_HEADERS_MAX, is_deeper,
};
pub use self::parse::{Parsed, parse, parse_batch, parse_plain};
pub use self::payload::{Encoding, check_content_type};
pub use self::probe::Probe;
