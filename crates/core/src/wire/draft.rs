//! From messages to envelopes.

use std::fmt;

use super::payload::PayloadText;
use super::{Encoding, envelope, header, instant};
use crate::digits::Digits;
use crate::sha256::{Hash256, sha256, sha256_each};
use crate::signing::{Signature, Signed};
use crate::{Message, Timestamp};

/// What an attempt adds to a message.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// When it is sent.
    pub sent: Timestamp,
    /// The outbox it is sent from.
    pub outbox: &'a str,
    /// The signature over [`Draft::signed`] with the same sent time and outbox, if the peer has keys.
    pub signature: Option<&'a Signature>,
}

/// A message whose payload has been made text, ready to be signed and encoded, as often as it takes. The payload is hashed
/// each time it is signed.
#[derive(Debug)]
pub struct Draft<'a> {
    message: &'a Message,
    payload: PayloadText<'a>,
}

impl<'a> Draft<'a> {
    /// Makes text of the payload.
    #[must_use]
    pub fn new(message: &'a Message) -> Self {
        Self { message, payload: PayloadText::of(message) }
    }

    /// How the payload will stand in the envelope.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.payload.encoding
    }

    /// SHA-256 of the payload as it will stand in the envelope.
    #[must_use]
    pub fn payload_sha256(&self) -> [u8; 32] {
        sha256(&*self.payload.text)
    }

    /// What a signature of this attempt covers.
    #[must_use]
    pub fn signed<'b>(&'b self, sent: Timestamp, outbox: &'b str) -> Signed<'b> {
        self.signed_with(sent, outbox, self.payload_sha256())
    }

    /// As [`signed`](Self::signed), of each draft of a batch, in less time than one by one.
    #[must_use]
    pub fn signed_each<'b>(drafts: &'b [Self], sent: Timestamp, outbox: &'b str) -> Vec<Signed<'b>> {
        let texts: Vec<&str> = drafts.iter().map(|draft| &*draft.payload.text).collect();
        let hashes = sha256_each(&texts);
        drafts.iter().zip(hashes).map(|(draft, hash)| draft.signed_with(sent, outbox, hash)).collect()
    }

    fn signed_with<'b>(&'b self, sent: Timestamp, outbox: &'b str, payload_sha256: Hash256) -> Signed<'b> {
        let encoding = self.payload.encoding.as_str();
        Signed { message: self.message, sent, outbox, encoding, payload_sha256 }
    }

    /// The envelope, as JSON.
    #[must_use]
    pub fn encode(&self, stamp: &Stamp<'_>) -> Vec<u8> {
        // Names and headers seldom take more than a kibibyte.
        let mut out = Vec::with_capacity(self.payload.text.len() + 1024);
        self.write(stamp, &instant::format(stamp.sent), &mut out);
        out
    }

    fn write(&self, stamp: &Stamp<'_>, sent: &str, out: &mut Vec<u8>) {
        let message = self.message;
        out.push(b'{');
        member(out, envelope::MESSAGE_ID, message.id.as_str());
        if let Some(id) = &message.correlation_id {
            member(out, envelope::CORRELATION_ID, id.as_str());
        }
        member(out, envelope::SOURCE_SERVICE_ID, message.source.as_str());
        member(out, envelope::MESSAGE_TYPE, message.message_type.as_str());
        member(out, envelope::ENDPOINT, message.endpoint.as_str());
        member_name(out, envelope::PAYLOAD);
        out.extend_from_slice(self.payload.text.as_bytes());
        member_name(out, envelope::HEADERS);
        out.push(b'{');
        write_attempt(stamp, sent, out);
        self.write_message(out);
        out.extend_from_slice(b"}}");
    }

    /// Headers that stay with the message, the user's last.
    fn write_message(&self, out: &mut Vec<u8>) {
        let message = self.message;
        member(out, header::DESTINATION, message.destination.as_str());
        number_text(out, header::CREATED, message.created.as_micros());
        number_text(out, header::AVAILABLE, message.available.as_micros());
        number_text(out, header::EXPIRES, message.expires.as_micros());
        number_text(out, header::REPLAY, message.replay.into());
        member(out, header::CONTENT_TYPE, &message.content_type);
        if let Some(key) = &message.ordering_key {
            member(out, header::ORDERING_KEY, key.as_str());
        }
        if self.payload.encoding != Encoding::Plain {
            member(out, header::ENCODING, self.payload.encoding.as_str());
        }
        for (name, value) in message.headers.iter() {
            separate(out);
            string(out, name);
            out.push(b':');
            string(out, value);
        }
    }
}

/// Headers that differ from attempt to attempt.
fn write_attempt(stamp: &Stamp<'_>, sent: &str, out: &mut Vec<u8>) {
    member(out, header::VERSION, header::VERSION_2);
    member(out, header::TIMESTAMP, sent);
    member(out, header::OUTBOX, stamp.outbox);
    if let Some(signature) = stamp.signature {
        member(out, header::KEY_ID, signature.key_id.as_str());
        signature.mac.with_base64(|text| member(out, header::HMAC, text));
    }
}

/// A batch of envelopes in the making.
#[must_use = "a batch goes nowhere until its bytes are sent"]
pub struct Batch {
    out: Vec<u8>,
    count: usize,
    /// The last sent time as text: usually all have the same.
    sent: Option<(Timestamp, String)>,
}

impl Batch {
    /// An empty batch, which as it stands is a probe.
    pub fn new() -> Self {
        Self::with_capacity(1024)
    }

    /// As [`new`](Self::new), with room for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        out.push(b'[');
        Self { out, count: 0, sent: None }
    }

    /// Adds an envelope at the end.
    pub fn push(&mut self, draft: &Draft<'_>, stamp: &Stamp<'_>) {
        if self.count > 0 {
            self.out.push(b',');
        }
        if self.sent.as_ref().is_none_or(|(sent, _)| *sent != stamp.sent) {
            self.sent = Some((stamp.sent, instant::format(stamp.sent)));
        }
        if let Some((_, sent)) = &self.sent {
            draft.write(stamp, sent, &mut self.out);
        }
        self.count += 1;
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Number of envelopes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batch, as JSON.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.out.push(b']');
        self.out
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.out.len()).field("count", &self.count).finish()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn member(out: &mut Vec<u8>, name: &'static str, value: &str) {
    member_name(out, name);
    string(out, value);
}

/// A number, written as a string.
fn number_text(out: &mut Vec<u8>, name: &'static str, value: i64) {
    member_name(out, name);
    quoted(out, Digits::of_signed(value).bytes());
}

/// The name of a member, one of ours: there is nothing to escape in it.
pub(super) fn member_name(out: &mut Vec<u8>, name: &'static str) {
    separate(out);
    quoted(out, name.as_bytes());
    out.push(b':');
}

/// Separates a member from the one before it, if there is one.
fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

fn string(out: &mut Vec<u8>, text: &str) {
    // All bytes are looked at, whatever the first ones are: many at a time, that takes less than looking for the first.
    let is_special = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if !text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        return quoted(out, text.as_bytes());
    }
    serde_json::to_writer(out, text).expect("a string is written to memory without failing");
}
