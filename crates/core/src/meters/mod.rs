//! What a process counts and measures while it runs: figures for operators (RF-21).
//!
//! One [`Meters`] is shared by everything that runs in a node. Parts are given it when they are built; one that is
//! given none has its own. Counting is a few relaxed atomic operations per batch: the hot path pays for no lock, no
//! allocation and no clock. What must survive a restart is counted in the database instead, by the store.

mod family;
mod instrument;

use std::sync::Arc;

pub use self::family::{Family, LABEL_SETS_MAX, Labels, OTHER};
pub use self::instrument::{Case, Counter, Counters, Gauge, Histogram};

use self::instrument::cases;
use crate::ports::{Answer, DeliveryError, Handled};
use crate::{Consumer, Destination, ErrorKind, Source};

/// The target of log events that come once per message when all goes well (`enqueued`, `sent`, `processed`), so that
/// they can be turned off by themselves.
pub const MESSAGES: &str = "twobox::messages";

/// All figures of a process.
#[derive(Debug, Default)]
pub struct Meters {
    lanes: Family<2, LaneMeters>,
    inboxes: Family<1, InboxMeters>,
    /// The database's writer.
    pub store: StoreMeters,
    /// What listens for messages by HTTP.
    pub http: HttpMeters,
    /// Cleaning up.
    pub sweeper: SweeperMeters,
    /// Backups on a schedule.
    pub backups: BackupMeters,
}

impl Meters {
    /// The figures of a lane.
    #[must_use]
    pub fn lane(&self, source: &Source, destination: &Destination) -> Arc<LaneMeters> {
        self.lanes.of([source.as_str(), destination.as_str()])
    }

    /// The figures of a consumer.
    #[must_use]
    pub fn inbox(&self, consumer: &Consumer) -> Arc<InboxMeters> {
        self.inboxes.of([consumer.as_str()])
    }

    /// Every lane by source and destination.
    #[must_use]
    pub fn lanes(&self) -> Vec<(Labels<2>, Arc<LaneMeters>)> {
        self.lanes.all()
    }

    /// Every consumer by name.
    #[must_use]
    pub fn inboxes(&self) -> Vec<(Labels<1>, Arc<InboxMeters>)> {
        self.inboxes.all()
    }
}

/// What a relay counts for each lane.
#[derive(Debug)]
pub struct LaneMeters {
    /// How long requests took that were answered; each counts once for every message it carried.
    pub send: Histogram,
    /// Failed attempts before a message was sent, died or expired.
    pub retries: Histogram,
    /// Requests by how they ended.
    pub requests: Counters<RequestOutcome>,
    /// Probes by how they ended.
    pub probes: Counters<RequestOutcome>,
    /// Since when the oldest message of the log that is not settled could have been sent, in microseconds; 0: there is
    /// none.
    pub oldest: Gauge,
    /// Whether this process holds the lane.
    pub leased: Gauge,
    /// 0: closed, 1: open, 2: probing.
    pub breaker: Gauge,
}

impl Default for LaneMeters {
    fn default() -> Self {
        Self {
            send: Histogram::durations(),
            retries: Histogram::numbers(),
            requests: Counters::default(),
            probes: Counters::default(),
            oldest: Gauge::default(),
            leased: Gauge::default(),
            breaker: Gauge::default(),
        }
    }
}

/// What a receiver and a worker count for each consumer.
#[derive(Debug)]
pub struct InboxMeters {
    /// How long batches took from the receiver's door to their answers; each counts once for every message in it.
    pub process: Histogram,
    /// Messages by what they were answered.
    pub answers: Counters<AnswerOutcome>,
    /// Messages about which nothing could be answered, because the store was in trouble.
    pub unanswered: Counter,
    /// Messages that workers have claimed.
    pub claimed: Counter,
    /// How long workers' handlers took, each counted once for every message handled together.
    pub work: Histogram,
    /// Queued messages by what became of them.
    pub handled: Counters<HandledOutcome>,
    /// Leases that were lost while their message was being handled.
    pub leases_lost: Counter,
    /// Messages that workers of this process have in hand.
    pub in_hand: Gauge,
}

