//! The encoding under every signature: a tag, then netstrings.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{Headers, Timestamp};

/// A canonical string in the making. Text throughout, because every signed field is text.
pub(super) struct Canonical(String);

impl Canonical {
    /// Starts with the tag that separates this kind of signature from all others.
    pub(super) fn new(tag: &str) -> Self {
        // Holds a usual request without growing: about twenty fields, of which two are hashes.
        let mut text = String::with_capacity(640);
        text.push_str(tag);
        text.push('\n');
        Self(text)
    }

    /// Adds one field. The length counts bytes, as netstrings do.
    pub(super) fn text(mut self, field: &str) -> Self {
        netstring(&mut self.0, field);
        self
    }

    /// Adds a field that may be absent, as an empty netstring. That is unambiguous only where the field cannot
    /// be present and empty, which holds for names.
    pub(super) fn name(self, field: Option<&str>) -> Self {
        self.text(field.unwrap_or_default())
    }

    /// Adds a number in decimal.
    pub(super) fn number(self, number: impl Into<i64>) -> Self {
        self.text(&number.into().to_string())
    }

    /// Adds a point in time in decimal microseconds.
    pub(super) fn time(self, time: Timestamp) -> Self {
        self.number(time.as_micros())
    }

    /// Adds a hash in lower-case hex.
    pub(super) fn hash(self, hash: &[u8; 32]) -> Self {
        self.text(&hex(hash))
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// SHA-256 of the headers as netstrings: name, value, name, value, sorted by name.
pub(super) fn headers_sha256(headers: &Headers) -> [u8; 32] {
    let mut text = String::new();
    for (name, value) in headers.iter() {
        netstring(&mut text, name);
        netstring(&mut text, value);
    }
    Sha256::digest(text).into()
}

fn netstring(text: &mut String, field: &str) {
    write!(text, "{}:{field},", field.len()).expect("writing to a string cannot fail");
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_fields_that_concatenate_alike_encode_differently() {
        let of = |fields: [&str; 3]| fields.into_iter().fold(Canonical::new("T"), Canonical::text).finish();
        assert_ne!(of(["msg-1", "2orders", "/pay"]), of(["msg-12", "orders", "/pay"]));
        assert_ne!(of(["1:a,", "", "b"]), of(["", "1:a,", "b"]));
        assert_eq!(of(["", "é", "1,"]), "T\n0:,2:é,2:1,,");
    }

    #[test]
    fn hex_is_lower_case_and_padded() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }

    #[test]
    fn s11_headers_are_hashed_in_the_order_of_their_names() {
        let mut one = Headers::default();
        one.insert("b", "2").unwrap();
        one.insert("a", "1").unwrap();
        let expected: [u8; 32] = Sha256::digest("1:a,1:1,1:b,1:2,").into();
        assert_eq!(headers_sha256(&one), expected);
    }
}
