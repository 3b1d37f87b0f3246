//! The sender's side: log, lane, lease, requests, settlements, waiting rows, keys, replay.

mod bounds;
mod lane;
mod properties;
mod receiver;
mod state;
mod step;
mod store;

use stateright::{Model, Property};

pub(super) use self::bounds::{HeadPolicy, OutboxBounds};
use self::receiver::Course;
use self::state::{BatchState, Breaker, Inbox, RELAYS, RowState, State, Status};
use super::Variant;
use super::heal::Healed;

/// The model of the sender's side.
#[derive(Debug)]
pub(super) struct OutboxModel {
    bounds: OutboxBounds,
    variant: Option<Variant>,
    healed: Healed,
}

/// A step. Relays and requests are named by their index, messages of the log by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Enqueue,
    Sync,
    /// Takes the lane over, because the lease seems to be over or its owner dead.
    Take(u8),
    /// Asks for the lane again: learns that it is lost, or loads it anew.
    Renew(u8),
    Form(u8),
    Look(u8),
    Send(u8),
    Probe(u8),
    SettleLog(u8),
    SettleWaiting(u8),
    Handle(usize, Course),
    /// The receiver breaks over a message.
    Break(usize),
    Answer(usize),
    /// The request or its answer is lost.
    Lose(usize),
    /// Nobody waits for the request any more, but it still arrives.
    Delay(usize),
    Refuse(usize),
    Kill(u8),
    PowerCut,
    Reopen,
    Replay(u8),
    ReleaseKey(u8),
    Trim(u8),
}

impl Action {
    /// Which step without a fault comes first. `None`: a fault, or somebody's whim.
    fn rank(self) -> Option<u8> {
        Some(match self {
            Self::Renew(_) => 0,
            Self::Answer(_) => 1,
            Self::Handle(_, Course::Well) | Self::Break(_) => 2,
            Self::SettleLog(_) => 3,
            Self::SettleWaiting(_) => 4,
            Self::Probe(_) => 5,
            Self::Send(_) => 6,
            Self::Look(_) => 7,
            Self::Form(_) => 8,
            Self::Enqueue => 9,
            Self::ReleaseKey(_) => 10,
            _ => return None,
        })
    }
}

impl OutboxModel {
    pub(super) fn new(bounds: OutboxBounds, variant: Option<Variant>) -> Self {
        Self { bounds, variant, healed: Healed::default() }
    }

    fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    fn relay_actions(&self, state: &State, relay: u8, actions: &mut Vec<Action>) {
        let owns = state.visible.owner == relay;
        if !owns && state.left.takes > 0 {
            actions.push(Action::Take(relay));
        }
        let Some(lane) = &state.lanes[usize::from(relay)] else {
            if owns {
                actions.push(Action::Renew(relay));
            }
            return;
        };
        let current = lane.epoch == state.epoch || self.is(Variant::LaneKeptAfterReopen);
        if !owns || lane.token != state.visible.token || !current {
            actions.push(Action::Renew(relay));
        }
        if lane.may_form(&self.bounds) && lane.position < state.visible.end {
            actions.push(Action::Form(relay));
        }
        if lane.may_look() {
            actions.push(Action::Look(relay));
        }
        if lane.next_ready(&self.bounds).is_some() {
            actions.push(Action::Send(relay));
        }
        if lane.breaker == Breaker::Open {
            actions.push(Action::Probe(relay));
        }
        if self.settlement(lane).is_some() {
            actions.push(Action::SettleLog(relay));
        }
        if lane.waiting.as_ref().is_some_and(|batch| batch.state == BatchState::Answered) {
            actions.push(Action::SettleWaiting(relay));
        }
        if state.left.kills > 0 {
            actions.push(Action::Kill(relay));
        }
    }

    fn request_actions(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let (request, left) = (&state.requests[at], &state.left);
        let awaited = request.awaited.is_some();
        if awaited && left.timeouts > 0 {
            actions.push(Action::Lose(at));
        }
        if request.answers.is_some() {
            actions.push(Action::Answer(at));
            return;
        }
        if awaited && left.late > 0 {
            actions.push(Action::Delay(at));
        }
        if awaited && left.refusals > 0 {
            actions.push(Action::Refuse(at));
        }
        if request.messages.iter().any(|(message, _)| Some(*message) == self.bounds.poison) {
            actions.push(Action::Break(at));
            return;
        }
        actions.push(Action::Handle(at, Course::Well));
        for (place, (message, replay)) in request.messages.iter().enumerate() {
            let runs = match state.inbox[usize::from(*message)] {
                Inbox::None => true,
                Inbox::Done(_) => false,
                Inbox::Dead(under) => *replay > under,
            };
            if runs && left.failures > 0 {
                actions.push(Action::Handle(at, Course::Fails(place)));
            }
            if runs && left.rejections > 0 {
                actions.push(Action::Handle(at, Course::Rejects(place)));
            }
            let elsewhere = state.requests.iter().enumerate().any(|(other, request)| {
                other != at && request.answers.is_none() && request.messages.iter().any(|(m, _)| m == message)
            });
            if awaited && elsewhere {
                actions.push(Action::Handle(at, Course::Busy(place)));
            }
        }
    }

    fn row_actions(&self, state: &State, place: u8, actions: &mut Vec<Action>) {
        let row = state.visible.row(place);
        if row.is_dead() && state.left.replays > 0 {
            actions.push(Action::Replay(place));
        }
        if row.is_dead() && row.holds {
            actions.push(Action::ReleaseKey(place));
        }
        let trimmed = row.state == RowState::Trimmed;
        let over = state.visible.status(place) == Status::Sent;
        if state.left.trims > 0 && !trimmed && (over || self.is(Variant::PurgeUnfinished)) {
            actions.push(Action::Trim(place));
        }
    }
}

impl Model for OutboxModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.next < self.bounds.messages {
            actions.push(Action::Enqueue);
        }
        if state.visible != state.durable && state.left.cuts + state.left.reopens > 0 {
            actions.push(Action::Sync);
        }
        (0..RELAYS).for_each(|relay| {
            self.relay_actions(state, u8::try_from(relay).unwrap_or(u8::MAX), actions);
        });
        (0..state.requests.len()).for_each(|at| self.request_actions(state, at, actions));
        state.visible.places().for_each(|place| self.row_actions(state, place, actions));
        if state.left.cuts > 0 {
            actions.push(Action::PowerCut);
        }
        if state.left.reopens > 0 {
            actions.push(Action::Reopen);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action).then(|| {
            Self::settle_durability(&mut next);
            next
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