impl Default for InboxMeters {
    fn default() -> Self {
        Self {
            process: Histogram::durations(),
            answers: Counters::default(),
            unanswered: Counter::default(),
            claimed: Counter::default(),
            work: Histogram::durations(),
            handled: Counters::default(),
            leases_lost: Counter::default(),
            in_hand: Gauge::default(),
        }
    }
}

/// What the writer of a database counts.
#[derive(Debug)]
pub struct StoreMeters {
    /// How long commits took that synced the disk.
    pub synced: Histogram,
    /// How long commits took that did not.
    pub unsynced: Histogram,
    /// Transactions that shared a commit.
    pub group: Histogram,
    /// Groups that failed and whose members ran again.
    pub groups_again: Counter,
    /// Times that callers were held until delivery had caught up.
    pub gave_way: Counter,
    /// Pages in the write-ahead log when it was last looked at.
    pub wal_pages: Gauge,
    /// Checkpoints that failed.
    pub checkpoints_failed: Counter,
    /// Troubles of the database itself, by kind.
    pub trouble: Counters<Trouble>,
    /// Commits whose outcome was unknown, so that the file was closed.
    pub doubts: Counter,
    /// Times the file was reopened after that.
    pub reopened: Counter,
    /// Whether nothing is acknowledged until the file is opened again.
    pub stopped: Gauge,
}

impl Default for StoreMeters {
    fn default() -> Self {
        Self {
            synced: Histogram::durations(),
            unsynced: Histogram::durations(),
            group: Histogram::numbers(),
            groups_again: Counter::default(),
            gave_way: Counter::default(),
            wal_pages: Gauge::default(),
            checkpoints_failed: Counter::default(),
            trouble: Counters::default(),
            doubts: Counter::default(),
            reopened: Counter::default(),
            stopped: Gauge::default(),
        }
    }
}

/// What an HTTP server counts.
#[derive(Debug, Default)]
pub struct HttpMeters {
    /// Requests by how they were answered.
    pub requests: Counters<HttpOutcome>,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that were turned away because all others were at work.
    pub turned_away: Counter,
    /// Connections that were cut because they took too long.
    pub overdue: Counter,
    /// Connections that were cut because another one needed the place.
    pub displaced: Counter,
}

/// What a sweeper counts.
#[derive(Debug, Default)]
pub struct SweeperMeters {
    /// Rows that are gone, by what they were.
    pub swept: Counters<SweptRows>,
    /// Sweeps that failed.
    pub failed: Counter,
}

/// What a schedule of backups counts.
#[derive(Debug, Default)]
pub struct BackupMeters {
    /// Whether there is a schedule.
    pub scheduled: Gauge,
    /// When the newest backup was made, in microseconds; 0: there is none, or nobody has looked yet.
    pub newest: Gauge,
    /// Whether the last try failed.
    pub failing: Gauge,
    /// Tries by how they ended.
    pub tries: Counters<BackupOutcome>,
}

