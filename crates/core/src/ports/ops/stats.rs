//! Both boxes in numbers.

use std::fmt;
use std::time::Duration;

use crate::ports::LaneStatus;
use crate::{Consumer, Source, Timestamp};

/// A number that may have been counted up to a bound only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number, or how far was counted.
    pub value: u64,
    /// Whether there may be more than that.
    pub at_least: bool,
}

impl Count {
    /// Exactly this many.
    #[must_use]
    pub const fn exactly(value: u64) -> Self {
        Self { value, at_least: false }
    }
}

impl fmt::Display for Count {
    /// `12`, or `12+` if there may be more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.value, if self.at_least { "+" } else { "" })
    }
}

/// What waits in a lane outside of the log, maintained with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Failed and to be tried again at a known time.
    pub retrying: u64,
    /// Not due yet.
    pub scheduled: u64,
    /// Behind another message of their ordering key.
    pub held: u64,
    /// In the dead-letter list, failed or expired.
    pub dead: u64,
}

impl WaitingCounts {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.retrying += other.retrying;
        self.scheduled += other.scheduled;
        self.held += other.held;
        self.dead += other.dead;
    }

    /// Those that are still to be sent.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.retrying + self.scheduled + self.held
    }
}

/// Who stopped a lane, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// Who did it.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
}

/// A lane and what is before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneStats {
    /// The lane: owner, breaker, pause, counters.
    pub lane: LaneStatus,
    /// Messages of the log that are not settled yet, those on their way included. Counted in the newest
    /// rows of the log; exact unless the lane's part of a long backlog lies before them.
    pub pending: Count,
    /// How long the oldest message that could have been sent has been waiting for it. `None` if none is, or if it
    /// lies too far back in a long backlog to be found.
    pub oldest: Option<Duration>,
}

/// The outbox in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxStats {
    /// Every lane, by source and destination.
    pub lanes: Vec<LaneStats>,
    /// Messages ever enqueued, of every source.
    pub enqueued: u64,
    /// Messages of the log that are not settled yet, of every lane and of those destinations that have none yet.
    /// Maintained: messages enqueued less those that lanes are through with. Whoever takes rows out of the log by
    /// hand, or leaves out numbers, is counted here for good.
    pub pending: u64,
    /// The sums of the lanes.
    pub waiting: WaitingCounts,
    /// Messages acknowledged so far.
    pub sent: u64,
    /// Messages that died so far.
    pub failed: u64,
    /// Messages that expired so far.
    pub expired: u64,
    /// The longest of the lanes' waits.
    pub oldest: Option<Duration>,
}

impl OutboxStats {
    /// Adds a lane to the list and to the sums.
    pub fn push(&mut self, lane: LaneStats) {
        self.waiting.add(&lane.lane.waiting);
        self.sent += lane.lane.sent;
        self.failed += lane.lane.failed;
        self.expired += lane.lane.expired;
        self.oldest = self.oldest.into_iter().chain(lane.oldest).max();
        self.lanes.push(lane);
    }
}

/// What happened in an inbox, maintained with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Rows that are kept now: the dedup window, what is queued, dead letters.
    pub rows: u64,
    /// Messages that are queued now, scheduled and leased ones included.
    pub queued: u64,
    /// Messages in the dead-letter list now.
    pub dead: u64,
    /// Messages handled so far.
    pub done: u64,
    /// Duplicates answered so far.
    pub duplicates: u64,
    /// Messages that died or expired so far.
    pub died: u64,
    /// Messages refused so far because their id is known with another content (S8).
    pub conflicts: u64,
    /// Messages refused so far because they may have been handled and forgotten (S9).
    pub too_old: u64,
    /// Messages so far whose content differed from what was seen before, when that was no reason to refuse them.
    pub mismatches: u64,
    /// How often so far the source's outbox was another one than before: it was restored or replaced, or there is one
    /// more.
    pub outbox_changes: u64,
}

impl InboxCounts {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.queued += other.queued;
        self.dead += other.dead;
        self.done += other.done;
        self.duplicates += other.duplicates;
        self.died += other.died;
        self.conflicts += other.conflicts;
        self.too_old += other.too_old;
        self.mismatches += other.mismatches;
        self.outbox_changes += other.outbox_changes;
    }
}

/// What a consumer has received from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// Who received.
    pub consumer: Consumer,
    /// Who sent.
    pub source: Source,
    /// How much.
    pub counts: InboxCounts,
    /// What is dated at or before this and has no row is refused as too old. `None`: nothing was purged yet.
    pub watermark: Option<Timestamp>,
}

/// The inbox in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxStats {
    /// Every consumer and source.
    pub peers: Vec<PeerStats>,
    /// Their sums.
    pub total: InboxCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_a_count_says_whether_it_is_all() {
        assert_eq!(Count::exactly(7).to_string(), "7");
        assert_eq!(Count { value: 7, at_least: true }.to_string(), "7+");
    }
}
