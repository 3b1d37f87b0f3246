//! Signatures of answers: without one, any server that says 200 could mark a message Sent.

use super::canonical::Canonical;
use super::{Key, KeyId, Mac, Refused};
use crate::sha256::sha256_of_all;
use crate::{Destination, Source, Timestamp};

const TAG: &str = "TB1-ANS";

/// Everything an answer's signature covers, besides the key id: one answer to one request, whatever the request
/// was: one message, a batch or a probe.
#[derive(Clone, Copy, Debug)]
pub struct SignedAnswer<'a> {
    /// The source of the request.
    pub source: &'a Source,
    /// Its destination: who answers.
    pub destination: &'a Destination,
    /// When the request was sent, by its first message or its probe.
    pub sent: Timestamp,
    /// [`request_sha256`] of the request: an answer to one request is none to another.
    pub request_sha256: [u8; 32],
    /// The status code of the answer.
    pub status: u16,
    /// SHA-256 of the answer's body.
    pub body_sha256: [u8; 32],
}

impl SignedAnswer<'_> {
    /// The string that is signed: `TB1-ANS`, a line feed, then as netstrings: key id, source, destination, sent
    /// time of the request, SHA-256 of the request's MACs, status code, SHA-256 of the answer's body.
    ///
    /// The encoding is that of [`Signed::canonical`](super::Signed::canonical).
    #[must_use]
    pub fn canonical(&self, key_id: &KeyId) -> String {
        Canonical::new(TAG)
            .text(key_id.as_str())
            .text(self.source.as_str())
            .text(self.destination.as_str())
            .time(self.sent)
            .hash(&self.request_sha256)
            .number(self.status)
            .hash(&self.body_sha256)
            .into_text()
    }
}

/// What names a request in the signature of its answer: SHA-256 over the MACs of its messages, in their order, or over
/// that of a probe. Each covers all that was sent for a message, so that nothing has to be hashed twice.
#[must_use]
pub fn request_sha256<'a>(macs: impl IntoIterator<Item = &'a Mac>) -> [u8; 32] {
    sha256_of_all(macs.into_iter().map(|mac| mac.as_bytes().as_slice()))
}

/// Signs an answer, with the key of the request.
#[must_use]
pub fn sign_answer(key: &Key, answer: &SignedAnswer<'_>) -> Mac {
    key.secret().mac(answer.canonical(key.id()).as_bytes())
}

/// Verifies an answer with the key that signed the request.
///
/// The key's time is not asked: it held when the request was sent, and the answer is bound to that request.
///
/// # Errors
/// [`Refused::Unauthentic`]: the answer is not ours, so the outcome of the request is unknown.
pub fn verify_answer(key: &Key, answer: &SignedAnswer<'_>, mac: &Mac) -> Result<(), Refused> {
    if sign_answer(key, answer) == *mac { Ok(()) } else { Err(Refused::Unauthentic) }
}
