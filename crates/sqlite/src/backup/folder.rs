//! A folder with the backups of a database, named by the time they were made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use twobox_core::ports::{BackupStore, KeptBackup};
use twobox_core::{Error, Result, Timestamp};

use super::BackupOptions;
use super::files::{failed, remove_left};
use crate::Sqlite;

const EXTENSION: &str = ".backup";

/// A database with a folder for its backups: `shop.db` becomes `shop.db.20261116T083000Z.backup`.
///
/// Only files of exactly such names are taken for backups, and removed when they are old.
#[derive(Clone, Debug)]
pub struct BackupFolder {
    db: Sqlite,
    folder: PathBuf,
    options: BackupOptions,
}

impl BackupFolder {
    /// The folder for backups of this database. It must exist; better on another disk than the database.
    ///
    /// # Errors
    /// [`Invalid`](twobox_core::ErrorKind::Invalid) if there is no such folder.
    pub fn new(db: &Sqlite, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        if !folder.is_dir() {
            return Err(Error::invalid(format!("{} is no folder: create it", folder.display())));
        }
        Ok(Self { db: db.clone(), folder: folder.into(), options: BackupOptions::default() })
    }

    /// How backups are made.
    #[must_use]
    pub fn options(mut self, options: BackupOptions) -> Self {
        self.options = options;
        self
    }

    fn database(&self) -> String {
        self.db.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn name(&self, made: Timestamp) -> String {
        format!("{}.{}{EXTENSION}", self.database(), compact(made))
    }

    /// When a file of ours was made, by its name.
    fn made(&self, name: &OsStr) -> Option<Timestamp> {
        let name = name.to_str()?;
        let time = name.strip_prefix(&self.database())?.strip_prefix('.')?.strip_suffix(EXTENSION)?;
        // Whatever is not written exactly as we write it is not ours.
        expand(time).filter(|made| self.name(*made) == name)
    }
}

impl BackupStore for BackupFolder {
    async fn make_backup(&self, now: Timestamp) -> Result<KeptBackup> {
        let path = self.folder.join(self.name(now));
        self.db.backup(&path, &self.options).await?;
        // Each has another name, so none looks for what an earlier one has left. The file system says what time it is.
        if let Ok(written) = path.metadata().and_then(|file| file.modified()) {
            remove_left(&self.folder, written, |of| self.made(of).is_some());
        }
        Ok(KeptBackup { made: now, path })
    }

    async fn kept_backups(&self) -> Result<Vec<KeptBackup>> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| failed("list", &self.folder, error))?;
        let ours = entries.flatten().filter_map(|entry| {
            let made = self.made(&entry.file_name())?;
            entry.file_type().is_ok_and(|of| of.is_file()).then(|| KeptBackup { made, path: entry.path() })
        });
        let mut kept: Vec<KeptBackup> = ours.collect();
        kept.sort();
        Ok(kept)
    }

    async fn remove_backup(&self, backup: &KeptBackup) -> Result<()> {
        let ours = backup.path.file_name().and_then(|name| self.made(name)) == Some(backup.made);
        if !ours || backup.path.parent() != Some(&self.folder) {
            return Err(Error::invalid(format!("{} is no backup of ours", backup.path.display())));
        }
        std::fs::remove_file(&backup.path).map_err(|error| failed("remove", &backup.path, error))
    }
}

/// A time as it stands in a name: `20261116T083000Z`.
fn compact(at: Timestamp) -> String {
    let text = at.to_rfc3339();
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

fn expand(text: &str) -> Option<Timestamp> {
    if text.len() != "20261116T083000Z".len() || !text.is_ascii() {
        return None;
    }
    let (date, time) = text.split_at(8);
    let (year, month, day) = (&date[..4], &date[4..6], &date[6..]);
    let (hour, minute, second) = (&time[..3], &time[3..5], &time[5..]);
    Timestamp::from_rfc3339(&format!("{year}-{month}-{day}{hour}:{minute}:{second}"))
}
