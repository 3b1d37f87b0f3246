//! Files that are there as a whole or not at all.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use twobox_core::{Error, ErrorKind, Result};

use crate::wake::beside;

/// What SQLite lays beside a database.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// A file in the making, under another name. Dropped before it is finished, it is removed.
pub(super) struct Partial {
    /// Where it is being made.
    pub(super) at: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Partial {
    /// Begins a file that will be called `target`. Removes what an attempt that died has left.
    pub(super) fn new(target: &Path) -> Result<Self> {
        let at = beside(target, ".partial");
        remove(&at).map_err(|error| failed("remove what an earlier attempt has left", &at, error))?;
        Ok(Self { at, target: target.into(), finished: false })
    }

    /// Makes it durable under its name. What a crash leaves is the whole file, or none of that name.
    pub(super) fn finish(mut self, synced: impl FnOnce(), named: impl FnOnce()) -> Result<()> {
        sync(&self.at).map_err(|error| failed("sync", &self.at, error))?;
        synced();
        std::fs::rename(&self.at, &self.target)
            .map_err(|error| failed("rename a file to", &self.target, error))?;
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

/// Removes a database with everything beside it.
fn remove(path: &Path) -> io::Result<()> {
    COMPANIONS.iter().map(|suffix| beside(path, suffix)).chain([path.into()]).try_for_each(|file| {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
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
    use super::*;

    #[test]
    fn rf_18_what_is_copied_is_synced_bit_by_bit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut syncing = Syncing::new(file.path()).unwrap();
        let synced: Vec<bool> = (0..8).map(|_| syncing.wrote(256).unwrap()).collect();
        assert_eq!(synced, [false, false, false, true, false, false, false, true]);
        assert!(syncing.wrote(u32::MAX).unwrap());
    }
}
