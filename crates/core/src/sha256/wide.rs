//! SHA-256 of a block in each lane: what wide registers are for.
//!
//! Nothing but additions, shifts and logic, so the time taken depends on the lengths of the texts alone.

use std::array::from_fn;

use super::lanes::{LANES, Row, Word};

/// The constants of FIPS 180-4, one per round.
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// [`compress`] for processors with AVX2. There is none for AVX-512: compiled for that it takes a fifth less time, and all
/// the rest of the program more, so that a tenth fewer messages were delivered.
#[cfg(target_arch = "x86_64")]
pub(super) fn on_avx2() -> Option<super::lanes::Compress> {
    #[target_feature(enable = "avx2")]
    fn compiled(state: &mut [Word; 8], row: &Row) {
        compress(state, row);
    }
    #[expect(unsafe_code, reason = "what the processor can do is known at run time only")]
    fn called(state: &mut [Word; 8], row: &Row) {
        // SAFETY: nobody else gives this function away, and only if the processor has AVX2.
        unsafe { compiled(state, row) }
    }
    std::arch::is_x86_feature_detected!("avx2").then_some(called)
}

/// FIPS 180-4, section 6.2.2, of all lanes. Compiled for whatever its caller is compiled for.
#[inline(always)]
pub(super) fn compress(state: &mut [Word; 8], row: &Row) {
    let (mut schedule, mut all) = (words(row), *state);
    for (round, constant) in ROUNDS.into_iter().enumerate() {
        if round >= 16 {
            let of = |ago: usize| schedule[(round - ago) % 16];
            let (near, far) = (each(of(2), small_sigma_1), each(of(15), small_sigma_0));
            schedule[round % 16] = sum(sum(of(16), far), sum(of(7), near));
        }
        let [a, b, c, d, e, f, g, h] = all;
        let chosen = from_fn(|lane| g[lane] ^ (e[lane] & (f[lane] ^ g[lane])));
        let majority = from_fn(|lane| (a[lane] & b[lane]) | (c[lane] & (a[lane] | b[lane])));
        let input = sum(schedule[round % 16], [constant; LANES]);
        let one = sum(sum(h, each(e, big_sigma_1)), sum(chosen, input));
        let two = sum(each(a, big_sigma_0), majority);
        all = [sum(one, two), a, b, c, sum(d, one), e, f, g];
    }
    *state = from_fn(|word| sum(state[word], all[word]));
}

/// The words of all lanes.
#[inline(always)]
fn words(row: &Row) -> [Word; 16] {
    let words: [&[[u8; 4]]; LANES] = from_fn(|lane| row[lane].as_chunks().0);
    from_fn(|word| from_fn(|lane| u32::from_be_bytes(words[lane][word])))
}

#[inline(always)]
fn each(word: Word, of: impl Fn(u32) -> u32) -> Word {
    from_fn(|lane| of(word[lane]))
}

#[inline(always)]
fn sum(one: Word, other: Word) -> Word {
    from_fn(|lane| one[lane].wrapping_add(other[lane]))
}

#[inline(always)]
fn big_sigma_0(x: u32) -> u32 {
    x.rotate_right(2) ^ x.rotate_right(13) ^ x.rotate_right(22)
}

#[inline(always)]
fn big_sigma_1(x: u32) -> u32 {
    x.rotate_right(6) ^ x.rotate_right(11) ^ x.rotate_right(25)
}

#[inline(always)]
fn small_sigma_0(x: u32) -> u32 {
    x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3)
}

#[inline(always)]
fn small_sigma_1(x: u32) -> u32 {
    x.rotate_right(17) ^ x.rotate_right(19) ^ (x >> 10)
}
