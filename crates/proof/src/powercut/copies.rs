//! Power cuts while a database is backed up, and while a backup takes the place of one.
//!
//! What SQLite writes is seen by the disk. What is done without SQLite (a file copied, synced, linked or renamed, a folder
//! synced) is not: it is noted here in the order in which `backup` and `restore` promise to do it. That the files are in
//! the end what was noted is compared byte for byte; that a sync really happened cannot be.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use twobox_core::{BoxError, Clock, Timestamp};
use twobox_sqlite::{BackupOptions, Existing, RestoreOptions, VerifyOptions, restore, verify};
use twobox_testkit::disk::{Cut, Deed, Disk, Image};
use twobox_testkit::{ManualClock, SeededRandom};

use super::images::{Checker, Tally, chance, cuts};
use super::recover::put;
use super::shop;
use super::told::READY;
use super::workload::{Place, Run, Side, Store, Workload, folder, runtime};

const COPY: &str = "copy.db";
/// What the name of a file in the making ends with.
const PARTIAL: &str = ".partial";
const INSTANCE: &str = "SELECT value FROM twobox_meta WHERE name = 'outbox_instance'";
/// Orders that are placed after the backup, numbered so that they are no others.
const LATE: std::ops::Range<usize> = 100..103;

/// Backs up the database of a seed's workload, and restores it once more has happened. Both are cut at every step.
/// Returns what is wrong: a source that is harmed, a copy that passes for whole and is not, a database that is neither
/// the old one nor the restored one.
///
/// # Errors
/// If the machine fails, or what was noted is not what was done.
pub fn check_copies(
    seed: u64,
    syncs: Syncs,
    stop: &dyn Fn() -> bool,
) -> Result<(Tally, Vec<String>), BoxError> {
    let workload = Workload { messages: 8, ..Workload::new(Side::Shop, seed) };
    let (mut tally, mut wrong) = check_backup(&workload, syncs, stop)?;
    let (more, others) = check_restore(&workload, syncs, stop)?;
    tally.add(more);
    wrong.extend(others);
    let again = |text| format!("{text}\n  cargo run --release -p twobox-proof -- powercut --copies {seed}");
    Ok((tally, wrong.into_iter().map(again).collect()))
}

/// What is synced of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// As it is.
    Right,
    /// The copy gets its name without having been synced, by SQLite or otherwise, which must be found out.
    NotTheCopy,
}

impl Syncs {
    /// What the disk has seen.
    fn seen(self, disk: &Disk) -> Run {
        let record = disk.record();
        let record = if self == Self::Right { record } else { record.unsynced(PARTIAL) };
        Run { record, trouble: None, calls: Vec::new() }
    }
}

/// A folder with a database on a disk.
struct Site {
    workload: Workload,
    folder: tempfile::TempDir,
    disk: Arc<Disk>,
    place: Place,
    copy: PathBuf,
}

impl Site {
    fn new(workload: &Workload) -> Result<Self, BoxError> {
        let (folder, disk) = (folder()?, Arc::new(Disk::new(workload.seed)));
        let place = Place { path: folder.path().join(workload.side.file()), disk: Some(Arc::clone(&disk)) };
        let copy = folder.path().join(COPY);
        Ok(Self { workload: *workload, folder, disk, place, copy })
    }

    async fn work(&self) -> Result<Store, BoxError> {
        let store = Store::open(&self.place, &self.workload).await?;
        self.disk.mark(READY);
        shop::work(&store, &self.disk, &self.workload).await?;
        Ok(store)
    }

    async fn back_up(&self, store: &Store) -> Result<(), BoxError> {
        store.db.backup(&self.copy, &BackupOptions::default()).await?;
        self.note_finished(&self.copy)?;
        self.check_noted()
    }

    /// A file that was made under another name is synced, named, and the name as well.
    fn note_finished(&self, target: &Path) -> Result<(), BoxError> {
        let image = self.disk.image(Cut::Kill, &SeededRandom::new(0));
        let mut noted = image.files().map(|(name, _)| Path::new(name));
        let partial = noted.find(|path| is_partial(path, target)).ok_or("no copy was made")?;
        self.disk.did(Deed::Synced(partial));
        self.disk.did(Deed::Renamed(partial, target));
        self.disk.did(Deed::FolderSynced);
        Ok(())
    }

    /// Whether the files are what was noted.
    fn check_noted(&self) -> Result<(), BoxError> {
        let image = self.disk.image(Cut::Kill, &SeededRandom::new(0));
        let noted: BTreeSet<PathBuf> = image.files().map(|(name, _)| name.into()).collect();
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            // An index of the log, which nobody needs after a cut.
            if !path.to_string_lossy().ends_with("-shm") {
                found.insert(path);
            }
        }
        if noted != found {
            return Err(format!("noted were {noted:?}, and there are {found:?}").into());
        }
        for (name, bytes) in image.files() {
            if std::fs::read(name)? != bytes {
                return Err(format!("{name} is not what was noted").into());
            }
        }
        Ok(())
    }
}

