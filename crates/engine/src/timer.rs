//! Waiting, injected like time itself.

use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Timestamp};

/// A clock that can be waited on.
pub trait Timer: Clock {
    /// Completes once `duration` of monotonic time has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

const _: fn(&dyn Timer) = |_| {}; // chosen at run time

/// The machine's clock and the runtime's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTimer(SystemClock);

impl Clock for SystemTimer {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

impl Timer for SystemTimer {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
