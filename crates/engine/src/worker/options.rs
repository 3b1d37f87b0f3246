//! How a worker works.

use std::time::Duration;

use twobox_core::ports::{CLAIM_MAX, check_lease};
use twobox_core::{Error, ErrorKind, Result};

/// Limits of a worker. Every default has its reason beside it.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// How long a claim lasts; it is renewed while a message is being handled. Default 30 s: a worker that was killed
    /// is missed for no longer.
    pub lease: Duration,
    /// Most messages in one claim. Default 100: more gains little.
    pub batch: usize,
    /// Most messages in hand, waiting ones included. Default 300: one batch being handled, one being claimed, one to
    /// spare.
    pub in_hand_max: usize,
    /// Most handlers that run outside of a transaction at a time. Default 16.
    pub concurrency: usize,
    /// How long such a handler may take before it is ended where it waits and counts as failed. Default 10 min: longer
    /// than calls to others take, and one that hangs does not keep its place until the next restart.
    pub handler_timeout: Duration,
    /// The first pause when there is nothing to do. Wake-ups make most of them short. Default 100 ms.
    pub poll_min: Duration,
    /// The longest pause; pauses double up to it. It is the safety net, not the plan. Default 5 s.
    pub poll_max: Duration,
    /// How often leases that are over are taken back. Default 10 s.
    pub reap_interval: Duration,
    /// How long stopping may take before handlers are abandoned. Default 5 s (S20).
    pub shutdown_timeout: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            batch: 100,
            in_hand_max: 300,
            concurrency: 16,
            handler_timeout: Duration::from_secs(600),
            poll_min: Duration::from_millis(100),
            poll_max: Duration::from_secs(5),
            reap_interval: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

impl WorkerOptions {
    /// Leases are renewed this often: twice may fail before one is lost.
    pub(super) fn renew_interval(&self) -> Duration {
        self.lease / 3
    }

    /// Checks the options against each other (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) or [`Invalid`](ErrorKind::Invalid), naming the settings and the
    /// remedy.
    pub fn check(&self) -> Result<()> {
        check_lease(self.lease)?;
        let misconfigured = |text: String| Err(Error::new(ErrorKind::Misconfigured, text));
        if self.batch == 0 || self.batch > CLAIM_MAX || self.concurrency == 0 {
            return misconfigured(format!(
                "a worker's batch ({}) must be 1 to {CLAIM_MAX}, and its concurrency ({}) at least 1",
                self.batch, self.concurrency
            ));
        }
        if self.in_hand_max < self.batch {
            return misconfigured(format!(
                "a worker's in_hand_max ({}) is less than its batch ({}): raise it",
                self.in_hand_max, self.batch
            ));
        }
        if self.poll_min.is_zero() || self.poll_min > self.poll_max || self.reap_interval.is_zero() {
            return misconfigured(format!(
                "a worker's poll_min ({:?}) must be more than nothing and at most poll_max ({:?}), and its \
                 reap_interval ({:?}) more than nothing",
                self.poll_min, self.poll_max, self.reap_interval
            ));
        }
        if self.handler_timeout.is_zero() {
            return misconfigured("a worker's handler_timeout is zero: no handler would have time".into());
        }
        if self.lease < Duration::from_millis(100) {
            return misconfigured(format!(
                "a worker's lease ({:?}) is shorter than 100 ms: a commit could outlast it",
                self.lease
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_contradictions_are_refused() {
        assert!(WorkerOptions::default().check().is_ok());
        let default = WorkerOptions::default;
        let bad = [
            WorkerOptions { lease: Duration::ZERO, ..default() },
            WorkerOptions { batch: 0, ..default() },
            WorkerOptions { concurrency: 0, ..default() },
            WorkerOptions { handler_timeout: Duration::ZERO, ..default() },
            WorkerOptions { in_hand_max: 99, ..default() },
            WorkerOptions { poll_min: Duration::ZERO, ..default() },
            WorkerOptions { poll_max: Duration::from_millis(1), ..default() },
            WorkerOptions { reap_interval: Duration::ZERO, ..default() },
            WorkerOptions { lease: Duration::from_millis(1), ..default() },
        ];
        for options in bad {
            assert!(options.check().is_err(), "{options:?}");
        }
    }
}
