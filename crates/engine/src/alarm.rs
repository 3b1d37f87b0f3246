//! An alarm of an event loop.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::clock::BoxFuture;

use crate::Timer;

/// What is due already is waited for this long: a loop that believes there is always something due must not spin.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Waits for a time that changes from turn to turn, mostly for a later one.
///
/// To set a timer costs a lock that all timers share, and if it is the next to ring also the wake-up of a thread. So one
/// that would ring too early is left alone, and set again when it has.
pub(crate) struct Alarm {
    timer: Arc<dyn Timer>,
    set: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl Alarm {
    pub(crate) fn new(timer: &Arc<dyn Timer>) -> Self {
        Self { timer: Arc::clone(timer), set: None }
    }

    /// Completes at `at` on the monotonic clock, but not at once.
    ///
    /// # Cancel safety
    /// What is set stays set, and serves the next call.
    pub(crate) async fn rings(&mut self, at: Duration) {
        let mut now = self.timer.monotonic();
        let at = at.max(now.saturating_add(WAIT_MIN));
        while now < at {
            let set = match self.set.take() {
                Some(set) if set.0 <= at => set,
                _ => (at, self.timer.sleep(at.saturating_sub(now))),
            };
            let (_, sleep) = self.set.insert(set);
            sleep.await;
            self.set = None;
            now = self.timer.monotonic();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use twobox_core::{Clock, Timestamp};

    use super::*;

    /// The time of a paused runtime, which counts how often somebody sleeps.
    struct Counting {
        start: tokio::time::Instant,
        sleeps: AtomicUsize,
    }

    impl Clock for Counting {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(0)
        }
        fn monotonic(&self) -> Duration {
            self.start.elapsed()
        }
    }

    impl Timer for Counting {
        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            self.sleeps.fetch_add(1, Ordering::SeqCst);
            Box::pin(tokio::time::sleep(duration))
        }
    }

    fn timer() -> Arc<Counting> {
        Arc::new(Counting { start: tokio::time::Instant::now(), sleeps: AtomicUsize::new(0) })
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Waits as a loop does to which something else happens after a millisecond.
    async fn interrupted(alarm: &mut Alarm, at: Duration) {
        tokio::select! {
            () = alarm.rings(at) => panic!("it rang too early"),
            () = tokio::time::sleep(ms(1)) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_set_serves_until_it_would_ring_too_late() {
        let timer = timer();
        let mut alarm = Alarm::new(&(Arc::clone(&timer) as Arc<dyn Timer>));
        let sleeps = || timer.sleeps.load(Ordering::SeqCst);
        for later in 0..50 {
            interrupted(&mut alarm, ms(100 + 10 * later)).await;
        }
        assert_eq!(sleeps(), 1, "each turn waits for a later time than the one before");
        alarm.rings(ms(400)).await;
        assert_eq!((timer.monotonic(), sleeps()), (ms(400), 2), "it rang in vain and was set again");
        interrupted(&mut alarm, ms(900)).await;
        alarm.rings(ms(500)).await;
        assert_eq!((timer.monotonic(), sleeps()), (ms(500), 4), "what was set would have rung too late");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_already_does_not_make_a_loop_spin() {
        let timer = timer();
        let mut alarm = Alarm::new(&(Arc::clone(&timer) as Arc<dyn Timer>));
        for _ in 0..10 {
            alarm.rings(Duration::ZERO).await;
        }
        assert_eq!(timer.monotonic(), 10 * WAIT_MIN);
    }
}
