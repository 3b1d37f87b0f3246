//! The receiver as the sender meets it: a request is handled in one go. Its inner steps are the other model's.

use super::OutboxModel;
use super::state::{Answer, Inbox, State};
use crate::model::Variant;

/// What goes wrong while a request is handled: nothing, or something with the message at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Course {
    Well,
    Fails(usize),
    Rejects(usize),
    /// A copy of it is being handled elsewhere.
    Busy(usize),
}

impl OutboxModel {
    /// Handles messages in order, each atomically; what follows a failed one of its key is held (`ProcessJob::next`).
    pub(super) fn handle(&self, state: &mut State, messages: &[(u8, u8)], course: Course) -> Vec<Answer> {
        let mut gate = 0;
        let mut answers = Vec::with_capacity(messages.len());
        for (at, &(message, replay)) in messages.iter().enumerate() {
            let key = self.bounds.key(message);
            let answer = if key & gate != 0 {
                Answer::Held
            } else if course == Course::Busy(at) {
                Answer::InProgress
            } else {
                self.handle_one(state, message, replay, course, at)
            };
            if answer != Answer::Well {
                gate |= key;
            }
            answers.push(answer);
        }
        answers
    }

    /// The dedup row decides whether the handler runs (`inbox/handle.rs`, `claim`).
    fn handle_one(&self, state: &mut State, message: u8, replay: u8, course: Course, at: usize) -> Answer {
        let index = usize::from(message);
        let runs = match state.inbox[index] {
            Inbox::None => true,
            Inbox::Done(under) => self.is(Variant::ReplayRerunsDone) && replay > under,
            Inbox::Dead(under) => replay > under,
        };
        if !runs {
            let done = matches!(state.inbox[index], Inbox::Done(_));
            return if done { Answer::Well } else { Answer::Rejected };
        }
        state.history.ran |= 1 << message;
        match course {
            Course::Fails(which) if which == at => {
                state.history.own_failures[index] += 1;
                Answer::Retry
            }
            Course::Rejects(which) if which == at => {
                state.inbox[index] = Inbox::Dead(replay);
                Answer::Rejected
            }
            _ => {
                self.apply(state, message);
                state.inbox[index] = Inbox::Done(replay);
                Answer::Well
            }
        }
    }

    /// The effect happens. Those before it in its key must have happened, or have died and hold nobody up.
    fn apply(&self, state: &mut State, message: u8) {
        let history = &mut state.history;
        history.effects[usize::from(message)] += 1;
        let key = self.bounds.key(message);
        let before =
            |earlier: &u8| self.bounds.key(*earlier) & key != 0 && history.committed & (1 << earlier) != 0;
        let overtaken =
            |earlier: u8| history.effects[usize::from(earlier)] == 0 && history.excused & (1 << earlier) == 0;
        let out_of_order = (0..message).filter(before).any(overtaken);
        history.out_of_order |= out_of_order;
    }
}
