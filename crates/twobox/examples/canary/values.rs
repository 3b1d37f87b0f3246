//! The canaries.

use serde::{Deserialize, Serialize};
use twobox::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox::{BoxError, Signal, Source};

pub(crate) const PAYLOAD: &str = "canary-payload-7f3a";
pub(crate) const HEADER: &str = "canary-header-91bc";
pub(crate) const RESPONSE: &str = "canary-response-22de";
pub(crate) const PANIC: &str = "canary-panic-c05e";

/// A secret made of a canary and a number.
pub(crate) fn secret(number: u8) -> String {
    format!("canary-secret-{number:0>20}")
}

pub(crate) fn key(number: u8) -> Result<Key, BoxError> {
    Ok(Key::new(KeyId::new("shop-1")?, SecretKey::new(secret(number).as_bytes())?))
}

pub(crate) fn keyring(number: u8) -> Result<Keyring, BoxError> {
    Ok(Keyring::new([key(number)?])?)
}

pub(crate) fn keyrings(number: u8) -> Result<Keyrings, BoxError> {
    let mut keyrings = Keyrings::new();
    keyrings.insert(&Source::new("shop")?, keyring(number)?)?;
    Ok(keyrings)
}

/// The payload is no such thing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Typed {
    Known(u32),
}

impl Signal for Typed {
    const NAME: &'static str = "Typed";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Prepared(pub(crate) String);

impl Signal for Prepared {
    const NAME: &'static str = "Prepared";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Claimed(pub(crate) String);

impl Signal for Claimed {
    const NAME: &'static str = "Claimed";
}
