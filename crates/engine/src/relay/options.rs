//! How a relay works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::config::Timing;
use twobox_core::ports::{DeadLetter, HeadPolicy};
use twobox_core::retry::Policy;
use twobox_core::{BoxError, Error, ErrorKind, Result};

/// Called for every message that dies or expires: at least once, after its death is durable, also after a
/// restart. An error means "call me again later".
pub type DeadLetterCallback<P> =
    Arc<dyn Fn(DeadLetter<P>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Limits and policies of a relay. Every default has its reason beside it.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Retries, time to live, time-outs, leases.
    pub timing: Timing,
    /// What happens to an ordering key when its head dies. Default: block it. The builder of `twobox` gives the inbox's
    /// queue the same policy: there too, one dead message then stops later ones of its key until an operator acts.
    pub head_policy: HeadPolicy,
    /// Most messages in a request. Default 500: more gains little, and a batch must fit the receiver's time.
    pub batch_messages_max: usize,
    /// Most payload bytes in a request, one message excepted. Default 256 KiB.
    pub batch_bytes_max: usize,
    /// Requests per lane at a time. Default 3: one on its way, one being handled, one being answered.
    pub in_flight_max: usize,
    /// A request that takes longer than this shows its messages as `Sending`. Default 10 ms: most are answered before
    /// anybody could look, and showing them costs a commit.
    pub sending_shown_after: Duration,
    /// How often a lane that is held by an outage is probed: 100 ms doubling to 10 s.
    pub probe: Policy,
    /// How long a destination may be unregistered before its messages fail. Default 10 min: longer than a
    /// rolling deploy (L6).
    pub route_grace: Duration,
    /// How long stopping may take before requests are abandoned. Default 5 s (S20).
    pub shutdown_timeout: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            head_policy: HeadPolicy::default(),
            batch_messages_max: 500,
            batch_bytes_max: 256 << 10,
            in_flight_max: 3,
            sending_shown_after: Duration::from_millis(10),
            probe: Policy::default()
                .base(Duration::from_millis(100))
                .max(Duration::from_secs(10))
                .jitter(Duration::from_millis(50)),
            route_grace: Duration::from_secs(600),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

impl RelayOptions {
    /// Checks the options against each other (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), naming the settings and the remedy.
    pub fn check(&self) -> Result<()> {
        self.timing.check()?;
        self.probe.check()?;
        if self.batch_messages_max == 0 || self.batch_bytes_max == 0 || self.in_flight_max == 0 {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                "batch_messages_max, batch_bytes_max and in_flight_max must be at least 1, or nothing is ever sent",
            ));
        }
        if self.timing.lease > Duration::from_secs(3600) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                "lease exceeds 1 h, which counts as a sign of a clock that has jumped: lower it",
            ));
        }
        if self.route_grace < self.timing.lease {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "route_grace ({:?}) must not be shorter than lease ({:?}), or messages of a relay that is merely \
                     slow would fail as unroutable: raise route_grace",
                    self.route_grace, self.timing.lease
                ),
            ));
        }
        Ok(())
    }

    /// Messages a lane keeps in memory beyond those in requests.
    pub(super) fn queue_max(&self) -> usize {
        self.batch_messages_max.saturating_mul(2)
    }

    /// Payload bytes a lane keeps in memory beyond those in requests, one read excepted.
    pub(super) fn queue_bytes_max(&self) -> usize {
        self.batch_bytes_max.saturating_mul(8)
    }
}

/// A callback with a `Debug` of its own.
#[derive(Clone)]
pub(super) struct Callback<P>(pub(super) DeadLetterCallback<P>);

impl<P> fmt::Debug for Callback<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadLetterCallback")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zero;
    impl twobox_core::Random for Zero {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    #[test]
    fn rf_06_the_usual_knobs_have_their_usual_defaults() {
        let options = RelayOptions::default();
        options.check().unwrap();
        let retry = &options.timing.retry;
        assert_eq!(retry.retries_max(), 5);
        assert_eq!(retry.delay(0, &Zero), Duration::from_secs(2));
        assert_eq!(retry.delay(31, &Zero), Duration::from_secs(300));
        assert_eq!(retry.delay_max(), Duration::from_millis(300_500));
        assert_eq!(options.timing.ttl, Duration::from_secs(24 * 3600));
    }

    #[test]
    fn s10_options_that_cannot_work_are_refused() {
        let refused = |options: RelayOptions| options.check().unwrap_err().to_string();
        let grace = RelayOptions { route_grace: Duration::from_secs(1), ..RelayOptions::default() };
        assert!(refused(grace).contains("route_grace"));
        let mut long = RelayOptions::default();
        long.timing.lease = Duration::from_secs(3601);
        long.route_grace = Duration::from_secs(7200);
        assert!(refused(long).contains("lease"));
        assert!(
            refused(RelayOptions { in_flight_max: 0, ..RelayOptions::default() }).contains("in_flight_max")
        );
    }
}
