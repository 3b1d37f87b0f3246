//! A consumer and a source: its counters change in the transaction of the rows they count.

use twobox_core::Result;

use crate::SqliteTx;

/// What is added to the counters of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The newest date of what was accepted: from it the watermark is derived (S9).
    pub(crate) newest: i64,
    pub(crate) done: i64,
    pub(crate) duplicates: i64,
    pub(crate) died: i64,
    pub(crate) conflicts: i64,
    pub(crate) too_old: i64,
    pub(crate) mismatches: i64,
    /// Rows in the inbox.
    pub(crate) size: i64,
    /// Messages that are to be handled later.
    pub(crate) queued: i64,
    /// Dead letters that are listed.
    pub(crate) dead: i64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            newest: i64::MIN,
            done: 0,
            duplicates: 0,
            died: 0,
            conflicts: 0,
            too_old: 0,
            mismatches: 0,
            size: 0,
            queued: 0,
            dead: 0,
        }
    }
}

impl Counts {
    /// What a queued message adds that is done. The date is that of its row (S9).
    pub(crate) fn done_later(available: i64) -> Self {
        Self { newest: available, done: 1, queued: -1, ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.newest = self.newest.max(other.newest);
        self.done += other.done;
        self.duplicates += other.duplicates;
        self.died += other.died;
        self.conflicts += other.conflicts;
        self.too_old += other.too_old;
        self.mismatches += other.mismatches;
        self.size += other.size;
        self.queued += other.queued;
        self.dead += other.dead;
    }

    /// Adds them to the peer's when the transaction commits.
    pub(crate) fn write(&self, tx: &mut SqliteTx<'_>, peer: i64) -> Result<()> {
        tx.count(peer, self)
    }

    /// What the statement that adds them is given.
    pub(crate) fn params(&self, peer: i64) -> [i64; 11] {
        let Self { newest, done, duplicates, died, conflicts, too_old, mismatches, size, queued, dead } =
            *self;
        [peer, newest, done, duplicates, died, conflicts, too_old, mismatches, size, queued, dead]
    }
}
