//! Copying a database that is in use.
//!
//! One read transaction is held from the first page to the last, so that what is copied is one point in time, and no
//! commit makes the copying start again. While it is held, the write-ahead log cannot start again either and grows;
//! its length is watched, and the copying hurries or gives up.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, params};
use tokio::sync::oneshot;
use twobox_core::{Clock, Error, ErrorKind, Result, Timestamp, crash_point};

use super::files::{Partial, Syncing, Taken, folder};
use super::{BACKUP_AT, prefixes};
use crate::Sqlite;
use crate::connection::{Opener, set_journal_mode};
use crate::error::wrap;
use crate::options::Drive;
use crate::shared::Shared;
use crate::sql::Sql;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread;
use crate::writer::checkpoint;

/// How a backup is made.
#[derive(Clone)]
pub struct BackupOptions {
    /// Pages copied at a time. Default 256 (1 MiB): about a millisecond.
    pub step_pages: NonZeroU32,
    /// After each step it rests for this many times as long as the step took. Default 3: three quarters of one
    /// processor and of the disk stay free for everybody else.
    pub rest: u32,
    /// More than this in the write-ahead log makes the copying go on without rests. Default 256 MiB: room that a
    /// disk with a backup on it should have, and a quarter of what makes it give up.
    pub wal_hurry_bytes: u64,
    /// More than this in it makes it give up: it could fill the disk. Default 1 GiB.
    pub wal_bytes_max: u64,
    /// Is told after every step. Default: nobody.
    pub progress: Option<Arc<dyn Fn(BackupProgress) + Send + Sync>>,
}

impl Default for BackupOptions {
    fn default() -> Self {
        Self {
            step_pages: NonZeroU32::new(256).expect("is not zero"),
            rest: 3,
            wal_hurry_bytes: 256 << 20,
            wal_bytes_max: 1 << 30,
            progress: None,
        }
    }
}

impl fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupOptions")
            .field("step_pages", &self.step_pages)
            .field("rest", &self.rest)
            .field("wal_hurry_bytes", &self.wal_hurry_bytes)
            .field("wal_bytes_max", &self.wal_bytes_max)
            .finish_non_exhaustive()
    }
}

/// How far a backup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages copied so far.
    pub pages_done: u64,
    /// Pages in all.
    pub pages: u64,
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupMade {
    /// Where it is.
    pub path: PathBuf,
    /// When: everything that was committed before is in it. Give this time to a resend after a restore.
    pub at: Timestamp,
    /// Its size.
    pub bytes: u64,
    /// The most that was in the write-ahead log meanwhile.
    pub wal_bytes: u64,
}

