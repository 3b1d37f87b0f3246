//! Reading decisions from the bytes a fuzzer made up.

/// The input, read from its start. What is missing at its end counts as zero, so that every input means something and
/// a longer one means more.
pub(super) struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(super) fn short(&mut self) -> usize {
        usize::from(u16::from_be_bytes(self.array()))
    }

    pub(super) fn long(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// A number below `end`, or zero if there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        // One byte where it is enough: the shorter an input, the more of its changes matter.
        let number = if end <= 256 { usize::from(self.byte()) } else { self.short() };
        number.checked_rem(end).unwrap_or(0)
    }

    pub(super) fn one_of<'t, T: ?Sized>(&mut self, choices: &[&'t T]) -> &'t T {
        choices[self.below(choices.len())]
    }

    /// Bytes with their length before them.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }

    /// Text with its length before it; what is not UTF-8 is replaced.
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_counts_as_zero() {
        let mut feed = Feed::new(&[1, 2, b'h', b'i', 9]);
        assert_eq!((feed.below(10), feed.text().as_str(), feed.short()), (1, "hi", 9 << 8));
        assert_eq!((feed.long(), feed.below(0), feed.rest()), (0, 0, &[][..]));
        assert!(feed.is_empty());
    }
}
