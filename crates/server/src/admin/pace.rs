//! How fast dead letters may be acted upon, over all callers together.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use super::refusal::{Code, Refusal};

/// Lets one call at a time through, and the next only when the pace of the last allows it.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Duration>);

/// A call at work.
#[derive(Debug)]
pub(super) struct Turn<'a>(MutexGuard<'a, Duration>);

impl Pace {
    /// A turn, at this monotonic time.
    pub(super) fn turn(&self, now: Duration) -> Result<Turn<'_>, Refusal> {
        let too_fast = |wait: Duration| {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            Code::TooFast.because("the call before is to be given more time").retry_after(seconds.max(1))
        };
        let turn = self.0.try_lock().map_err(|_| too_fast(Duration::from_secs(1)))?;
        match turn.checked_sub(now) {
            Some(wait) if !wait.is_zero() => Err(too_fast(wait)),
            _ => Ok(Turn(turn)),
        }
    }
}

impl Turn<'_> {
    /// Ends the turn: how long the next has to wait after so many messages at this pace.
    pub(super) fn end(mut self, now: Duration, messages: u64, per_second: u32) -> Duration {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        let wait = Duration::from_secs(1) * messages / per_second.max(1);
        *self.0 = now.saturating_add(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rf_22_the_next_call_waits_as_long_as_the_pace_wants() {
        let pace = Pace::default();
        let wait = pace.turn(millis(10)).unwrap().end(millis(20), 50, 100);
        assert_eq!(wait, millis(500));
        assert_eq!(pace.turn(millis(519)).unwrap_err().code, Code::TooFast);
        assert!(pace.turn(millis(520)).is_ok());
    }

    #[test]
    fn rf_22_two_calls_do_not_run_at_once() {
        let pace = Pace::default();
        let turn = pace.turn(millis(1)).unwrap();
        assert_eq!(pace.turn(millis(1)).unwrap_err().code, Code::TooFast);
        drop(turn);
        assert!(pace.turn(millis(1)).is_ok());
    }
}