impl Sqlite {
    /// Copies the database, as it is at one point in time, into the file `to`, while others read and write.
    ///
    /// The file appears under its name once all of it is durable; a crash leaves nothing of that name. It is a
    /// database without a write-ahead log, which anything that knows SQLite can open.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid): there is a file of that name, which stays, also if it came meanwhile.
    /// [`Busy`](ErrorKind::Busy): another backup is being made. [`Full`](ErrorKind::Full): no room for it.
    /// [`Unavailable`](ErrorKind::Unavailable): the write-ahead log became too long, or the database had to be recovered
    /// meanwhile; try again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up within one step, and removes what was copied.
    pub async fn backup(&self, to: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupMade> {
        let given_up = Arc::new(AtomicBool::new(false));
        let copying = Copying {
            shared: Arc::clone(self.shared()),
            clock: self.clock(),
            to: std::path::absolute(to.as_ref()).unwrap_or_else(|_| to.as_ref().into()),
            options: options.clone(),
            given_up: Arc::clone(&given_up),
        };
        if self.options.drive == Drive::Manual {
            return copying.run();
        }
        let _give_up = GiveUpOnDrop(given_up);
        let (reply, made) = oneshot::channel();
        thread::Builder::new()
            .name("twobox-backup".into())
            .spawn(move || {
                // Whoever asked may be gone.
                let _: std::result::Result<(), _> = reply.send(copying.run());
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a thread").with_source(error)
            })?;
        made.await.map_err(|_| Error::new(ErrorKind::Unavailable, "the backup failed"))?
    }
}

struct GiveUpOnDrop(Arc<AtomicBool>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct Copying {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    to: PathBuf,
    options: BackupOptions,
    given_up: Arc<AtomicBool>,
}

impl Copying {
    fn run(&self) -> Result<BackupMade> {
        if self.to.exists() {
            return Err(exists(&self.to));
        }
        if !folder(&self.to).is_dir() {
            return Err(Error::invalid(format!("{} is no folder: create it", folder(&self.to).display())));
        }
        let (partial, at, wal_bytes) = self.shared.readers.with_backup(|source| self.copy(source))?;
        crash_point!("backup.copied");
        stand_alone(&partial.at, self.shared.opener.vfs(), at)?;
        crash_point!("backup.stamped");
        let bytes = std::fs::metadata(&partial.at).map_or(0, |file| file.len());
        let taken = Taken::Refuse(exists);
        partial.finish(taken, || crash_point!("backup.synced"), || crash_point!("backup.named"))?;
        Ok(BackupMade { path: self.to.clone(), at, bytes, wal_bytes })
    }

    /// Copies into a new file. It is begun here, where no other backup is being made: one that is refused has touched
    /// nothing.
    fn copy(&self, source: &Connection) -> Result<(Partial, Timestamp, u64)> {
        let partial = Partial::new(&self.to, &*self.shared.options.random)?;
        crash_point!("backup.begun");
        let (at, wal_bytes) = self.copy_snapshot(source, &partial.at)?;
        Ok((partial, at, wal_bytes))
    }

    /// Copies what the source shows now. Returns when that was, and how long the write-ahead log became.
    fn copy_snapshot(&self, source: &Connection, to: &Path) -> Result<(Timestamp, u64)> {
        let mut target = open(to, self.shared.opener.vfs())?;
        // Nobody sees the file before it is finished and synced as a whole.
        set_journal_mode(&target, "OFF").map_err(wrap("prepare a backup"))?;
        target.execute_batch("PRAGMA synchronous = OFF").map_err(wrap("prepare a backup"))?;
        let syncing = Syncing::new(to)?;
        // Before the snapshot is taken: what is committed by then is in it.
        let at = self.clock.now();
        let failed = || wrap("begin a backup");
        source.execute_batch("BEGIN").map_err(failed())?;
        source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(failed())?;
        let copied = self.copy_pages(source, &mut target, syncing);
        let _: rusqlite::Result<()> = source.execute_batch("ROLLBACK");
        Ok((at, copied?))
    }

    fn copy_pages(
        &self,
        source: &Connection,
        target: &mut Connection,
        mut syncing: Syncing<'_>,
    ) -> Result<u64> {
        let failed = || wrap("copy pages into a backup");
        let backup = Backup::new(source, target).map_err(failed())?;
        let step_pages = i32::try_from(self.options.step_pages.get()).unwrap_or(i32::MAX);
        let log = Log::new(&self.shared.opener)?;
        let mut wal_longest = 0;
        loop {
            let wal_bytes = log.bytes()?;
            wal_longest = wal_bytes.max(wal_longest);
            self.check(wal_bytes)?;
            let began = self.clock.monotonic();
            let step = backup.step(step_pages).map_err(failed())?;
            // Part of the step, so that the disk gets its rest as well.
            syncing.wrote(self.options.step_pages.get())?;
            let took = self.clock.monotonic().saturating_sub(began);
            self.tell(&backup);
            crash_point!("backup.step");
            match step {
                StepResult::Done => return Ok(wal_longest),
                StepResult::More if wal_bytes > self.options.wal_hurry_bytes => {}
                // The source is read in a transaction that has begun, and nobody else knows the target.
                _ => self.rest(took),
            }
        }
    }

    /// Fails if there is a reason to give up.
    fn check(&self, wal_bytes: u64) -> Result<()> {
        let reason = if self.given_up.load(Ordering::Acquire) {
            "nobody waits for it any more".into()
        } else if self.shared.readers.is_closing() {
            "the database is being recovered or closed: try again".into()
        } else if wal_bytes > self.options.wal_bytes_max {
            let max = self.options.wal_bytes_max;
            format!(
                "there are {wal_bytes} bytes in the write-ahead log, more than wal_bytes_max ({max}): try again when less is written, or allow more"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("the backup to {} was given up: {reason}", self.to.display()),
        ))
    }

    fn tell(&self, backup: &Backup<'_, '_>) {
        let Some(tell) = &self.options.progress else { return };
        let progress = backup.progress();
        let (pages, left) = (u64::try_from(progress.pagecount), u64::try_from(progress.remaining));
        let (pages, left) = (pages.unwrap_or(0), left.unwrap_or(0));
        tell(BackupProgress { pages_done: pages.saturating_sub(left), pages });
    }

    fn rest(&self, took: Duration) {
        // A database that is driven by hand has its time by hand as well.
        if self.shared.options.drive == Drive::Thread {
            thread::sleep(took.saturating_mul(self.options.rest));
        }
    }
}

/// What is in the write-ahead log. Its file says nothing about that: it stays as long as it ever was.
struct Log {
    /// One of its own, because nothing can be asked about the log on a connection that is reading.
    connection: Connection,
    page_bytes: u64,
}

impl Log {
    fn new(opener: &Opener) -> Result<Self> {
        let connection = opener.reader()?;
        let page_bytes: i64 = connection
            .query_row("PRAGMA page_size", [], |row| row.get(0))
            .map_err(wrap("look at the write-ahead log"))?;
        Ok(Self { connection, page_bytes: u64::try_from(page_bytes).unwrap_or(0) })
    }

    fn bytes(&self) -> Result<u64> {
        let pages = checkpoint(&self.connection, "NOOP")?.pages;
        Ok(u64::try_from(pages).unwrap_or(0).saturating_mul(self.page_bytes))
    }
}

fn exists(to: &Path) -> Error {
    Error::invalid(format!("{} exists: give a backup another name", to.display()))
}

/// Opens a file that nobody else knows. It must be there: one that somebody has removed is not made again, because an
/// empty one would pass for what was copied.
pub(super) fn open(path: &Path, vfs: Option<&str>) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let attempted = format!("open {}", path.display());
    match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    }
    .map_err(wrap(&attempted))
}

/// Makes a copy a database of its own, without a write-ahead log, and notes when it was made.
fn stand_alone(path: &Path, vfs: Option<&str>, at: Timestamp) -> Result<()> {
    let failed = || wrap("finish a backup");
    let mut connection = open(path, vfs)?;
    let mode = set_journal_mode(&connection, "DELETE").map_err(failed())?;
    if !mode.eq_ignore_ascii_case("delete") {
        return Err(Error::new(ErrorKind::Busy, format!("{} is in use", path.display())));
    }
    let prefixes = prefixes(&connection)?;
    let tx = connection.transaction().map_err(failed())?;
    for prefix in &prefixes {
        tx.execute(&Sql::new(prefix).meta_put, params![BACKUP_AT, at.as_micros()]).map_err(failed())?;
    }
    tx.commit().map_err(failed())?;
    connection.close().map_err(|(_, error)| failed()(error))
}
