//! What the signature of a request covers.

use super::canonical::{Canonical, headers_sha256};
use super::{Key, KeyId, Signature};
use crate::{Message, Timestamp};

const TAG: &str = "TB1-REQ";

/// Everything a request's signature covers, besides the key id: one attempt at one message.
///
/// Both sides have it from the envelope: [`Draft::signed`](crate::wire::Draft::signed) before sending,
/// [`Parsed::signed`](crate::wire::Parsed::signed) after receiving.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The message; its payload is covered by the hash below, not read here.
    pub message: &'a Message,
    /// When this attempt was sent.
    pub sent: Timestamp,
    /// The outbox it was sent from, which exposes a second outbox under the same source (L7).
    pub outbox: &'a str,
    /// What `rf-encoding` says; empty if the payload stands as it is. Without it, a base64 payload could be
    /// passed off as a JSON string of the same text.
    pub encoding: &'a str,
    /// SHA-256 of the raw payload text as it stands in the envelope.
    pub payload_sha256: [u8; 32],
}

impl Signed<'_> {
    /// The string that is signed: `TB1-REQ`, a line feed, then as netstrings: key id, source, destination,
    /// endpoint, message id, type, created, available, sent, expires, replay number, outbox instance, content
    /// type, correlation id, ordering key, SHA-256 of the user headers, encoding, SHA-256 of the payload text.
    ///
    /// Times are decimal microseconds, hashes lower-case hex; the headers' hash is taken over name and value
    /// of each as netstrings, sorted by name. An absent correlation id or ordering key is an empty netstring,
    /// which is unambiguous because neither can be present and empty.
    #[must_use]
    pub fn canonical(&self, key_id: &KeyId) -> String {
        self.fields(key_id).into_text()
    }

    /// The bytes of [`canonical`](Self::canonical).
    pub(super) fn canonical_bytes(&self, key_id: &KeyId) -> Vec<u8> {
        self.fields(key_id).finish()
    }

    fn fields(&self, key_id: &KeyId) -> Canonical {
        let message = self.message;
        Canonical::new(TAG)
            .text(key_id.as_str())
            .text(message.source.as_str())
            .text(message.destination.as_str())
            .text(message.endpoint.as_str())
            .text(message.id.as_str())
            .text(message.message_type.as_str())
            .time(message.created)
            .time(message.available)
            .time(self.sent)
            .time(message.expires)
            .number(message.replay)
            .text(self.outbox)
            .text(&message.content_type)
            .name(message.correlation_id.as_ref().map(AsRef::as_ref))
            .name(message.ordering_key.as_ref().map(AsRef::as_ref))
            .hash(&headers_sha256(&message.headers))
            .text(self.encoding)
            .hash(&self.payload_sha256)
    }
}

/// Signs one attempt at one message.
#[must_use]
pub fn sign(key: &Key, request: &Signed<'_>) -> Signature {
    Signature { key_id: key.id().clone(), mac: key.secret().mac(&request.canonical_bytes(key.id())) }
}

/// Signs an attempt at each message of a batch, in less time than one by one.
#[must_use]
pub fn sign_each(key: &Key, requests: &[Signed<'_>]) -> Vec<Signature> {
    let canonicals: Vec<Vec<u8>> = requests.iter().map(|request| request.canonical_bytes(key.id())).collect();
    let macs = key.secret().mac_each(&canonicals).into_iter();
    macs.map(|mac| Signature { key_id: key.id().clone(), mac }).collect()
}
