//! Waiting until nobody writes any more, so that raw samples measure the disk and not what a slice has left behind:
//! checkpoints, work that is synced within a second, the files of the stop-watches.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::Result;

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Files that have not changed in so many looks are at rest.
const LOOKS: u32 = 5;
/// Looks after which nobody waits any longer: ten seconds, more than any checkpoint takes.
const LOOKS_MAX: u32 = 500;

/// What a file counts that was there a moment ago.
const GONE: (SystemTime, u64) = (SystemTime::UNIX_EPOCH, 1);

/// Waits until no file in `folder` or below is written to, and until the disk has all of it.
pub(crate) fn until_quiet(folder: &Path) -> Result<()> {
    let (mut last, mut alike) = (newest(folder)?, 0);
    for _ in 0..LOOKS_MAX {
        if alike == LOOKS {
            return flush(folder);
        }
        std::thread::sleep(LOOK);
        let now = newest(folder)?;
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
    }
    Err("the databases are still being written to, long after the measurement".into())
}

/// When something in `folder` was written to last, and how much there is.
fn newest(folder: &Path) -> Result<(SystemTime, u64)> {
    let mut newest = (SystemTime::UNIX_EPOCH, 0);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (at, bytes) = match entry.metadata() {
            // Whoever removes one meanwhile is at work.
            Ok(found) if found.is_dir() => self::newest(&entry.path()).unwrap_or(GONE),
            Ok(found) => (found.modified()?, found.len()),
            Err(_) => GONE,
        };
        newest = (newest.0.max(at), newest.1 + bytes);
    }
    Ok(newest)
}

/// Has everything written that the file system still holds.
fn flush(folder: &Path) -> Result<()> {
    let folder = File::open(folder)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&folder)?;
    Ok(folder.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_below_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("db-1");
        std::fs::create_dir(&inner).unwrap();
        let before = newest(folder.path()).unwrap();
        std::fs::write(inner.join("shop.db"), "row").unwrap();
        let after = newest(folder.path()).unwrap();
        assert!(after.0 > before.0 && after.1 == before.1 + 3);
        until_quiet(folder.path()).unwrap();
    }
}
