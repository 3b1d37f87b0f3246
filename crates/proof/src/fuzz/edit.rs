//! Spoiling bytes: the same few ways for whoever tampers with a message on its way and for the fuzzer itself.

use twobox_core::Random;
use twobox_testkit::SeededRandom;

use super::feed::Feed;

/// Pieces of what is parsed here, so that chance does not have to spell them.
const TOKENS: [&str; 44] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\",
    "\\u0061",
    "\\ud800",
    "null",
    "true",
    "-1",
    "1e999",
    "9223372036854775808",
    "\"messageId\":",
    "\"payload\":",
    "\"headers\":{",
    "\"answers\":[",
    "\"outcome\":\"done\"",
    "\"acknowledged\":true",
    "rf-hmac",
    "rf-key-id",
    "rf-version",
    "rf-timestamp",
    "rf-encoding",
    "base64",
    "rf-replay",
    "rf-timeout-ms: ",
    "2026-02-14T12:00:00Z",
    "+010000-01-01",
    "é",
    "\u{2028}",
    "\u{85}",
    "%2F",
    "\r\n",
    "\r\n\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "POST /_rf/receive/batch HTTP/1.1\r\n",
    "http://",
    "{destination}",
    "@",
    "==",
];
/// The most bytes that one edit adds.
const ADDED_MAX: usize = 64;
/// The largest input the own loop makes: beyond it only limits are met, and those have tests of their own.
const INPUT_BYTES_MAX: usize = 2048;

/// Where decisions come from.
trait Choose {
    fn choose(&mut self, end: usize) -> usize;
}

impl Choose for Feed<'_> {
    fn choose(&mut self, end: usize) -> usize {
        self.below(end)
    }
}

impl Choose for &SeededRandom {
    fn choose(&mut self, end: usize) -> usize {
        let number = usize::try_from(self.next_u64() >> 32).unwrap_or(0);
        number.checked_rem(end).unwrap_or(0)
    }
}

/// Spoils `bytes` as `feed` says: up to eight edits, none if it has nothing more to say. `other` is what is spliced in.
pub(super) fn tamper(feed: &mut Feed<'_>, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..8 {
        if feed.is_empty() {
            return;
        }
        edit(feed, bytes, other);
    }
}

/// A new input from an old one, and from another for splicing.
pub(super) fn mutate(random: &SeededRandom, bytes: &mut Vec<u8>, other: &[u8]) {
    let mut random = random;
    for _ in 0..=random.choose(4) {
        edit(&mut random, bytes, other);
    }
    bytes.truncate(INPUT_BYTES_MAX);
}

fn edit(choice: &mut impl Choose, bytes: &mut Vec<u8>, other: &[u8]) {
    let kind = choice.choose(10);
    let at = choice.choose(bytes.len() + 1);
    let length = (1 + choice.choose(ADDED_MAX)).min(bytes.len() - at);
    match kind {
        0 => flip(choice, bytes, at),
        1 => set(choice, bytes, at),
        2 => drop(bytes.drain(at..at + length)),
        3 => bytes.truncate(at),
        4 => insert(bytes, at, &[byte(choice)]),
        5 => insert(bytes, at, TOKENS[choice.choose(TOKENS.len())].as_bytes()),
        6 => repeat(choice, bytes, at, length),
        7 => swap(choice, bytes, at, length),
        8 => splice(choice, bytes, at, other),
        _ => count(choice, bytes, at),
    }
}

fn byte(choice: &mut impl Choose) -> u8 {
    u8::try_from(choice.choose(256)).unwrap_or(0)
}

fn insert(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

fn flip(choice: &mut impl Choose, bytes: &mut [u8], at: usize) {
    let bit = choice.choose(8);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << bit;
    }
}

fn set(choice: &mut impl Choose, bytes: &mut [u8], at: usize) {
    let new = byte(choice);
    if let Some(byte) = bytes.get_mut(at) {
        *byte = new;
    }
}

/// The same again, next to it or elsewhere.
fn repeat(choice: &mut impl Choose, bytes: &mut Vec<u8>, at: usize, length: usize) {
    let copy = bytes[at..at + length].to_vec();
    let to = choice.choose(bytes.len() + 1);
    let times = 1 + choice.choose(ADDED_MAX / length.max(1));
    insert(bytes, to, &copy.repeat(times));
}

/// Two pieces change places.
fn swap(choice: &mut impl Choose, bytes: &mut [u8], at: usize, length: usize) {
    let to = choice.choose(bytes.len() + 1);
    let (first, second) = (at.min(to), at.max(to));
    let length = length.min(second - first).min(bytes.len() - second);
    let (left, right) = bytes.split_at_mut(second);
    left[first..first + length].swap_with_slice(&mut right[..length]);
}

/// A piece of another input.
fn splice(choice: &mut impl Choose, bytes: &mut Vec<u8>, at: usize, other: &[u8]) {
    let from = choice.choose(other.len());
    let length = (1 + choice.choose(ADDED_MAX)).min(other.len() - from);
    insert(bytes, at, &other[from..from + length]);
}

/// The next digit after `at` becomes another: numbers stay numbers.
fn count(choice: &mut impl Choose, bytes: &mut [u8], at: usize) {
    let digit = b'0' + u8::try_from(choice.choose(10)).unwrap_or(0);
    if let Some(byte) = bytes[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
        *byte = digit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_edit_is_made_and_none_panics() {
        let random = SeededRandom::new(1);
        for _ in 0..20_000 {
            let mut bytes = vec![b'7'; usize::try_from(random.next_u64() % 40).unwrap_or(0)];
            mutate(&random, &mut bytes, b"other");
            mutate(&random, &mut bytes, b"");
        }
    }

    #[test]
    fn nothing_to_say_spoils_nothing() {
        let mut bytes = b"signed".to_vec();
        tamper(&mut Feed::new(&[]), &mut bytes, b"");
        assert_eq!(bytes, b"signed");
    }
}
