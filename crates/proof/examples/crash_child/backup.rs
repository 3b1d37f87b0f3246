//! Backups of both files, and what is restored from them.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use twobox_core::BoxError;
use twobox_sqlite::{BackupOptions, Existing, RestoreOptions, Sqlite, VerifyOptions, restore, verify};

/// Backs a database up, unless an earlier life has, and restores it twice to the same place.
pub(crate) async fn keep(db: &Sqlite) -> Result<(), BoxError> {
    let (backup, restored) = (beside(db.path(), ".backup"), beside(db.path(), ".restored"));
    if !backup.exists() {
        let step_pages = NonZeroU32::new(4).ok_or("not zero")?;
        db.backup(&backup, &BackupOptions { step_pages, ..BackupOptions::default() }).await?;
    }
    // The second time, what was restored first is set aside.
    for _ in 0..2 {
        let options = RestoreOptions { existing: Existing::SetAside, ..RestoreOptions::default() };
        restore(&backup, &restored, &options)?;
    }
    let verified = verify(&restored, VerifyOptions::Full)?;
    if verified.is_sound() { Ok(()) } else { Err(format!("{:?}", verified.findings).into()) }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
