//! The steps of the sender's side, each as atomic as it is in the code.

use super::state::{Batch, BatchState, Breaker, Fate, Item, Lane, Request, RowState, State};
use super::{Action, Course, OutboxModel};
use crate::model::Variant;

/// A settlement of the log: how far, and what was not sent.
type Settlement = (u8, Vec<Item>);

impl OutboxModel {
    /// Takes a step. `false`: nothing came of it.
    pub(super) fn step(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Enqueue => enqueue(state),
            Action::Sync => state.sync(),
            Action::Take(relay) => take(state, relay),
            Action::Renew(relay) => renew(state, relay),
            Action::Form(relay) => return self.form(state, relay),
            Action::Look(relay) => return self.look(state, relay),
            Action::Send(relay) => return self.send(state, relay),
            Action::Probe(relay) => lane(state, relay).breaker = Breaker::Closed { probed: true },
            Action::SettleLog(relay) => return self.settle_log(state, relay),
            Action::SettleWaiting(relay) => return self.settle_waiting(state, relay),
            Action::Handle(at, course) => self.handle_request(state, at, course),
            Action::Break(at) => self.broken(state, at),
            Action::Answer(at) => self.answer(state, at),
            Action::Lose(at) | Action::Delay(at) | Action::Refuse(at) => self.fail(state, at, action),
            Action::Kill(relay) => {
                state.left.kills -= 1;
                state.drop_lane(relay);
            }
            Action::PowerCut => {
                state.left.cuts -= 1;
                state.visible = state.durable;
                [0, 1].into_iter().for_each(|relay| state.drop_lane(relay));
            }
            Action::Reopen => {
                state.left.reopens -= 1;
                state.visible = state.durable;
                state.epoch += 1;
            }
            Action::Replay(place) => self.replay(state, place),
            Action::ReleaseKey(place) => {
                state.visible.row_mut(place).holds = false;
                self.excuse(state);
                state.sync();
            }
            Action::Trim(place) => {
                state.left.trims -= 1;
                let row = state.visible.row_mut(place);
                (row.state, row.holds) = (RowState::Trimmed, false);
            }
        }
        true
    }

    /// When nothing can be lost any more, what is visible is as good as durable: fewer states, none of them missed.
    pub(super) fn settle_durability(state: &mut State) {
        if state.left.cuts + state.left.reopens == 0 {
            state.sync();
        }
    }

    fn form(&self, state: &mut State, relay: u8) -> bool {
        let overtakes = self.is(Variant::RetryOvertakesKey);
        let held = if overtakes { 0 } else { state.visible.held_keys(&self.bounds) };
        let db = state.visible;
        lane(state, relay).form(&db, held, &self.bounds)
    }

    fn look(&self, state: &mut State, relay: u8) -> bool {
        let due = state.visible.due(&self.bounds);
        lane(state, relay).add_due(due, &self.bounds)
    }

    /// Sends the next batch, once what it was read from is durable (`Run::dispatch`, `Run::send`, `make_durable`).
    fn send(&self, state: &mut State, relay: u8) -> bool {
        let of = lane(state, relay);
        let Some(id) = of.next_ready(&self.bounds) else { return false };
        let probed = of.breaker == Breaker::Closed { probed: true };
        if of.epoch != state.epoch && !self.is(Variant::LaneKeptAfterReopen) {
            state.drop_lane(relay);
            return true;
        }
        let of = lane(state, relay);
        of.breaker = Breaker::Closed { probed: false };
        let Some(batch) = of.batch(id) else { return false };
        let messages: Vec<(u8, u8)> = batch.to_send().map(|item| (item.message, item.replay)).collect();
        let alone = probed && messages.len() == 1;
        batch.state = BatchState::InFlight;
        batch.chargeable = alone && batch.suspect;
        let upto = batch.items.iter().map(|item| item.place).max();
        if upto.is_some_and(|upto| upto > state.durable.end) && !self.is(Variant::SendBeforeDurable) {
            state.sync();
        }
        state.requests.push(Request { awaited: Some((relay, id)), messages, answers: None, alone });
        state.requests.sort_unstable();
        true
    }

    fn handle_request(&self, state: &mut State, at: usize, course: Course) {
        match course {
            Course::Fails(_) => state.left.failures -= 1,
            Course::Rejects(_) => state.left.rejections -= 1,
            Course::Well | Course::Busy(_) => {}
        }
        let mut request = state.requests.remove(at);
        let answers = self.handle(state, &request.messages, course);
        if request.awaited.is_some() {
            request.answers = Some(answers);
            state.requests.push(request);
            state.requests.sort_unstable();
        }
    }

    /// The receiver dies of a message: whoever waits hears nothing, and nothing of the request has happened.
    fn broken(&self, state: &mut State, at: usize) {
        let request = state.requests.remove(at);
        if let Some(poison) = self.bounds.poison.filter(|_| request.alone) {
            state.history.own_failures[usize::from(poison)] += 1;
        }
        self.unanswered(state, &request, true);
    }

    fn unanswered(&self, state: &mut State, request: &Request, ambiguous: bool) {
        let Some((relay, id)) = request.awaited else { return };
        lane(state, relay).failed(id, ambiguous, self.variant, &self.bounds);
    }

    fn answer(&self, state: &mut State, at: usize) {
        let request = state.requests.remove(at);
        if let (Some((relay, id)), Some(answers)) = (request.awaited, &request.answers) {
            lane(state, relay).answered(id, answers, &self.bounds);
        }
    }

    /// A request fails as a whole: lost, late or refused.
    fn fail(&self, state: &mut State, at: usize, action: Action) {
        let request = state.requests.remove(at);
        if request.alone {
            state.history.own_failures[usize::from(request.messages[0].0)] += 1;
        }
        match action {
            Action::Delay(_) => {
                state.left.late -= 1;
                let late = Request { awaited: None, alone: false, ..request.clone() };
                state.requests.push(late);
                state.requests.sort_unstable();
            }
            Action::Refuse(_) => state.left.refusals -= 1,
            _ => state.left.timeouts -= 1,
        }
        self.unanswered(state, &request, !matches!(action, Action::Refuse(_)));
    }

    /// What can be settled of the log: everything known in front of the first batch that is not (`Lane::settlement`).
    pub(super) fn settlement(&self, lane: &Lane) -> Option<Settlement> {
        let early = self.is(Variant::SentBeforeAnswer);
        let known = |batch: &&Batch| {
            batch.state == BatchState::Answered || (early && batch.state == BatchState::InFlight)
        };
        let batches: Vec<&Batch> = if self.is(Variant::SettleOutOfOrder) {
            lane.log.iter().filter(known).collect()
        } else {
            lane.log.iter().take_while(known).collect()
        };
        let upto = batches.last()?.items.last()?.place;
        let items = batches.iter().flat_map(|batch| &batch.items);
        let unsent = items.filter(|item| item.fate != Fate::Succeeded && !(early && item.fate == Fate::Send));
        Some((upto, unsent.copied().collect()))
    }

    /// Cursor and waiting rows move in one fenced transaction (`Sqlite::settle`, `settle_lane.sql`); after any doubt
    /// the lane's state goes (`Run::doubt`).
    fn settle_log(&self, state: &mut State, relay: u8) -> bool {
        let of = lane(state, relay).clone();
        let Some((upto, mut unsent)) = self.settlement(&of) else { return false };
        if self.is(Variant::CursorWithoutRows) {
            unsent.clear();
        }
        let current = self.is_current(state, &of) && state.visible.cursor <= upto;
        let settled = state.visible.settled(upto, &unsent, &self.bounds).filter(|_| current);
        let Some(db) = settled else {
            state.drop_lane(relay);
            return true;
        };
        state.visible = db;
        self.excuse(state);
        lane(state, relay).log.retain(|batch| batch.items.last().is_some_and(|item| item.place > upto));
        true
    }

    fn settle_waiting(&self, state: &mut State, relay: u8) -> bool {
        let of = lane(state, relay);
        let Some(batch) = of.waiting.take() else { return false };
        let of = of.clone();
        if self.is_current(state, &of) {
            state.visible.settle_waiting(&batch.items, &self.bounds);
            self.excuse(state);
        } else {
            state.drop_lane(relay);
        }
        true
    }

    /// The fence: token and opening of the file (`Sqlite::fenced`).
    fn is_current(&self, state: &State, lane: &Lane) -> bool {
        (lane.token == state.visible.token || self.is(Variant::NoFence))
            && (lane.epoch == state.epoch || self.is(Variant::LaneKeptAfterReopen))
    }

    fn replay(&self, state: &mut State, place: u8) {
        state.left.replays -= 1;
        state.visible.replay(place, !self.is(Variant::ReplayKeepsNumber), &self.bounds);
        let message = state.visible.message(place);
        state.history.ran &= !(1 << message);
        state.history.own_failures[usize::from(message)] = 0;
        state.sync();
    }

    /// From now on the dead that hold nobody up may be overtaken.
    fn excuse(&self, state: &mut State) {
        let db = &state.visible;
        let passed = |place: &u8| db.row(*place).is_dead() && !db.row(*place).holds;
        let excused = db.places().filter(passed).fold(0, |bits, place| bits | (1 << db.message(place)));
        state.history.excused |= excused;
    }
}

fn lane(state: &mut State, relay: u8) -> &mut Lane {
    state.lanes[usize::from(relay)].as_mut().expect("only relays with a lane do anything with it")
}

fn enqueue(state: &mut State) {
    let end = usize::from(state.visible.end);
    state.visible.log[end] = state.next + 1;
    state.visible.end += 1;
    state.next += 1;
}

/// `Sqlite::take`: a fresh token, and the lane is loaded from the cursor.
fn take(state: &mut State, relay: u8) {
    state.left.takes -= 1;
    state.drop_lane(relay);
    state.visible.owner = relay;
    state.visible.token += 1;
    state.lanes[usize::from(relay)] = Some(Lane::new(&state.visible, state.epoch));
}

/// `Run::lanes_taken`: a lane that is not held any more, or not the same one, is thrown away; what is held is loaded.
fn renew(state: &mut State, relay: u8) {
    state.drop_lane(relay);
    if state.visible.owner == relay {
        state.lanes[usize::from(relay)] = Some(Lane::new(&state.visible, state.epoch));
    }
}
