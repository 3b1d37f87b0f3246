//! Backups that are made by themselves and kept for a while (RF-18).

use std::future::Future;
use std::path::PathBuf;

use crate::{Result, Timestamp};

/// A backup in its folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptBackup {
    /// When it was made, as its name says.
    pub made: Timestamp,
    /// The file.
    pub path: PathBuf,
}

/// A store with a folder for its backups.
pub trait BackupStore: Clone + Send + Sync + 'static {
    /// Makes a backup whose name says that it was made at `now`. A crash leaves it whole or not at all.
    fn make_backup(&self, now: Timestamp) -> impl Future<Output = Result<KeptBackup>> + Send;

    /// The backups in the folder that were made by [`make_backup`](Self::make_backup), and nothing else, oldest first.
    fn kept_backups(&self) -> impl Future<Output = Result<Vec<KeptBackup>>> + Send;

    /// Removes one of them.
    fn remove_backup(&self, backup: &KeptBackup) -> impl Future<Output = Result<()>> + Send;
}
