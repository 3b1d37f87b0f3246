//! Keeps the write-ahead log short.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use twobox_core::{Error, ErrorKind, Result, crash_point, mutant, one_line};

use super::core::Core;
use super::recovery::checkpoint;
use super::thread::cannot_spawn;
use crate::shared::Shared;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Pages that the writer copies itself when it starts the log again: little more than the two syncs that takes anyway.
const REST_MAX: i64 = 64;
/// How often the log is copied before that. Each pass leaves what was written while it ran, a fraction of what it copied;
/// with a reader in the way no pass gets any further.
const PASSES_MAX: u32 = 3;

/// How long a pass is written to the disk little by little. A disk that needs longer gets the rest at once: meanwhile the
/// log grows.
const WRITE_BACK_MAX: Duration = Duration::from_secs(1);

/// How much nicer the thread is than those who commit: it gets a tenth of what they do, if all want to run.
#[cfg(all(target_os = "linux", not(feature = "shuttle")))]
const NICER: i32 = 10;

/// Copies the write-ahead log into the database file, away from the commit path. The log is reused, not
/// truncated: growing a file makes every sync slower.
pub(crate) struct Checkpointer {
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Requested,
    /// All but the last pages are copied: the writer can start the log again at little cost.
    Copied,
    Closed,
}

impl Checkpointer {
    /// Starts the thread, if the shared state says that threads are wanted.
    pub(crate) fn spawn(shared: Arc<Shared>) -> Result<Arc<Self>> {
        let state = Mutex::new(State::Idle);
        let checkpointer = Arc::new(Self { state, changed: Condvar::new(), thread: Mutex::default() });
        let of_thread = Arc::clone(&checkpointer);
        let thread = thread::Builder::new()
            .name("twobox-checkpoint".into())
            .spawn(move || of_thread.run(&shared))
            .map_err(cannot_spawn)?;
        *checkpointer.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(checkpointer)
    }

    pub(crate) fn close(&self) {
        *self.lock() = State::Closed;
        self.changed.notify_all();
    }

    /// Waits until the thread has ended, by which it has let go of everything that is open.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the checkpointer's thread panicked");
        }
    }

    /// Called between groups: asks for a copy when the log is long, and starts it again once copied.
    pub(crate) fn after_group(&self, core: &mut Core) {
        let state = *self.lock();
        match state {
            State::Idle if core.is_time_to_look() && core.wal_is_long() => {
                self.advance(state, State::Requested);
            }
            State::Copied => {
                core.restart_wal();
                self.advance(state, State::Idle);
            }
            State::Idle | State::Requested | State::Closed => {}
        }
    }

    /// Changes the state, unless somebody closed it meanwhile.
    fn advance(&self, from: State, to: State) {
        let mut state = self.lock();
        if *state == from {
            *state = to;
            self.changed.notify_all();
        }
    }

    fn run(&self, shared: &Shared) {
        step_back();
        while self.wait_for_request() {
            // Whoever closes the connections finds the doubts that this one has raised.
            let copied = shared.readers.with_checkpointer(|connection| {
                copy(connection, |connection| write_back(connection, shared))
                    .inspect_err(|error| doubt_copy(shared, error))
            });
            crash_point!("checkpoint.copied");
            if let Err(error) = copied {
                shared.options.meters.store.checkpoints_failed.one();
                tracing::warn!(error = one_line(&error), "cannot checkpoint");
            }
            self.advance(State::Requested, State::Copied);
        }
    }

    fn wait_for_request(&self) -> bool {
        let waiting = |state: &mut State| matches!(state, State::Idle | State::Copied);
        let state = self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
        *state != State::Closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets whoever commits go first. Copying takes a processor for a while, and where there are few of them, commits and
/// deliveries are late for it; nobody waits for the copy.
fn step_back() {
    // A schedule runs all threads as one.
    #[cfg(all(target_os = "linux", not(feature = "shuttle")))]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // Of this thread alone. The system itself ends it at 19.
        let stepped_back = getpriority_process(None).and_then(|nice| setpriority_process(None, nice + NICER));
        if let Err(error) = stepped_back {
            tracing::debug!(error = one_line(&error), "checkpoints are made at ordinary priority");
        }
    }
}

/// A failed sync inside a checkpoint is as bad as one inside a commit.
fn doubt_copy(shared: &Shared, error: &Error) {
    if error.kind() != ErrorKind::Busy {
        shared.raise_doubt(Error::new(error.kind(), error.chain()));
    }
}

/// Copies the log until little is left for the writer, which nobody can commit beside.
fn copy(connection: &Connection, write_back: impl Fn(&Connection) -> Result<()>) -> Result<()> {
    for _ in 0..PASSES_MAX {
        let copied = checkpoint(connection, "PASSIVE")?.copied;
        write_back(connection)?;
        // SQLite leaves this to whoever copies the last page, which under load is the writer: it would sync everything.
        crate::file::sync(connection)?;
        if checkpoint(connection, "NOOP")?.pages.saturating_sub(copied) <= REST_MAX {
            break;
        }
    }
    Ok(())
}

fn write_back(connection: &Connection, shared: &Shared) -> Result<()> {
    let clock = &shared.options.clock;
    let until = clock.monotonic().saturating_add(WRITE_BACK_MAX);
    let goes_on = || !shared.readers.is_closing() && clock.monotonic() < until;
    crate::file::write_back(connection, &shared.opener.path, goes_on)
}

