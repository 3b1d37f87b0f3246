//! Who sent a request, if anyone we know.

use std::fmt;
use std::time::Duration;

use subtle::{Choice, ConstantTimeEq};

use super::{KeyId, Keyrings, Mac, SecretKey, Signature, Signed, SignedProbe};
use crate::{Source, Timestamp, mutant};

/// How far a request's sent time may be from the receiver's clock, either way: 300 s. Long enough for clocks
/// that are set by NTP now and then, short enough that a recorded request is soon worthless.
pub const FRESHNESS: Duration = Duration::from_secs(300);

/// Why a request or an answer was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Not signed by whom it says. Whether the key is unknown, out of its time or somebody else's, or the MAC
    /// is wrong, is deliberately not told.
    Unauthentic,
    /// Authentic, but sent more than [`FRESHNESS`] from now. The sender may know: its clock may be wrong.
    Stale,
    /// The messages of a batch are signed with different keys, but their answer is signed once.
    MixedKeys,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthentic => f.write_str("signature does not hold"),
            Self::Stale => {
                write!(f, "sent time is more than {} s from the receiver's clock", FRESHNESS.as_secs())
            }
            Self::MixedKeys => f.write_str("the messages of a batch must be signed with the same key"),
        }
    }
}

impl std::error::Error for Refused {}

impl Keyrings {
    /// Verifies a request at `now` and returns its source: the owner of the key.
    ///
    /// Only the named key is tried, only within its time, and only for the source that owns it. An unknown key
    /// id costs the same work as a known one.
    ///
    /// The destination is covered by the signature, but whether it is this service is for the caller to check.
    ///
    /// # Errors
    /// [`Refused`]. Nothing may be written then (RF-11).
    pub fn verify(
        &self,
        request: &Signed<'_>,
        signature: &Signature,
        now: Timestamp,
    ) -> Result<Source, Refused> {
        let expected = self.secret(&signature.key_id).mac(&request.canonical_bytes(&signature.key_id));
        self.judge(signature, &expected, &request.message.source, request.sent, now)
    }

    /// Verifies a batch at `now` and returns the source of its first request: each as [`verify`](Self::verify) does, in
    /// less time, and that all are signed with the same key, because their answer is signed once.
    ///
    /// # Errors
    /// [`Refused`], also if there is no request. Nothing may be written then (RF-11).
    pub fn verify_each(
        &self,
        requests: &[(Signed<'_>, &Signature)],
        now: Timestamp,
    ) -> Result<Source, Refused> {
        let Some(((first, signature), others)) = requests.split_first() else {
            return Err(Refused::Unauthentic);
        };
        // Alone, so that a stranger's batch costs as little as one message.
        let source = self.verify(first, signature, now)?;
        if mutant!(FirstSpeaksForAll) {
            return Ok(source);
        }
        let key_id = &signature.key_id;
        if others.iter().any(|(_, signature)| signature.key_id != *key_id) {
            others
                .iter()
                .try_for_each(|(request, signature)| self.verify(request, signature, now).map(drop))?;
            return Err(Refused::MixedKeys);
        }
        let canonicals: Vec<Vec<u8>> =
            others.iter().map(|(request, _)| request.canonical_bytes(key_id)).collect();
        let expected = self.secret(key_id).mac_each(&canonicals);
        debug_assert_eq!(expected.len(), others.len(), "one for each");
        others.iter().zip(&expected).try_for_each(|((request, signature), expected)| {
            self.judge(signature, expected, &request.message.source, request.sent, now).map(drop)
        })?;
        Ok(source)
    }

    /// Verifies a probe at `now` and returns its source, as [`verify`](Self::verify) does.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify_probe(
        &self,
        probe: &SignedProbe<'_>,
        signature: &Signature,
        now: Timestamp,
    ) -> Result<Source, Refused> {
        let canonical = probe.canonical(&signature.key_id);
        let expected = self.secret(&signature.key_id).mac(canonical.as_bytes());
        self.judge(signature, &expected, &probe.link.source, probe.sent, now)
    }

    /// What a signature must be made with.
    fn secret(&self, key_id: &KeyId) -> &SecretKey {
        self.owner(key_id).map_or(self.nobody(), |(_, key)| key.secret())
    }

    /// Whether a signature is that of the source that is `named`. `expected` is the code that its own key makes.
    fn judge(
        &self,
        signature: &Signature,
        expected: &Mac,
        named: &Source,
        sent: Timestamp,
        now: Timestamp,
    ) -> Result<Source, Refused> {
        let owner = self.owner(&signature.key_id);
        let owns = |source: &Source| source == named || mutant!(SourceFromHeader);
        let entitled = owner.filter(|(source, key)| owns(source) && key.is_active(now));
        // Everything is computed before anything is decided, so the time taken tells nothing.
        let authentic = expected.ct_eq(&signature.mac) & Choice::from(u8::from(entitled.is_some()));
        match entitled {
            Some(_) if authentic.into() => fresh(sent, now).map(|()| named.clone()),
            _ => Err(Refused::Unauthentic),
        }
    }
}

fn fresh(sent: Timestamp, now: Timestamp) -> Result<(), Refused> {
    let distance = now.since(sent).max(sent.since(now));
    if distance > FRESHNESS { Err(Refused::Stale) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_freshness_ends_after_300_seconds_on_both_sides() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let micro = Duration::from_micros(1);
        for edge in [now.plus(FRESHNESS), now.minus(FRESHNESS)] {
            assert_eq!(fresh(edge, now), Ok(()));
        }
        assert_eq!(fresh(now.plus(FRESHNESS).plus(micro), now), Err(Refused::Stale));
        assert_eq!(fresh(now.minus(FRESHNESS).minus(micro), now), Err(Refused::Stale));
        assert_eq!(fresh(Timestamp::from_micros(i64::MIN), now), Err(Refused::Stale));
        assert_eq!(fresh(Timestamp::MAX, Timestamp::from_micros(i64::MIN)), Err(Refused::Stale));
    }
}
