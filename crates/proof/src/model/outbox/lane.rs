//! The lane in memory: `engine/relay/lane.rs` and `batch.rs`, without time and sizes.

use super::bounds::OutboxBounds;
use super::state::{Answer, Batch, BatchId, BatchState, Breaker, Db, Fate, Item, Lane, Origin};
use crate::model::Variant;

/// Ordering keys, one bit each; a message without a key has none.
type Keys = u8;

impl OutboxBounds {
    /// The key of a message as a bit.
    pub(super) fn key(&self, message: u8) -> Keys {
        match self.keys[usize::from(message)] {
            0 => 0,
            key => 1 << key,
        }
    }
}

impl Fate {
    pub(super) fn of(answer: Answer) -> Self {
        match answer {
            Answer::Well => Self::Succeeded,
            Answer::Retry => Self::Failed,
            Answer::Rejected => Self::Rejected,
            Answer::Held => Self::Held,
            Answer::InProgress => Self::Postponed,
        }
    }
}

impl Batch {
    fn new(origin: Origin, items: Vec<Item>) -> Self {
        let any = items.iter().any(|item| item.fate == Fate::Send);
        let state = if any { BatchState::Ready } else { BatchState::Answered };
        Self { origin, items, state, suspect: false, chargeable: false }
    }

    pub(super) fn id(&self) -> BatchId {
        (self.origin, self.items[0].place)
    }

    pub(super) fn to_send(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.fate == Fate::Send)
    }

    fn busy(&self, bounds: &OutboxBounds) -> Keys {
        self.to_send().fold(0, |keys, item| keys | bounds.key(item.message))
    }

    fn held(&self, bounds: &OutboxBounds) -> Keys {
        let known = |item: &&Item| !matches!(item.fate, Fate::Send | Fate::Succeeded);
        self.items.iter().filter(known).fold(0, |keys, item| keys | bounds.key(item.message))
    }

    pub(super) fn hold(&mut self, keys: Keys, bounds: &OutboxBounds) {
        for item in &mut self.items {
            if item.fate == Fate::Send && bounds.key(item.message) & keys != 0 {
                item.fate = Fate::Held;
            }
        }
        if self.to_send().next().is_none() {
            self.state = BatchState::Answered;
            self.suspect = false;
        }
    }

    fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self::new(self.origin, self.items.split_off(at));
        rest.suspect = self.suspect;
        self.state = if self.to_send().next().is_some() { BatchState::Ready } else { BatchState::Answered };
        rest
    }

    /// The place behind the first `count` messages that are to be sent, if there are more.
    fn place_after(&self, count: usize) -> Option<usize> {
        let sends = self.items.iter().enumerate().filter(|(_, item)| item.fate == Fate::Send);
        sends.map(|(at, _)| at).nth(count)
    }
}

impl Lane {
    pub(super) fn new(db: &Db, epoch: u8) -> Self {
        Self {
            token: db.token,
            epoch,
            position: db.cursor,
            log: Vec::new(),
            waiting: None,
            breaker: Breaker::Closed { probed: false },
            suspect_limit: None,
        }
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.log.iter().chain(&self.waiting)
    }

    pub(super) fn batch(&mut self, id: BatchId) -> Option<&mut Batch> {
        self.log.iter_mut().chain(&mut self.waiting).find(|batch| batch.id() == id)
    }

    fn is_closed(&self) -> bool {
        self.breaker != Breaker::Open
    }

    fn in_flight(&self) -> usize {
        self.batches().filter(|batch| batch.state == BatchState::InFlight).count()
    }

    pub(super) fn may_form(&self, bounds: &OutboxBounds) -> bool {
        let max = usize::from(bounds.in_flight_max);
        self.is_closed()
            && self.in_flight() < max
            && !self.batches().any(|batch| batch.suspect)
            && !self.log.iter().any(|batch| batch.state == BatchState::Ready)
            && self.log.len() < 2 * max
    }

    /// Reads on and forms a batch (`Reader::deliver`, `Lane::form_batch`, `Run::form`). `held` are the keys that
    /// waiting rows hold. Whether there was anything to put into it.
    pub(super) fn form(&mut self, db: &Db, held: Keys, bounds: &OutboxBounds) -> bool {
        let busy = self.batches().fold(0, |keys, batch| keys | batch.busy(bounds));
        let behind = self.batches().fold(0, |keys, batch| keys | batch.held(bounds));
        let mut items = Vec::new();
        for place in self.position + 1..=db.end {
            let message = db.message(place);
            let key = bounds.key(message);
            if items.len() >= usize::from(bounds.batch_max) || key & busy != 0 {
                break;
            }
            let fate = if key & behind != 0 { Fate::Held } else { Fate::Send };
            items.push(Item { place, message, replay: 0, attempts: 0, fate });
        }
        let Some(last) = items.last() else { return false };
        self.position = last.place;
        let mut batch = Batch::new(Origin::Log, items);
        batch.hold(held, bounds);
        self.log.push(batch);
        true
    }

