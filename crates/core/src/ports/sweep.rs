//! Cleaning up: small batches, terminal states only (S18).

use std::future::Future;
use std::time::Duration;

use crate::Result;

/// How long things are kept.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// Sent messages are kept this long. Default 7 days (RF-12).
    pub sent_retention: Duration,
    /// The inbox remembers this long, counted in the senders' time (S9). Default 7 days (RF-13).
    pub dedup_window: Duration,
    /// Keys of `enqueue_once` are kept this long. Default 7 days.
    pub once_retention: Duration,
    /// The audit trail is kept this long. Default 90 days.
    pub audit_retention: Duration,
    /// Most rows one call removes of each kind. Default 500: a few milliseconds of the writer.
    pub batch: usize,
}

impl Default for SweepPlan {
    fn default() -> Self {
        let week = Duration::from_secs(7 * 24 * 3600);
        Self {
            sent_retention: week,
            dedup_window: week,
            once_retention: week,
            audit_retention: super::ops::AUDIT_RETENTION,
            batch: 500,
        }
    }
}

/// What one call removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sent messages trimmed from the log.
    pub trimmed: u64,
    /// Inbox rows purged at or below the watermark.
    pub purged: u64,
    /// Keys of `enqueue_once` forgotten.
    pub once_keys: u64,
    /// Rows of the audit trail forgotten.
    pub audit_rows: u64,
    /// Whether another call would remove more.
    pub more: bool,
}

/// Cleaning a store.
pub trait SweepStore: Clone + Send + Sync + 'static {
    /// Removes one small batch of each kind. Deletes inbox rows and raises their source's watermark in the
    /// same transaction (S9). Never touches anything unfinished or dead.
    fn sweep(&self, plan: &SweepPlan) -> impl Future<Output = Result<Swept>> + Send;
}
