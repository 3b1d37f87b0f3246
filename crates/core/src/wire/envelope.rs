//! The envelope as RF-09 has it: fields and headers, not yet a message.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::json;
use super::limits::{ENVELOPE_FIELDS_MAX, Limits, at_most, depth_at_most};
use crate::{Error, ErrorKind, Result};

pub(super) const MESSAGE_ID: &str = "messageId";
pub(super) const CORRELATION_ID: &str = "correlationId";
pub(super) const SOURCE_SERVICE_ID: &str = "sourceServiceId";
pub(super) const MESSAGE_TYPE: &str = "messageType";
pub(super) const ENDPOINT: &str = "endpoint";
pub(super) const PAYLOAD: &str = "payload";
pub(super) const HEADERS: &str = "headers";

/// An envelope within its limits, its values not yet checked.
///
/// Prefer [`parse`](super::parse()), which makes a message of it. This is for adapters that complete what a
/// plain RF-09 sender leaves out.
#[derive(Clone)]
#[non_exhaustive]
pub struct Envelope<'a> {
    /// `messageId`.
    pub message_id: Cow<'a, str>,
    /// `correlationId`; `null` counts as absent.
    pub correlation_id: Option<Cow<'a, str>>,
    /// `sourceServiceId`.
    pub source_service_id: Cow<'a, str>,
    /// `messageType`.
    pub message_type: Cow<'a, str>,
    /// `endpoint`.
    pub endpoint: Cow<'a, str>,
    /// The text of `payload` as it stands: JSON, not decoded in any way.
    pub payload: &'a str,
    /// All headers, those of the envelope and those of the user; none if the field is absent.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope after checking size and depth.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) above a limit or with a duplicate name,
    /// [`Undecodable`](ErrorKind::Undecodable) if it is not JSON or lacks a field.
    pub fn read(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        at_most("bytes of envelope", bytes.len(), limits.envelope_bytes)?;
        Self::from_text(utf8("envelope", bytes)?, limits)
    }

    /// As [`read`](Self::read), of what is known to be text.
    pub(super) fn from_text(text: &'a str, limits: &Limits) -> Result<Self> {
        at_most("bytes of envelope", text.len(), limits.envelope_bytes)?;
        depth_at_most(text.as_bytes(), limits.depth)?;
        let fields = Fields(json::object("envelope", text, ENVELOPE_FIELDS_MAX)?);
        Ok(Self {
            message_id: fields.text(MESSAGE_ID)?,
            correlation_id: fields.optional_text(CORRELATION_ID)?,
            source_service_id: fields.text(SOURCE_SERVICE_ID)?,
            message_type: fields.text(MESSAGE_TYPE)?,
            endpoint: fields.text(ENDPOINT)?,
            payload: fields.raw(PAYLOAD)?,
            headers: fields.headers(limits)?,
        })
    }

    /// Adds a header unless there is one of this name.
    pub(super) fn complete(&mut self, name: &'static str, value: String) {
        if self.header(name).is_none() {
            self.headers.push((name.into(), value.into()));
        }
    }

    /// The value of header `name`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        json::get(&self.headers, name).map(AsRef::as_ref)
    }
}

impl fmt::Debug for Envelope<'_> {
    /// Shows no payload, and of the headers only their names: one of them is the signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("message_id", &self.message_id)
            .field("correlation_id", &self.correlation_id)
            .field("source_service_id", &self.source_service_id)
            .field("message_type", &self.message_type)
            .field("endpoint", &self.endpoint)
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}

/// Input as text; the cause of a failure would say no more than the position.
pub(super) fn utf8<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str> {
    str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Error::new(ErrorKind::Undecodable, format!("{what} is not UTF-8 at byte {at}"))
    })
}

struct Fields<'a>(json::Members<'a, &'a RawValue>);

impl<'a> Fields<'a> {
    fn optional_raw(&self, name: &str) -> Option<&'a str> {
        json::get(&self.0, name).map(|raw| raw.get())
    }

    fn raw(&self, name: &str) -> Result<&'a str> {
        self.optional_raw(name)
            .ok_or_else(|| Error::new(ErrorKind::Undecodable, format!("envelope has no {name}")))
    }

    fn text(&self, name: &str) -> Result<Cow<'a, str>> {
        json::text(name, self.raw(name)?)
    }

    fn optional_text(&self, name: &str) -> Result<Option<Cow<'a, str>>> {
        self.optional_raw(name).filter(|raw| *raw != "null").map(|raw| json::text(name, raw)).transpose()
    }

    fn headers(&self, limits: &Limits) -> Result<json::Members<'a, Cow<'a, str>>> {
        let headers = json::strings(HEADERS, self.optional_raw(HEADERS).unwrap_or("{}"), limits.headers)?;
        let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        at_most("bytes of headers", bytes, limits.header_bytes)?;
        Ok(headers)
    }
}
