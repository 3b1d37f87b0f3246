//! The payload as text in an envelope, and back.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::limits::{DEPTH_MAX, at_most, is_deeper};
use super::{header, json};
use crate::name::NAME_CHARS_MAX;
use crate::{Error, Message, Payload, Result};

/// How the payload stands in the envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As it is: JSON, byte for byte.
    Plain,
    /// As a string in base64: everything that is not JSON by its type and by its bytes, and the empty payload.
    Base64,
}

impl Encoding {
    /// The value of `rf-encoding`; empty if the header is absent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Base64 => "base64",
        }
    }

    pub(super) fn from_header(value: Option<&str>) -> Result<Self> {
        match value {
            None => Ok(Self::Plain),
            Some("base64") => Ok(Self::Base64),
            Some(_) => Err(Error::invalid(format!("{} is not base64", header::ENCODING))),
        }
    }
}

/// Refuses a content type that no envelope can carry: one of more than 255 characters or with a control
/// character. For outboxes to ask before they accept a message.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid).
pub fn check_content_type(content_type: &str) -> Result<()> {
    check_label("content type", content_type)
}

/// Like a name, but may be empty.
pub(super) fn check_label(what: &str, text: &str) -> Result<()> {
    // Nearly all are, and every message has some.
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    if text.len() <= NAME_CHARS_MAX && text.bytes().all(is_plain) {
        return Ok(());
    }
    let chars = text.chars().count();
    if chars > NAME_CHARS_MAX {
        at_most(&format!("characters of {what}"), chars, NAME_CHARS_MAX)?;
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} contains a control character")));
    }
    Ok(())
}

/// A payload as it is written into an envelope.
pub(super) struct PayloadText<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) encoding: Encoding,
}

impl<'a> PayloadText<'a> {
    pub(super) fn of(message: &'a Message) -> Self {
        let (text, encoding) = encode(&message.content_type, &message.payload);
        Self { text, encoding }
    }
}

/// The payload as JSON text: as it is if it can be, as a string in base64 otherwise.
pub(super) fn encode<'a>(content_type: &str, payload: &'a Payload) -> (Cow<'a, str>, Encoding) {
    match plain(content_type, payload) {
        Some(text) => (Cow::Borrowed(text), Encoding::Plain),
        None => (Cow::Owned(base64_string(payload.as_bytes())), Encoding::Base64),
    }
}

impl fmt::Debug for PayloadText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes, {:?}]", self.text.len(), self.encoding)
    }
}

/// The payload, if it can stand in an envelope and come out of it byte for byte.
fn plain<'a>(content_type: &str, payload: &'a Payload) -> Option<&'a str> {
    let bytes = payload.as_bytes();
    // What a receiver's depth limit would refuse still passes as base64, and so does the white space around a
    // value, which a parser of the envelope would not give back.
    if !is_json(content_type) || is_deeper(bytes, DEPTH_MAX - 1) {
        return None;
    }
    if payload.is_json() {
        return str::from_utf8(bytes).ok();
    }
    let raw: &RawValue = serde_json::from_slice(bytes).ok()?;
    (raw.get().len() == bytes.len()).then(|| raw.get())
}

fn is_json(content_type: &str) -> bool {
    if content_type == crate::message::JSON {
        return true;
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == crate::message::JSON || essence.ends_with("+json")
}

fn base64_string(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4 + 2);
    text.push('"');
    STANDARD.encode_string(bytes, &mut text);
    text.push('"');
    text
}

/// The payload that `text` stands for, of at most `bytes_max` bytes.
pub(super) fn decode(text: &str, encoding: Encoding, bytes_max: usize) -> Result<Payload> {
    let payload: Bytes = match encoding {
        // What most handlers answer: it need not be copied for every message.
        Encoding::Plain if text == "null" => Bytes::from_static(b"null"),
        Encoding::Plain => text.as_bytes().to_vec().into(),
        Encoding::Base64 => STANDARD
            .decode(json::text("payload", text)?.as_bytes())
            // The cause would quote a byte of the payload.
            .map_err(|_| Error::invalid("payload is not in base64, as its encoding says"))?
            .into(),
    };
    at_most("bytes of payload", payload.len(), bytes_max)?;
    Ok(Payload::new(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_09_json_is_known_by_its_type() {
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.shop+json ;v=1"]
        {
            assert!(is_json(json), "{json}");
        }
        for other in ["", "text/plain", "application/jsonl", "application/json-seq", "text/plain; x=+json"] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn rf_09_only_what_survives_stands_as_it_is() {
        let json = |bytes: &[u8]| plain("application/json", &Payload::new(bytes.to_vec())).map(str::to_owned);
        for payload in
            [&b"null"[..], b"1e999", br#"{"a":1,"a":2}"#, "\"\u{fffe}é\"".as_bytes(), br#""\ud800""#]
        {
            assert_eq!(json(payload).as_deref().map(str::as_bytes), Some(payload));
        }
        for payload in [&b""[..], b" 1", b"1\n", b"{", b"1 2", b"\"\xff\"", b"\xef\xbb\xbf1", b"nul"] {
            assert_eq!(json(payload), None);
        }
        assert_eq!(plain("text/plain", &Payload::new(&b"1"[..])), None);
        let known = Payload::json(&["é"]).unwrap();
        assert_eq!(plain("application/json", &known), Some("[\"é\"]"));
        assert_eq!(plain("text/plain", &known), None);
    }

    #[test]
    fn s16_json_too_deep_for_receivers_travels_as_base64() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        let is_plain = |payload: &Payload| plain("application/json", payload).is_some();
        assert!(is_plain(&Payload::new(nested(DEPTH_MAX - 1))));
        assert!(!is_plain(&Payload::new(nested(DEPTH_MAX))));
        let raw: Box<RawValue> = serde_json::from_str(&nested(DEPTH_MAX)).unwrap();
        assert!(!is_plain(&Payload::json(&raw).unwrap()));
    }
}
