//! The breaker of one lane: outages charge the lane, not the messages (L3).

use std::time::Duration;

use twobox_core::Random;
use twobox_core::ports::Outage;
use twobox_core::retry::Policy;

/// Whether requests may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Breaker {
    /// Requests flow.
    Closed {
        /// The last thing heard was the answer to a probe: whatever fails now is to blame itself.
        probed: bool,
    },
    /// Nothing is sent until the probe is due.
    Open { probe_at: Duration, failures: u32 },
    /// A probe is on its way.
    Probing { failures: u32 },
}

impl Breaker {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether the receiver has just answered a probe.
    pub(super) fn is_probed(&self) -> bool {
        *self == Self::Closed { probed: true }
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

    /// Something was answered.
    pub(super) fn heard(&mut self) {
        if self.is_closed() {
            *self = Self::Closed { probed: false };
        }
    }

    /// A probe was answered.
    pub(super) fn probe_answered(&mut self) {
        *self = Self::Closed { probed: true };
    }

    /// A request or a probe failed as a whole.
    pub(super) fn failed(
        &mut self,
        error: String,
        now: Duration,
        policy: &Policy,
        random: &dyn Random,
    ) -> Outage {
        let failures = match self {
            Self::Closed { .. } => 0,
            Self::Open { failures, .. } | Self::Probing { failures } => failures.saturating_add(1),
        };
        let next_probe = policy.delay(failures, random);
        *self = Self::Open { probe_at: now.saturating_add(next_probe), failures };
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
        let mut breaker = Breaker::Closed { probed: false };
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..6 {
            delays.push(breaker.failed("refused".into(), now, &policy, &Zero).next_probe.as_millis());
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
}
