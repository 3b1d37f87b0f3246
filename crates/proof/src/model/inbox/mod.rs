//! The receiver's side: copies of messages, the dedup row, effects, answers, purging, clocks.

mod state;
mod step;

use std::fmt;

use stateright::{Model, Property};

use self::state::{Left, Phase, Row, Sender, State, Work};
use super::Variant;
use super::heal::{Course, Healed};

/// How far the receiver's side is explored: sizes, and how often each thing goes wrong.
#[derive(Clone, Debug)]
pub(super) struct InboxBounds {
    messages: u8,
    /// Dates run from 1 to here.
    dates: u8,
    /// How long the receiver remembers.
    window: u8,
    /// How far ahead of the receiver's clock a message may be dated.
    skew: u8,
    left: Left,
}

impl InboxBounds {
    pub(super) fn new(full: bool) -> Self {
        let more = u8::from(full);
        let left = Left {
            late: 1,
            kills: more,
            cuts: 1,
            failures: more,
            rejections: more,
            sender_steps: more,
            receiver_steps: 1,
        };
        Self { messages: 2, dates: 2 + more, window: 1, skew: more, left }
    }
}

impl fmt::Display for InboxBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left { late, kills, cuts, failures, rejections, sender_steps, receiver_steps } = self.left;
        write!(
            f,
            "inbox: {} messages, dates 1 to {}, window {}, skew {}, {} requests at a time; late {late}, \
             kills {kills}, power cuts {cuts}, failures {failures}, rejections {rejections}, backward steps of the \
             sender's clock {sender_steps}, of the receiver's {receiver_steps}",
            self.messages,
            self.dates,
            self.window,
            self.skew,
            state::WORKERS,
        )
    }
}

/// What a handler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    Fails,
    Rejects,
}

/// A step. Messages and workers are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// With this date.
    Enqueue(u8),
    Send(usize),
    /// The sender stops waiting; the copy, or whoever handles it, goes on. A copy that never arrives is a lost one.
    Delay(usize),
    /// A copy arrives: the one that is waited for, or a late one.
    Receive {
        message: usize,
        late: bool,
    },
    /// Another request with the same message is being handled.
    InProgress(usize),
    Handle(usize, Verdict),
    /// A broken variant's acknowledgement.
    AnswerEarly(usize),
    Answer(usize),
    Sync,
    /// Purges rows up to this date.
    Purge(u8),
    /// A broken variant's second transaction.
    RaiseWatermark,
    Clock(u8),
    Kill,
    PowerCut,
}

impl Action {
    /// Which step without a fault comes first. `None`: a fault, or nothing that anybody waits for.
    fn rank(self, state: &State) -> Option<u8> {
        Some(match self {
            Self::Clock(to) if to > state.clock => 0,
            Self::Answer(_) => 1,
            Self::Handle(_, Verdict::Well) => 2,
            Self::Receive { .. } => 3,
            Self::Send(_) => 4,
            Self::Enqueue(_) => 5,
            _ => return None,
        })
    }
}

/// The model of the receiver's side.
#[derive(Debug)]
pub(super) struct InboxModel {
    bounds: InboxBounds,
    variant: Option<Variant>,
    healed: Healed,
}

impl InboxModel {
    pub(super) fn new(bounds: InboxBounds, variant: Option<Variant>) -> Self {
        Self { bounds, variant, healed: Healed::default() }
    }

    fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    fn message_actions(&self, state: &State, message: usize, actions: &mut Vec<Action>) {
        match state.senders[message] {
            Sender::Open => actions.push(Action::Send(message)),
            Sender::Awaiting if state.left.late > 0 => actions.push(Action::Delay(message)),
            _ => {}
        }
        if state.workers.iter().any(Option::is_none) {
            if state.travelling[message] {
                actions.push(Action::Receive { message, late: false });
            }
            if state.late[message] > 0 {
                actions.push(Action::Receive { message, late: true });
            }
        }
    }

