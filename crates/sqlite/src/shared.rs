//! What the writer, the readers and the handles of one database file share.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::watch;
use twobox_core::{Error, ErrorKind, Result};

use crate::Prefix;
use crate::connection::Opener;
use crate::error::is_unwritable;
use crate::options::Options;
use crate::outbox::routes::Routes;
use crate::pace::Pace;
use crate::reader::Readers;
use crate::recent::Recent;
use crate::sql::Sql;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Shared state of one file.
pub(crate) struct Shared {
    pub(crate) opener: Opener,
    pub(crate) options: Options,
    pub(crate) readers: Readers,
    boxes: Mutex<Vec<Arc<BoxState>>>,
    /// Grows whenever the file was reopened, so that state read before is not trusted after (L1).
    epoch: AtomicU64,
    doubt: Mutex<Option<Error>>,
    /// Whether the last failure was for want of room: nothing was lost by it, and what is there can be told.
    unwritable: AtomicBool,
    /// Commits of our own writer.
    commits: AtomicU64,
    foreign: AtomicU64,
    bell: Option<File>,
}

/// Tells open files apart, as long as they are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(usize);

/// Shared state of one pair of boxes (one table prefix) in a file.
pub(crate) struct BoxState {
    pub(crate) prefix: Prefix,
    pub(crate) sql: Arc<Sql>,
    log_table: String,
    migrated: AtomicBool,
    /// Everything in the log up to here is durable (W6).
    synced: AtomicI64,
    end: AtomicI64,
    /// What our own writer has appended lately.
    pub(crate) recent: Recent,
    /// How far delivery has come.
    pub(crate) pace: Pace,
    /// How far it is known where messages go.
    pub(crate) routes: Routes,
    /// Whether the inbox has triggers, by the version of the schema in which that was looked up.
    inbox_triggers: Mutex<Option<(i64, bool)>>,
    pub(crate) version: watch::Sender<u64>,
    /// Grows when a lane may have been paused or resumed.
    steered: AtomicU64,
    /// Grows when something may have been queued.
    pub(crate) work: watch::Sender<u64>,
}

impl BoxState {
    pub(crate) fn new(prefix: Prefix) -> Self {
        Self {
            sql: Arc::new(Sql::new(&prefix)),
            log_table: format!("{}outbox_log", prefix.as_str()),
            prefix,
            migrated: AtomicBool::new(false),
            synced: AtomicI64::new(0),
            end: AtomicI64::new(0),
            recent: Recent::default(),
            pace: Pace::default(),
            routes: Routes::default(),
            inbox_triggers: Mutex::default(),
            version: watch::Sender::new(0),
            steered: AtomicU64::new(0),
            work: watch::Sender::new(0),
        }
    }

    pub(crate) fn synced(&self) -> i64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The end of the log as our own writer has last seen it.
    pub(crate) fn end(&self) -> i64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether its tables are as this version wants them.
    pub(crate) fn is_migrated(&self) -> bool {
        self.migrated.load(Ordering::Acquire)
    }

    pub(crate) fn set_migrated(&self) {
        self.migrated.store(true, Ordering::Release);
    }