cases! {
    /// How a request ended, as far as its sender knows.
    RequestOutcome {
        /// The receiver answered.
        Answered = "answered",
        /// It may have reached the receiver.
        Ambiguous = "ambiguous",
        /// It did not reach the receiver, or nobody is to blame for how it ended.
        Unreachable = "unreachable",
    }

    /// What a receiver answered.
    AnswerOutcome {
        /// See [`Answer::Done`].
        Done = "done",
        /// See [`Answer::Duplicate`].
        Duplicate = "duplicate",
        /// See [`Answer::InProgress`].
        InProgress = "in_progress",
        /// See [`Answer::Held`].
        Held = "held",
        /// See [`Answer::NotReached`].
        NotReached = "not_reached",
        /// See [`Answer::TooEarly`].
        TooEarly = "too_early",
        /// See [`Answer::Retry`].
        Retry = "retry",
        /// See [`Answer::Rejected`].
        Rejected = "rejected",
        /// See [`Answer::Conflict`].
        Conflict = "conflict",
        /// See [`Answer::TooOld`].
        TooOld = "too_old",
        /// See [`Answer::UnknownEndpoint`].
        UnknownEndpoint = "unknown_endpoint",
    }

    /// What became of a queued message.
    HandledOutcome {
        /// See [`Handled::Done`].
        Done = "done",
        /// See [`Handled::Retried`].
        Retried = "retried",
        /// See [`Handled::Died`].
        Died = "died",
        /// See [`Handled::LeaseLost`].
        LeaseLost = "lease_lost",
    }

    /// How an HTTP server answered a request.
    HttpOutcome {
        /// A receiver has answered, or a probe was.
        Answered = "answered",
        /// It is not what the route takes.
        Malformed = "malformed",
        /// It is not signed by anybody known.
        Unauthentic = "unauthentic",
        /// It was sent too long ago, or will be.
        Stale = "stale",
        /// There is nothing at its path.
        NotFound = "not_found",
        /// The path takes another method.
        MethodNotAllowed = "method_not_allowed",
        /// Its body did not come in time.
        TimedOut = "timed_out",
        /// Its body is too large.
        TooLarge = "too_large",
        /// Its body is of a type or in an encoding that is not taken.
        Unsupported = "unsupported",
        /// It is meant for another service.
        Misdirected = "misdirected",
        /// There is too much to do.
        Busy = "busy",
        /// The receiver's store cannot answer.
        Unavailable = "unavailable",
    }

    /// What kind of trouble a database is in.
    Trouble {
        /// It is damaged.
        Corrupt = "corrupt",
        /// It cannot be written.
        ReadOnly = "read_only",
        /// The disk is full or fails.
        Disk = "disk",
    }

    /// How a try to make a backup ended.
    BackupOutcome {
        /// There is one more.
        Made = "made",
        /// There is not, or an old one could not be removed.
        Failed = "failed",
    }

    /// Which rows were swept.
    SweptRows {
        /// Messages that were sent long ago.
        Log = "log",
        /// Dedup rows past their window.
        Inbox = "inbox",
        /// Keys under which messages were enqueued once.
        OnceKeys = "once_keys",
        /// Rows of the audit trail.
        Audit = "audit",
    }
}

impl<T> From<&Result<T, DeliveryError>> for RequestOutcome {
    fn from(delivered: &Result<T, DeliveryError>) -> Self {
        match delivered {
            Ok(_) => Self::Answered,
            Err(error) if error.is_ambiguous() => Self::Ambiguous,
            Err(_) => Self::Unreachable,
        }
    }
}

impl From<&Answer> for AnswerOutcome {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Done(_) => Self::Done,
            Answer::Duplicate(_) => Self::Duplicate,
            Answer::InProgress { .. } => Self::InProgress,
            Answer::Held => Self::Held,
            Answer::NotReached => Self::NotReached,
            Answer::TooEarly { .. } => Self::TooEarly,
            Answer::Retry { .. } => Self::Retry,
            Answer::Rejected { .. } => Self::Rejected,
            Answer::Conflict => Self::Conflict,
            Answer::TooOld => Self::TooOld,
            Answer::UnknownEndpoint => Self::UnknownEndpoint,
        }
    }
}

impl From<&Handled> for HandledOutcome {
    fn from(handled: &Handled) -> Self {
        match handled {
            Handled::Done(_) => Self::Done,
            Handled::Retried { .. } => Self::Retried,
            Handled::Died { .. } => Self::Died,
            Handled::LeaseLost => Self::LeaseLost,
        }
    }
}

impl From<ErrorKind> for Trouble {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::ReadOnly => Self::ReadOnly,
            _ => Self::Disk,
        }
    }
}
