//! Signatures of answers: without one, any server that says 200 could mark a message Sent.

use std::time::Duration;

use super::canonical::Canonical;
use super::{Key, KeyId, Mac, Refused};
use crate::time::micros;
use crate::{Destination, MessageId, Source, Timestamp};

const TAG: &str = "TB1-ACK";

/// Everything an answer's signature covers, besides the key id.
#[derive(Clone, Copy, Debug)]
pub struct SignedAck<'a> {
    /// The source of the request that is answered.
    pub source: &'a Source,
    /// Its destination: who answers.
    pub destination: &'a Destination,
    /// The message that is answered.
    pub message_id: &'a MessageId,
    /// When the request that is answered was sent: an answer to one attempt is none to the next.
    pub sent: Timestamp,
    /// What became of the message.
    pub outcome: &'a str,
    /// SHA-256 of the response body.
    pub body_sha256: [u8; 32],
    /// How long the sender is asked to wait, in whole microseconds.
    pub retry_after: Option<Duration>,
}

impl SignedAck<'_> {
    /// The string that is signed: `TB1-ACK`, a line feed, then as netstrings: key id, source, destination,
    /// message id, sent time of the request, outcome, SHA-256 of the response body, retry-after.
    ///
    /// The encoding is that of [`Signed::canonical`](super::Signed::canonical); an absent retry-after is an
    /// empty netstring, which no number is.
    #[must_use]
    pub fn canonical(&self, key_id: &KeyId) -> String {
        let canonical = Canonical::new(TAG)
            .text(key_id.as_str())
            .text(self.source.as_str())
            .text(self.destination.as_str())
            .text(self.message_id.as_str())
            .time(self.sent)
            .text(self.outcome)
            .hash(&self.body_sha256);
        let canonical = match self.retry_after {
            Some(delay) => canonical.number(micros(delay)),
            None => canonical.text(""),
        };
        canonical.finish()
    }
}

/// Signs an answer, with the key of the request.
#[must_use]
pub fn sign_ack(key: &Key, ack: &SignedAck<'_>) -> Mac {
    key.mac(&ack.canonical(key.id()))
}

/// Verifies an answer with the key that signed the request.
///
/// The key's time is not asked: it held when the request was sent, and the answer is bound to that request.
///
/// # Errors
/// [`Refused::Unauthentic`]: the answer is not ours, so the outcome of the request is unknown.
pub fn verify_ack(key: &Key, ack: &SignedAck<'_>, mac: &Mac) -> Result<(), Refused> {
    if sign_ack(key, ack) == *mac { Ok(()) } else { Err(Refused::Unauthentic) }
}
