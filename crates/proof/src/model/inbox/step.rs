//! The steps of the receiver's side, each as atomic as it is in the code.

use super::state::{Answer, Phase, Row, Sender, State, Work};
use super::{Action, InboxModel, Verdict};
use crate::model::Variant;

impl InboxModel {
    /// Takes a step.
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Enqueue(date) => self.enqueue(state, date),
            Action::Send(message) => {
                state.senders[message] = Sender::Awaiting;
                state.travelling[message] = true;
            }
            Action::Delay(message) => delay(state, message),
            Action::Receive { message, late } => receive(state, message, late),
            Action::InProgress(at) => {
                let wrong = self.is(Variant::OkToInFlightDuplicate);
                set_phase(state, at, Phase::Answering(if wrong { Answer::Well } else { Answer::Later }));
            }
            Action::Handle(at, verdict) => self.handle(state, at, verdict),
            Action::AnswerEarly(at) => {
                let message = tell(state, at, Answer::Well);
                state.workers[at] = Some(Work { message, awaited: false, phase: Phase::Received });
            }
            Action::Answer(at) => self.answer(state, at),
            Action::Sync => state.durable = state.visible,
            Action::Purge(bound) => self.purge(state, bound),
            Action::RaiseWatermark => {
                state.visible.watermark = state.visible.watermark.max(state.to_raise);
                state.to_raise = 0;
            }
            Action::Clock(to) => {
                state.left.receiver_steps -= u8::from(to < state.clock);
                state.clock = to;
            }
            Action::Kill => {
                state.left.kills -= 1;
                state.stop();
            }
            Action::PowerCut => {
                state.left.cuts -= 1;
                state.visible = state.durable;
                state.stop();
            }
        }
        if state.left.cuts == 0 {
            state.durable = state.visible; // nothing can be lost any more
        }
        state.workers.sort_unstable();
    }

    fn enqueue(&self, state: &mut State, date: u8) {
        let Some((message, last)) = state.next(&self.bounds) else { return };
        state.left.sender_steps -= u8::from(date < last);
        state.dates[message] = date;
        state.senders[message] = Sender::Open;
    }

    /// One transaction: dedup row, handler, guard (`Delivery::handle`). Broken variants take two.
    fn handle(&self, state: &mut State, at: usize, verdict: Verdict) {
        let Some(Work { message, phase, .. }) = state.workers[at] else { return };
        let message = usize::from(message);
        if phase == Phase::Received
            && let Some(answer) = self.known(state, message)
        {
            return set_phase(state, at, Phase::Answering(answer));
        }
        let apart = match phase {
            Phase::Received if self.is(Variant::DedupRowLast) => Some(Phase::Checked),
            Phase::Received if self.is(Variant::MarkThenHandle) => {
                state.visible.rows[message] = Row::Done;
                Some(Phase::Marked)
            }
            Phase::Received if self.is(Variant::HandleThenMark) && verdict == Verdict::Well => {
                apply(state, message);
                Some(Phase::Handled)
            }
            _ => None,
        };
        if let Some(phase) = apart {
            return set_phase(state, at, phase);
        }
        let answer = match verdict {
            Verdict::Well if phase == Phase::Handled => {
                state.visible.rows[message] = Row::Done;
                Answer::Well
            }
            Verdict::Well => {
                apply(state, message);
                state.visible.rows[message] = Row::Done;
                Answer::Well
            }
            Verdict::Fails => {
                state.left.failures -= 1;
                Answer::Later
            }
            Verdict::Rejects => {
                state.left.rejections -= 1;
                state.visible.rows[message] = Row::Dead;
                Answer::Rejected
            }
        };
        if answer != Answer::Later {
            state.visible.newest = state.visible.newest.max(state.dates[message]);
        }
        set_phase(state, at, Phase::Answering(answer));
    }

    /// What is known about a message without running its handler (`claim`, `check_date`).
    fn known(&self, state: &State, message: usize) -> Option<Answer> {
        let date = state.dates[message];
        match state.visible.rows[message] {
            Row::Done => Some(Answer::Well),
            Row::Dead => Some(Answer::Rejected),
            Row::None if date <= self.watermark(state) => Some(Answer::TooOld),
            Row::None if date > state.clock + self.bounds.skew => Some(Answer::Later),
            Row::None => None,
        }
    }

    /// A message without a row and with a date up to here may have been handled and forgotten.
    fn watermark(&self, state: &State) -> u8 {
        if self.is(Variant::WatermarkFromClock) {
            return state.clock.saturating_sub(self.bounds.window);
        }
        if self.is(Variant::NoWatermark) { 0 } else { state.visible.watermark }
    }

    /// Up to where rows are purged: counted in the senders' dates.
    pub(super) fn purge_target(&self, state: &State) -> u8 {
        let clock = self.is(Variant::WatermarkFromClock);
        let newest = if clock { state.clock } else { state.visible.newest };
        newest.saturating_sub(self.bounds.window)
    }

    /// Final rows go, and the watermark rises with them (`sweep.rs`, `purge`).
    fn purge(&self, state: &mut State, bound: u8) {
        for (message, row) in state.visible.rows.iter_mut().enumerate() {
            if *row == Row::Done && state.dates[message] <= bound {
                *row = Row::None;
                state.visible.purged |= 1 << message;
            }
        }
        if self.is(Variant::WatermarkApart) {
            state.to_raise = state.to_raise.max(bound);
        } else {
            state.visible.watermark = state.visible.watermark.max(bound);
        }
    }

    /// The answer leaves once everything it depends on is durable (`Class::Synced`).
    fn answer(&self, state: &mut State, at: usize) {
        let Some(Work { phase: Phase::Answering(answer), .. }) = state.workers[at] else { return };
        if !self.is(Variant::AcknowledgeBeforeSync) {
            state.durable = state.visible;
        }
        tell(state, at, answer);
    }
}

fn apply(state: &mut State, message: usize) {
    state.visible.effects[message] += 1;
    state.visible.again |= state.visible.purged & (1 << message) != 0;
}

fn set_phase(state: &mut State, at: usize, phase: Phase) {
    if let Some(work) = &mut state.workers[at] {
        work.phase = phase;
    }
}

/// The work ends and the sender, if it still waits, takes the answer. Returns the message.
fn tell(state: &mut State, at: usize, answer: Answer) -> u8 {
    let Some(work) = state.workers[at].take() else { return 0 };
    if work.awaited {
        state.senders[usize::from(work.message)] = match answer {
            Answer::Well => Sender::Sent,
            Answer::Rejected => Sender::Rejected,
            Answer::TooOld => Sender::TooOld,
            Answer::Later => Sender::Open,
        };
    }
    work.message
}

/// The sender stops waiting: the copy on its way is late, or whoever handles it answers nobody.
fn delay(state: &mut State, message: usize) {
    state.left.late -= 1;
    state.senders[message] = Sender::Open;
    if std::mem::take(&mut state.travelling[message]) {
        state.late[message] += 1;
    }
    let of_message = |work: &&mut Work| usize::from(work.message) == message;
    state.workers.iter_mut().flatten().filter(of_message).for_each(|work| work.awaited = false);
}

fn receive(state: &mut State, message: usize, late: bool) {
    if late {
        state.late[message] -= 1;
    } else {
        state.travelling[message] = false;
    }
    let work =
        Work { message: u8::try_from(message).unwrap_or(u8::MAX), awaited: !late, phase: Phase::Received };
    if let Some(free) = state.workers.iter_mut().find(|worker| worker.is_none()) {
        *free = Some(work);
    }
}