impl Core {
    /// Whether the write-ahead log is longer than configured.
    fn wal_is_long(&self) -> bool {
        let Some(open) = &self.open else { return false };
        let pages =
            open.guard.unguarded(|| checkpoint(&open.connection, "NOOP")).map_or(0, |look| look.pages);
        self.meters().wal_pages.set(pages);
        pages > i64::from(self.shared.options.wal_pages_max)
    }

    /// Starts the write-ahead log again, unless a reader is in the way: then it is tried again later.
    fn restart_wal(&mut self) {
        // The copy may have failed since the last look: nothing may be copied by what is known of the log from before.
        if !mutant!(RestartAfterFailedSync) && self.ready().is_err() {
            return;
        }
        let Some(open) = &self.open else { return };
        let patient = self.shared.options.busy_timeout;
        let restarted = open.connection.busy_timeout(Duration::ZERO).and_then(|()| {
            let result = open.guard.unguarded(|| checkpoint(&open.connection, "RESTART"));
            crash_point!("checkpoint.restarted");
            open.connection.busy_timeout(patient)?;
            Ok(result)
        });
        match restarted {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind() == ErrorKind::Busy => {}
            Ok(Err(error)) => self.doubt(&error),
            Err(error) => self.doubt(&crate::error::wrap("checkpoint")(error)),
        }
    }

    /// Housekeeping of the write-ahead log on the caller's thread.
    pub(crate) fn checkpoint_inline(&mut self) {
        if self.is_time_to_look() && self.wal_is_long() {
            self.restart_wal();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::path::Path;

    use rusqlite::OpenFlags;
    use twobox_testkit::disk::{Disk, Fault, Kind};

    use super::*;

    fn open(path: &Path, disk: &Disk) -> Connection {
        let connection =
            Connection::open_with_flags_and_vfs(path, OpenFlags::default(), disk.name()).expect("opens");
        let set_up = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0";
        connection.execute_batch(set_up).expect("is set up");
        connection
    }

    /// Under load there is always a page more than a pass copies. Here a reader sees to that.
    #[test]
    fn what_is_copied_is_synced_although_there_is_more_to_copy() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::new(1), folder.path().join("shop.db"));
        let (writer, reader, copier) = (open(&path, &disk), open(&path, &disk), open(&path, &disk));
        writer.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();

        let syncs = || {
            let (all, steps) = (disk.record(), disk.steps());
            all.syncs(steps) - all.unsynced("shop.db").syncs(steps)
        };
        let before = syncs();
        checkpoint(&copier, "PASSIVE").unwrap();
        assert_eq!(syncs(), before, "SQLite leaves it to whoever copies the rest");
        copy(&copier, |_| Ok(())).unwrap();
        assert!(syncs() > before);

        disk.fail(Fault { kind: Kind::Sync, nth: 0 });
        let failed = crate::file::sync(&copier).unwrap_err();
        assert_eq!((failed.kind(), disk.struck()), (ErrorKind::Unavailable, 1));
    }

    /// The system may have dropped pages of it, and says that all is well when it is asked again.
    #[tokio::test]
    async fn s14_the_log_is_not_started_again_over_a_sync_that_has_just_failed() {
        let folder = tempfile::tempdir().unwrap();
        let db = crate::Sqlite::open(folder.path().join("shop.db")).await.unwrap();
        db.transaction(|tx| tx.execute("CREATE TABLE t (x)", []).map(drop)).await.unwrap();
        let (shared, core) = db.watched();
        let mut core = crate::writer::lock(core);
        let epoch = shared.epoch();
        core.restart_wal();
        assert_eq!(shared.epoch(), epoch);
        shared.raise_doubt(twobox_core::Error::new(ErrorKind::Unavailable, "the sync of a copy failed"));
        core.restart_wal();
        assert!(shared.epoch() > epoch, "the file was opened anew first");
    }

    /// What is known of the log from before must not be copied, by the last connection to be closed either.
    #[tokio::test]
    async fn s14_the_log_is_not_copied_at_the_end_over_a_sync_that_has_just_failed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("shop.db"), folder.path().join("shop.db-wal"));
        let create = "CREATE TABLE IF NOT EXISTS t (x)";
        for in_doubt in [true, false] {
            let db = crate::Sqlite::open(&path).await.unwrap();
            db.transaction(move |tx| {
                tx.execute(create, [])?;
                tx.execute("INSERT INTO t VALUES (1)", [])
            })
            .await
            .unwrap();
            // So that there is a reader to be closed.
            db.read(|connection, _| Ok(connection.query_row("SELECT 1", [], |_| Ok(())).is_ok()))
                .await
                .unwrap();
            if in_doubt {
                let error = twobox_core::Error::new(ErrorKind::Unavailable, "the sync of a copy failed");
                let (shared, core) = db.watched();
                let between_groups = crate::writer::lock(core);
                shared.raise_doubt(error);
                drop(between_groups);
            }
            drop(db);
            assert_eq!(log.exists(), in_doubt);
        }
        let rows: i64 = Connection::open(&path)
            .unwrap()
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn one_thread_steps_back_and_its_process_does_not() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let stepped_back = std::thread::spawn(move || {
            step_back();
            priority()
        });
        assert_eq!(stepped_back.join().unwrap(), (before + NICER).min(19));
        assert_eq!(priority(), before);
    }
}
