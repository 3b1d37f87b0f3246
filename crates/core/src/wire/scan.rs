//! Reads JSON from front to back, once, as long as it is plain.
//!
//! Plain is what every sender writes: members that are known, strings without escapes. Whatever is not is no error here:
//! `None` says that somebody with more patience has to look at it, who also knows what to say about it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A text and how far it has been read.
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The rest of the text.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Reads this byte, which is no part of a longer character. White space in front of it means nothing.
    pub(super) fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Reads a string without escapes.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        self.byte(b'"')?;
        let rest = self.rest();
        let end = plain_bytes(rest.as_bytes());
        (rest.as_bytes().get(end) == Some(&b'"')).then(|| {
            self.at += end + 1;
            &rest[..end]
        })
    }

    /// Reads whatever value there is, as it stands.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        self.peek()?;
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(self.rest())).ok()?.get();
        self.at += raw.len();
        Some(raw)
    }

    /// Reads what stands between these brackets, one after the other.
    pub(super) fn each(
        &mut self,
        [open, close]: [u8; 2],
        mut read: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.byte(open)?;
        if self.peek()? == close {
            return self.byte(close);
        }
        loop {
            read(self)?;
            if self.peek()? != b',' {
                return self.byte(close);
            }
            self.byte(b',')?;
        }
    }

    /// Whether nothing but white space is left.
    pub(super) fn is_over(&mut self) -> bool {
        self.peek().is_none()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        let rest = &self.text.as_bytes()[self.at..];
        if rest.first().is_some_and(|byte| is_space(&byte)) {
            self.at += rest.iter().take_while(is_space).count();
        }
        self.text.as_bytes().get(self.at).copied()
    }
}

/// How many bytes there are in front of the first that ends a string or is not plain in one: a quote, a backslash, a
/// control character.
fn plain_bytes(text: &[u8]) -> usize {
    let (words, _) = text.as_chunks();
    let plain = words.iter().take_while(|word| is_plain(u64::from_ne_bytes(**word))).count() * 8;
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    plain + text[plain..].iter().position(ends).unwrap_or(text.len() - plain)
}

/// Whether none of eight bytes is a quote, a backslash or a control character.
fn is_plain(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    // Has a high bit set exactly if a byte is zero: only then does a byte without its own high bit borrow from it.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let quotes = zeros(word ^ (ONES * u64::from(b'"')));
    let backslashes = zeros(word ^ (ONES * u64::from(b'\\')));
    (below_space | quotes | backslashes) & HIGH == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_plain_or_left_to_others() {
        let string = |text| Scan::new(text).string();
        for plain in ["", "a", "seven77", "eight888", "nine99999", "é€😀 and more of it", "sixteen of them!"]
        {
            let text = format!(" \t\"{plain}\" ...");
            assert_eq!(Scan::new(&text).string(), Some(plain));
        }
        let others =
            ["", "x", "\"", "\"unfinished", "\"a\\n\"", "\"a\nb\"", "\"1234567\u{1f}\"", "\"12345678\\\"\""];
        others.into_iter().for_each(|other| assert_eq!(string(other), None, "{other}"));
    }

    #[test]
    fn every_byte_that_is_not_plain_is_found_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut text = [b'x'; 20];
                text[at] = byte;
                let ends = matches!(byte, b'"' | b'\\' | 0..0x20);
                assert_eq!(plain_bytes(&text), if ends { at } else { 20 }, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn lists_are_read_to_their_end() {
        let strings = |text| {
            let (mut scan, mut strings) = (Scan::new(text), Vec::new());
            let read = scan.each(*b"[]", |scan| scan.string().map(|string| strings.push(string)));
            read.filter(|()| scan.is_over()).map(|()| strings)
        };
        assert_eq!(strings("[]"), Some(vec![]));
        assert_eq!(strings(" [ \"a\" ,\"b\"\n] "), Some(vec!["a", "b"]));
        for wrong in ["[", "[,]", "[\"a\",]", "[\"a\" \"b\"]", "[\"a\"", "[\"a\"}", "[] 1", "[1]"] {
            assert_eq!(strings(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_are_taken_as_they_stand() {
        let mut scan = Scan::new(" {\"a\":[1, 2.50]} ,-0e1");
        assert_eq!(scan.value(), Some("{\"a\":[1, 2.50]}"));
        assert_eq!(scan.byte(b','), Some(()));
        assert_eq!((scan.value(), scan.is_over()), (Some("-0e1"), true));
        assert_eq!(Scan::new("{\"a\"}").value(), None);
    }
}