    /// Whether waiting rows may be looked at.
    pub(super) fn may_look(&self) -> bool {
        self.waiting.is_none() && self.is_closed()
    }

    /// Takes waiting rows whose turn has come (`Lane::add_due`). Whether there were any.
    pub(super) fn add_due(&mut self, due: Vec<Item>, bounds: &OutboxBounds) -> bool {
        let busy = self.batches().fold(0, |keys, batch| keys | batch.busy(bounds));
        let limit = self.suspect_limit.unwrap_or(bounds.batch_max);
        let mut items: Vec<Item> = Vec::new();
        for item in due.into_iter().filter(|item| bounds.key(item.message) & busy == 0) {
            if items.len() >= usize::from(limit) {
                break;
            }
            items.push(item);
        }
        if items.is_empty() {
            return false;
        }
        let mut batch = Batch::new(Origin::Waiting, items);
        batch.suspect = self.suspect_limit.is_some();
        self.waiting = Some(batch);
        true
    }

    /// The batch to send next, if one may be sent now (`Lane::next_ready`).
    pub(super) fn next_ready(&self, bounds: &OutboxBounds) -> Option<BatchId> {
        let suspects = self.batches().any(|batch| batch.suspect);
        let allowed = if suspects { 1 } else { usize::from(bounds.in_flight_max) };
        if !self.is_closed() || self.in_flight() >= allowed {
            return None;
        }
        let ready = |batch: &Batch| batch.state == BatchState::Ready;
        self.first_free(|batch| ready(batch) && batch.suspect, bounds)
            .or_else(|| self.first_free(ready, bounds))
    }

    fn first_free(&self, wanted: impl Fn(&Batch) -> bool, bounds: &OutboxBounds) -> Option<BatchId> {
        let mut busy = 0;
        for batch in self.waiting.iter().chain(&self.log) {
            if wanted(batch) && batch.busy(bounds) & busy == 0 {
                return Some(batch.id());
            }
            busy |= batch.busy(bounds);
        }
        None
    }

    /// Takes the answers to a request (`Lane::answered`).
    pub(super) fn answered(&mut self, id: BatchId, answers: &[Answer], bounds: &OutboxBounds) {
        let Some(batch) = self.batch(id) else { return };
        let sent = batch.items.iter_mut().filter(|item| item.fate == Fate::Send);
        sent.zip(answers).for_each(|(item, answer)| item.fate = Fate::of(*answer));
        batch.state = BatchState::Answered;
        batch.suspect = false;
        if id.0 == Origin::Waiting {
            self.suspect_limit = None;
        }
        self.heard(bounds);
    }

    fn heard(&mut self, bounds: &OutboxBounds) {
        if self.is_closed() {
            self.breaker = Breaker::Closed { probed: false };
        }
        self.hold_behind(bounds);
    }

    fn hold_behind(&mut self, bounds: &OutboxBounds) {
        let mut held = 0;
        for batch in &mut self.log {
            if batch.state == BatchState::Ready && held != 0 {
                batch.hold(held, bounds);
            }
            held |= batch.held(bounds);
        }
    }

    /// A request failed as a whole (`Lane::failed`).
    pub(super) fn failed(
        &mut self,
        id: BatchId,
        ambiguous: bool,
        variant: Option<Variant>,
        bounds: &OutboxBounds,
    ) {
        let charge_all = variant == Some(Variant::WholeBatchCharged);
        if let Some(batch) = self.batch(id) {
            batch.state = BatchState::Ready;
            if charge_all || (ambiguous && batch.chargeable) {
                let sent = batch.items.iter_mut().filter(|item| item.fate == Fate::Send);
                sent.for_each(|item| item.fate = Fate::Failed);
                batch.state = BatchState::Answered;
                batch.suspect = false;
                return self.heard(bounds);
            }
            if ambiguous && variant != Some(Variant::NeverHalved) {
                self.suspect(id);
            }
        }
        // While the lane is held, waiting rows are better off in the database.
        if self.waiting.as_ref().is_some_and(|batch| batch.state == BatchState::Ready) {
            self.waiting = None;
        }
        self.breaker = Breaker::Open;
    }

    /// It goes on in halves.
    fn suspect(&mut self, id: BatchId) {
        let Some(batch) = self.batch(id) else { return };
        let half = batch.to_send().count().div_ceil(2);
        batch.suspect = true;
        if id.0 == Origin::Waiting {
            self.suspect_limit = u8::try_from(half).ok();
        } else if let Some(at) = self.log.iter().position(|batch| batch.id() == id)
            && let Some(middle) = self.log[at].place_after(half)
        {
            let rest = self.log[at].split_off(middle);
            self.log.insert(at + 1, rest);
        }
    }
}
