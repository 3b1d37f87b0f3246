//! The sender's store: what each transaction does to the database (`sqlite/outbox/`).

use super::bounds::{HeadPolicy, OutboxBounds};
use super::state::{Db, Fate, Item, Reason, Row, RowState};

impl Db {
    /// Keys that waiting rows hold (`WaitingStore::held_keys`).
    pub(super) fn held_keys(&self, bounds: &OutboxBounds) -> u8 {
        let holding = self.places().filter(|place| self.row(*place).holds);
        holding.fold(0, |keys, place| keys | bounds.key(self.message(place)))
    }

    /// What is due: messages without a key, and heads of keys with those right behind them (`DueQuery`).
    pub(super) fn due(&self, bounds: &OutboxBounds) -> Vec<Item> {
        let mut due = Vec::new();
        let mut blocked = 0;
        for place in self.places() {
            let (row, key) = (self.row(place), bounds.key(self.message(place)));
            if row.holds && row.state != RowState::Open {
                blocked |= key;
            }
            if row.state == RowState::Open && key & blocked == 0 {
                due.push(self.item(place, row));
            }
        }
        due
    }

    fn item(&self, place: u8, row: Row) -> Item {
        let Row { attempts, replay, .. } = row;
        Item { place, message: self.message(place), replay, attempts, fate: Fate::Send }
    }

    /// Moves the cursor, and what was not sent to the waiting rows (`Sqlite::settle`). `None`: a row is not there, or
    /// is already; the transaction rolls back.
    #[must_use]
    pub(super) fn settled(&self, upto: u8, unsent: &[Item], bounds: &OutboxBounds) -> Option<Self> {
        let mut db = *self;
        db.cursor = upto;
        for item in unsent {
            if item.place > db.end || db.row(item.place).state != RowState::Absent {
                return None;
            }
            db.write_outcome(item, bounds);
        }
        db.fail_keys(unsent, bounds);
        Some(db)
    }

    /// Writes outcomes of waiting rows; final ones stay (`Sqlite::settle_waiting_rows`).
    pub(super) fn settle_waiting(&mut self, items: &[Item], bounds: &OutboxBounds) {
        let pending = |item: &&Item| item.place <= self.end && self.row(item.place).state == RowState::Open;
        let items: Vec<Item> = items.iter().filter(pending).copied().collect();
        items.iter().for_each(|item| self.write_outcome(item, bounds));
        self.fail_keys(&items, bounds);
    }

    /// The lifecycle's decision in columns (`lifecycle::step`, `Columns::new`, `keys::holds`).
    fn write_outcome(&mut self, item: &Item, bounds: &OutboxBounds) {
        let charged = item.attempts + 1;
        let (state, attempts) = match item.fate {
            Fate::Succeeded => (RowState::Sent, item.attempts),
            Fate::Rejected => (RowState::Dead(Reason::Rejected), charged),
            Fate::Failed if charged >= bounds.attempts_max => (RowState::Dead(Reason::Exhausted), charged),
            Fate::Failed => (RowState::Open, charged),
            Fate::Held | Fate::Postponed | Fate::Send => (RowState::Open, item.attempts),
        };
        let keyed = bounds.key(self.message(item.place)) != 0;
        let holds = match state {
            RowState::Open => keyed,
            RowState::Dead(_) => keyed && bounds.policy == HeadPolicy::Block,
            RowState::Sent | RowState::Absent | RowState::Trimmed => false,
        };
        *self.row_mut(item.place) = Row { state, attempts, replay: item.replay, holds };
    }

    /// With `FailKey`, those behind a dead message of their key die with it (`TouchedKeys::settle`).
    fn fail_keys(&mut self, items: &[Item], bounds: &OutboxBounds) {
        if bounds.policy != HeadPolicy::FailKey {
            return;
        }
        for item in items {
            if !self.row(item.place).is_dead() {
                continue;
            }
            let key = bounds.key(self.message(item.place));
            for place in item.place + 1..=self.end {
                let row = self.row(place);
                if key & bounds.key(self.message(place)) != 0 && row.holds && row.state == RowState::Open {
                    *self.row_mut(place) =
                        Row { state: RowState::Dead(Reason::KeyFailed), holds: false, ..row };
                }
            }
        }
    }

    /// An operator sends a dead message again (`Sqlite::replay_one`), under a higher number if `raise`.
    pub(super) fn replay(&mut self, place: u8, raise: bool, bounds: &OutboxBounds) {
        let holds = bounds.key(self.message(place)) != 0;
        let row = self.row_mut(place);
        *row = Row { state: RowState::Open, attempts: 0, replay: row.replay + u8::from(raise), holds };
    }
}
