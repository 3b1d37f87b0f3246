//! Whether the process that holds a lane still lives, so that a restart need not wait for a lease to end.
//!
//! Each process that relays from a file holds the lock of a small file beside it, whose name is part of its name
//! as an owner. The kernel gives the lock up when the process dies, however it dies; a process that is merely
//! stopped keeps it. So whoever can take the lock knows that the owner is gone, without comparing clocks or
//! process ids, which mean nothing across containers.

use std::ffi::OsString;
use std::fs::{DirEntry, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use twobox_core::crash_point;

/// Stands between an owner's name and the name of its process.
const MARK: char = '@';
const INFIX: &str = "-alive-";
/// Files of dead processes that are removed at a start; there is one per crash.
const REMOVED_MAX: usize = 100;
/// They are kept this long: until every lease of the process has ended, somebody may want to know that it died.
const KEPT: Duration = Duration::from_secs(3600);

/// A process that shows that it lives.
#[derive(Debug)]
pub(crate) struct Presence {
    name: String,
    path: PathBuf,
    _lock: File,
}

impl Presence {
    /// Shows that this process lives, until it is dropped. `None` if files cannot be made or locked beside the
    /// database; leases then end by time alone.
    pub(crate) fn show(database: &Path, name: String, now: SystemTime) -> Option<Self> {
        remove_dead(database, now);
        let path = path_of(database, &name);
        let lock = OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
        crash_point!("presence.made");
        if lock.try_lock().is_err() {
            let _: Result<(), _> = std::fs::remove_file(&path);
            return None;
        }
        if !path.exists() {
            return None; // somebody took it for one that was left behind
        }
        crash_point!("presence.shown");
        Some(Self { name, path, _lock: lock })
    }

    /// Whether the sign is still there; somebody may have tidied up.
    pub(crate) fn is_shown(&self) -> bool {
        self.path.exists()
    }

    /// The owner's name, from which others can tell whether this process lives.
    pub(crate) fn owner(&self, owner: &str) -> String {
        format!("{owner}{MARK}{}", self.name)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _: Result<(), _> = std::fs::remove_file(&self.path);
    }
}

/// Whether the process of this owner is known to be dead. What cannot be known counts as alive.
pub(crate) fn is_dead(database: &Path, owner: &str) -> bool {
    let Some((_, name)) = owner.rsplit_once(MARK) else { return false };
    // The name comes from the database, where anybody may have written it: it must not lead elsewhere.
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        && lock_is_free(&path_of(database, name))
}

/// Whether nobody holds the lock. A file that is gone was removed by its owner when it ended, or never came along
/// when the database was copied elsewhere: its owner cannot be at work here either.
fn lock_is_free(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn path_of(database: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(INFIX);
    path.push(name);
    path.into()
}

/// Whether a process that relays from the database lives. Others leave no sign.
pub(crate) fn is_anybody_here(database: &Path) -> bool {
    signs(database).any(|entry| !lock_is_free(&entry.path()))
}

/// The signs of life beside a database, of the living and the dead.
fn signs(database: &Path) -> impl Iterator<Item = DirEntry> {
    let prefix = format!("{}{INFIX}", database.file_name().unwrap_or_default().to_string_lossy());
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

/// Removes what processes that died long ago have left.
fn remove_dead(database: &Path, now: SystemTime) {
    for entry in signs(database).take(REMOVED_MAX) {
        let made = entry.metadata().and_then(|file| file.modified());
        let is_old = made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > KEPT));
        if is_old && lock_is_free(&entry.path()) {
            let _: Result<(), _> = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_only_an_owner_whose_lock_is_free_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("shop.db");
        let alive = Presence::show(&database, "a1".into(), SystemTime::UNIX_EPOCH).unwrap();
        let owner = alive.owner("shop-1");
        assert_eq!(owner, "shop-1@a1");
        assert!(!is_dead(&database, &owner));
        drop(alive);
        assert!(is_dead(&database, &owner), "it has ended");
        std::fs::write(folder.path().join("shop.db-alive-b2"), "").unwrap();
        assert!(is_dead(&database, "shop-1@b2"));
        for unknown in ["shop-1", "shop-1@", "shop-1@../b2", "@"] {
            assert!(!is_dead(&database, unknown), "{unknown}");
        }
    }

    #[test]
    fn what_dead_processes_leave_is_removed_when_nobody_can_want_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("shop.db");
        let show = |name: &str, now| Presence::show(&database, name.into(), now).unwrap();
        let alive = show("a1", SystemTime::UNIX_EPOCH);
        let left = folder.path().join("shop.db-alive-b2");
        std::fs::write(&left, "").unwrap();
        let made = left.metadata().unwrap().modified().unwrap();
        let second = show("c3", made + KEPT);
        assert!(left.exists(), "somebody may still want to know");
        let third = show("d4", made + KEPT + Duration::from_secs(1));
        assert!(!left.exists());
        assert!([alive, second, third].iter().all(|presence| presence.path.exists()));
    }
}
