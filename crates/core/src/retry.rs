//! Back-off: how long to wait before the next attempt, and when to stop trying (RF-04).

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Error, Random, Result};

/// Exponential back-off with jitter: `min(base · 2^n, max) + random(0, jitter)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    attempts_max: NonZeroU32,
    base: Duration,
    max: Duration,
    jitter: Duration,
}

impl Default for Policy {
    /// Six attempts (the first and five retries), 2 s doubling to at most 5 min, up to 500 ms of jitter: RF-06.
    fn default() -> Self {
        Self {
            attempts_max: NonZeroU32::MIN.saturating_add(5),
            base: Duration::from_secs(2),
            max: Duration::from_secs(300),
            jitter: Duration::from_millis(500),
        }
    }
}

impl Policy {
    /// Attempts in total, the first one included. Default 6: RF-06 asks for five *re*tries.
    #[must_use]
    pub fn attempts_max(mut self, attempts: NonZeroU32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// Delay before the first retry. Default 2 s.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Longest delay before jitter. Default 5 min.
    #[must_use]
    pub fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// Most that chance adds to a delay, so that a herd spreads out. Default 500 ms.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Attempts after the first.
    #[must_use]
    pub fn retries_max(&self) -> u32 {
        self.attempts_max.get() - 1
    }

    /// The longest this policy ever waits between two attempts.
    #[must_use]
    pub fn delay_max(&self) -> Duration {
        self.max.saturating_add(self.jitter)
    }

    /// The delay after `attempts` failed attempts, or `None` when there is no further one.
    #[must_use]
    pub fn delay_after(&self, attempts: u32, random: &dyn Random) -> Option<Duration> {
        (attempts < self.attempts_max.get()).then(|| self.delay(attempts.saturating_sub(1), random))
    }

    /// The delay after `doublings` earlier delays, without a limit on attempts (a breaker never gives up).
    #[must_use]
    pub fn delay(&self, doublings: u32, random: &dyn Random) -> Duration {
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let backoff = self.base.checked_mul(factor).unwrap_or(self.max).min(self.max);
        backoff.saturating_add(fraction(self.jitter, random.next_u64()))
    }

    /// Time from the first attempt to the last, at the longest.
    #[must_use]
    pub fn horizon(&self) -> Duration {
        let retries = self.attempts_max.get() - 1;
        let mut horizon = Duration::ZERO;
        for doublings in 0..retries.min(u32::BITS) {
            horizon = horizon.saturating_add(self.delay(doublings, &Most));
        }
        let rest = retries.saturating_sub(u32::BITS);
        horizon.saturating_add(self.delay_max().saturating_mul(rest))
    }

    /// Refuses a policy that would spin or contradict itself.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured), naming both settings.
    pub fn check(&self) -> Result<()> {
        use crate::ErrorKind::Misconfigured;
        if self.base.is_zero() {
            return Err(Error::new(
                Misconfigured,
                "retry base is zero, so a failing message would spin: set it to at least 1 ms",
            ));
        }
        if self.base > self.max {
            return Err(Error::new(
                Misconfigured,
                format!(
                    "retry base ({:?}) exceeds retry max ({:?}): lower base or raise max",
                    self.base, self.max
                ),
            ));
        }
        Ok(())
    }
}

/// `random / 2^64` of `whole`.
fn fraction(whole: Duration, random: u64) -> Duration {
    let nanos = (whole.as_nanos().min(u128::from(u64::MAX)) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

struct Most;

impl Random for Most {
    fn next_u64(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Fixed(u64);
    impl Random for Fixed {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn rf_04_the_documented_schedule() {
        let policy = Policy::default();
        let delays: Vec<_> = (1..=6).map(|attempt| policy.delay_after(attempt, &Fixed(0))).collect();
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(delays, [seconds(2), seconds(4), seconds(8), seconds(16), seconds(32), None]);
    }

    #[test]
    fn s10_a_policy_that_spins_is_refused() {
        assert!(Policy::default().base(Duration::ZERO).check().is_err());
        let error = Policy::default().max(Duration::from_secs(1)).check().unwrap_err();
        assert_eq!(error.to_string(), "retry base (2s) exceeds retry max (1s): lower base or raise max");
    }

    proptest! {
        #[test]
        fn rf_04_delays_stay_within_their_bounds(
            base in 1..u64::MAX, max in 1..u64::MAX, jitter in 0..u64::MAX,
            attempt in 1..u32::MAX, random in any::<u64>(),
        ) {
            let (base, max, jitter) =
                (Duration::from_nanos(base), Duration::from_nanos(max), Duration::from_nanos(jitter));
            let policy = Policy::default().base(base).max(max).jitter(jitter)
                .attempts_max(NonZeroU32::MAX);
            let delay = policy.delay_after(attempt, &Fixed(random)).expect("attempts remain");
            prop_assert!(delay >= base.min(max));
            prop_assert!(delay <= max.saturating_add(jitter));
            if random == 0 { prop_assert!(delay <= max); }
        }

        #[test]
        fn rf_04_delays_never_shrink(attempt in 1..60_u32, random in any::<u64>()) {
            let policy = Policy::default().attempts_max(NonZeroU32::MAX);
            let random = Fixed(random);
            prop_assert!(policy.delay_after(attempt, &random) <= policy.delay_after(attempt + 1, &random));
        }

        #[test]
        fn horizon_covers_every_schedule(attempts in 1..200_u32, random in any::<u64>()) {
            let policy = Policy::default().attempts_max(NonZeroU32::new(attempts).expect("not zero"));
            let total: Duration =
                (1..attempts).filter_map(|n| policy.delay_after(n, &Fixed(random))).sum();
            prop_assert!(total <= policy.horizon());
        }
    }
}
