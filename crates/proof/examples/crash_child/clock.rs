//! The machine's clock, and a way to make the future come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use twobox_core::system::SystemClock;
use twobox_core::{Clock, Timestamp};

/// When scheduled messages are due: too late for any run to wait for, and not so far ahead that billing, whose clock
/// may be another, would not believe it.
pub(crate) const LATER: Duration = Duration::from_secs(60);

/// A clock that can be put forward, once.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    system: SystemClock,
    is_later: AtomicBool,
}

impl Forward {
    /// Whatever is scheduled becomes due.
    pub(crate) fn go(&self) {
        self.is_later.store(true, Ordering::Relaxed);
    }
}

impl Clock for Forward {
    fn now(&self) -> Timestamp {
        let passed = if self.is_later.load(Ordering::Relaxed) { LATER } else { Duration::ZERO };
        self.system.now().plus(passed)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
}
