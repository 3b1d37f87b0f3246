//! What can be wrong with a database, and what to do about it.

use std::fmt;

use crate::sql::Sql;

/// Something that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Check {
    /// The pages of the file hang together.
    Pages,
    /// There are boxes, of a version that is known.
    Schema,
    /// Both boxes say which ones they are.
    Instances,
    /// No cursor is beyond the end of the log.
    Cursor,
    /// The end of the log is where its last row is.
    LogEnd,
    /// What waits belongs to a lane.
    WaitingLane,
    /// The cursor has passed what waits.
    WaitingAhead,
    /// What waits is what stands in the log at its place.
    WaitingLog,
    /// What waits for nothing has a next attempt.
    WaitingStuck,
    /// The head of an ordering key, and nobody else, has a next attempt.
    WaitingHeads,
    /// What waits has a place before what comes next.
    WaitingJoined,
    /// Receipts are for what was sent.
    Receipts,
    /// The counters of the lanes are plausible.
    LaneCounters,
    /// Inbox rows belong to a consumer and a source.
    InboxPeer,
    /// What is done or dead says when and with which response or error.
    InboxDone,
    /// The watermark is behind the newest message.
    Watermark,
    /// The counters of the peers are plausible.
    PeerCounters,
    /// Queued work has its row in the inbox.
    WorkRow,
    /// What is done is not in the queue any more.
    WorkDone,
    /// What was stored for later is in the queue.
    WorkLost,
    /// The head of an ordering key, and nobody else, can be claimed.
    WorkHeads,
    /// What waits for nothing can be claimed.
    WorkStuck,
    /// Queued work is found by its consumer.
    WorkConsumer,
    /// Queued work that died is listed.
    WorkListed,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// Table prefix of the boxes it was found in. Empty also if it concerns the whole file.
    pub prefix: String,
    /// What is wrong, in words.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// How often it was found, counted up to a bound.
    pub count: u64,
    /// Where, for the first few; names and places, no content.
    pub examples: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.what, self.count)?;
        self.examples.iter().try_for_each(|example| write!(f, "; {example}"))?;
        write!(f, "): {}", self.remedy)
    }
}

/// An invariant of the tables, with the statement that finds where it does not hold.
pub(super) struct Rule {
    pub(super) check: Check,
    pub(super) sql: fn(&Sql) -> &str,
    pub(super) what: &'static str,
    pub(super) remedy: &'static str,
}

/// Nothing that is here brings it back.
pub(super) const RESTORE: &str =
    "somebody has changed tables by hand, or the file is damaged: stop the service and restore a backup";
/// Only what is shown is wrong.
const SHOWN: &str = "only figures are wrong, no message is affected: somebody has changed tables by hand";

macro_rules! rules {
    ($($check:ident, $sql:ident, $what:literal, $remedy:expr;)*) => {
        /// Every invariant.
        pub(super) const RULES: &[Rule] =
            &[$(Rule { check: Check::$check, sql: |sql| &sql.$sql, what: $what, remedy: $remedy },)*];
    };
}

rules! {
    Cursor, verify_cursor, "a cursor is beyond the end of the log, so the next messages would be passed over", RESTORE;
    LogEnd, verify_log_end, "the log's counter is behind its rows, so places would be given twice", RESTORE;
    WaitingLane, verify_waiting_lane, "a message waits in a lane that does not exist", RESTORE;
    WaitingAhead, verify_waiting_ahead, "a message waits that the cursor has not passed", RESTORE;
    WaitingLog, verify_waiting_log, "another message waits than the log has at that place", RESTORE;
    WaitingStuck, verify_waiting_stuck, "a message waits for nothing and has no next attempt", RESTORE;
    WaitingHeads, verify_waiting_heads, "an ordering key of the outbox has no head with a next attempt, or several", RESTORE;
    WaitingJoined, verify_waiting_joined, "a waiting message has a place that is still to be given", RESTORE;
    Receipts, verify_receipts, "a receipt is for messages that were not sent", RESTORE;
    LaneCounters, verify_lane_counters, "a lane's counters are implausible", SHOWN;
    InboxPeer, verify_inbox_peer, "an inbox row belongs to nobody, so its duplicates would be handled again", RESTORE;
    InboxDone, verify_inbox_done, "a message is done without a response, or dead without a reason", RESTORE;
    Watermark, verify_watermark, "a watermark is ahead of the newest message, so new messages would be refused", RESTORE;
    PeerCounters, verify_peer_counters, "a peer's counters are implausible", SHOWN;
    WorkRow, verify_work_row, "queued work has no row in the inbox, so its duplicates would be done again", RESTORE;
    WorkDone, verify_work_done, "work is queued although its message is done, so it would be done again", RESTORE;
    WorkLost, verify_work_lost, "a message was stored for later and is not in the queue", RESTORE;
    WorkHeads, verify_work_heads, "an ordering key of the queue has no head that can be claimed, or several", RESTORE;
    WorkStuck, verify_work_stuck, "work waits for nothing and cannot be claimed", RESTORE;
    WorkConsumer, verify_work_consumer, "queued work is under a consumer that nobody looks for it under", RESTORE;
    WorkListed, verify_work_listed, "a dead letter of the queue is not listed, so nobody can run it again", RESTORE;
}