/// Whether a file is one in the making that will be called `target`. Chance has a part in its name.
fn is_partial(path: &Path, target: &Path) -> bool {
    let (path, target) = (path.to_string_lossy(), target.to_string_lossy());
    path.starts_with(&*target) && path.ends_with(PARTIAL)
}

/// The files in the making that will be called `target`.
fn partials(target: &Path) -> Vec<PathBuf> {
    let entries = target.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| is_partial(path, target)).collect()
}

/// What is in a database, as far as anybody relies on it.
#[derive(Debug, PartialEq, Eq)]
struct Content(Vec<String>);

impl Content {
    const SQL: [&'static str; 4] = [
        "SELECT id FROM orders ORDER BY id",
        "SELECT seq || ' ' || message_id || ' ' || CAST(payload AS TEXT) FROM outbox_log ORDER BY seq",
        "SELECT seq || ' ' || state || coalesce(' ' || reason, '') FROM outbox_waiting ORDER BY seq",
        "SELECT destination || ' ' || cursor FROM outbox_lanes ORDER BY lane_id",
    ];

    fn of(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut all = Vec::new();
        for sql in Self::SQL {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            all.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok(Self(all))
    }

    /// What a file of an image holds.
    fn in_image(image: &Image, file: &str) -> Result<Self, BoxError> {
        let folder = folder()?;
        put(image, folder.path())?;
        Ok(Self::of(&folder.path().join(file))?)
    }
}

/// Whether a file passes verification. One that cannot be verified does not.
fn is_sound(path: &Path) -> bool {
    verify(path, VerifyOptions::Full).is_ok_and(|verified| verified.is_sound())
}

/// Judges every image of a record from a step on, each different one once. The last of them comes after the caller was told
/// that all is done.
fn judge_images(
    run: &Run,
    from: usize,
    seed: u64,
    stop: &dyn Fn() -> bool,
    judge: &mut dyn FnMut(&Path, bool) -> Result<(), String>,
) -> Result<(Tally, Vec<String>), BoxError> {
    let (mut tally, mut wrong, mut seen) =
        (Tally { runs: 1, ..Tally::default() }, Vec::new(), HashSet::new());
    let (mut walk, folder, end) = (run.record.walk(), folder()?, run.record.len());
    for step in (from..=end).take_while(|_| !stop()) {
        walk.go_to(step);
        for (cut, variant) in cuts(1) {
            let image = walk.image(cut, &chance(seed, step, variant));
            if !seen.insert((image.fingerprint(), step == end)) {
                continue;
            }
            tally.count(cut);
            tally.acknowledged += 1;
            put(&image, folder.path())?;
            let judged = judge(folder.path(), step == end);
            wrong.extend(judged.err().map(|text| format!("{text} (step {step}, {cut})")));
        }
    }
    Ok((tally, wrong))
}

fn check_backup(
    workload: &Workload,
    syncs: Syncs,
    stop: &dyn Fn() -> bool,
) -> Result<(Tally, Vec<String>), BoxError> {
    let site = Site::new(workload)?;
    let (before, wanted, run) = runtime()?.block_on(async {
        let store = site.work().await?;
        let before = site.disk.steps();
        let image = site.disk.image(Cut::Kill, &SeededRandom::new(0));
        let wanted = Content::in_image(&image, &workload.side.file())?;
        site.back_up(&store).await?;
        Ok::<_, BoxError>((before, wanted, syncs.seen(&site.disk)))
    })?;
    let mut source = Checker::new(*workload, &run)?;
    source.check_steps(before..=run.record.len(), 1, stop);
    let (_, harmed) = source.finish();
    let (tally, mut wrong) = judge_images(&run, before, workload.seed, stop, &mut |folder, is_done| {
        judge_copy(folder, &wanted, is_done)
    })?;
    wrong.extend(harmed.into_iter().map(|violation| format!("the source of a backup: {}", violation.text)));
    Ok((tally, wrong))
}

/// A file under the name of the backup is whole. One in the making, under another name, is whole if it passes for that.
fn judge_copy(folder: &Path, wanted: &Content, is_done: bool) -> Result<(), String> {
    let copy = folder.join(COPY);
    if is_done && !copy.exists() {
        return Err("a backup that was made is not there".into());
    }
    if copy.exists() && !is_sound(&copy) {
        return Err("a file under the name of a backup is none".into());
    }
    for path in partials(&copy).iter().chain([&copy]) {
        if path.exists() && is_sound(path) && Content::of(path).as_ref() != Ok(wanted) {
            return Err(format!("{} passes for a backup and lacks something", path.display()));
        }
    }
    Ok(())
}

/// The database before it is replaced, and the backup that replaces it.
struct Restoring {
    workload: Workload,
    old: Content,
    instance: Vec<String>,
    copy: Content,
}

fn check_restore(
    workload: &Workload,
    syncs: Syncs,
    stop: &dyn Fn() -> bool,
) -> Result<(Tally, Vec<String>), BoxError> {
    let site = Site::new(workload)?;
    // The process is killed, so its log was never brought home.
    let (killed, instance) = runtime()?.block_on(async {
        let store = site.work().await?;
        site.back_up(&store).await?;
        for n in LATE {
            shop::place(&store, &site.disk, workload, n).await??;
        }
        let instance = store.names(INSTANCE).await?;
        Ok::<_, BoxError>((site.disk.image(Cut::Kill, &SeededRandom::new(0)), instance))
    })?;
    let old = Content::in_image(&killed, &workload.side.file())?;
    let copy = Content::in_image(&killed, COPY)?;
    if old == copy {
        return Err("the backup is as new as the database, so this says nothing".into());
    }
    site.disk.power_on(killed)?;
    restore_noting(&site)?;
    let run = syncs.seen(&site.disk);
    let restoring = Restoring { workload: *workload, old, instance, copy };
    judge_images(&run, 0, workload.seed, stop, &mut |folder, is_done| restoring.judge(folder, is_done))
}

fn restore_noting(site: &Site) -> Result<(), BoxError> {
    let target = &site.place.path;
    let clock =
        CopyNoticed { clock: ManualClock::default(), disk: Arc::clone(&site.disk), target: target.clone() };
    let options = RestoreOptions {
        existing: Existing::SetAside,
        vfs: Some(site.disk.name().to_owned()),
        clock: Arc::new(clock),
        random: Arc::new(SeededRandom::new(site.workload.seed)),
        ..RestoreOptions::default()
    };
    let restored = restore(&site.copy, target, &options)?;
    let aside = restored.set_aside.ok_or("nothing was set aside")?;
    site.disk.did(Deed::Linked(target, &aside));
    site.disk.did(Deed::FolderSynced);
    site.note_finished(target)?;
    site.check_noted()
}

/// The clock is asked once, when the backup was copied and nothing was done to the copy yet.
#[derive(Debug)]
struct CopyNoticed {
    clock: ManualClock,
    disk: Arc<Disk>,
    target: PathBuf,
}

impl Clock for CopyNoticed {
    fn now(&self) -> Timestamp {
        for copy in partials(&self.target) {
            if let Ok(bytes) = std::fs::read(&copy) {
                self.disk.did(Deed::Written(&copy, bytes));
            }
        }
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

impl Restoring {
    /// The database is the old one, or the restored one, which knows that it is; then the old one is kept beside it.
    fn judge(&self, folder: &Path, is_done: bool) -> Result<(), String> {
        let path = folder.join(self.workload.side.file());
        let aside = set_aside(folder);
        let (restores, instance) = self.opened(&path)?;
        let content = Content::of(&path).map_err(|error| error.to_string())?;
        let is_old = restores == 0 && instance == self.instance && content == self.old;
        let is_new = restores == 1 && instance != self.instance && content == self.copy;
        if !is_old && !is_new || !is_sound(&path) {
            return Err("a restore has left what is neither the old database nor the restored one".into());
        }
        if is_done && !is_new {
            return Err("what was restored is forgotten".into());
        }
        let kept =
            || aside.is_some_and(|path| is_sound(&path) && Content::of(&path).as_ref() == Ok(&self.old));
        if is_new && !kept() { Err("the database that was replaced is not kept".into()) } else { Ok(()) }
    }

    /// How often the real store finds the database restored, and which one it is.
    fn opened(&self, path: &Path) -> Result<(usize, Vec<String>), String> {
        let place = Place { path: path.into(), disk: None };
        let runtime = runtime().map_err(|error| error.to_string())?;
        let opened = runtime.block_on(async {
            let store = Store::open(&place, &self.workload).await?;
            Ok::<_, twobox_core::Error>((store.db.restores(10).await?.len(), store.names(INSTANCE).await?))
        });
        opened.map_err(|error| format!("a restore has left a database that is refused: {}", error.chain()))
    }
}

fn set_aside(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let mut aside = entries.filter(|path| path.to_string_lossy().contains(".before-"));
    aside.find(|path| !path.to_string_lossy().ends_with("-shm"))
}
