//! Time and chance under the test's control.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::{Clock, Random, Timestamp, time};
use twobox_engine::Timer;

/// Where clocks start: some day in 2026, so that dates look like dates.
const START: i64 = 1_780_000_000_000_000;

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    monotonic: AtomicI64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { wall: AtomicI64::new(START), monotonic: AtomicI64::new(0) }
    }
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.wall.fetch_add(time::micros(duration), Ordering::SeqCst);
        self.monotonic.fetch_add(time::micros(duration), Ordering::SeqCst);
    }

    /// Sets the wall clock back; no time passes.
    pub fn step_back(&self, duration: Duration) {
        self.wall.fetch_sub(time::micros(duration), Ordering::SeqCst);
    }

    /// Sets the wall clock forward; no time passes.
    pub fn step_forward(&self, duration: Duration) {
        self.wall.fetch_add(time::micros(duration), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// The time of a paused single-threaded runtime (`#[tokio::test(start_paused = true)]`): when nothing can run,
/// it jumps to the next timer. The wall clock can be stepped beside it.
#[derive(Debug)]
pub struct VirtualClock {
    start: tokio::time::Instant,
    skew: AtomicI64,
}

impl VirtualClock {
    /// A clock that starts now. Must be called on the runtime.
    #[must_use]
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now(), skew: AtomicI64::new(0) }
    }

    /// Steps the wall clock by this many microseconds; no time passes.
    pub fn step_micros(&self, micros: i64) {
        self.skew.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let skew = self.skew.load(Ordering::SeqCst);
        Timestamp::from_micros(START.saturating_add(skew)).plus(self.start.elapsed())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Timer for VirtualClock {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Chance that repeats: the splitmix64 sequence of a seed.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
