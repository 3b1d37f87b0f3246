//! Clocks that are wrong.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use twobox_core::clock::BoxFuture;
use twobox_core::{Clock, Timestamp, time};
use twobox_engine::Timer;
use twobox_testkit::VirtualClock;

use super::stage::lock;

/// The wall clock of a machine: survives its processes, can be ahead or behind, step and stand still.
#[derive(Debug)]
pub(super) struct Wall {
    clock: VirtualClock,
    skew: AtomicI64,
    frozen: Mutex<Option<Timestamp>>,
}

impl Wall {
    pub(super) fn start() -> Self {
        Self { clock: VirtualClock::start(), skew: AtomicI64::new(0), frozen: Mutex::default() }
    }

    fn now(&self) -> Timestamp {
        lock(&self.frozen).unwrap_or_else(|| self.clock.now())
    }

    /// Sets the clock so many microseconds ahead of the right time, or behind it. Returns by how much it has stepped.
    pub(super) fn set_ahead(&self, micros: i64) -> i64 {
        let step = micros - self.skew.swap(micros, Ordering::SeqCst);
        self.clock.step_micros(step);
        step
    }

    pub(super) fn freeze(&self) {
        let now = self.now();
        lock(&self.frozen).get_or_insert(now);
    }

    pub(super) fn thaw(&self) {
        *lock(&self.frozen) = None;
    }

    /// Somebody sets it right.
    pub(super) fn set_right(&self) {
        self.thaw();
        self.set_ahead(0);
    }
}

/// The clock of one process: the machine's wall clock, and a monotonic one of its own.
#[derive(Debug)]
pub(super) struct ProcessClock {
    wall: Arc<Wall>,
    start: Instant,
    busy_micros: AtomicU64,
}

impl ProcessClock {
    pub(super) fn start(wall: &Arc<Wall>) -> Self {
        Self { wall: Arc::clone(wall), start: Instant::now(), busy_micros: AtomicU64::new(0) }
    }

    /// The process was busy for so long: on a paused runtime, work itself takes no time.
    pub(super) fn be_busy(&self, duration: Duration) {
        self.busy_micros.fetch_add(time::micros(duration).unsigned_abs(), Ordering::SeqCst);
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.wall.now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed() + Duration::from_micros(self.busy_micros.load(Ordering::SeqCst))
    }
}

impl Timer for ProcessClock {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
