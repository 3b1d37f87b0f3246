//! SHA-256, of one text or of many at once.
//!
//! Each message of a batch is hashed twice on either side, for its payload and for its signature. Processors with
//! instructions for it hash one text after the other. Those without that have AVX2 hash [eight at a time](lanes), in a
//! fifth of the time each.

mod lanes;
#[cfg(any(test, target_arch = "x86_64"))]
mod wide;

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

/// What comes out.
pub(crate) type Hash256 = [u8; 32];

/// Bytes that are hashed at a time.
pub(crate) const BLOCK: usize = 64;

/// The hash of a text.
pub(crate) fn sha256(text: impl AsRef<[u8]>) -> Hash256 {
    Sha256::digest(text).into()
}

/// The hash of the texts as one, which are never put together.
pub(crate) fn sha256_of_all<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> Hash256 {
    texts.into_iter().fold(Sha256::new(), Digest::chain_update).finalize().into()
}

/// The hash of each text.
pub(crate) fn sha256_each(texts: &[impl AsRef<[u8]>]) -> Vec<Hash256> {
    Start::NOTHING.hash_each(texts)
}

/// Where hashing begins: with nothing, or behind a block that many texts have in common.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    state: [u32; 8],
    /// How much is hashed already, in whole blocks.
    bytes: usize,
}

impl Start {
    const NOTHING: Self = Self {
        state: [
            0x6a09_e667,
            0xbb67_ae85,
            0x3c6e_f372,
            0xa54f_f53a,
            0x510e_527f,
            0x9b05_688c,
            0x1f83_d9ab,
            0x5be0_cd19,
        ],
        bytes: 0,
    };

    /// Behind `block`.
    pub(crate) fn behind(block: &[u8; BLOCK]) -> Self {
        let mut state = Self::NOTHING.state;
        compress256(&mut state, std::slice::from_ref(block));
        Self { state, bytes: BLOCK }
    }

    /// The hash with `text` at its end.
    pub(crate) fn hash(&self, text: &[u8]) -> Hash256 {
        self.finish(self.state, &Blocks::of(text, self.bytes), 0)
    }

    /// The hashes with each of the texts at their ends.
    pub(crate) fn hash_each(&self, texts: &[impl AsRef<[u8]>]) -> Vec<Hash256> {
        match lanes::quickest() {
            Some(compress) if texts.len() > 1 => lanes::hash_each(compress, self, texts),
            _ => texts.iter().map(|text| self.hash(text.as_ref())).collect(),
        }
    }

    /// Hashes what is left of a text, of which `done` blocks have made `state`.
    fn finish(&self, mut state: [u32; 8], blocks: &Blocks<'_>, done: usize) -> Hash256 {
        let whole = blocks.whole().get(done..).unwrap_or_default();
        compress256(&mut state, whole);
        for at in done + whole.len()..blocks.count() {
            compress256(&mut state, &[blocks.get(at)]);
        }
        digest(state)
    }
}

/// A text in the blocks it is hashed in: with a mark at its end, and behind that its length.
struct Blocks<'t> {
    text: &'t [u8],
    /// How long it is in all, what was hashed before it included.
    bits: u64,
}

impl<'t> Blocks<'t> {
    /// The mark and the length.
    const END: usize = 1 + size_of::<u64>();

    fn of(text: &'t [u8], before: usize) -> Self {
        Self { text, bits: 8 * (before as u64 + text.len() as u64) }
    }

    fn count(&self) -> usize {
        (self.text.len() + Self::END).div_ceil(BLOCK)
    }

    /// Those that are text and nothing else.
    fn whole(&self) -> &'t [[u8; BLOCK]] {
        self.text.as_chunks().0
    }

    fn get(&self, at: usize) -> [u8; BLOCK] {
        if let Some(whole) = self.whole().get(at) {
            return *whole;
        }
        let mut block = [0; BLOCK];
        if at == self.whole().len() {
            let rest = self.text.as_chunks::<BLOCK>().1;
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 0x80;
        }
        if at + 1 == self.count() {
            block[BLOCK - size_of::<u64>()..].copy_from_slice(&self.bits.to_be_bytes());
        }
        block
    }
}

fn digest(state: [u32; 8]) -> Hash256 {
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixed(block: &[u8; BLOCK], text: &[u8]) -> Hash256 {
        sha256([&block[..], text].concat())
    }

    #[test]
    fn texts_of_all_lengths_around_a_block_are_hashed_as_by_others() {
        let (text, block) = ([0xa5; 3 * BLOCK], [7; BLOCK]);
        for length in 0..=text.len() {
            let text = &text[..length];
            assert_eq!(Start::NOTHING.hash(text), sha256(text), "{length} bytes");
            assert_eq!(Start::behind(&block).hash(text), prefixed(&block, text), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn many_texts_are_hashed_as_each_of_them(
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
            block: [u8; 32],
        ) {
            let block = [block, block].concat().try_into().unwrap();
            prop_assert_eq!(sha256_each(&texts), texts.iter().map(sha256).collect::<Vec<_>>());
            let behind: Vec<Hash256> = texts.iter().map(|text| prefixed(&block, text)).collect();
            prop_assert_eq!(Start::behind(&block).hash_each(&texts), behind);
            let all = texts.iter().map(Vec::as_slice);
            prop_assert_eq!(sha256_of_all(all), sha256(texts.concat()));
        }
    }
}