    /// Whether the inbox has triggers, if that is known of this version of the schema.
    pub(crate) fn inbox_triggers(&self, schema: i64) -> Option<bool> {
        let known = self.inbox_triggers.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(of, _)| *of == schema).map(|(_, has_triggers)| has_triggers)
    }

    pub(crate) fn note_inbox_triggers(&self, schema: i64, has_triggers: bool) {
        *self.inbox_triggers.lock().unwrap_or_else(PoisonError::into_inner) = Some((schema, has_triggers));
    }

    /// Tells relays that the log may have grown, by whomever: the next read asks the database.
    pub(crate) fn wake(&self) {
        // Before they are told: whoever reads because of it must not be given what is here instead of what is there.
        self.recent.clear();
        self.tell_steered();
        self.tell_work();
    }

    /// Has relays get up while what they will be told of is synced: to be woken takes long, and less for one who was
    /// awake a moment ago. They find that nothing is new, and wait on.
    pub(crate) fn stir(&self) {
        self.version.send_modify(|_| {});
    }

    /// How often a lane may have been paused or resumed.
    pub(crate) fn steered(&self) -> u64 {
        self.steered.load(Ordering::Acquire)
    }

    /// Tells relays that a lane may have been paused or resumed.
    pub(crate) fn tell_steered(&self) {
        self.steered.fetch_add(1, Ordering::AcqRel);
        self.tell();
    }

    /// Tells workers that something may have been queued.
    pub(crate) fn tell_work(&self) {
        self.work.send_modify(|version| *version += 1);
    }

    fn tell(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

impl Shared {
    pub(crate) fn new(opener: Opener, options: Options, readers: Readers) -> Self {
        Self {
            opener,
            options,
            readers,
            boxes: Mutex::default(),
            epoch: AtomicU64::new(1),
            doubt: Mutex::new(None),
            unwritable: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            bell: None,
        }
    }

    /// Its address: nobody else has it as long as this lives.
    pub(crate) fn id(&self) -> FileId {
        FileId(std::ptr::from_ref(self).addr())
    }

    /// Remembers which file this is and opens its doorbell. Called once the file exists.
    pub(crate) fn remember_file(&mut self) {
        if self.opener.is_plain_file() {
            self.opener.remember_file();
            self.bell = crate::wake::open_bell(&self.opener.path);
        }
    }

    /// The state of the boxes with this prefix.
    pub(crate) fn box_state(&self, prefix: &Prefix) -> Arc<BoxState> {
        let mut boxes = self.boxes();
        if let Some(state) = boxes.iter().find(|state| state.prefix == *prefix) {
            return Arc::clone(state);
        }
        let state = Arc::new(BoxState::new(prefix.clone()));
        state.routes.forget(self.epoch());
        boxes.push(Arc::clone(&state));
        state
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn next_epoch(&self) {
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        for state in self.boxes().iter() {
            // What was believed to be durable has to be made so again.
            state.synced.store(0, Ordering::Release);
            state.routes.forget(epoch);
        }
        self.forget_recent();
        self.wake_all();
    }

    /// Keeps what is in memory of the logs within its limits.
    pub(crate) fn trim_recent(&self) {
        self.boxes().iter().for_each(|state| state.recent.trim());
    }

    /// What was seen of the schema may have been rolled back, and its version be given to another one.
    pub(crate) fn forget_schema(&self) {
        let forget = |state: &Arc<BoxState>| {
            *state.inbox_triggers.lock().unwrap_or_else(PoisonError::into_inner) = None;
        };
        self.boxes().iter().for_each(forget);
    }

    /// What is in memory may not be in the database.
    pub(crate) fn forget_recent(&self) {
        self.boxes().iter().for_each(|state| state.recent.clear());
    }

    /// How many commits our own writer has made.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Another connection has committed: relays and workers are told.
    pub(crate) fn others_have_written(&self) {
        self.foreign.fetch_add(1, Ordering::Relaxed);
        self.wake_all();
    }

    /// How often others were found to have written.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Something outside the writer saw a write or a sync fail. A sync is the worse of the two, and is not forgotten for
    /// a write.
    pub(crate) fn raise_doubt(&self, error: Error) {
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        if doubt.as_ref().is_none_or(is_unwritable) {
            *doubt = Some(error);
        }
    }

    pub(crate) fn take_doubt(&self) -> Option<Error> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the file took nothing when it was last written to, for want of room or because it is read-only; and no
    /// sync has failed since.
    pub(crate) fn is_unwritable(&self) -> bool {
        self.unwritable.load(Ordering::Acquire)
    }

    /// Takes note of how a write went.
    pub(crate) fn set_unwritable(&self, unwritable: bool) {
        if self.is_unwritable() != unwritable {
            self.unwritable.store(unwritable, Ordering::Release);
        }
    }

    /// Makes what is in the write-ahead log durable. Only if no sync has failed since it was last recovered: after
    /// one that has, the next may report success for nothing (S14).
    pub(crate) fn sync_wal(&self) -> Result<()> {
        let log = crate::wake::beside(&self.opener.path, "-wal");
        let synced = File::open(&log).and_then(|log| log.sync_data());
        synced.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot sync the write-ahead log").with_source(error)
        })
    }

    pub(crate) fn wake_all(&self) {
        self.boxes().iter().for_each(|state| state.wake());
    }

    /// The ends of all logs, as the open transaction sees them.
    pub(crate) fn log_ends(&self, connection: &Connection) -> rusqlite::Result<Vec<i64>> {
        let read = |state: &Arc<BoxState>| {
            if !state.is_migrated() {
                // The printed migrations may have run while the file was open.
                let found = crate::schema::version(connection, &state.prefix, &state.sql).unwrap_or(0);
                if found != crate::schema::version_wanted() {
                    return Ok(0);
                }
                state.set_migrated();
            }
            connection.prepare_cached(&state.sql.log_end)?.query_row([&state.log_table], |row| row.get(0))
        };
        self.boxes().iter().map(read).collect()
    }

    /// Whether some log has rows that may not be durable yet.
    pub(crate) fn is_beyond_synced(&self, ends: &[i64]) -> bool {
        self.boxes().iter().zip(ends).any(|(state, &end)| end > state.synced())
    }

    /// Publishes a commit: what is durable now, and to whom there is something to tell. Returns the boxes whose delivery
    /// is behind it.
    pub(crate) fn publish(
        &self,
        ends: &[i64],
        synced: bool,
        rings: bool,
        now: Duration,
    ) -> Option<Arc<BoxState>> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let (mut grown, mut behind) = (rings, None);
        for (state, &end) in self.boxes().iter().zip(ends) {
            if synced {
                state.synced.fetch_max(end, Ordering::AcqRel);
            }
            let before = state.end.swap(end, Ordering::AcqRel);
            if before < end {
                state.tell();
                grown = true;
                if state.pace.appended(end, now) {
                    behind = Some(Arc::clone(state));
                }
            }
        }
        if let (true, Some(bell)) = (grown, &self.bell) {
            crate::wake::ring(bell);
        }
        behind
    }

    /// A write that makes a commit sync, on whichever boxes there are.
    pub(crate) fn barrier(&self) -> Option<impl FnOnce(&Connection) -> rusqlite::Result<()> + use<>> {
        let state = self.boxes().iter().find(|state| state.is_migrated()).map(Arc::clone)?;
        Some(move |connection: &Connection| touch(connection, &state.sql))
    }

    /// Fails if the file was removed or replaced: commits would go into nothing (S14).
    pub(crate) fn check_file(&self) -> Result<()> {
        self.opener.check_file()
    }

    /// The states of all boxes that were opened so far.
    pub(crate) fn all_boxes(&self) -> Vec<Arc<BoxState>> {
        self.boxes().clone()
    }

    fn boxes(&self) -> MutexGuard<'_, Vec<Arc<BoxState>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a little, so that a synced commit has something to sync: it takes everything before it along.
pub(crate) fn touch(connection: &Connection, sql: &Sql) -> rusqlite::Result<()> {
    let synced: i64 =
        connection.prepare_cached(&sql.meta_get)?.query_row(["synced"], |row| row.get(0)).unwrap_or_default();
    connection.prepare_cached(&sql.meta_put)?.execute(params!["synced", synced.wrapping_add(1)]).map(drop)
}

/// Which file a path names: by device and inode, or by its path where there are none.
#[cfg(unix)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity(u64, u64);

/// Which file a path names: by device and inode, or by its path where there are none.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity(std::path::PathBuf);

impl FileIdentity {
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|metadata| Self(metadata.dev(), metadata.ino()))
    }

    /// Windows keeps an open file from being removed or replaced, so its path identifies it.
    #[cfg(not(unix))]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::canonicalize(path).ok().map(Self)
    }
}
