//! From envelopes to messages.

use std::str::FromStr;
use std::sync::Arc;

use super::envelope::utf8;
use super::limits::{Limits, at_most};
use super::payload::{check_content_type, check_label, decode};
use super::{Encoding, Envelope, header, instant, json};
use crate::message::{JSON, RESERVED_HEADER_PREFIX};
use crate::name::{CorrelationId, Destination, Endpoint, MessageId, OrderingKey};
use crate::sha256::{Hash256, sha256, sha256_each};
use crate::signing::{KeyId, Keyrings, Mac, Refused, Signature, Signed};
use crate::{ContentType, Error, ErrorKind, Headers, Message, Result, Source, Timestamp};

/// A message as it arrived, with what its signature needs.
///
/// Nothing in it is authentic before [`verify`](Self::verify) says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parsed {
    /// The message.
    pub message: Message,
    /// When this attempt was sent.
    pub sent: Timestamp,
    /// The outbox it was sent from.
    pub outbox: Arc<str>,
    /// How the payload stood in the envelope.
    pub encoding: Encoding,
    /// SHA-256 of the raw payload text as it stood in the envelope.
    pub payload_sha256: [u8; 32],
    /// The signature, if there is one.
    pub signature: Option<Signature>,
}

impl Parsed {
    /// What the signature covers.
    #[must_use]
    pub fn signed(&self) -> Signed<'_> {
        Signed {
            message: &self.message,
            sent: self.sent,
            outbox: &self.outbox,
            encoding: self.encoding.as_str(),
            payload_sha256: self.payload_sha256,
        }
    }

    /// Verifies the signature at `now` and returns the source; see [`Keyrings::verify`].
    ///
    /// # Errors
    /// [`Refused`], as [`Unauthentic`](Refused::Unauthentic) also if there is no signature.
    pub fn verify(&self, keyrings: &Keyrings, now: Timestamp) -> Result<Source, Refused> {
        let signature = self.signature.as_ref().ok_or(Refused::Unauthentic)?;
        keyrings.verify(&self.signed(), signature, now)
    }
}

/// Reads one envelope.
///
/// # Errors
/// [`Undecodable`](ErrorKind::Undecodable) if it is not JSON of the right shape or lacks something,
/// [`Invalid`](ErrorKind::Invalid) if a limit is exceeded, a name is duplicate or a value cannot be what it
/// should be. The text never quotes the payload (S17).
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Parsed> {
    alone(&Envelope::read(bytes, limits)?, limits)
}

/// Reads one envelope of a sender that knows RF-09 and nothing more: what it does not say is completed.
///
/// The message is then dated when it arrives, or by its `rf-timestamp`, so it is remembered for the dedup window
/// and no longer: a copy that comes later is taken for new, which dates of the sender's own would prevent (S9).
///
/// # Errors
/// As [`parse`].
pub fn parse_plain(bytes: &[u8], limits: &Limits, receiver: &Destination, now: Timestamp) -> Result<Parsed> {
    let mut envelope = Envelope::read(bytes, limits)?;
    let sent = envelope.header(header::TIMESTAMP).map_or(Some(now), instant::parse).unwrap_or(now);
    envelope.complete(header::TIMESTAMP, instant::format(now));
    envelope.complete(header::DESTINATION, receiver.as_str().to_owned());
    envelope.complete(header::CREATED, sent.as_micros().to_string());
    envelope.complete(header::AVAILABLE, sent.as_micros().to_string());
    envelope.complete(header::EXPIRES, Timestamp::MAX.as_micros().to_string());
    envelope.complete(header::OUTBOX, String::new());
    alone(&envelope, limits)
}

