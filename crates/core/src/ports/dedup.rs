//! What is known about a message, without a handler in between: for callers that do their own work (IBX §6.1).

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::InboxStatus;
use crate::{Consumer, Endpoint, Error, MessageId, Response, Result, Source, Timestamp};

/// The longest hash that is kept: what the longest usual algorithm gives.
pub const HASH_BYTES_MAX: usize = 64;
/// The most characters the name of a hash algorithm may have.
pub const HASH_ALGORITHM_CHARS_MAX: usize = 32;

/// What identifies a message to a consumer: ids are unique within their source (IBX-001).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageKey {
    /// Who sent it.
    pub source: Source,
    /// Its id there.
    pub id: MessageId,
}

impl MessageKey {
    /// Checks and joins the two parts.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if one is empty, longer than 255 characters or has control characters.
    pub fn new(source: impl AsRef<str>, id: impl AsRef<str>) -> Result<Self> {
        Ok(Self { source: Source::new(source)?, id: MessageId::new(id)? })
    }
}

impl fmt::Display for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.id)
    }
}

/// A hash of a message's content that says how it was made (IBX-8.4). Two hashes can only be compared if they were
/// made in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash {
    algorithm: Cow<'static, str>,
    bytes: Vec<u8>,
}

impl ContentHash {
    /// The algorithm that is used unless the caller brings a hash.
    pub const SHA256: &str = "sha-256";

    /// SHA-256 of this content.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self::sha256(Sha256::digest(content).into())
    }

    /// A SHA-256 that was made elsewhere.
    #[must_use]
    pub fn sha256(bytes: [u8; 32]) -> Self {
        Self { algorithm: Self::SHA256.into(), bytes: bytes.into() }
    }

    /// A hash that was made elsewhere, in a way of the caller's choosing.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the name of the algorithm is not made of `a-z 0-9 -`, or the hash is
    /// empty, too long, or not as long as SHA-256 has it.
    pub fn new(algorithm: &str, bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = bytes.into();
        let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let named = (1..=HASH_ALGORITHM_CHARS_MAX).contains(&algorithm.len()) && algorithm.bytes().all(legal);
        if !named {
            return Err(Error::invalid(format!(
                "hash algorithm {algorithm:?} is not 1 to {HASH_ALGORITHM_CHARS_MAX} of a-z, 0-9, '-'"
            )));
        }
        let fits = if algorithm == Self::SHA256 {
            bytes.len() == 32
        } else {
            (1..=HASH_BYTES_MAX).contains(&bytes.len())
        };
        if !fits {
            return Err(Error::invalid(format!(
                "a {algorithm} hash of {} bytes: SHA-256 has 32, others have 1 to {HASH_BYTES_MAX}",
                bytes.len()
            )));
        }
        Ok(Self { algorithm: algorithm.to_owned().into(), bytes })
    }

    /// How it was made.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the two are of different contents. Hashes of different algorithms say nothing about each other.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.bytes != other.bytes
    }
}

/// What [`DedupStore::already_processed`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Where the message stands now.
    pub status: InboxStatus,
    /// Whether it is known with another content (IBX-008): visible and counted, but no error.
    pub differs: bool,
}

impl Noticed {
    /// Whether its effect has happened (IBX-003).
    #[must_use]
    pub fn is_processed(&self) -> bool {
        self.status == InboxStatus::Done
    }
}

/// A message that was noticed or claimed, and that nobody has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Which message.
    pub key: MessageKey,
    /// Seen, or Processing when it was claimed.
    pub status: InboxStatus,
    /// Who claimed it.
    pub handler: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

