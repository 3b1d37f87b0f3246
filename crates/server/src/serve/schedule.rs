//! Backups of a running node.

use std::sync::Arc;

use tokio::task::JoinHandle;
use twobox::{BackupFolder, BackupPlan, Backups, Shutdown, ShutdownHandle, Sqlite, SystemTimer};

use crate::Result;
use crate::config::Config;

/// What makes backups again and again.
pub(super) struct Schedule {
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

impl Schedule {
    /// Makes backups from now on, if the configuration names a folder for them.
    pub(super) fn start(config: &Config, db: &Sqlite) -> Result<Option<Self>> {
        let Some(folder) = &config.backup.folder else { return Ok(None) };
        let plan =
            BackupPlan { every: config.backup.every, keep: config.backup.keep, ..BackupPlan::default() };
        let backups = Backups::new(BackupFolder::new(db, folder)?, Arc::new(SystemTimer::default()))
            .plan(plan)
            .meters(db.meters());
        let (stop, shutdown) = Shutdown::new();
        Ok(Some(Self { stop, task: tokio::spawn(async move { backups.run(shutdown).await }) }))
    }

    /// Gives up what is being copied; nothing of it is left.
    pub(super) async fn stop(self) {
        self.stop.request();
        // A panic was told by the runtime's hook, and everything else has to end all the same.
        let _: std::result::Result<(), _> = self.task.await;
    }
}
