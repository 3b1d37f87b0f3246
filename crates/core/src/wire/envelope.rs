//! The envelope as RF-09 has it: fields and headers, not yet a message.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::json;
use super::limits::{ENVELOPE_FIELDS_MAX, Limits, at_most, depth_at_most, is_deeper};
use super::scan::Scan;
use crate::{Error, ErrorKind, Result};

pub(super) const MESSAGE_ID: &str = "messageId";
pub(super) const CORRELATION_ID: &str = "correlationId";
pub(super) const SOURCE_SERVICE_ID: &str = "sourceServiceId";
pub(super) const MESSAGE_TYPE: &str = "messageType";
pub(super) const ENDPOINT: &str = "endpoint";
pub(super) const PAYLOAD: &str = "payload";
pub(super) const HEADERS: &str = "headers";

/// Fewer bytes than an item of a batch usually has: there is room for all of them from the beginning.
const ITEM_BYTES: usize = 512;

/// At least as many headers as our own senders write for a message without any of the user's.
const HEADERS_USUAL: usize = 16;

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
        let mut scan = Scan::new(text);
        match Self::scan(&mut scan, limits, Vec::new()).filter(|_| scan.is_over()) {
            Some(envelope) => Ok(envelope),
            None => Self::patiently(text, limits),
        }
    }

    /// What is made of each envelope of a batch, if there is nothing unusual about any of them. If there is, all of them
    /// are read again: a batch costs twice its work at most.
    pub(super) fn scan_batch<T>(
        text: &'a str,
        limits: &Limits,
        mut read: impl FnMut(&Self) -> T,
    ) -> Option<Vec<T>> {
        let room = (text.len() / ITEM_BYTES + 1).min(limits.batch_items);
        let (mut scan, mut items, mut headers) = (Scan::new(text), Vec::with_capacity(room), Vec::new());
        scan.each(*b"[]", |scan| {
            let envelope = Self::scan(scan, limits, std::mem::take(&mut headers))?;
            items.push(read(&envelope));
            headers = envelope.headers; // the next one has as many
            (items.len() <= limits.batch_items).then_some(())
        })?;
        scan.is_over().then_some(items)
    }

    /// Reads an envelope off the front, if there is nothing unusual about it. It is then the same that
    /// [`patiently`](Self::patiently) gives. `room` is where its headers go.
    fn scan(scan: &mut Scan<'a>, limits: &Limits, room: json::Members<'a, Cow<'a, str>>) -> Option<Self> {
        let (start, mut room) = (scan.rest(), Some(room));
        let mut plain = Plain::default();
        scan.each(*b"{}", |scan| {
            let name = scan.string()?;
            scan.byte(b':')?;
            match name {
                MESSAGE_ID => once(&mut plain.message_id, scan.string()?),
                CORRELATION_ID => once(&mut plain.correlation_id, scan.string()?),
                SOURCE_SERVICE_ID => once(&mut plain.source_service_id, scan.string()?),
                MESSAGE_TYPE => once(&mut plain.message_type, scan.string()?),
                ENDPOINT => once(&mut plain.endpoint, scan.string()?),
                PAYLOAD => once(&mut plain.payload, scan.value()?),
                HEADERS => once(&mut plain.headers, scan_headers(scan, limits, room.take()?)?),
                _ => None,
            }
        })?;
        let text = &start[..start.len() - scan.rest().len()];
        if text.len() > limits.envelope_bytes || is_deeper(text.as_bytes(), limits.depth) {
            return None;
        }
        Some(Self {
            message_id: plain.message_id?.into(),
            correlation_id: plain.correlation_id.map(Cow::Borrowed),
            source_service_id: plain.source_service_id?.into(),
            message_type: plain.message_type?.into(),
            endpoint: plain.endpoint?.into(),
            payload: plain.payload?,
            headers: plain.headers.unwrap_or_default(),
        })
    }

    /// Reads an envelope whatever there is in it, level by level, and says what is wrong with it.
    fn patiently(text: &'a str, limits: &Limits) -> Result<Self> {
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

/// The fields of an envelope without anything unusual.
#[derive(Default)]
struct Plain<'a> {
    message_id: Option<&'a str>,
    correlation_id: Option<&'a str>,
    source_service_id: Option<&'a str>,
    message_type: Option<&'a str>,
    endpoint: Option<&'a str>,
    payload: Option<&'a str>,
    headers: Option<json::Members<'a, Cow<'a, str>>>,
}

/// Fills a field, if it is not filled.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

