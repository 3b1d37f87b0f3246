//! The one lifecycle that waiting outbox rows and inbox rows share.
//!
//! [`step`] maps a standing and an event to the next standing. Stores persist what it says; they do not
//! decide. It returns delays, not instants: the store dates them, so workers' clocks cannot disagree (S13).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::retry::Policy;
use crate::{Error, Random, Result};

/// Where a row stands and how many attempts it has been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it stands.
    pub state: State,
    /// Failed attempts so far.
    pub attempts: u32,
}

impl Standing {
    /// A row nobody has tried yet.
    pub const FRESH: Self = Self { state: State::Open, attempts: 0 };
}

/// The states of the lifecycle. [`State::Succeeded`] is final: no event leaves it (S5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Still to be tried.
    Open,
    /// The effect happened and was acknowledged.
    Succeeded,
    /// Given up; a dead letter that can be replayed.
    Dead,
    /// Past its time to live; counts as dead for its ordering key (L5).
    Expired,
}

/// Why a message died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Every attempt the policy allows failed.
    AttemptsExhausted,
    /// The receiver or its handler said that it can never work.
    Rejected,
    /// The receiver knows another message under the same id (S8).
    Conflict,
    /// The receiver has forgotten whether it has seen it (S9). Replay needs a new id.
    TooOld,
    /// No live process has registered the destination (L6).
    NoRoute,
    /// The stored row cannot be decoded (S19).
    Undecodable,
    /// The head of its ordering key died and the policy fails the whole key.
    KeyFailed,
    /// Past its time to live.
    Expired,
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::AttemptsExhausted,
        Self::Rejected,
        Self::Conflict,
        Self::TooOld,
        Self::NoRoute,
        Self::Undecodable,
        Self::KeyFailed,
        Self::Expired,
    ];

    /// Stable code, as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts-exhausted",
            Self::Rejected => "rejected",
            Self::Conflict => "conflict",
            Self::TooOld => "too-old",
            Self::NoRoute => "no-route",
            Self::Undecodable => "undecodable",
            Self::KeyFailed => "key-failed",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is not a reason for a dead letter")))
    }
}

/// What happened to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Delivered, or answered as a duplicate.
    Succeeded,
    /// An attempt failed; the receiver may ask for patience.
    Failed {
        /// Least delay the receiver asked for.
        after: Option<Duration>,
    },
    /// Another attempt at the same message is still running: nobody's fault (S7).
    Postponed {
        /// Delay the receiver asked for.
        after: Duration,
    },
    /// It waits behind an earlier message of its key (L4).
    Held,
    /// It can never work.
    Rejected(Reason),
    /// Its time to live is over.
    Expired,
    /// An operator sends it again (L10).
    Replayed,
}

/// What a row does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it stands now.
    pub standing: Standing,
    /// When it is tried again, if it is.
    pub next: Next,
}

/// When a row is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After this delay.
    After(Duration),
    /// When the messages ahead of it in its key are through.
    BehindKey,
    /// Not at all.
    Never(Option<Reason>),
}

/// Decides what becomes of a row. `None`: the event does not apply, nothing changes.
#[must_use]
pub fn step(standing: Standing, event: &Event, policy: &Policy, random: &dyn Random) -> Option<Step> {
    let Standing { state, attempts } = standing;
    let open = |attempts, next| Some(Step { standing: Standing { state: State::Open, attempts }, next });
    let end = |state, attempts, reason| {
        Some(Step { standing: Standing { state, attempts }, next: Next::Never(reason) })
    };
    match (state, event) {
        (State::Dead | State::Expired, Event::Replayed) => open(0, Next::After(Duration::ZERO)),
        (State::Succeeded | State::Dead | State::Expired, _) | (State::Open, Event::Replayed) => None,
        (State::Open, Event::Succeeded) => end(State::Succeeded, attempts, None),
        (State::Open, Event::Held) => open(attempts, Next::BehindKey),
        (State::Open, Event::Postponed { after }) => open(attempts, Next::After(patience(*after, policy))),
        (State::Open, Event::Rejected(reason)) => end(State::Dead, attempts.saturating_add(1), Some(*reason)),
        (State::Open, Event::Expired) => end(State::Expired, attempts, Some(Reason::Expired)),
        (State::Open, Event::Failed { after }) => {
            let attempts = attempts.saturating_add(1);
            match policy.delay_after(attempts, random) {
                // A receiver may ask for more patience than the policy has, never for less: a broken
                // receiver must not be able to turn the relay into a busy loop. Nor for so much that the
                // message is parked for good.
                Some(delay) => {
                    open(attempts, Next::After(delay.max(patience(after.unwrap_or_default(), policy))))
                }
                None => end(State::Dead, attempts, Some(Reason::AttemptsExhausted)),
            }
        }
    }
}

