//! Signatures of probes.

use super::canonical::Canonical;
use super::{Key, KeyId, Signature};
use crate::Timestamp;
use crate::ports::Link;

const TAG: &str = "TB1-PRB";

/// Everything a probe's signature covers, besides the key id. A probe has no message, so it is signed as such.
#[derive(Clone, Copy, Debug)]
pub struct SignedProbe<'a> {
    /// Who asks whom, and from which outbox.
    pub link: &'a Link,
    /// When it was sent.
    pub sent: Timestamp,
}

impl SignedProbe<'_> {
    /// The string that is signed: `TB1-PRB`, a line feed, then as netstrings: key id, source, destination, sent
    /// time, outbox instance.
    #[must_use]
    pub fn canonical(&self, key_id: &KeyId) -> String {
        Canonical::new(TAG)
            .text(key_id.as_str())
            .text(self.link.source.as_str())
            .text(self.link.destination.as_str())
            .time(self.sent)
            .text(&self.link.outbox)
            .into_text()
    }
}

/// Signs a probe.
#[must_use]
pub fn sign_probe(key: &Key, probe: &SignedProbe<'_>) -> Signature {
    Signature { key_id: key.id().clone(), mac: key.secret().mac(probe.canonical(key.id()).as_bytes()) }
}
