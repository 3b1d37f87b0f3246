//! Backups on a schedule, each kept for a while (RF-18).

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use twobox_core::meters::{BackupMeters, BackupOutcome, Meters};
use twobox_core::ports::{BackupStore, KeptBackup};
use twobox_core::{Result, Timestamp, one_line};

use crate::sync::{Mutex, MutexGuard};
use crate::{Shutdown, Timer};

/// Least time between two turns, whatever the plan says: backups are named by the second, and a plan of zeros must not keep
/// the disk busy.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// How often backups are made, and how long they are kept. No wait is shorter than a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlan {
    /// Time between two backups. Default 1 h (RF-18).
    pub every: Duration,
    /// How long a backup is kept. Default 7 days (RF-18). The newest one is kept however old it is.
    pub keep: Duration,
    /// Most backups that are kept, whatever their age. Default 200: a week of hourly ones and some by hand.
    pub count_max: usize,
    /// Time until the next try after one that failed. Default 5 min.
    pub retry_after: Duration,
}

impl Default for BackupPlan {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(3600),
            keep: Duration::from_secs(7 * 24 * 3600),
            count_max: 200,
            retry_after: Duration::from_secs(300),
        }
    }
}

/// How it went so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupStatus {
    /// The newest backup there is, also from before this process began.
    pub last: Option<KeptBackup>,
    /// When a backup failed last, and why.
    pub last_error: Option<(Timestamp, String)>,
    /// Backups made by this process.
    pub made: u64,
    /// Backups that failed in this process.
    pub failed: u64,
    /// Backups that are kept.
    pub kept: usize,
}

/// Makes backups of a store until it is asked to stop. Cheap to clone; any clone says how it goes.
#[must_use = "nothing is backed up until it is run"]
pub struct Backups<S> {
    store: S,
    timer: Arc<dyn Timer>,
    plan: BackupPlan,
    status: Arc<Mutex<BackupStatus>>,
    meters: Arc<Meters>,
}

impl<S: BackupStore> Backups<S> {
    /// Backups by the default plan.
    pub fn new(store: S, timer: Arc<dyn Timer>) -> Self {
        Self { store, timer, plan: BackupPlan::default(), status: Arc::default(), meters: Arc::default() }
    }

    /// Another plan.
    pub fn plan(mut self, plan: BackupPlan) -> Self {
        self.plan = plan;
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    pub fn meters(mut self, meters: Arc<Meters>) -> Self {
        self.meters = meters;
        self
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> BackupStatus {
        self.lock().clone()
    }

    /// Makes backups until it is asked to stop, and gives up the one it is making then. One that fails is logged, shown in
    /// the status, and tried again.
    pub async fn run(self, mut shutdown: Shutdown) {
        self.figures().scheduled.set(1);
        while !shutdown.is_requested() {
            let turn = tokio::select! {
                biased;
                () = shutdown.requested() => break,
                turn = self.turn() => turn,
            };
            let wait = match turn {
                Ok(wait) => {
                    self.figures().failing.set(0);
                    wait
                }
                Err(error) => {
                    tracing::error!(error = one_line(&error), "cannot back up");
                    self.figures().tries.one(BackupOutcome::Failed);
                    self.figures().failing.set(1);
                    let mut status = self.lock();
                    status.failed += 1;
                    status.last_error = Some((self.timer.now(), error.chain()));
                    self.plan.retry_after
                }
            };
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = self.timer.sleep(wait.max(WAIT_MIN)) => {}
            }
        }
    }

    /// Does what is due. Returns how long nothing is.
    async fn turn(&self) -> Result<Duration> {
        let mut kept = self.store.kept_backups().await?;
        let now = self.timer.now();
        let wait = due_in(kept.last(), now, self.plan.every);
        if !wait.is_zero() {
            self.show(&kept);
            return Ok(wait);
        }
        let backup = self.store.make_backup(now).await?;
        tracing::info!(path = backup.path.display().to_string(), "backed up");
        self.lock().made += 1;
        self.figures().tries.one(BackupOutcome::Made);
        kept.push(backup);
        self.show(&kept);
        // Only once there is a newer one.
        for old in expired(&kept, now, &self.plan) {
            self.store.remove_backup(&old).await?;
            tracing::info!(path = old.path.display().to_string(), "old backup removed");
            kept.retain(|backup| *backup != old);
        }
        self.show(&kept);
        Ok(self.plan.every)
    }

    fn show(&self, kept: &[KeptBackup]) {
        let mut status = self.lock();
        (status.last, status.kept) = (kept.last().cloned(), kept.len());
        self.figures().newest.set(kept.last().map_or(0, |newest| newest.made.as_micros()));
    }

    fn figures(&self) -> &BackupMeters {
        &self.meters.backups
    }

    fn lock(&self) -> MutexGuard<'_, BackupStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long until the next backup. One that is dated ahead was made by a clock that has jumped since: it is no reason
/// to wait.
fn due_in(newest: Option<&KeptBackup>, now: Timestamp, every: Duration) -> Duration {
    match newest {
        Some(newest) if newest.made <= now => every.saturating_sub(now.since(newest.made)),
        _ => Duration::ZERO,
    }
}

/// Those that need not be kept any longer, oldest first; never the newest.
fn expired(kept: &[KeptBackup], now: Timestamp, plan: &BackupPlan) -> Vec<KeptBackup> {
    let Some((_, older)) = kept.split_last() else { return Vec::new() };
    let too_many = kept.len().saturating_sub(plan.count_max.max(1));
    let bound = now.minus(plan.keep);
    let gone = older.iter().enumerate().filter(|(at, backup)| *at < too_many || backup.made < bound);
    gone.map(|(_, backup)| backup.clone()).collect()
}

impl<S: Clone> Clone for Backups<S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            timer: Arc::clone(&self.timer),
            plan: self.plan.clone(),
            status: Arc::clone(&self.status),
            meters: Arc::clone(&self.meters),
        }
    }
}

impl<S> fmt::Debug for Backups<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backups").field("plan", &self.plan).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::SystemTimer;

    /// Makes backups that take for ever.
    #[derive(Clone, Default)]
    struct Slow(Arc<tokio::sync::Notify>);

    impl BackupStore for Slow {
        async fn make_backup(&self, _: Timestamp) -> Result<KeptBackup> {
            self.0.notify_one();
            std::future::pending().await
        }

        async fn kept_backups(&self) -> Result<Vec<KeptBackup>> {
            Ok(Vec::new())
        }

        async fn remove_backup(&self, _: &KeptBackup) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn s20_a_backup_that_is_being_made_is_given_up_when_it_is_time_to_stop() {
        let store = Slow::default();
        let backups = Backups::new(store.clone(), Arc::new(SystemTimer::default()));
        let (handle, shutdown) = Shutdown::new();
        let running = tokio::spawn(backups.run(shutdown));
        store.0.notified().await;
        handle.request();
        tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    }
}