    fn work_actions(&self, state: &State, at: usize, work: Work, actions: &mut Vec<Action>) {
        if matches!(work.phase, Phase::Answering(_)) {
            actions.push(Action::Answer(at));
            return;
        }
        actions.push(Action::Handle(at, Verdict::Well));
        if work.phase == Phase::Handled {
            return;
        }
        if state.left.failures > 0 {
            actions.push(Action::Handle(at, Verdict::Fails));
        }
        if state.left.rejections > 0 {
            actions.push(Action::Handle(at, Verdict::Rejects));
        }
        if work.phase != Phase::Received {
            return;
        }
        let elsewhere = |(other, of): (usize, &Option<Work>)| {
            other != at
                && of.is_some_and(|of| of.message == work.message && !matches!(of.phase, Phase::Answering(_)))
        };
        if state.workers.iter().enumerate().any(elsewhere) {
            actions.push(Action::InProgress(at));
        }
        if self.is(Variant::AcknowledgeBeforeCommit) && work.awaited {
            actions.push(Action::AnswerEarly(at));
        }
    }

    fn clock_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.clock < self.bounds.dates {
            actions.push(Action::Clock(state.clock + 1));
        }
        if state.left.receiver_steps > 0 {
            actions.extend((1..state.clock).map(Action::Clock));
        }
    }

    fn purge_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let target = self.purge_target(state);
        let mut bounds: Vec<u8> = state
            .visible
            .rows
            .iter()
            .zip(&state.dates)
            .filter(|(row, date)| **row == Row::Done && **date <= target)
            .map(|(_, date)| *date)
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        actions.extend(bounds.into_iter().map(Action::Purge));
        if state.to_raise > 0 {
            actions.push(Action::RaiseWatermark);
        }
    }

    fn heals(&self, state: &State) -> bool {
        self.healed.heals(state, |state| {
            if state.is_finished(&self.bounds) {
                return Course::Finished;
            }
            let mut actions = Vec::new();
            self.actions(state, &mut actions);
            let first = actions.into_iter().filter_map(|action| Some((action.rank(state)?, action)));
            let Some((_, action)) = first.min_by_key(|(rank, _)| *rank) else { return Course::Stuck };
            self.step(state, action);
            Course::Moved
        })
    }
}

impl Model for InboxModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some((_, last)) = state.next(&self.bounds) {
            let first = if state.left.sender_steps > 0 { 1 } else { last };
            actions.extend((first..=self.bounds.dates).map(Action::Enqueue));
        }
        (0..usize::from(self.bounds.messages))
            .for_each(|message| self.message_actions(state, message, actions));
        for (at, work) in state.workers.iter().enumerate() {
            if let Some(work) = work {
                self.work_actions(state, at, *work, actions);
            }
        }
        if state.visible != state.durable && state.left.cuts > 0 {
            actions.push(Action::Sync);
        }
        self.purge_actions(state, actions);
        self.clock_actions(state, actions);
        if state.left.kills > 0 {
            actions.push(Action::Kill);
        }
        if state.left.cuts > 0 {
            actions.push(Action::PowerCut);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is acknowledged has a durable effect", |_, state: &State| {
                each(state, |message| {
                    state.senders[message] != Sender::Sent || state.durable.effects[message] > 0
                })
            }),
            Property::always("what was purged is never handled again", |_, state: &State| {
                !state.visible.again
            }),
            Property::always("no effect happens twice", |_, state: &State| {
                each(state, |message| state.visible.effects[message] <= 1)
            }),
            Property::always("done is final", |_, state: &State| {
                each(state, |message| {
                    state.visible.effects[message] == 0 || state.visible.rows[message] != Row::Dead
                })
            }),
            Property::always("what was rejected has no effect", |_, state: &State| {
                each(state, |message| {
                    state.senders[message] != Sender::Rejected || state.visible.effects[message] == 0
                })
            }),
            Property::always("nothing is stuck", Self::heals),
            Property::sometimes("everything goes wrong and ends well", |model: &Self, state: &State| {
                state.left == Left::NOTHING && state.is_finished(&model.bounds)
            }),
            Property::sometimes("something is purged", |_, state: &State| state.durable.purged != 0),
        ]
    }
}

fn each(state: &State, holds: impl Fn(usize) -> bool) -> bool {
    (0..state.senders.len()).all(holds)
}