/// What a receiver asks for, at least a moment and at most the policy's longest delay.
fn patience(asked: Duration, policy: &Policy) -> Duration {
    /// Short enough not to be noticed, long enough not to spin.
    const MOMENT: Duration = Duration::from_millis(50);
    asked.clamp(MOMENT.min(policy.delay_max()), policy.delay_max())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    struct Zero;
    impl Random for Zero {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Succeeded),
            any::<Option<u32>>()
                .prop_map(|s| Event::Failed { after: s.map(|s| Duration::from_secs(s.into())) }),
            any::<u32>().prop_map(|s| Event::Postponed { after: Duration::from_secs(s.into()) }),
            Just(Event::Held),
            prop::sample::select(Reason::ALL.to_vec()).prop_map(Event::Rejected),
            Just(Event::Expired),
            Just(Event::Replayed),
        ]
    }

    proptest! {
        #[test]
        fn s5_nothing_overwrites_success(events in prop::collection::vec(any_event(), 0..30)) {
            let done = Standing { state: State::Succeeded, attempts: 3 };
            for event in events {
                prop_assert_eq!(step(done, &event, &Policy::default(), &Zero), None);
            }
        }

        #[test]
        fn attempts_are_bounded_and_delays_too(events in prop::collection::vec(any_event(), 0..60)) {
            let policy = Policy::default();
            let mut standing = Standing::FRESH;
            for event in events {
                let Some(next) = step(standing, &event, &policy, &Zero) else { continue };
                if let Next::After(delay) = next.next {
                    prop_assert!(delay <= policy.delay_max());
                    let replayed = event == Event::Replayed;
                    prop_assert!(replayed || delay >= Duration::from_millis(50));
                    prop_assert_eq!(next.standing.state, State::Open);
                }
                standing = next.standing;
                prop_assert!(standing.attempts <= 6);
            }
        }
    }

    #[test]
    fn adr_07_a_poison_message_dies_after_the_last_attempt() {
        let policy = Policy::default().attempts_max(NonZeroU32::new(2).unwrap());
        let failed = Event::Failed { after: None };
        let first = step(Standing::FRESH, &failed, &policy, &Zero).unwrap();
        assert_eq!(first.next, Next::After(Duration::from_secs(2)));
        let second = step(first.standing, &failed, &policy, &Zero).unwrap();
        assert_eq!(second.standing, Standing { state: State::Dead, attempts: 2 });
        assert_eq!(second.next, Next::Never(Some(Reason::AttemptsExhausted)));
    }

    #[test]
    fn s7_in_progress_charges_no_attempt() {
        let event = Event::Postponed { after: Duration::from_secs(1) };
        let step = step(Standing::FRESH, &event, &Policy::default(), &Zero).unwrap();
        assert_eq!(step.standing, Standing::FRESH);
    }

    #[test]
    fn l10_replay_starts_counting_anew() {
        let dead = Standing { state: State::Dead, attempts: 6 };
        let step = step(dead, &Event::Replayed, &Policy::default(), &Zero).unwrap();
        assert_eq!(step.standing, Standing::FRESH);
    }
}
