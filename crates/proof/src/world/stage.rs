//! What everybody in a world shares: chance, history, tally, and whether all is well yet.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use twobox_core::Random;
use twobox_core::config::Timing;
use twobox_core::ports::{HeadPolicy, SweepPlan};
use twobox_core::retry::Policy;
use twobox_engine::relay::RelayOptions;
use twobox_engine::worker::WorkerOptions;
use twobox_testkit::SeededRandom;
use twobox_testkit::history::{Event, History, Rules};

use super::handlers::HANDLER_TIMEOUT;
use super::tally::{Kind, Tally};

pub(super) const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// How long a relay waits for an answer.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a seed decides once.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) relay: RelayOptions,
    pub(super) sweep: SweepPlan,
    pub(super) worker: WorkerOptions,
    /// How often a worker tries. Crashes count, so even these few are used up.
    pub(super) work_retry: Policy,
    pub(super) rules: Rules,
    /// A second process relays from the first node's outbox.
    pub(super) two_relays: bool,
    /// Clocks go wrong by minutes, not only by seconds.
    pub(super) wild_clocks: bool,
    /// Dead letters of the end are left to lie.
    pub(super) buries: bool,
}

impl Plan {
    fn new(random: &SeededRandom) -> Self {
        let up_to = |bound: u64| random.next_u64() % bound;
        let attempts = NonZeroU32::MIN.saturating_add(3 + u32::try_from(up_to(4)).unwrap_or(0));
        let head_policy = [HeadPolicy::Block, HeadPolicy::Block, HeadPolicy::StepOver, HeadPolicy::FailKey]
            [index(up_to(4))];
        let [base, max, jitter] = [50, 1_000, 20].map(Duration::from_millis);
        let backoff = Policy::default().base(base).max(max).jitter(jitter);
        let timing = Timing {
            ttl: HOUR,
            retry: backoff.clone().attempts_max(attempts),
            dedup_window: 2 * HOUR,
            request_timeout: REQUEST_TIMEOUT,
            lease: Duration::from_millis(1_200),
        };
        let relay = RelayOptions {
            timing,
            head_policy,
            batch_messages_max: 1 + index(up_to(10)),
            in_flight_max: 1 + index(up_to(3)),
            probe: backoff,
            ..RelayOptions::default()
        };
        // A short memory: late copies come when it is gone.
        let dedup_window = if up_to(3) == 0 { 4 * SECOND } else { HOUR };
        let sweep = SweepPlan {
            sent_retention: 3 * SECOND,
            dedup_window,
            once_retention: HOUR,
            batch: 1 + index(up_to(8)),
            ..SweepPlan::default()
        };
        let batch = 1 + index(up_to(4));
        let worker = WorkerOptions {
            lease: Duration::from_millis(400),
            batch,
            in_hand_max: batch + index(up_to(4)),
            concurrency: 1 + index(up_to(3)),
            poll_max: SECOND,
            reap_interval: SECOND,
            handler_timeout: HANDLER_TIMEOUT,
            ..WorkerOptions::default()
        };
        let tries = NonZeroU32::MIN.saturating_add(u32::try_from(up_to(3)).unwrap_or(0));
        let work_retry = relay.probe.clone().attempts_max(tries);
        Self {
            rules: Rules { attempts_max: attempts.get(), head_policy, forgets: dedup_window < HOUR },
            relay,
            sweep,
            worker,
            work_retry,
            two_relays: up_to(3) == 0,
            wild_clocks: up_to(5) == 0,
            buries: up_to(2) == 0,
        }
    }
}

/// A small number as an index.
pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// What everybody shares.
pub(super) struct Stage {
    pub(super) plan: Plan,
    pub(super) history: History,
    random: SeededRandom,
    tally: Mutex<Tally>,
    start: Instant,
    healed: AtomicBool,
}

impl Stage {
    pub(super) fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        Self {
            plan: Plan::new(&random),
            history: History::new(),
            random,
            tally: Mutex::default(),
            start: Instant::now(),
            healed: AtomicBool::new(false),
        }
    }

    pub(super) fn note(&self, node: &Arc<str>, event: Event) {
        self.history.push(self.start.elapsed(), node, event);
    }

    pub(super) fn count(&self, kind: Kind) {
        lock(&self.tally).count(kind);
    }

    pub(super) fn tally(&self) -> Tally {
        *lock(&self.tally)
    }

    pub(super) fn chance(&self) -> u64 {
        self.random.next_u64()
    }

    pub(super) fn up_to(&self, bound: u64) -> u64 {
        self.chance() % bound
    }

    pub(super) fn millis(&self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.up_to(range.end - range.start))
    }

    /// True once in so many times, until all is well; then it is counted.
    pub(super) fn mishap(&self, once_in: u64, kind: Kind) -> bool {
        let happens = self.up_to(once_in) == 0 && !self.is_healed();
        if happens {
            self.count(kind);
        }
        happens
    }

    pub(super) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::SeqCst)
    }

    pub(super) fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
    }
}