fn scan_headers<'a>(
    scan: &mut Scan<'a>,
    limits: &Limits,
    mut headers: json::Members<'a, Cow<'a, str>>,
) -> Option<json::Members<'a, Cow<'a, str>>> {
    headers.clear();
    headers.reserve(HEADERS_USUAL);
    let mut bytes = 0;
    scan.each(*b"{}", |scan| {
        let name = scan.string()?;
        scan.byte(b':')?;
        let value = scan.string()?;
        bytes += name.len() + value.len();
        let is_fine = bytes <= limits.header_bytes && headers.len() < limits.headers;
        headers.push((name.into(), value.into()));
        is_fine.then_some(())
    })?;
    (!json::repeats(&headers)).then_some(headers)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: &str = r#" {"messageId":"m-1","correlationId":"c","sourceServiceId":"shop","messageType":"Signal",
        "endpoint":"Pay","payload":{"a":[1,"\"x"]},"headers":{"rf-replay":"0","mine":"é"} } "#;

    fn parts<'e>(envelope: &'e Envelope<'_>) -> (String, &'e str, String) {
        let Envelope { message_id, correlation_id, source_service_id, message_type, endpoint, .. } = envelope;
        let names = format!("{message_id} {correlation_id:?} {source_service_id} {message_type} {endpoint}");
        (names, envelope.payload, format!("{:?}", envelope.headers))
    }

    /// What is read at once is what is read with patience; what cannot be is read with patience.
    fn check(text: &str, limits: &Limits) -> bool {
        let mut scan = Scan::new(text);
        let scanned = Envelope::scan(&mut scan, limits, Vec::new()).filter(|_| scan.is_over());
        let patient = Envelope::patiently(text, limits);
        if let Some(scanned) = &scanned {
            let patient = patient.as_ref().unwrap_or_else(|error| panic!("{error} in {text}"));
            assert_eq!(parts(scanned), parts(patient), "{text}");
        }
        assert_eq!(Envelope::from_text(text, limits).is_ok(), patient.is_ok(), "{text}");
        scanned.is_some()
    }

    #[test]
    fn s16_reading_at_once_finds_what_reading_with_patience_finds() {
        let limits = Limits::default();
        assert!(check(ENVELOPE, &limits));
        assert!(check(&ENVELOPE.replace(r#""correlationId":"c","#, ""), &limits));
        assert!(check(
            r#"{"payload":1,"endpoint":"","messageType":"","sourceServiceId":"","messageId":""}"#,
            &limits
        ));
        let mut plain = 0;
        for at in 0..ENVELOPE.len() {
            for byte in [0, b' ', b'"', b'\\', b',', b':', b'[', b'}', b'0', b'x', 0xc3] {
                let mut bytes = ENVELOPE.as_bytes().to_vec();
                bytes[at] = byte;
                plain += str::from_utf8(&bytes).map_or(0, |text| usize::from(check(text, &limits)));
            }
            let shorter = ENVELOPE.get(..at).unwrap_or_default();
            check(shorter, &limits);
            check(&shorter.repeat(2), &limits);
        }
        assert!(plain > 100, "{plain} changed envelopes were read at once");
    }

    #[test]
    fn s16_limits_hold_for_what_is_read_at_once() {
        let all = Limits::default();
        let most = |limits: &Limits| check(ENVELOPE, limits);
        let bytes = ENVELOPE.trim().len();
        let headers = "rf-replay0mineé".len();
        let tight = Limits { depth: 3, headers: 2, header_bytes: headers, ..all };
        assert!(most(&tight));
        assert!(check(ENVELOPE.trim(), &Limits { envelope_bytes: bytes, ..tight }));
        let short = Limits { envelope_bytes: bytes - 1, ..tight };
        assert!(Envelope::scan(&mut Scan::new(ENVELOPE), &short, Vec::new()).is_none());
        assert!(Envelope::from_text(ENVELOPE.trim(), &short).is_err());
        assert!(!most(&Limits { depth: 2, ..tight }));
        assert!(!most(&Limits { headers: 1, ..tight }));
        assert!(!most(&Limits { header_bytes: headers - 1, ..tight }));
        let batch = |items, batch_items| {
            let text = format!("[{}]", vec![ENVELOPE; items].join(","));
            Envelope::scan_batch(&text, &Limits { batch_items, ..tight }, |_| ()).map(|found| found.len())
        };
        assert_eq!((batch(0, 2), batch(2, 2), batch(3, 2)), (Some(0), Some(2), None));
    }
}
