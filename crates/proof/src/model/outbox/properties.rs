//! What must hold on the sender's side.

use stateright::{Model, Property};

use super::state::{Left, Reason, RowState, State, Status};
use super::{Action, OutboxModel};
use crate::model::heal::Course;

pub(super) fn all() -> Vec<Property<OutboxModel>> {
    vec![
        Property::always("what counts as sent has had its effect", sent_has_happened),
        Property::always("no effect happens twice", |_, state: &State| {
            state.history.effects.iter().all(|n| *n <= 1)
        }),
        Property::always("the effects of a key happen in order", |_, state: &State| {
            !state.history.out_of_order
        }),
        Property::always("no effect without a durable enqueue", |_, state: &State| {
            let effects = state.history.effects.iter().enumerate();
            effects.filter(|(_, n)| **n > 0).all(|(message, _)| state.history.committed & (1 << message) != 0)
        }),
        Property::always("a committed message stays", committed_stays),
        Property::always("sent is final", sent_is_final),
        Property::always("nobody is charged for others", charges_are_own),
        Property::always("what is replayed is run again", replay_runs),
        Property::always("nothing is stuck", OutboxModel::heals),
        Property::sometimes("everything goes wrong and ends well", |model: &OutboxModel, state: &State| {
            state.left == Left::NOTHING && state.is_finished(&model.bounds)
        }),
    ]
}

fn sent_has_happened(_: &OutboxModel, state: &State) -> bool {
    let over = |place: &u8| matches!(state.visible.status(*place), Status::Sent | Status::Trimmed);
    let happened = |place: u8| state.history.effects[usize::from(state.visible.message(place))] > 0;
    state.visible.places().filter(over).all(happened)
}

fn committed_stays(_: &OutboxModel, state: &State) -> bool {
    let stays = |place| 1 << state.durable.message(place);
    let there: u8 = state.durable.places().fold(0, |bits, place| bits | stays(place));
    state.history.committed & !there == 0
}

fn sent_is_final(_: &OutboxModel, state: &State) -> bool {
    let was_sent = |place: &u8| state.history.sent & (1 << state.durable.message(*place)) != 0;
    state.durable.places().filter(was_sent).all(|place| {
        [&state.durable, &state.visible]
            .iter()
            .all(|db| matches!(db.status(place), Status::Sent | Status::Trimmed))
    })
}

fn charges_are_own(_: &OutboxModel, state: &State) -> bool {
    state.visible.places().all(|place| {
        let row = state.visible.row(place);
        // A rejection is counted as well, and is the receiver's word.
        let rejected = u8::from(row.state == RowState::Dead(Reason::Rejected));
        row.attempts <= state.history.own_failures[usize::from(state.visible.message(place))] + rejected
    })
}

fn replay_runs(_: &OutboxModel, state: &State) -> bool {
    let rejected = |place: &u8| state.visible.row(*place).state == RowState::Dead(Reason::Rejected);
    let ran = |place| state.history.ran & (1 << state.visible.message(place)) != 0;
    state.visible.places().filter(rejected).all(ran)
}

impl OutboxModel {
    fn heals(&self, state: &State) -> bool {
        self.healed.heals(state, |state| {
            if state.is_finished(&self.bounds) {
                return Course::Finished;
            }
            let mut actions = Vec::new();
            self.actions(state, &mut actions);
            let mut ranked: Vec<(u8, Action)> =
                actions.into_iter().filter_map(|action| Some((action.rank()?, action))).collect();
            ranked.sort_by_key(|(rank, _)| *rank);
            for (_, action) in ranked {
                if let Some(next) = self.next_state(state, action) {
                    *state = next;
                    return Course::Moved;
                }
            }
            Course::Stuck
        })
    }
}
