//! What a disk knows and does; the VFS only passes calls on to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use super::fault::{Call, Fault, Kind};
use super::ffi::Registered;
use super::image::{Cut, Image};
use super::record::{Mark, Name, Op, Record};
use crate::SeededRandom;

/// A disk whose power can be cut; see the [module](super).
pub struct Disk {
    vfs: Registered,
    state: Arc<Mutex<State>>,
}

/// Something that was done to files without SQLite.
#[derive(Debug)]
pub enum Deed<'a> {
    /// A file was written as a whole.
    Written(&'a Path, Vec<u8>),
    /// A file was synced.
    Synced(&'a Path),
    /// A file has another name, under which there may have been another one.
    Renamed(&'a Path, &'a Path),
    /// A file has a second name.
    Linked(&'a Path, &'a Path),
    /// The folder was synced, and all names with it.
    FolderSynced,
}

/// What the calls of the VFS change.
#[derive(Default)]
pub(super) struct State {
    pub(super) record: Record,
    faults: Option<Armed>,
    calls: BTreeMap<Call, u64>,
    struck: u64,
    /// How often a sync of each file has failed.
    failed_syncs: BTreeMap<Name, u64>,
    pub(super) is_off: bool,
    /// So many more writes and syncs reach the disk.
    off_after: Option<u64>,
    pub(super) chance: u64,
}

/// Calls that are going to fail.
struct Armed {
    fault: Fault,
    times: u64,
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// A disk of its own, over the machine's. `seed` decides what SQLite gets when it asks this disk for chance.
    ///
    /// # Panics
    /// If SQLite has no VFS, which it always has on systems with files.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = Arc::new(Mutex::new(State { chance: seed, ..State::default() }));
        Self { vfs: Registered::new(&state), state }
    }

    /// The name of the VFS, to open databases with.
    #[must_use]
    pub fn name(&self) -> &str {
        self.vfs.name()
    }

    /// Notes something between two steps.
    pub fn mark(&self, text: impl Into<String>) {
        lock(&self.state).record.ops.push(Op::Mark(Mark(text.into())));
    }

    /// Notes what somebody does to files beside SQLite, which this disk does not see by itself.
    pub fn did(&self, deed: Deed<'_>) {
        let name = |path: &Path| Name::from(&*path.to_string_lossy());
        let op = match deed {
            Deed::Written(path, data) => Op::Write { file: name(path), offset: 0, data },
            Deed::Synced(path) => Op::Sync { file: name(path) },
            Deed::Renamed(from, to) => Op::Rename { from: name(from), to: name(to) },
            Deed::Linked(from, to) => Op::Link { from: name(from), to: name(to) },
            Deed::FolderSynced => Op::SyncFolder,
        };
        lock(&self.state).record.ops.push(op);
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> usize {
        lock(&self.state).record.len()
    }

    /// What was done so far.
    #[must_use]
    pub fn record(&self) -> Record {
        lock(&self.state).record.clone()
    }

    /// Lets a call fail.
    pub fn fail(&self, fault: Fault) {
        self.fail_times(fault, 1);
    }

    /// Lets a call fail, and as many of the following ones of its kind that it is `times` in all.
    pub fn fail_times(&self, fault: Fault, times: u64) {
        let mut state = lock(&self.state);
        state.faults = Some(Armed { fault, times });
        state.struck = 0;
        state.calls.clear();
    }

    /// How many calls have failed since [`fail`](Self::fail).
    #[must_use]
    pub fn struck(&self) -> u64 {
        lock(&self.state).struck
    }

    /// How many calls there were that a fault of this kind counts, since [`fail`](Self::fail) or ever.
    #[must_use]
    pub fn calls(&self, kind: Kind) -> u64 {
        lock(&self.state).calls.get(&kind.call()).copied().unwrap_or(0)
    }

    /// Cuts the power: nothing reaches the disk any more. Whoever still has files open gets errors, and
    /// nobody can open any.
    pub fn power_off(&self) {
        lock(&self.state).is_off = true;
    }

    /// Cuts the power once so many more writes and syncs have reached the disk: in the middle of a commit, say.
    pub fn power_off_after(&self, steps: u64) {
        lock(&self.state).off_after = Some(steps);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        lock(&self.state).is_off
    }

    /// What is on the disk if the power was cut now.
    #[must_use]
    pub fn image(&self, cut: Cut, random: &SeededRandom) -> Image {
        let state = lock(&self.state);
        state.record.image(state.record.len(), cut, random)
    }

    /// Puts the image back and switches the power on. Whoever has files open keeps the old ones.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn power_on(&self, image: Image) -> io::Result<()> {
        let mut state = lock(&self.state);
        let known: BTreeSet<Name> = state.record.files().cloned().collect();
        // Never written over: SQLite knows files by their inode, and would let a new connection share what a dead
        // process that still has the old file open remembers of its log.
        for name in known {
            remove(Path::new(&*name))?;
            remove(Path::new(&format!("{name}-shm")))?;
        }
        image.files().try_for_each(|(name, bytes)| std::fs::write(name, bytes))?;
        state.record = Record { base: image.files, ops: Vec::new() };
        state.is_off = false;
        state.off_after = None;
        state.faults = None;
        Ok(())
    }
}