/// How a message is claimed before it is handled (CEB-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFirst {
    /// Which message.
    pub key: MessageKey,
    /// What it is about: its endpoint or type (CEB-3).
    pub topic: Endpoint,
    /// Who handles it (CEB-3).
    pub handler: String,
    /// Hash of its content, if known.
    pub hash: Option<ContentHash>,
    /// The sender's own date, if it has one: what may have been handled and forgotten is not claimed (S9).
    pub available: Option<Timestamp>,
    /// How often its sender has replayed it. If it fails again, the same replay is answered as the rejection it is.
    pub replay: u32,
}

/// The right to say what became of a claim, as long as nobody has released it and claimed the message anew (S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimToken(pub i64);

/// What became of a message that was claimed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// It is done; duplicates are answered with this.
    Done(Response),
    /// It failed, and the claim is kept: a dead letter with this error.
    Kept(String),
    /// It failed, and the claim is given back, as if the message had never been seen (CEB-2).
    Released,
}

/// Dedup records by hand.
pub trait DedupStore: Clone + Send + Sync + 'static {
    /// Whether a message has been processed. One that is not known is noted as Seen, one that is not Done is noted as
    /// seen again; a hash is kept for later (IBX-002…IBX-008).
    fn already_processed(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        hash: Option<&ContentHash>,
    ) -> impl Future<Output = Result<Noticed>> + Send;

    /// Notes that a message is being processed. `false` if it is Done or Dead, or not known.
    fn mark_processing(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Notes that a message is Done, which is final, with what duplicates are answered. `false` if it was, or is not
    /// known.
    fn mark_processed(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        response: &Response,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Notes that a message is Dead. `false` if it is Done or was Dead, or is not known.
    fn mark_dead(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        error: &str,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Claims a message before it is handled: of many who try, one gets it (CEB-1). Durable when this returns. `None`
    /// if somebody has it or had it, and if it is too old or dated too far ahead.
    fn claim_first(
        &self,
        consumer: &Consumer,
        claim: &ClaimFirst,
    ) -> impl Future<Output = Result<Option<ClaimToken>>> + Send;

    /// Notes what became of a claim. `false`, and nothing is written, if it is no longer the one of this token.
    fn settle_claim(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        token: ClaimToken,
        outcome: &ClaimOutcome,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Gives a claim back, whoever has it: for operators. `false` if there is none.
    fn release_claim(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Messages that were noticed or claimed at least this long ago and that nobody has finished, oldest first.
    fn unfinished(
        &self,
        consumer: &Consumer,
        older_than: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Unfinished>>> + Send;

    /// Forgets those, so that they can be processed when they come again. Returns how many.
    fn release_unfinished(
        &self,
        consumer: &Consumer,
        older_than: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<u64>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ibx_001_ibx_009_ibx_010_a_key_has_a_source_and_an_id() {
        assert!(MessageKey::new("", "id").unwrap_err().to_string().starts_with("source is empty"));
        assert!(MessageKey::new("shop", "").unwrap_err().to_string().starts_with("message id is empty"));
        let (ours, theirs) = (MessageKey::new("shop", "1").unwrap(), MessageKey::new("crm", "1").unwrap());
        assert_ne!(ours, theirs);
        assert_eq!(ours.to_string(), "shop/1");
    }

    #[test]
    fn ibx_8_4_ibx_129_a_hash_carries_its_algorithm() {
        let hash = ContentHash::of(b"content");
        assert_eq!((hash.algorithm(), hash.as_bytes().len()), ("sha-256", 32));
        assert!(hash.differs_from(&ContentHash::of(b"other")));
        assert!(!hash.differs_from(&ContentHash::of(b"content")));
        let foreign = ContentHash::new("blake3", vec![1; 32]).unwrap();
        assert!(!hash.differs_from(&foreign), "hashes of two algorithms cannot be compared");
        for (algorithm, bytes) in
            [("", 32), ("SHA", 32), ("sha-256", 31), ("md5", 0), ("x", HASH_BYTES_MAX + 1)]
        {
            assert!(ContentHash::new(algorithm, vec![0; bytes]).is_err(), "{algorithm} {bytes}");
        }
    }
}
