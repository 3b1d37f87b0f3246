//! What a seed decides: how the store and the relay are set up, and what is done with each message.

use std::num::NonZeroU32;
use std::time::Duration;

use twobox_core::Random;
use twobox_core::ports::HeadPolicy;
use twobox_core::retry::Policy;
use twobox_engine::relay::RelayOptions;
use twobox_testkit::SeededRandom;

/// How a workload differs from others.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Small ones let the write-ahead log start again in mid-run.
    pub(super) wal_pages_max: u32,
    /// Whether dead letters are replayed on the way.
    pub(super) replays: bool,
    /// How long the inbox remembers.
    pub(super) dedup_window: Duration,
    /// Whether another process writes to the file now and then.
    pub(super) neighbour: bool,
    /// How long after the cut the machine is switched on again.
    pub(super) off_for: Duration,
    pub(super) relay: RelayOptions,
}

impl Style {
    pub(super) fn of(seed: u64) -> Self {
        let chance = Chance::of(seed, u64::MAX);
        let mut relay = RelayOptions {
            head_policy: chance.pick([HeadPolicy::Block, HeadPolicy::StepOver, HeadPolicy::FailKey]),
            batch_messages_max: chance.pick([1, 2, 4, 9]),
            in_flight_max: chance.pick([1, 2, 3]),
            ..RelayOptions::default()
        };
        let attempts = NonZeroU32::MIN.saturating_add(chance.pick([1, 2, 4]));
        relay.timing.retry = Policy::default().attempts_max(attempts);
        Self {
            wal_pages_max: chance.pick([4, 12, 40, 4_000]),
            replays: chance.one_in(2),
            dedup_window: chance.pick([Duration::from_millis(500), Duration::from_secs(7 * 24 * 3600)]),
            neighbour: chance.one_in(2),
            off_for: chance.pick([Duration::ZERO, Duration::from_secs(600)]),
            relay,
        }
    }
}

/// Chance that belongs to one thing, whatever happens to others.
#[derive(Debug)]
pub(super) struct Chance(SeededRandom);

impl Chance {
    pub(super) fn of(seed: u64, thing: u64) -> Self {
        let mixed = SeededRandom::new(seed.rotate_left(32) ^ thing);
        Self(SeededRandom::new(mixed.next_u64()))
    }

    pub(super) fn one_in(&self, of: u64) -> bool {
        self.0.next_u64().is_multiple_of(of)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    pub(super) fn pick<T, const N: usize>(&self, of: [T; N]) -> T {
        let at = usize::try_from(self.below(N as u64)).unwrap_or(0);
        of.into_iter().nth(at).expect("below the length")
    }
}

impl Random for Chance {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}
