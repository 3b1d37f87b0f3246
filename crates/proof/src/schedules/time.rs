//! Time and chance of a schedule.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, RngCore};
use shuttle::sync::atomic::{AtomicI64, Ordering};
use twobox_core::clock::BoxFuture;
use twobox_core::{Clock, Random, Timestamp, time};
use twobox_engine::Timer;

/// Where clocks start.
const START: i64 = 1_780_000_000_000_000;
/// The most that passes between two looks at a clock.
const LOOK_MICROS: u32 = 4_000;
/// A sleeper gives way to others once for so many microseconds, so that long sleeps tend to be long.
const MICROS_PER_TURN: i64 = 50_000;
const TURNS_MAX: i64 = 100;

/// A number below `end`, chosen with the schedule.
pub(super) fn below(end: u32) -> u32 {
    shuttle::rand::thread_rng().gen_range(0..end)
}

/// Chance that belongs to the schedule.
pub(super) struct Chance;

impl Random for Chance {
    fn next_u64(&self) -> u64 {
        shuttle::rand::thread_rng().next_u64()
    }
}

/// Time that passes when somebody looks at it, and jumps to the end of a sleep. Every look is a place where others may
/// run. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Time(Arc<AtomicI64>);

impl Time {
    fn micros(&self) -> i64 {
        self.0.fetch_add(below(LOOK_MICROS).into(), Ordering::SeqCst)
    }
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START.saturating_add(self.micros()))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros().unsigned_abs())
    }
}

impl Timer for Time {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (now, micros) = (self.0.clone(), time::micros(duration));
        let end = now.load(Ordering::SeqCst).saturating_add(micros);
        Box::pin(async move {
            for _ in 0..=(micros / MICROS_PER_TURN).min(TURNS_MAX) {
                shuttle::future::yield_now().await;
            }
            now.fetch_max(end, Ordering::SeqCst);
        })
    }
}

/// The same time, for somebody who is stopped once, at one of his looks, until a while has passed for everybody else.
pub(super) struct Stalling {
    time: Time,
    looks_left: AtomicI64,
    pause: i64,
}

impl Stalling {
    /// Stops at the look of this number, if any.
    pub(super) fn new(time: &Time, at: Option<u32>, pause: Duration) -> Self {
        let looks_left = AtomicI64::new(at.map_or(i64::MAX, i64::from));
        Self { time: time.clone(), looks_left, pause: time::micros(pause) }
    }
}

impl Clock for Stalling {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn monotonic(&self) -> Duration {
        if self.looks_left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let until = self.time.micros().saturating_add(self.pause);
            while self.time.0.load(Ordering::SeqCst) < until {
                shuttle::thread::yield_now();
            }
        }
        self.time.monotonic()
    }
}

impl Timer for Stalling {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.sleep(duration)
    }
}

/// The same time for somebody whose sleeps never end.
pub(super) struct Endless(pub(super) Time);

impl Clock for Endless {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

impl Timer for Endless {
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
