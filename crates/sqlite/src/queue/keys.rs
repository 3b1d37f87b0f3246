//! Ordering keys: only the head of a key can be claimed (S12).

use rusqlite::params;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{HeadPolicy, Queue};
use twobox_core::{Result, Timestamp, crash_point, mutant};

use super::settle::{Death, bury};
use crate::SqliteTx;

/// A message that is through, one way or the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) peer: i64,
    pub(crate) key: Option<&'a str>,
}

impl Ended<'_> {
    /// Lets the next message of the key take its turn.
    pub(crate) fn promote(self, tx: &mut SqliteTx<'_>, now: Timestamp) -> Result<()> {
        let Some(key) = self.key else { return Ok(()) };
        let head =
            tx.query_optional(&tx.sql.queue_key_head, params![self.peer, key], |row| row.get::<i64>(0))?;
        let Some(head) = head else { return Ok(()) };
        crash_point!("queue.key-headless");
        if tx.execute(&tx.sql.queue_promote, [head, now.as_micros()])? > 0 {
            tx.note_work();
        }
        Ok(())
    }

    /// A message of the key has died: those behind it die with it, or take their turn, or wait.
    pub(super) fn died(
        self,
        tx: &mut SqliteTx<'_>,
        queue: &Queue,
        error: &str,
        now: Timestamp,
    ) -> Result<()> {
        if let (HeadPolicy::FailKey, Some(key)) = (queue.head_policy, self.key) {
            let error = format!("an earlier message of its ordering key died: {error}");
            let rest = tx.query(&tx.sql.queue_key_open, params![self.peer, key], |row| {
                Ok((row.get::<i64>(0)?, row.get::<u32>(1)?))
            })?;
            for (item, attempts) in rest {
                let reason = Reason::KeyFailed;
                let death = Death { reason, error: &error, attempts, holds: false, queued: true };
                bury(tx, (self.peer, item), &death, now)?;
            }
        }
        self.promote(tx, now)
    }
}

/// The place behind everything of this key that is open or blocks it. `None`: there is nothing.
pub(super) fn behind(tx: &mut SqliteTx<'_>, peer: i64, key: &str) -> Result<Option<i64>> {
    let last =
        tx.query_optional(&tx.sql.queue_key_last, params![peer, key], |row| row.get::<Option<i64>>(0))?;
    Ok(last.flatten().filter(|_| !mutant!(QueueKeyIgnored)).map(|last| last.saturating_add(1)))
}
