//! Files that are there as a whole or not at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use twobox_core::{Error, ErrorKind, Random, Result};

use crate::wake::beside;

/// What SQLite lays beside a database.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];
/// What the name of a file in the making ends with.
const PARTIAL: &str = ".partial";
/// Digits of chance in such a name.
const CHANCE_DIGITS: usize = 16;
/// A file in the making to which nobody has written for so long was left by an attempt that died: one that lives writes
/// every few moments, or syncs what it has written. One that was merely stopped for longer fails when it goes on: its
/// file is gone, and nobody else makes one of that name.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// A file in the making, under a name of its own. Dropped before it is finished, it is removed.
pub(super) struct Partial {
    /// Where it is being made.
    pub(super) at: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Partial {
    /// Begins a file that will be called `target`, empty. Removes what attempts that died long ago have left.
    pub(super) fn new(target: &Path, random: &dyn Random) -> Result<Self> {
        let chance = random.next_u64();
        let at = beside(target, &format!(".{chance:0CHANCE_DIGITS$x}{PARTIAL}"));
        let made = create(&at).map_err(|error| failed("create", &at, error))?;
        // The file system says when the others were written, so it also says what time it is.
        if let Ok(now) = made.metadata().and_then(|file| file.modified()) {
            let name = target.file_name().unwrap_or_default();
            remove_left(folder(target), now, |of| of == name);
        }
        Ok(Self { at, target: target.into(), finished: false })
    }

    /// Makes it durable under its name. What a crash leaves is the whole file, or none of that name.
    pub(super) fn finish(mut self, taken: Taken, synced: impl FnOnce(), named: impl FnOnce()) -> Result<()> {
        sync(&self.at).map_err(|error| failed("sync", &self.at, error))?;
        synced();
        taken.rename(&self.at, &self.target)?;
        self.finished = true;
        named();
        sync_folder(&self.target).map_err(|error| failed("sync the folder of", &self.target, error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            let _: io::Result<()> = remove(&self.at);
        }
    }
}

/// What is done about a file that has the name already.
#[derive(Clone, Copy)]
pub(super) enum Taken {
    /// It stays, and the new one is given up with this error.
    Refuse(fn(&Path) -> Error),
    /// It is replaced.
    Replace,
}

impl Taken {
    fn rename(self, from: &Path, to: &Path) -> Result<()> {
        let renamed = match self {
            Self::Refuse(_) => rename_new(from, to),
            Self::Replace => std::fs::rename(from, to),
        };
        renamed.map_err(|error| match self {
            Self::Refuse(exists) if error.kind() == io::ErrorKind::AlreadyExists => exists(to),
            _ => failed("rename a file to", to, error),
        })
    }
}

/// Pages after which a file is synced that is being written: 4 MiB.
const SYNC_PAGES: u32 = 1_024;

/// Makes a large file durable bit by bit. A sync of all of it at the end would hold up the syncs of everybody else who
/// uses the disk, and with them every commit.
pub(super) struct Syncing<'a> {
    path: &'a Path,
    /// Open for as long as this lives: closing it drops the locks that this process has on the file. Those of a backup
    /// keep nobody out, because nobody else knows the file.
    file: File,
    /// Written since the last sync.
    pages: u32,
}

impl<'a> Syncing<'a> {
    /// For a file that is there.
    pub(super) fn new(path: &'a Path) -> Result<Self> {
        let file = File::options().write(true).open(path);
        Ok(Self { path, file: file.map_err(|error| failed("open", path, error))?, pages: 0 })
    }

    /// Takes note of pages that were written. Returns whether they were synced, because there were enough.
    pub(super) fn wrote(&mut self, pages: u32) -> Result<bool> {
        self.pages = self.pages.saturating_add(pages);
        if self.pages < SYNC_PAGES {
            return Ok(false);
        }
        self.pages = 0;
        self.file.sync_data().map_err(|error| failed("sync", self.path, error))?;
        Ok(true)
    }
}

/// Makes an empty file, of a name that nothing has.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    // As SQLite makes its files: whatever the process lets others do by default, only its owner writes to it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    options.open(path)
}

/// Gives a file another name, unless something has that name: then it fails with [`io::ErrorKind::AlreadyExists`].
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    // Not every system and file system has either of the first two, and each fails in its own way there.
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    rename_exclusive(from, to)
        .or_else(|error| if exists(&error) { Err(error) } else { rename_linked(from, to) })
        .or_else(|error| if exists(&error) { Err(error) } else { rename_unlinked(from, to) })
}

/// In one step.
#[cfg(target_os = "linux")]
fn rename_exclusive(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(target_os = "linux"))]
fn rename_exclusive(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// By a second name.
fn rename_linked(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    // It is in its place, whatever becomes of its first name.
    let _: io::Result<()> = std::fs::remove_file(from);
    Ok(())
}

/// What gets the name between the look and the renaming is replaced: nothing that is known everywhere can do both at
/// once.
fn rename_unlinked(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(from, to)
}

/// Removes what attempts at files with names of ours have left that had died by `now`. What cannot be removed is in
/// nobody's way.
pub(super) fn remove_left(folder: &Path, now: SystemTime, is_ours: impl Fn(&OsStr) -> bool) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| target_of(&entry.file_name()).is_some_and(&is_ours)) {
        let written = entry.metadata().and_then(|file| file.modified());
        let is_left =
            written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age > LEFT_AFTER));
        if is_left {
            let _: io::Result<()> = remove(&entry.path());
        }
    }
}

