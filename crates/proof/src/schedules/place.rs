//! A database of its own for every schedule.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use shuttle::future::block_on;
use tempfile::TempDir;
use twobox_core::{BoxError, Message, MessageId, NewMessage, Source, Stamp};
use twobox_sqlite::{Sqlite, SqliteBuilder};

use super::explore::{once, violated};
use super::time::{Chance, Time};

/// The machine's own. Named, it is not taken for one that can be watched, which needs threads that no scheduler has.
const VFS: &str = "unix";

/// What users of the store have in their file, and what must never be done to ours.
const TABLES: &str = "
    CREATE TABLE effects (client INTEGER NOT NULL, step INTEGER NOT NULL);
    CREATE TABLE taken (name TEXT PRIMARY KEY);
    INSERT INTO taken VALUES ('name');
    CREATE TABLE forbidden (what TEXT NOT NULL);
    CREATE TRIGGER cursor_back AFTER UPDATE ON outbox_lanes
        WHEN NEW.cursor < OLD.cursor OR NEW.lease_token < OLD.lease_token OR NEW.sent < OLD.sent
        BEGIN INSERT INTO forbidden VALUES ('a lane went back'); END;
    CREATE TRIGGER sent_twice AFTER UPDATE ON outbox_waiting WHEN OLD.state = 'Sent'
        BEGIN INSERT INTO forbidden VALUES ('a message was sent and then changed'); END;";

/// A migrated, empty database.
static TEMPLATE: LazyLock<Result<Vec<u8>, String>> =
    LazyLock::new(|| template().map_err(|error| error.to_string()));

/// Where databases of schedules are.
pub(super) struct Place {
    folder: TempDir,
    files: AtomicU64,
    bytes: Vec<u8>,
}

/// The database of one schedule, removed when dropped.
pub(super) struct File {
    path: PathBuf,
}

impl Place {
    /// A place for databases without what these statements remove: most of the time of a short schedule goes into
    /// reading the schema, once for every connection.
    pub(super) fn new(without: &str) -> Result<Self, BoxError> {
        let place = Self { folder: folder()?, files: AtomicU64::new(0), bytes: TEMPLATE.clone()? };
        let path = place.write()?;
        let connection = connect(&path)?;
        connection.execute_batch(without)?;
        connection.execute_batch("VACUUM")?;
        finish(&connection)?;
        Ok(Self { bytes: std::fs::read(path)?, ..place })
    }

    /// A fresh database. Never under a name that was used: a schedule that failed may still have it open.
    pub(super) fn file(&self) -> File {
        let path = self.write().unwrap_or_else(|error| violated(format!("no database: {error}")));
        File { path }
    }

    fn write(&self) -> std::io::Result<PathBuf> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("{number}.db"));
        std::fs::write(&path, &self.bytes)?;
        Ok(path)
    }
}

/// Brings everything into the file itself.
fn finish(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

fn template() -> Result<Vec<u8>, BoxError> {
    let folder = folder()?;
    let path = folder.path().join("template.db");
    let file = path.clone();
    once(move || {
        let db = block_on(builder(&Time::default()).open(&file)).expect("a database can be made");
        block_on(db.migrate()).expect("it can be migrated");
    });
    let connection = connect(&path)?;
    connection.execute_batch(TABLES)?;
    finish(&connection)?;
    Ok(std::fs::read(&path)?)
}

fn builder(time: &Time) -> SqliteBuilder {
    Sqlite::builder()
        .vfs(VFS)
        .clock(Arc::new(time.clone()))
        .random(Arc::new(Chance))
        .readers(1)
        .check_bytes_max(0)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, VFS)?;
    // Whoever holds the lock goes on only if we give way.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    Ok(connection)
}

impl File {
    /// Opens the store.
    pub(super) fn open(&self, time: &Time, options: impl FnOnce(SqliteBuilder) -> SqliteBuilder) -> Sqlite {
        match block_on(options(builder(time)).open(&self.path)) {
            Ok(db) => db,
            Err(error) => violated(format!("the store cannot be opened: {}", error.chain())),
        }
    }

    /// A connection that is not the store's.
    pub(super) fn stranger(&self) -> Stranger {
        match connect(&self.path) {
            Ok(connection) => Stranger(Arc::new(Mutex::new(connection))),
            Err(error) => violated(format!("the database cannot be opened: {error}")),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            // What SQLite has removed already is not there.
            let _: std::io::Result<()> = std::fs::remove_file(name);
        }
    }
}

/// Somebody else with the file open. Each call is one step of the schedule. Cheap to clone.
#[derive(Clone)]
pub(super) struct Stranger(Arc<Mutex<Connection>>);

impl Stranger {
    /// The one number a query asks for.
    pub(super) fn number(&self, sql: &str) -> i64 {
        let answer = self.with(|connection| connection.query_row(sql, [], |row| row.get(0)));
        answer.unwrap_or_else(|error| violated(format!("{sql}: {error}")))
    }

    /// The texts of one column.
    pub(super) fn texts(&self, sql: &str) -> Vec<String> {
        let answer = self.with(|connection| {
            connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()
        });
        answer.unwrap_or_else(|error| violated(format!("{sql}: {error}")))
    }

    /// Writes in a transaction of its own; gives way while somebody else holds the lock.
    pub(super) fn write(&self, sql: &str) {
        loop {
            match self.with(|connection| connection.execute_batch(sql)) {
                Ok(()) => return,
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                    shuttle::thread::yield_now();
                }
                Err(error) => violated(format!("{sql}: {error}")),
            }
        }
    }

    fn with<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A message of the shop for billing.
pub(super) fn message(time: &Time, id: &str) -> Message {
    let made = || {
        let stamp = Stamp::new(Source::new("shop")?, Arc::new(time.clone()), Arc::new(Chance));
        stamp.message(&NewMessage::json("billing", "Pay", &id)?.id(MessageId::new(id)?))
    };
    made().unwrap_or_else(|error| violated(error.chain()))
}