/// Reads a batch, item by item: a bad envelope does not spoil its neighbours. An empty array is a probe.
///
/// # Errors
/// As [`parse`], for the batch as a whole: not a JSON array, too many bytes, too many items.
pub fn parse_batch(bytes: &[u8], limits: &Limits) -> Result<Vec<Result<Parsed>>> {
    at_most("bytes of batch", bytes.len(), limits.batch_bytes)?;
    let (text, mut repeated) = (utf8("batch", bytes)?, Repeated::default());
    let scanned = Envelope::scan_batch(text, limits, |envelope| message(envelope, limits, &mut repeated));
    if let Some(items) = scanned {
        return Ok(hashed_each(items));
    }
    // Depth is checked per item, so that a deep one fails alone. Splitting the array needs no such check:
    // raw values are skipped in a loop, not by recursion.
    let items = json::array("batch", text, limits.batch_items)?;
    let mut read = |text| message(&Envelope::from_text(text, limits)?, limits, &mut repeated);
    Ok(hashed_each(items.into_iter().map(|item| read(item.get())).collect()))
}

/// A message whose payload has yet to be hashed, which takes less time for those of a batch together.
struct Unhashed<'t> {
    /// With a hash that means nothing.
    parsed: Parsed,
    /// The payload as it stands.
    text: &'t str,
}

impl Unhashed<'_> {
    fn hashed(mut self, hash: Hash256) -> Parsed {
        self.parsed.payload_sha256 = hash;
        if self.parsed.encoding == Encoding::Plain {
            // Its text is the payload, whose hash the inbox needs as well.
            self.parsed.message.payload.note_sha256(hash);
        }
        self.parsed
    }
}

fn hashed_each(items: Vec<Result<Unhashed<'_>>>) -> Vec<Result<Parsed>> {
    let texts: Vec<&str> = items.iter().flatten().map(|item| item.text).collect();
    let mut hashes = sha256_each(&texts).into_iter();
    let mut hashed =
        |item: Unhashed<'_>| item.hashed(hashes.next().expect("every message that was read has a text"));
    items.into_iter().map(|item| item.map(&mut hashed)).collect()
}

fn alone(envelope: &Envelope<'_>, limits: &Limits) -> Result<Parsed> {
    let item = message(envelope, limits, &mut Repeated::default())?;
    let hash = sha256(item.text);
    Ok(item.hashed(hash))
}

/// What is usually the same in all messages of a batch, and then checked and kept once.
#[derive(Default)]
struct Repeated {
    source: Option<Source>,
    destination: Option<Destination>,
    endpoint: Option<Endpoint>,
    content_type: Option<ContentType>,
    sent: Option<(String, Timestamp)>,
    outbox: Option<Arc<str>>,
    key_id: Option<KeyId>,
}

/// The name that `text` is, from the last message if it is the same.
fn same<T>(last: &mut Option<T>, text: &str) -> Result<T>
where
    T: FromStr<Err = Error> + AsRef<str> + Clone,
{
    same_or(last, text, T::from_str)
}

/// As [`same`], of what is checked by `read`.
fn same_or<T>(last: &mut Option<T>, text: &str, read: impl FnOnce(&str) -> Result<T>) -> Result<T>
where
    T: AsRef<str> + Clone,
{
    match last {
        Some(known) if (*known).as_ref() == text => Ok(known.clone()),
        _ => Ok(last.insert(read(text)?).clone()),
    }
}