/// Lets a file have these bytes and no others. Written over what is there: new memory for every image would cost more
/// than anything else about it.
///
/// # Errors
/// If it cannot be written.
pub fn write_over(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The VFS stays in memory for connections that still use it; what it has recorded need not.
        lock(&self.state).record = Record::default();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.name())
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

impl State {
    /// How often a sync of this file has failed, unless because the power was off.
    pub(super) fn failed_syncs(&self, file: &Name) -> u64 {
        self.failed_syncs.get(file).copied().unwrap_or(0)
    }

    /// How this call is to fail, because it was asked for or because the power is off.
    pub(super) fn fails(&mut self, call: Call, file: &Name) -> Option<Kind> {
        if call != Call::Read && !self.is_off {
            self.is_off = self.off_after == Some(0);
            self.off_after = self.off_after.and_then(|steps| steps.checked_sub(1));
        }
        let nth = self.calls.entry(call).or_default();
        let this = std::mem::replace(nth, *nth + 1);
        let strikes = |armed: &Armed| {
            let Armed { fault, times } = armed;
            let struck = fault.kind.call() == call && this >= fault.nth && this - fault.nth < *times;
            struck.then_some(fault.kind)
        };
        if let Some(kind) = self.faults.as_ref().and_then(strikes) {
            self.struck += 1;
            if call == Call::Sync {
                *self.failed_syncs.entry(file.clone()).or_default() += 1;
            }
            self.record.ops.push(Op::Failed { file: file.clone(), kind });
            return Some(kind);
        }
        let off = match call {
            Call::Read => return None,
            Call::Write => Kind::Write,
            Call::Truncate => Kind::Truncate,
            Call::Sync => Kind::Sync,
        };
        self.is_off.then_some(off)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rusqlite::{Connection, OpenFlags};

    use super::*;

    /// A kernel that has told one of them that a sync failed tells the other one as well, and each once.
    #[test]
    fn whoever_has_a_file_open_hears_of_a_failed_sync_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let disk = Disk::new(1);
        let open = || {
            let connection = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), disk.name());
            let connection = connection.unwrap();
            connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
            connection
        };
        let (one, other) = (open(), open());
        one.execute_batch("CREATE TABLE t (x); PRAGMA wal_autocheckpoint = 0").unwrap();
        let write = |connection: &Connection| connection.execute_batch("INSERT INTO t VALUES (1)").is_ok();
        assert!(write(&one) && write(&other));
        disk.fail(Fault { kind: Kind::SyncKeepingPages, nth: 0 });
        assert_eq!([write(&one), write(&other), write(&one), write(&other)], [false, false, true, true]);
        assert!(write(&open()), "who comes later does not hear of it");
    }

    /// A connection of a dead process may still be open when the power is back: with its inode it would hand its
    /// memory of the log on to the living, who would then read what the cut has taken.
    #[test]
    fn after_a_cut_the_files_are_others_than_those_a_dead_process_has_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let disk = Disk::new(1);
        let open = || Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), disk.name()).unwrap();
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let dead = open();
        dead.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x)")
            .unwrap();
        dead.execute_batch("PRAGMA synchronous = OFF; INSERT INTO t VALUES (1)").unwrap();
        let before = inode();
        disk.power_off();
        disk.power_on(disk.image(Cut::Lost, &SeededRandom::new(1))).unwrap();
        assert_ne!(inode(), before);
        let rows: i64 = open().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "what was not synced is gone");
        drop(dead);
    }
}
