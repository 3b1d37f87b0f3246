//! Several texts at a time: each has a lane of its own in every word, and one instruction works on all lanes.

use std::array::from_fn;

use super::{BLOCK, Blocks, Hash256, Start, digest};

/// Texts at a time: what a register of AVX2 has room for.
pub(super) const LANES: usize = 8;

/// The same word of all lanes.
pub(super) type Word = [u32; LANES];

/// A block of each lane.
pub(super) type Row = [[u8; BLOCK]; LANES];

/// Adds the block of each lane to its state.
pub(super) type Compress = fn(&mut [Word; 8], &Row);

/// How this processor hashes several texts at a time, if that is quicker than one after the other.
pub(super) fn quickest() -> Option<Compress> {
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("sha") {
        return super::wide::on_avx2();
    }
    None
}

/// The hashes of texts behind `start`, in their order.
pub(super) fn hash_each(compress: Compress, start: &Start, texts: &[impl AsRef<[u8]>]) -> Vec<Hash256> {
    let blocks: Vec<Blocks<'_>> = texts.iter().map(|text| Blocks::of(text.as_ref(), start.bytes)).collect();
    let mut hashes = vec![[0; 32]; texts.len()];
    // Those that are as long as each other keep all lanes busy.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&at| blocks[at].count());
    for turn in order.chunks(LANES) {
        hash_turn(compress, start, turn, &blocks, &mut hashes);
    }
    hashes
}

/// Hashes up to as many texts as there are lanes, the longest last.
fn hash_turn(
    compress: Compress,
    start: &Start,
    turn: &[usize],
    blocks: &[Blocks<'_>],
    hashes: &mut [Hash256],
) {
    let Some((&longest, others)) = turn.split_last() else { return };
    let mut state = start.state.map(|word| [word; LANES]);
    // Once only one text is left, the other lanes have nothing to do.
    let shared = others.last().map_or(0, |&at| blocks[at].count());
    for at in 0..shared {
        let row = from_fn(|lane| turn.get(lane).map_or([0; BLOCK], |&text| blocks[text].get(at)));
        compress(&mut state, &row);
        for (lane, &text) in others.iter().enumerate() {
            if blocks[text].count() == at + 1 {
                hashes[text] = digest(state.map(|word| word[lane]));
            }
        }
    }
    hashes[longest] = start.finish(state.map(|word| word[others.len()]), &blocks[longest], shared);
}

#[cfg(test)]
mod tests {
    use super::super::wide;
    use super::*;

    fn ways() -> Vec<Compress> {
        // On any processor; where there are none of its instructions, only slower.
        let mut ways: Vec<Compress> = vec![|state, row| wide::compress(state, row)];
        #[cfg(target_arch = "x86_64")]
        ways.extend(wide::on_avx2());
        ways
    }

    /// All ways of hashing many texts give what is known of each.
    fn check(texts: &[&[u8]]) {
        for start in [Start::NOTHING, Start::behind(&[0x36; BLOCK])] {
            let expected: Vec<Hash256> = texts.iter().map(|text| start.hash(text)).collect();
            for compress in ways() {
                assert_eq!(hash_each(compress, &start, texts), expected, "{} texts", texts.len());
            }
        }
    }

    #[test]
    fn lanes_of_all_lengths_and_any_number_give_the_hashes_of_their_texts() {
        let text: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for count in 0..=2 * LANES + 1 {
            for step in [0, 1, 9, 55, 64] {
                check(&(0..count).map(|at| &text[at..at + (at * step) % 900]).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_text_that_is_longer_than_all_others_of_its_turn_is_finished_alone() {
        check(&[&[1; 5_000], &[2; 10], &[3; 200]]);
    }
}
