//! Chance that can be repeated.

use std::time::Duration;

use twobox_core::Random;
use twobox_core::system::SystemRandom;

/// A seed nobody has chosen, short enough to be typed.
pub(super) fn fresh_seed() -> u64 {
    SystemRandom::default().next_u64() % 1_000_000
}

/// A secret nobody knows, as text.
pub(super) fn fresh_secret() -> String {
    let random = SystemRandom::default();
    (0..4).map(|_| format!("{:016x}", random.next_u64())).collect()
}

/// A sequence of numbers that depends on the seed alone (SplitMix64).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A time below `end`.
    pub(super) fn time_below(&mut self, end: Duration) -> Duration {
        let micros = u64::try_from(end.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.below(micros))
    }

    /// Puts items in another order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap_or(0);
            items.swap(at, other);
        }
    }
}
