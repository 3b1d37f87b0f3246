//! Checks that need more than one setting to be wrong (S10). Each error names both settings and the remedy.

use std::time::Duration;

use crate::ErrorKind::Misconfigured;
use crate::retry::Policy;
use crate::{Error, Result, mutant};

/// How far two machines' clocks may differ before the receiver refuses a message for now (S9).
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// The settings of one service that constrain each other.
#[derive(Clone, Debug)]
pub struct Timing {
    /// How long a message is worth delivering unless it says otherwise. Default 24 h (RF-06).
    pub ttl: Duration,
    /// Back-off between attempts.
    pub retry: Policy,
    /// How long the inbox remembers. Default 7 days: longer than any sender's time to live (RF-13).
    pub dedup_window: Duration,
    /// How long one request may take, sending and handling included. Default 10 s.
    pub request_timeout: Duration,
    /// How long a relay owns a lane without renewing. Default 20 s: a request must end before the lease does, so
    /// that a key is never in two requests at once when a lane changes hands (L4), and renewals come every quarter.
    pub lease: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(24 * 3600),
            retry: Policy::default(),
            dedup_window: Duration::from_secs(7 * 24 * 3600),
            request_timeout: Duration::from_secs(10),
            lease: Duration::from_secs(20),
        }
    }
}

impl Timing {
    /// Checks all settings against each other.
    ///
    /// # Errors
    /// [`Misconfigured`] for the first conflict found.
    pub fn check(&self) -> Result<()> {
        self.retry.check()?;
        self.check_window()?;
        self.check_horizon()?;
        self.check_lease()
    }

    fn check_window(&self) -> Result<()> {
        let needed = self.ttl.saturating_add(CLOCK_SKEW_MAX);
        if self.dedup_window > needed || mutant!(WindowUnchecked) {
            return Ok(());
        }
        Err(Error::new(
            Misconfigured,
            format!(
                "dedup_window ({:?}) must exceed ttl plus clock skew ({needed:?}), or a late retry could be handled \
                 twice: raise dedup_window or lower ttl",
                self.dedup_window
            ),
        ))
    }

    fn check_horizon(&self) -> Result<()> {
        let horizon = self.retry.horizon();
        if horizon < self.ttl {
            return Ok(());
        }
        Err(Error::new(
            Misconfigured,
            format!(
                "retry ({horizon:?} from first to last attempt) does not fit into ttl ({:?}), so the last attempts \
                 would never happen: raise ttl or lower retry attempts_max",
                self.ttl
            ),
        ))
    }

    fn check_lease(&self) -> Result<()> {
        if self.request_timeout.is_zero() {
            return Err(Error::new(Misconfigured, "request_timeout is zero: set it to at least 1 ms"));
        }
        if self.lease >= self.request_timeout.saturating_mul(2) {
            return Ok(());
        }
        Err(Error::new(
            Misconfigured,
            format!(
                "lease ({:?}) must be at least twice request_timeout ({:?}), or a batch could outlive it: raise lease or \
                 lower request_timeout",
                self.lease, self.request_timeout
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(timing: &Timing, settings: [&str; 2]) {
        let error = timing.check().unwrap_err();
        assert_eq!(error.kind(), Misconfigured);
        for setting in settings {
            assert!(error.to_string().contains(setting), "{error} does not name {setting}");
        }
    }

    #[test]
    fn defaults_agree_with_each_other() {
        Timing::default().check().unwrap();
    }

    #[test]
    fn rf_13_s10_window_must_exceed_the_senders_retries() {
        let day = Duration::from_secs(24 * 3600);
        refused(&Timing { dedup_window: day, ..Timing::default() }, ["dedup_window", "ttl"]);
    }

    #[test]
    fn s10_retries_must_fit_into_the_time_to_live() {
        refused(&Timing { ttl: Duration::from_secs(10), ..Timing::default() }, ["retry", "ttl"]);
    }

    #[test]
    fn s10_a_request_must_fit_into_the_lease() {
        refused(
            &Timing { lease: Duration::from_secs(10), ..Timing::default() },
            ["lease", "request_timeout"],
        );
    }
}
