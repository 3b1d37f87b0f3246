//! The breaker of one lane: outages charge the lane, not the messages (L3).

use std::time::Duration;

use twobox_core::Random;
use twobox_core::ports::Outage;
use twobox_core::retry::Policy;

/// A receiver's wish to be left alone counts up to here: anybody can write one into an answer.
const WISH_MAX: Duration = Duration::from_secs(300);

/// Whether requests may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Breaker {
    /// Requests flow.
    Closed {
        /// The last thing heard was the answer to a probe: whatever fails now is to blame itself.
        probed: bool,
        /// Failures in a row; a receiver that answers probes and nothing else is left alone more and more.
        failures: u32,
    },
    /// Nothing is sent until the probe is due.
    Open { probe_at: Duration, failures: u32 },
    /// A probe is on its way.
    Probing { failures: u32 },
}

impl Breaker {
    /// All is well.
    pub(super) const CLOSED: Self = Self::Closed { probed: false, failures: 0 };

    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether the receiver has just answered a probe.
    pub(super) fn is_probed(&self) -> bool {
        matches!(self, Self::Closed { probed: true, .. })
    }

    /// When something has to be done about it.
    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Self::Open { probe_at, .. } => Some(*probe_at),
            Self::Closed { .. } | Self::Probing { .. } => None,
        }
    }

    /// Starts a probe if it is due.
    pub(super) fn start_probe(&mut self, now: Duration) -> bool {
        match *self {
            Self::Open { probe_at, failures } if probe_at <= now => {
                *self = Self::Probing { failures };
                true
            }
            _ => false,
        }
    }

    /// A request was sent: what is sent next is no longer right after the probe.
    pub(super) fn sent(&mut self) {
        if let Self::Closed { probed, .. } = self {
            *probed = false;
        }
    }

    /// A request was answered.
    pub(super) fn heard(&mut self) {
        if self.is_closed() {
            *self = Self::CLOSED;
        }
    }

    /// A probe was answered.
    pub(super) fn probe_answered(&mut self) {
        *self = Self::Closed { probed: true, failures: self.failures() };
    }

    fn failures(&self) -> u32 {
        match self {
            Self::Closed { failures, .. } | Self::Open { failures, .. } | Self::Probing { failures } => {
                *failures
            }
        }
    }

    /// A request or a probe failed as a whole; the receiver asks to be left alone for `wish`.
    pub(super) fn failed(
        &mut self,
        error: String,
        wish: Option<Duration>,
        now: Duration,
        policy: &Policy,
        random: &dyn Random,
    ) -> Outage {
        // Requests that were on their way together fail together: that is one failure, not three.
        let wish = wish.unwrap_or_default().min(WISH_MAX);
        if let Self::Open { probe_at, .. } = self {
            *probe_at = (*probe_at).max(now.saturating_add(wish));
            return Outage { error, next_probe: probe_at.saturating_sub(now) };
        }
        let failures = self.failures();
        let next_probe = policy.delay(failures, random).max(wish);
        *self = Self::Open { probe_at: now.saturating_add(next_probe), failures: failures.saturating_add(1) };
        Outage { error, next_probe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zero;
    impl Random for Zero {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    #[test]
    fn l3_probes_become_rarer_and_an_answer_closes_it() {
        let policy = Policy::default().base(Duration::from_millis(100)).max(Duration::from_secs(1));
        let mut breaker = Breaker::CLOSED;
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..6 {
            delays.push(breaker.failed("refused".into(), None, now, &policy, &Zero).next_probe.as_millis());
            assert!(!breaker.start_probe(now), "not before its time");
            now = breaker.due().unwrap();
            assert!(breaker.start_probe(now));
        }
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        breaker.probe_answered();
        assert!(breaker.is_probed());
        breaker.heard();
        assert!(breaker.is_closed() && !breaker.is_probed());
    }

    #[test]
    fn l3_requests_that_fail_together_count_once_and_wishes_are_heard_within_reason() {
        let policy = Policy::default().base(Duration::from_millis(100)).max(Duration::from_secs(1));
        let mut breaker = Breaker::CLOSED;
        let mut next = |wish: u64, now: u64| {
            let (wish, now) = (Some(Duration::from_secs(wish)), Duration::from_millis(now));
            breaker.failed("cut".into(), wish, now, &policy, &Zero).next_probe.as_millis()
        };
        assert_eq!([next(0, 0), next(0, 10), next(9, 20)], [100, 90, 9_000]);
        for (wish, expected) in [(2, 2_000), (1_000_000, 300_000)] {
            let mut breaker = Breaker::CLOSED;
            let wish = Some(Duration::from_secs(wish));
            let outage = breaker.failed("busy".into(), wish, Duration::ZERO, &policy, &Zero);
            assert_eq!(outage.next_probe.as_millis(), expected);
        }
    }

    #[test]
    fn l3_a_receiver_that_answers_only_probes_is_left_alone_more_and_more() {
        let policy = Policy::default().base(Duration::from_millis(100)).max(Duration::from_secs(1));
        let mut breaker = Breaker::CLOSED;
        let mut delays = Vec::new();
        for _ in 0..3 {
            breaker.sent();
            delays.push(
                breaker
                    .failed("no store".into(), None, Duration::ZERO, &policy, &Zero)
                    .next_probe
                    .as_millis(),
            );
            breaker.probe_answered();
        }
        assert_eq!(delays, [100, 200, 400]);
    }
}
