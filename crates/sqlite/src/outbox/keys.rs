//! Ordering keys among the waiting rows: only the head of a key has a next attempt (S12).

use std::collections::BTreeSet;

use rusqlite::params;
use twobox_core::lifecycle::{Next, Reason, State};
use twobox_core::ports::{HeadPolicy, WaitingOutcome};
use twobox_core::{Result, crash_point};

use crate::SqliteTx;

/// A message that takes those behind it along.
struct Failed {
    seq: i64,
    key: String,
    error: String,
}

/// Keys that a settlement has touched and whose heads must be looked at again when it is through.
#[derive(Default)]
pub(super) struct TouchedKeys {
    keys: BTreeSet<String>,
    failed: Vec<Failed>,
}

impl TouchedKeys {
    /// Takes note of a message's outcome.
    pub(super) fn note(&mut self, seq: i64, key: Option<&str>, outcome: &WaitingOutcome) {
        let Some(key) = key else { return };
        self.keys.insert(key.to_owned());
        let died = matches!(outcome.step.standing.state, State::Dead | State::Expired);
        if died && outcome.head_policy == HeadPolicy::FailKey {
            let error = outcome.error.clone().unwrap_or_else(|| "expired".into());
            let error = format!("an earlier message of its ordering key died: {error}");
            self.failed.push(Failed { seq, key: key.to_owned(), error });
        }
    }

    /// Applies the consequences and returns how many messages died of them.
    pub(super) fn settle(self, tx: &mut SqliteTx<'_>, lane: i64, now: i64) -> Result<usize> {
        let mut died = 0;
        for Failed { seq, key, error } in &self.failed {
            died += tx.execute(&tx.sql.fail_key, params![lane, key, error, now, seq])?;
        }
        for key in &self.keys {
            refresh(tx, lane, key, now)?;
        }
        Ok(died)
    }
}

/// Whether a message that dies or fails keeps later ones of its key waiting.
pub(super) fn holds(outcome: &WaitingOutcome) -> bool {
    match outcome.step.standing.state {
        State::Open => true,
        State::Succeeded => false,
        // What cannot be decoded may not have a key that anyone could release.
        State::Dead if outcome.step.next == Next::Never(Some(Reason::Undecodable)) => false,
        State::Dead | State::Expired => outcome.head_policy == HeadPolicy::Block,
    }
}

/// Gives the head of a key its next attempt and takes it from all others.
pub(super) fn refresh(tx: &mut SqliteTx<'_>, lane: i64, key: &str, now: i64) -> Result<()> {
    let head = tx.query_optional(&tx.sql.key_head, params![lane, key], |row| row.get::<i64>(0))?;
    let Some(head) = head else { return Ok(()) };
    tx.execute(&tx.sql.demote, params![lane, key, head])?;
    crash_point!("settle.key-headless");
    tx.execute(&tx.sql.promote, params![head, now]).map(drop)
}
