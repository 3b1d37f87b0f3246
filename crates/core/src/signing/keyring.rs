//! Several keys at a time, so that they can be exchanged without a pause.

use std::collections::{HashMap, HashSet};

use super::{Key, KeyId, SecretKey};
use crate::{Error, ErrorKind, Result, Source, Timestamp};

/// The keys shared with one peer.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Vec<Key>,
}

impl Keyring {
    /// A ring with one key that holds at all times.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the id is not legal, [`Misconfigured`](ErrorKind::Misconfigured) if the
    /// secret is too short.
    pub fn of(id: &str, secret: &[u8]) -> Result<Self> {
        Self::new([Key::new(KeyId::new(id)?, SecretKey::new(secret)?)])
    }

    /// Puts keys on a ring, in any order.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if there is none, if two have the same id, or if one ends
    /// before it begins.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Result<Self> {
        let keys: Vec<Key> = keys.into_iter().collect();
        if keys.is_empty() {
            return Err(misconfigured("keyring has no key: add one".into()));
        }
        let mut ids = HashSet::new();
        for key in &keys {
            if !ids.insert(key.id()) {
                return Err(misconfigured(format!(
                    "key id {} is used twice in a keyring: rename one",
                    key.id()
                )));
            }
            if key.is_empty() {
                return Err(misconfigured(format!(
                    "key {} has its not_after before its not_before",
                    key.id()
                )));
            }
        }
        Ok(Self { keys })
    }

    /// The key to sign with: of those that hold at `now`, the one that began last; of several that began
    /// together, the one added last.
    #[must_use]
    pub fn active(&self, now: Timestamp) -> Option<&Key> {
        self.keys.iter().filter(|key| key.is_active(now)).max_by_key(|key| key.began())
    }

    /// The key named `id`, whether or not it still holds.
    #[must_use]
    pub fn key(&self, id: &KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }
}

/// The keys of all sources a receiver accepts. The owner of a key is the source of what is signed with it.
#[derive(Clone, Debug)]
pub struct Keyrings {
    owners: HashMap<KeyId, (Source, Key)>,
    nobody: SecretKey,
}

impl Keyrings {
    /// No keys at all: every request is refused.
    #[must_use]
    pub fn new() -> Self {
        Self { owners: HashMap::new(), nobody: SecretKey::nobody() }
    }

    /// The keys of one source.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the source's name is not legal.
    pub fn of(source: &str, keyring: Keyring) -> Result<Self> {
        let mut keyrings = Self::new();
        keyrings.insert(&Source::new(source)?, keyring)?;
        Ok(keyrings)
    }

    /// Adds the keys of `source`.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if one of the key ids is taken, be it by the same source:
    /// a request names its key only, so the id must lead to one owner. Nothing is added then.
    pub fn insert(&mut self, source: &Source, keyring: Keyring) -> Result<()> {
        if let Some(key) = keyring.keys.iter().find(|key| self.owners.contains_key(key.id())) {
            let (owner, _) = &self.owners[key.id()];
            return Err(misconfigured(format!(
                "key id {} of source {source} is already a key id of {owner}: rename one",
                key.id()
            )));
        }
        self.owners.extend(keyring.keys.into_iter().map(|key| (key.id().clone(), (source.clone(), key))));
        Ok(())
    }

    /// The key named `id`, for signing the answer to a verified request.
    #[must_use]
    pub fn key(&self, id: &KeyId) -> Option<&Key> {
        self.owner(id).map(|(_, key)| key)
    }

    /// Whether `source` has a key, so that nothing unsigned may be taken for its own (S10).
    #[must_use]
    pub fn knows(&self, source: &Source) -> bool {
        self.owners.values().any(|(owner, _)| owner == source)
    }

    pub(super) fn owner(&self, id: &KeyId) -> Option<&(Source, Key)> {
        self.owners.get(id)
    }

    pub(super) fn nobody(&self) -> &SecretKey {
        &self.nobody
    }
}

impl Default for Keyrings {
    fn default() -> Self {
        Self::new()
    }
}

fn misconfigured(text: String) -> Error {
    Error::new(ErrorKind::Misconfigured, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Key {
        Key::new(KeyId::new(id).unwrap(), SecretKey::new(&[1; 32]).unwrap())
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn s11_the_newest_active_key_signs() {
        let ring = Keyring::new([
            key("new").not_before(at(100)),
            key("old").not_after(at(150)),
            key("next").not_before(at(200)).not_after(at(300)),
        ])
        .unwrap();
        let active = |micros| ring.active(at(micros)).map(|key| key.id().as_str());
        assert_eq!(active(99), Some("old"));
        assert_eq!(active(100), Some("new"));
        assert_eq!(active(200), Some("next"));
        assert_eq!(active(300), Some("next"));
        assert_eq!(active(301), Some("new"));
        let ring = Keyring::new([key("a").not_before(at(5)), key("b").not_before(at(5))]).unwrap();
        assert_eq!(ring.active(at(5)).unwrap().id().as_str(), "b");
        assert!(ring.active(at(4)).is_none());
    }

    #[test]
    fn s10_contradictory_keyrings_are_refused() {
        assert!(Keyring::new([]).is_err());
        assert!(Keyring::new([key("a"), key("a")]).is_err());
        assert!(Keyring::new([key("a").not_before(at(2)).not_after(at(1))]).is_err());
    }

    #[test]
    fn s10_a_key_id_has_one_owner() {
        let (shop, bank) = (Source::new("shop").unwrap(), Source::new("bank").unwrap());
        let mut rings = Keyrings::new();
        rings.insert(&shop, Keyring::new([key("a")]).unwrap()).unwrap();
        let error = rings.insert(&bank, Keyring::new([key("b"), key("a")]).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "key id a of source bank is already a key id of shop: rename one");
        assert!(rings.knows(&shop) && !rings.knows(&bank));
        assert!(rings.key(&KeyId::new("b").unwrap()).is_none());
    }
}
