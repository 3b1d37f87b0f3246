//! How much is accepted from outside (S16).

use crate::message::{HEADER_BYTES_MAX, HEADERS_MAX, PAYLOAD_BYTES_MAX};
use crate::{Error, Result};

/// The deepest nesting of an envelope, the envelope itself included: 64. Deeper than documents written by
/// people or programs, shallower than any parser's stack.
pub const DEPTH_MAX: usize = 64;
/// The most fields of an envelope: 64. RF-09 names seven; the rest is room for fields we do not know.
pub const ENVELOPE_FIELDS_MAX: usize = 64;
/// The most headers with the reserved prefix, on top of the user's: 32. There are thirteen, and unknown ones
/// are tolerated.
pub const RF_HEADERS_MAX: usize = 32;
/// The most bytes of headers with the reserved prefix, on top of the user's: 8 KiB. Enough for four names of
/// 255 characters of four bytes, and the rest.
pub const RF_HEADER_BYTES_MAX: usize = 8 << 10;
/// Bytes of an envelope beside its payload: 256 KiB. Enough for names and headers at their limits with every
/// character escaped (`\u0041`), which makes six bytes of one.
pub const ENVELOPE_EXTRA_BYTES: usize = 256 << 10;
/// Bytes of a batch beside its largest envelope: 2 MiB. A sender of ours closes a batch after 500 messages or
/// 256 KiB of payload; their base64 and their headers fit several times.
pub const BATCH_EXTRA_BYTES: usize = 2 << 20;
/// The most envelopes of a batch: 1,000. Twice what a sender of ours sends at once, so that a sender can be
/// tuned without its receivers.
pub const BATCH_ITEMS_MAX: usize = 1_000;

/// What a receiver accepts. The defaults stand with the constants of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one envelope. Default: base64 of the largest payload and [`ENVELOPE_EXTRA_BYTES`].
    pub envelope_bytes: usize,
    /// The most bytes of a batch. Default: `envelope_bytes` and [`BATCH_EXTRA_BYTES`].
    pub batch_bytes: usize,
    /// The most envelopes of a batch. Default [`BATCH_ITEMS_MAX`].
    pub batch_items: usize,
    /// The most bytes of a payload, decoded. Default [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// The deepest nesting of an envelope, the envelope itself included but not the batch around it.
    /// Default [`DEPTH_MAX`].
    pub depth: usize,
    /// The most headers, the envelope's own included. Default [`HEADERS_MAX`] and [`RF_HEADERS_MAX`]. The
    /// user's alone never exceed [`HEADERS_MAX`].
    pub headers: usize,
    /// The most bytes of header names and values, unescaped, the envelope's own included. Default
    /// [`HEADER_BYTES_MAX`] and [`RF_HEADER_BYTES_MAX`]. The user's alone never exceed [`HEADER_BYTES_MAX`].
    pub header_bytes: usize,
}

impl Limits {
    /// Limits that let payloads of `payload_bytes` through, alone and in batches; the rest by default.
    #[must_use]
    pub fn for_payloads(payload_bytes: usize) -> Self {
        let base64_bytes = payload_bytes.div_ceil(3).saturating_mul(4);
        let envelope_bytes = base64_bytes.saturating_add(ENVELOPE_EXTRA_BYTES);
        Self {
            envelope_bytes,
            batch_bytes: envelope_bytes.saturating_add(BATCH_EXTRA_BYTES),
            batch_items: BATCH_ITEMS_MAX,
            payload_bytes,
            depth: DEPTH_MAX,
            headers: HEADERS_MAX + RF_HEADERS_MAX,
            header_bytes: HEADER_BYTES_MAX + RF_HEADER_BYTES_MAX,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::for_payloads(PAYLOAD_BYTES_MAX)
    }
}

/// Refuses `found` of something above `max`.
pub(super) fn at_most(what: &str, found: usize, max: usize) -> Result<()> {
    if found > max {
        return Err(Error::invalid(format!("{what}: {found} exceeds the limit of {max}")));
    }
    Ok(())
}

/// Refuses an envelope that is nested deeper than `max`.
pub(super) fn depth_at_most(text: &[u8], max: usize) -> Result<()> {
    if is_deeper(text, max) {
        return Err(Error::invalid(format!("depth of envelope exceeds the limit of {max}")));
    }
    Ok(())
}

/// Whether brackets outside strings are ever nested deeper than `max`.
///
/// Right for JSON; for anything else it may be wrong, but then the parser refuses it anyway. Needed because
/// raw values skip serde's own depth check, and whoever parses the payload later may not have one.
#[must_use]
pub fn is_deeper(text: &[u8], max: usize) -> bool {
    // Most texts have fewer brackets than levels are allowed, wherever they stand. `[` and `{` differ in one bit.
    if brackets(text) <= max {
        return false;
    }
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        if depth > max {
            return true;
        }
    }
    false
}

/// How many opening brackets there are, in strings or not. Counted in bytes as far as they reach, which the compiler
/// turns into a few instructions for many bytes at a time.
fn brackets(text: &[u8]) -> usize {
    let of = |part: &[u8]| part.iter().fold(0_u8, |count, byte| count + u8::from(*byte | 0x20 == b'{'));
    text.chunks(usize::from(u8::MAX)).map(|part| usize::from(of(part))).sum()
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_brackets_in_strings_do_not_count() {
        assert!(!is_deeper(br#"["[[[[\"[[[[\\", "{{{{"]"#, 1));
        assert!(is_deeper(br#"["\\", []]"#, 1));
        assert!(is_deeper(br#"{"a":[{}]}"#, 2));
        assert!(!is_deeper(br#"{"a":[{}]}"#, 3));
        assert!(!is_deeper(b"[][][]]]][", 1));
        assert!(!is_deeper(br#""unfinished \"#, 0));
    }

    #[test]
    fn s16_limits_grow_with_the_payload_and_never_overflow() {
        assert!(Limits::for_payloads(8 << 20).envelope_bytes > (8 << 20) / 3 * 4);
        assert_eq!(Limits::for_payloads(usize::MAX).batch_bytes, usize::MAX);
    }
}