fn message<'t>(envelope: &Envelope<'t>, limits: &Limits, repeated: &mut Repeated) -> Result<Unhashed<'t>> {
    check_version(envelope)?;
    let encoding = Encoding::from_header(envelope.header(header::ENCODING))?;
    let payload = decode(envelope.payload, encoding, limits.payload_bytes)?;
    let message = Message {
        id: MessageId::new(&envelope.message_id)?,
        source: same(&mut repeated.source, &envelope.source_service_id)?,
        destination: same(&mut repeated.destination, required(envelope, header::DESTINATION)?)?,
        endpoint: same(&mut repeated.endpoint, &envelope.endpoint)?,
        message_type: envelope.message_type.parse()?,
        payload,
        content_type: same_or(&mut repeated.content_type, written_type(envelope), content_type)?,
        correlation_id: envelope.correlation_id.as_ref().map(CorrelationId::new).transpose()?,
        ordering_key: envelope.header(header::ORDERING_KEY).map(OrderingKey::new).transpose()?,
        headers: user_headers(envelope)?,
        created: time(envelope, header::CREATED)?,
        available: time(envelope, header::AVAILABLE)?,
        expires: time(envelope, header::EXPIRES)?,
        replay: envelope.header(header::REPLAY).map_or(Ok(0), |text| number(header::REPLAY, text))?,
    };
    let parsed = Parsed {
        message,
        sent: sent(envelope, &mut repeated.sent)?,
        outbox: same_or(&mut repeated.outbox, required(envelope, header::OUTBOX)?, outbox)?,
        encoding,
        payload_sha256: Hash256::default(),
        signature: signature(envelope, &mut repeated.key_id)?,
    };
    Ok(Unhashed { parsed, text: envelope.payload })
}

/// An absent version is taken for ours: all that matters is in the other headers.
fn check_version(envelope: &Envelope<'_>) -> Result<()> {
    match envelope.header(header::VERSION) {
        Some(version) if version != "2" && !version.starts_with("2.") => {
            Err(Error::invalid(format!("{} is not 2", header::VERSION)))
        }
        _ => Ok(()),
    }
}

fn required<'a>(envelope: &'a Envelope<'_>, name: &str) -> Result<&'a str> {
    envelope
        .header(name)
        .ok_or_else(|| Error::new(ErrorKind::Undecodable, format!("envelope has no header {name}")))
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(format!("{name} is not a number in its range")))
}

fn time(envelope: &Envelope<'_>, name: &str) -> Result<Timestamp> {
    required(envelope, name).and_then(|text| number(name, text)).map(Timestamp::from_micros)
}

fn sent(envelope: &Envelope<'_>, last: &mut Option<(String, Timestamp)>) -> Result<Timestamp> {
    let text = required(envelope, header::TIMESTAMP)?;
    if let Some((_, sent)) = last.as_ref().filter(|(last, _)| last == text) {
        return Ok(*sent);
    }
    let sent = instant::parse(text)
        .ok_or_else(|| Error::invalid(format!("{} is not a time in UTC by RFC 3339", header::TIMESTAMP)))?;
    Ok(last.insert((text.into(), sent)).1)
}

fn outbox(text: &str) -> Result<Arc<str>> {
    check_label("outbox instance", text)?;
    Ok(text.into())
}

fn written_type<'a>(envelope: &'a Envelope<'_>) -> &'a str {
    envelope.header(header::CONTENT_TYPE).unwrap_or(JSON)
}

fn content_type(text: &str) -> Result<ContentType> {
    check_content_type(text)?;
    Ok(text.into())
}

fn user_headers(envelope: &Envelope<'_>) -> Result<Headers> {
    let mut headers = Headers::default();
    for (name, value) in &envelope.headers {
        if !name.starts_with(RESERVED_HEADER_PREFIX) {
            headers.insert(name.as_ref(), value.as_ref())?;
        }
    }
    Ok(headers)
}

fn signature(envelope: &Envelope<'_>, last: &mut Option<KeyId>) -> Result<Option<Signature>> {
    match (envelope.header(header::KEY_ID), envelope.header(header::HMAC)) {
        (None, None) => Ok(None),
        (Some(key_id), Some(mac)) => {
            let mac = Mac::from_base64(mac)
                .ok_or_else(|| Error::invalid(format!("{} is not base64 of 32 bytes", header::HMAC)))?;
            Ok(Some(Signature { key_id: same_or(last, key_id, |text| KeyId::new(text))?, mac }))
        }
        _ => Err(Error::invalid(format!("{} and {} must come together", header::KEY_ID, header::HMAC))),
    }
}
