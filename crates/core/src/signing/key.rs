//! Secrets, their names and the time in which they hold.

use std::fmt;
use std::sync::Arc;

use super::Mac;
use crate::sha256::{BLOCK, Hash256, Start, sha256};
use crate::{Error, ErrorKind, Result, Timestamp};

/// The fewest bytes a secret may have: the size of the hash, below which guessing the secret would be easier
/// than guessing a MAC.
pub const SECRET_BYTES_MIN: usize = 32;
/// The most characters a key id may have. It stands in every envelope, so it is kept short.
const KEY_ID_CHARS_MAX: usize = 64;

/// A shared secret. It cannot be shown, compared or read back.
///
/// Kept as the states that HMAC (RFC 2104) derives from it: the bytes themselves are not held, and signing saves the two
/// hash rounds that the derivation takes.
#[derive(Clone)]
pub struct SecretKey {
    inner: Start,
    outer: Start,
}

impl SecretKey {
    /// Takes at least [`SECRET_BYTES_MIN`] bytes, which should be random.
    ///
    /// # Errors
    /// [`SecretTooShort`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretTooShort> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretTooShort { bytes: bytes.len() });
        }
        Ok(Self::derive(bytes))
    }

    /// A key that belongs to nobody, so that an unknown key id costs as much as a known one.
    pub(super) fn nobody() -> Self {
        Self::derive(&[0; SECRET_BYTES_MIN])
    }

    fn derive(bytes: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        match block.get_mut(..bytes.len()) {
            Some(start) => start.copy_from_slice(bytes),
            None => block[..size_of::<Hash256>()].copy_from_slice(&sha256(bytes)),
        }
        let behind = |pad: u8| Start::behind(&block.map(|byte| byte ^ pad));
        Self { inner: behind(0x36), outer: behind(0x5c) }
    }

    pub(super) fn mac(&self, canonical: &[u8]) -> Mac {
        Mac::from_bytes(self.outer.hash(&self.inner.hash(canonical)))
    }

    /// The code of each, in less time than one by one.
    pub(super) fn mac_each(&self, canonicals: &[Vec<u8>]) -> Vec<Mac> {
        let macs = self.outer.hash_each(&self.inner.hash_each(canonicals));
        macs.into_iter().map(Mac::from_bytes).collect()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// A secret of fewer than [`SECRET_BYTES_MIN`] bytes was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretTooShort {
    /// How many bytes it had.
    pub bytes: usize,
}

impl fmt::Display for SecretTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret has {} bytes: give it at least {SECRET_BYTES_MIN}, chosen at random", self.bytes)
    }
}

impl std::error::Error for SecretTooShort {}

impl From<SecretTooShort> for Error {
    fn from(error: SecretTooShort) -> Self {
        Error::new(ErrorKind::Misconfigured, error.to_string())
    }
}

/// Names a key. Not secret: it travels in the clear as `rf-key-id`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Arc<str>);

impl KeyId {
    /// Checks and wraps a key id.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if it is not 1 to 64 characters of `A-Z a-z 0-9 - _ .`
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let legal = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if text.is_empty() || text.len() > KEY_ID_CHARS_MAX || !text.bytes().all(legal) {
            return Err(Error::invalid(format!(
                "key id is not 1 to {KEY_ID_CHARS_MAX} characters of A-Z, a-z, 0-9, '-', '_', '.'"
            )));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for KeyId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret with its name and the time in which it holds.
#[derive(Clone, Debug)]
pub struct Key {
    id: KeyId,
    secret: SecretKey,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Key {
    /// A key that always holds.
    #[must_use]
    pub fn new(id: KeyId, secret: SecretKey) -> Self {
        Self { id, secret, not_before: Timestamp::from_micros(i64::MIN), not_after: Timestamp::MAX }
    }

    /// First moment in which the key holds. Default: always held.
    ///
    /// Among several active keys a sender uses the one that began last. When a key is rotated in, let the
    /// receiver's copy begin a day earlier, so that clocks and deployments may differ.
    #[must_use]
    pub fn not_before(mut self, first: Timestamp) -> Self {
        self.not_before = first;
        self
    }

    /// Last moment in which the key holds. Default: for ever. When a key is rotated out, let the receiver's
    /// copy end a day later.
    #[must_use]
    pub fn not_after(mut self, last: Timestamp) -> Self {
        self.not_after = last;
        self
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Whether it holds at `now`.
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    pub(super) fn began(&self) -> Timestamp {
        self.not_before
    }

    pub(super) fn is_empty(&self) -> bool {
        self.not_before > self.not_after
    }

    pub(super) fn secret(&self) -> &SecretKey {
        &self.secret
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac as _};
    use proptest::prelude::*;
    use sha2::Sha256;

    use super::*;

    #[test]
    fn s11_short_secrets_are_refused() {
        assert_eq!(SecretKey::new(&[1; 31]).unwrap_err(), SecretTooShort { bytes: 31 });
        assert!(SecretKey::new(&[1; 32]).is_ok());
        let error = Error::from(SecretTooShort { bytes: 3 });
        assert_eq!(error.to_string(), "secret has 3 bytes: give it at least 32, chosen at random");
    }

    proptest! {
        #[test]
        fn s11_codes_are_those_of_another_implementation(
            secret in proptest::collection::vec(any::<u8>(), 32..150),
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 0..20),
        ) {
            let theirs = |text: &Vec<u8>| {
                let hmac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
                Mac::from_bytes(hmac.chain_update(text).finalize().into_bytes().into())
            };
            let (key, theirs) = (SecretKey::new(&secret).unwrap(), texts.iter().map(theirs).collect::<Vec<_>>());
            prop_assert_eq!(&texts.iter().map(|text| key.mac(text)).collect::<Vec<_>>(), &theirs);
            prop_assert_eq!(&key.mac_each(&texts), &theirs);
        }
    }

    #[test]
    fn s17_debug_shows_no_secret() {
        let secret = SecretKey::new(b"hunter2-canary-hunter2-canary-hunter2").unwrap();
        let key = Key::new(KeyId::new("k1").unwrap(), secret);
        let text = format!("{key:?}");
        assert!(text.contains("secret: SecretKey(…)"), "{text}");
        assert!(!text.contains("canary") && !text.contains("104, 117"), "{text}");
    }

    #[test]
    fn key_ids_are_short_and_plain() {
        assert!(KeyId::new("shop.2026-01_a").is_ok());
        assert!(KeyId::new("k".repeat(64)).is_ok());
        for text in ["", "a b", "ä", "a\n", &"k".repeat(65)] {
            assert!(KeyId::new(text).is_err(), "{text:?}");
        }
    }
}
