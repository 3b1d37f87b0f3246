//! Signatures of requests and answers (RF-11, S11).
//!
//! What is signed is a [canonical string](Signed::canonical): a version tag and then every field as a
//! netstring (`length:bytes,`), always all of them and always in the same order. RF-11's plain concatenation
//! gives one MAC for `("msg-1", "2orders")` and `("msg-12", "orders")`; length prefixes leave exactly one way
//! to read a string. The tags (`TB1-REQ`, `TB1-PRB`, `TB1-ANS`) keep a request from passing for an answer and leave room
//! for a second version. Test vectors for other implementations: `tests/vectors/signing.json`.
//!
//! | side | holds | does |
//! | --- | --- | --- |
//! | sender | a [`Keyring`] per destination | [`sign`] or [`sign_each`] with the [newest active key](Keyring::active), [`verify_answer`] with the same |
//! | receiver | [`Keyrings`] of all its sources | [`Keyrings::verify`] or [`Keyrings::verify_each`], then [`sign_answer`] with the [named key](Keyrings::key) |
//!
//! A request is signed per attempt, not when it is enqueued: its sent time is then fresh, and a key may be
//! retired while messages signed with it would still have waited.

mod answer;
mod canonical;
mod key;
mod keyring;
mod mac;
mod probe;
mod request;
mod verify;

pub use self::answer::{SignedAnswer, request_sha256, sign_answer, verify_answer};
pub use self::key::{Key, KeyId, SECRET_BYTES_MIN, SecretKey, SecretTooShort};
pub use self::keyring::{Keyring, Keyrings};
pub use self::mac::{Mac, Signature};
pub use self::probe::{SignedProbe, sign_probe};
pub use self::request::{Signed, sign, sign_each};
pub use self::verify::{FRESHNESS, Refused};

/// SHA-256, as signatures of answers need it.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    crate::sha256::sha256(bytes)
}
