//! Backup, verification and restore (RF-18).
//!
//! | what | how |
//! | --- | --- |
//! | [`Sqlite::backup`](crate::Sqlite::backup) | copies one snapshot of a database in use into a file of its own |
//! | [`verify`] | opens a backup, or a database in use, and looks whether all is as it must be |
//! | [`restore`] | puts a backup in the place of a database, as boxes that others can tell from those before |
//!
//! [`BackupFolder`] makes and removes the backups of a schedule.
//! `docs/BACKUP.md` says what restoring means for both sides.

mod copy;
mod files;
mod findings;
mod folder;
mod restore;
mod verify;

pub use self::copy::{BackupMade, BackupOptions, BackupProgress};
pub use self::findings::{Check, Finding};
pub use self::folder::BackupFolder;
pub use self::restore::{Existing, Restore, RestoreOptions, Restored, restore};
pub use self::verify::{Verified, VerifyOptions, verify};

use rusqlite::Connection;
use twobox_core::Result;

use crate::Prefix;
use crate::error::wrap;

/// Names of small facts in `twobox_meta`.
const BACKUP_AT: &str = "backup_at";
pub(crate) const OUTBOX_INSTANCE: &str = "outbox_instance";
pub(crate) const INBOX_INSTANCE: &str = "inbox_instance";

/// The prefixes of all boxes in a file: several modules may share one.
fn prefixes(connection: &Connection) -> Result<Vec<Prefix>> {
    let failed = || wrap("look for tables of ours");
    let sql =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE '%twobox\\_meta' ESCAPE '\\'";
    let mut statement = connection.prepare(sql).map_err(failed())?;
    let names = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed())?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>().map_err(failed())?;
    // A table that only ends like ours has a prefix that is none.
    Ok(names.iter().filter_map(|name| Prefix::new(name.strip_suffix("twobox_meta")?).ok()).collect())
}