/// What a file in the making will be called, by its name. Whatever is not written exactly as we write it is not ours.
fn target_of(name: &OsStr) -> Option<&OsStr> {
    let (target, chance) = name.to_str()?.strip_suffix(PARTIAL)?.rsplit_once('.')?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_ours = chance.len() == CHANCE_DIGITS && chance.bytes().all(is_digit);
    is_ours.then_some(target.as_ref())
}

/// Removes a database with everything beside it.
fn remove(path: &Path) -> io::Result<()> {
    COMPANIONS.iter().map(|suffix| beside(path, suffix)).chain([path.into()]).try_for_each(|file| {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}

/// Copies a file, and makes the copy durable.
pub(super) fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::copy(from, to)?;
    sync(to)
}

fn sync(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path)?.sync_all()
}

/// Makes the names in a file's folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    // Windows cannot open a folder as a file, and keeps names by itself.
    if cfg!(unix) { File::open(folder(path))?.sync_all() } else { Ok(()) }
}

/// The folder a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// An error of the file system: what was attempted, and on what.
pub(super) fn failed(attempted: &str, path: &Path, error: io::Error) -> Error {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (ErrorKind::Full, ": the disk is full"),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => (ErrorKind::ReadOnly, ""),
        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => (ErrorKind::Invalid, ""),
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("cannot {attempted} {}{hint}", path.display())).with_source(error)
}

#[cfg(test)]
mod tests {
    use twobox_core::system::SystemRandom;

    use super::*;

    /// What a living process is writing is young; what has another name is none of ours.
    #[test]
    fn rf_18_only_what_attempts_that_died_have_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "half").unwrap();
            path
        };
        let left = make("backup.db.00000000000000a1.partial");
        let beside_it = make("backup.db.00000000000000a1.partial-journal");
        let strangers = [
            "backup.db",
            "backup.db.a1.partial",
            "backup.db.00000000000000g1.partial",
            "backup.db.00000000000000a1.partial.mine",
            "other.db.00000000000000a1.partial",
        ];
        let strangers = strangers.map(make);
        let written = left.metadata().unwrap().modified().unwrap();
        let remove_left = |now| remove_left(folder.path(), now, |of| of == "backup.db");
        remove_left(written + LEFT_AFTER);
        assert!(left.exists(), "somebody may be writing it");
        remove_left(written + LEFT_AFTER * 2);
        assert!(!left.exists() && !beside_it.exists());
        assert!(strangers.iter().all(|path| path.exists()), "{strangers:?}");
    }

    #[test]
    fn rf_18_attempts_have_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (target, random) = (folder.path().join("backup.db"), SystemRandom::default());
        let [first, second] = [(); 2].map(|()| Partial::new(&target, &random).unwrap());
        for partial in [&first, &second] {
            assert!(partial.at.exists());
            assert_eq!(target_of(partial.at.file_name().unwrap()), Some("backup.db".as_ref()));
        }
        let other = first.at.clone();
        drop(second);
        assert!(other.exists(), "only its own is removed");
        drop(first);
        assert!(!other.exists());
    }

    #[test]
    fn rf_18_what_has_the_name_already_stays_however_it_is_renamed() {
        let mut ways = vec![rename_new as fn(&Path, &Path) -> io::Result<()>, rename_linked, rename_unlinked];
        if cfg!(target_os = "linux") {
            ways.push(rename_exclusive);
        }
        for rename in ways {
            let folder = tempfile::tempdir().unwrap();
            let [from, to] = ["new", "old"].map(|name| folder.path().join(name));
            std::fs::write(&from, "new").unwrap();
            std::fs::write(&to, "old").unwrap();
            assert_eq!(rename(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read_to_string(&to).unwrap(), "old");
            std::fs::remove_file(&to).unwrap();
            rename(&from, &to).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), "new");
            assert!(!from.exists());
        }
    }

    /// Linux copies anything to its null device, and refuses to sync it.
    #[cfg(target_os = "linux")]
    #[test]
    fn rf_18_a_copy_that_cannot_be_synced_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let [file, copy] = ["shop.db", "copy.db"].map(|name| folder.path().join(name));
        std::fs::write(&file, "a database").unwrap();
        let null = Path::new("/dev/null");
        std::fs::copy(&file, null).unwrap();
        copy_durably(&file, null).unwrap_err();
        copy_durably(&file, &copy).unwrap();
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "a database");
    }

    #[test]
    fn rf_18_what_is_copied_is_synced_bit_by_bit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut syncing = Syncing::new(file.path()).unwrap();
        let synced: Vec<bool> = (0..8).map(|_| syncing.wrote(256).unwrap()).collect();
        assert_eq!(synced, [false, false, false, true, false, false, false, true]);
        assert!(syncing.wrote(u32::MAX).unwrap());
    }
}
