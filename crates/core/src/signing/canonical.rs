//! The encoding under every signature: a tag, then netstrings.

use crate::digits::{Digits, push_number};
use crate::sha256::sha256;
use crate::{Headers, Timestamp, mutant};

/// A canonical string in the making. Text throughout, because every signed field is text.
pub(super) struct Canonical(Vec<u8>);

impl Canonical {
    /// Starts with the tag that separates this kind of signature from all others.
    pub(super) fn new(tag: &str) -> Self {
        // Holds a usual request without growing: about twenty fields, of which two are hashes.
        let mut text = Vec::with_capacity(640);
        text.extend_from_slice(tag.as_bytes());
        text.push(b'\n');
        Self(text)
    }

    /// Adds one field. The length counts bytes, as netstrings do.
    pub(super) fn text(self, field: &str) -> Self {
        self.bytes(field.as_bytes())
    }

    /// Adds a field that may be absent, as an empty netstring. That is unambiguous only where the field cannot
    /// be present and empty, which holds for names.
    pub(super) fn name(self, field: Option<&str>) -> Self {
        self.text(field.unwrap_or_default())
    }

    /// Adds a number in decimal.
    pub(super) fn number(self, number: impl Into<i64>) -> Self {
        self.bytes(Digits::of_signed(number.into()).bytes())
    }

    /// Adds a point in time in decimal microseconds.
    pub(super) fn time(self, time: Timestamp) -> Self {
        self.number(time.as_micros())
    }

    /// Adds a hash in lower-case hex.
    pub(super) fn hash(self, hash: &[u8; 32]) -> Self {
        self.bytes(&hex(hash))
    }

    fn bytes(mut self, field: &[u8]) -> Self {
        netstring(&mut self.0, field);
        self
    }

    /// What is signed.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The same for people and for other implementations to look at.
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.0).expect("every field is text")
    }
}

/// SHA-256 of the headers as netstrings: name, value, name, value, sorted by name.
pub(super) fn headers_sha256(headers: &Headers) -> [u8; 32] {
    /// Of nothing, which is what most messages have.
    const EMPTY: [u8; 32] = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
        0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    ];
    let mut text = Vec::new();
    for (name, value) in headers.iter() {
        netstring(&mut text, name.as_bytes());
        netstring(&mut text, value.as_bytes());
    }
    if text.is_empty() { EMPTY } else { sha256(text) }
}

fn netstring(text: &mut Vec<u8>, field: &[u8]) {
    if mutant!(ConcatenatedSignature) {
        return text.extend_from_slice(field);
    }
    push_number(text, field.len());
    text.push(b':');
    text.extend_from_slice(field);
    text.push(b',');
}

fn hex(bytes: &[u8; 32]) -> [u8; 64] {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    let mut text = [0; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_fields_that_concatenate_alike_encode_differently() {
        let of =
            |fields: [&str; 3]| fields.into_iter().fold(Canonical::new("T"), Canonical::text).into_text();
        assert_ne!(of(["msg-1", "2orders", "/pay"]), of(["msg-12", "orders", "/pay"]));
        assert_ne!(of(["1:a,", "", "b"]), of(["", "1:a,", "b"]));
        assert_eq!(of(["", "é", "1,"]), "T\n0:,2:é,2:1,,");
    }

    #[test]
    fn hex_is_lower_case_and_padded() {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&[0x00, 0x0f, 0xa0, 0xff]);
        assert!(hex(&bytes).starts_with(b"000fa0ff0000"));
    }

    #[test]
    fn numbers_are_written_as_formatting_would() {
        for number in [0, -1, 1_771_070_400_000_000, i64::MIN] {
            let text = number.to_string();
            assert_eq!(Canonical::new("T").number(number).into_text(), format!("T\n{}:{text},", text.len()));
        }
    }

    #[test]
    fn s11_the_hash_of_no_headers_is_that_of_nothing() {
        assert_eq!(headers_sha256(&Headers::default()), sha256(""));
    }

    #[test]
    fn s11_headers_are_hashed_in_the_order_of_their_names() {
        let mut one = Headers::default();
        one.insert("b", "2").unwrap();
        one.insert("a", "1").unwrap();
        assert_eq!(headers_sha256(&one), sha256("1:a,1:1,1:b,1:2,"));
    }
}
