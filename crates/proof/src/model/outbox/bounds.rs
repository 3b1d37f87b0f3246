//! How far the sender's side is explored.

use std::fmt;

use super::state::{Left, PLACES};

/// What becomes of a key whose head dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum HeadPolicy {
    Block,
    StepOver,
    FailKey,
}

/// How far the sender's side is explored: sizes, and how often each thing goes wrong.
#[derive(Clone, Debug)]
pub(in crate::model) struct OutboxBounds {
    pub(in crate::model) name: &'static str,
    pub(super) messages: u8,
    /// All messages are durable at the start.
    pub(super) preloaded: bool,
    /// The ordering key of each message; 0 for none.
    pub(super) keys: [u8; PLACES],
    pub(super) policy: HeadPolicy,
    /// A message that breaks the receiver whenever it is handled.
    pub(super) poison: Option<u8>,
    pub(super) batch_max: u8,
    pub(super) in_flight_max: u8,
    pub(super) attempts_max: u8,
    pub(super) left: Left,
}

impl OutboxBounds {
    const BASE: Self = Self {
        name: "",
        messages: 2,
        preloaded: true,
        keys: [0; PLACES],
        policy: HeadPolicy::Block,
        poison: None,
        batch_max: 2,
        in_flight_max: 2,
        attempts_max: 2,
        left: Left::NOTHING,
    };

    /// Two relays, one of which takes the lane over from the other while it is alive.
    pub(in crate::model) fn take_over(full: bool) -> Self {
        let left = Left { takes: 1, failures: u8::from(full), ..Left::NOTHING };
        Self { name: "take-over", preloaded: false, batch_max: 1, left, ..Self::BASE }
    }

    /// The same with messages of one key.
    pub(in crate::model) fn take_over_of_a_key() -> Self {
        let left = Left { takes: 1, failures: 1, late: 1, ..Left::NOTHING };
        Self { name: "take-over of a key", keys: [1, 1, 0, 0], left, ..Self::BASE }
    }

    /// Kills, power cuts and reopening while messages are enqueued.
    pub(in crate::model) fn crash(full: bool) -> Self {
        let more = u8::from(full);
        let left = Left { kills: more, cuts: 1, reopens: 1, failures: more, ..Left::NOTHING };
        Self { name: "crash", preloaded: false, batch_max: 1, left, ..Self::BASE }
    }

    /// Crashes around a take-over.
    pub(in crate::model) fn take_over_and_crash() -> Self {
        let left = Left { takes: 1, cuts: 1, ..Left::NOTHING };
        Self { name: "take-over and power cut", preloaded: false, batch_max: 1, left, ..Self::BASE }
    }

    /// Reopening around a take-over.
    pub(in crate::model) fn take_over_and_reopen() -> Self {
        let left = Left { takes: 1, reopens: 1, ..Left::NOTHING };
        Self {
            name: "take-over and reopen",
            preloaded: false,
            batch_max: 1,
            in_flight_max: 1,
            left,
            ..Self::BASE
        }
    }

    /// One relay, messages of one key that fail and are rejected, replay.
    pub(in crate::model) fn keys(policy: HeadPolicy) -> Self {
        let name = match policy {
            HeadPolicy::Block => "keys, head blocks",
            HeadPolicy::StepOver => "keys, step over",
            HeadPolicy::FailKey => "keys, fail key",
        };
        let left = Left { failures: 2, rejections: 1, replays: 1, late: 1, trims: 1, ..Left::NOTHING };
        Self { name, keys: [1, 1, 0, 1], policy, left, ..Self::BASE }
    }

    /// The same with more messages, one of which has no key.
    pub(in crate::model) fn more_keys(policy: HeadPolicy) -> Self {
        let keys = Self::keys(policy);
        Self { messages: 4, left: Left { failures: 1, ..keys.left }, ..keys }
    }

    /// The same with a kill.
    pub(in crate::model) fn keys_and_kill() -> Self {
        let keys = Self::keys(HeadPolicy::Block);
        Self { messages: 3, left: Left { failures: 1, kills: 1, trims: 0, ..keys.left }, ..keys }
    }

    /// A message that breaks the receiver, and outages.
    pub(in crate::model) fn poison(full: bool) -> Self {
        let left = Left { timeouts: 1, refusals: 1, late: 1, ..Left::NOTHING };
        let messages = if full { 4 } else { 3 };
        Self { name: "poison", messages, keys: [0, 1, 1, 0], poison: Some(1), left, ..Self::BASE }
    }
}

impl fmt::Display for OutboxBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left {
            takes,
            kills,
            cuts,
            reopens,
            timeouts,
            late,
            refusals,
            failures,
            rejections,
            replays,
            trims,
        } = self.left;
        write!(
            f,
            "{}: {} messages, keys {:?}, batches of {}, {} in flight, {} attempts, poison {:?}; take-overs {takes}, \
             kills {kills}, power cuts {cuts}, reopens {reopens}, lost {timeouts}, late {late}, refused {refusals}, \
             failures {failures}, rejections {rejections}, replays {replays}, trims {trims}",
            self.name,
            self.messages,
            &self.keys[..usize::from(self.messages)],
            self.batch_max,
            self.in_flight_max,
            self.attempts_max,
            self.poison,
        )
    }
}
