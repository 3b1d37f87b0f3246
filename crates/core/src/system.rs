//! The real clock and real randomness: the only place where they are read.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::{Clock, Random, Timestamp};

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    fn now(&self) -> Timestamp {
        let epoch = SystemTime::UNIX_EPOCH;
        Timestamp::default().plus(SystemTime::now().duration_since(epoch).unwrap_or_default())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Randomness from a keyed hash of a counter, with a key from the operating system.
///
/// Good for ids and jitter; not for secrets.
#[derive(Default)]
pub struct SystemRandom {
    key: RandomState,
    counter: AtomicU64,
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.key.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for SystemRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemRandom").finish_non_exhaustive()
    }
}
