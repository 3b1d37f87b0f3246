//! A database file and the ways in which tests look at it.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rusqlite::Connection;
use tempfile::TempDir;
use twobox_core::ports::{Delivery, Treatment};
use twobox_core::{Consumer, Error, Message, MessageId, NewMessage, Result, Source, Stamp};
use twobox_sqlite::{Drive, Sqlite, SqliteBuilder, SqliteHandler, SqliteTx};
use twobox_testkit::ManualClock;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS words (word TEXT NOT NULL UNIQUE)";

/// A directory of its own with room for a database.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.file("boxes.db")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A connection as somebody else would open it.
    pub(crate) fn foreign(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Opened with the defaults, migrated, with a table of words.
    pub(crate) async fn open(&self) -> Sqlite {
        self.open_with(Sqlite::builder()).await
    }

    pub(crate) async fn open_with(&self, builder: SqliteBuilder) -> Sqlite {
        let db = builder.open(self.path()).await.unwrap();
        db.migrate().await.unwrap();
        db.transaction::<_, Error, _>(|tx| tx.execute(CREATE, [])).await.unwrap();
        db
    }
}

/// A database that does nothing until it is told to, on a clock that stands still.
pub(crate) struct Manual {
    pub(crate) db: Sqlite,
    pub(crate) place: Place,
    pub(crate) clock: Arc<ManualClock>,
}

/// A transaction that is queued, or answered.
pub(crate) type Queued<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

impl Manual {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let clock = Arc::new(ManualClock::default());
        let builder = Sqlite::builder().drive(Drive::Manual).clock(Arc::clone(&clock) as _);
        let db = now(builder.open(place.path())).unwrap();
        let manual = Self { db, place, clock };
        let migrated = queue_future(manual.db.clone(), |db| async move { db.migrate().await });
        manual.finish(migrated).unwrap();
        manual.transaction(|tx| tx.execute(CREATE, []).map(drop)).unwrap();
        manual
    }

    /// Queues a transaction.
    pub(crate) fn queue<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut SqliteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Queued<T> {
        queue_future(self.db.clone(), |db| async move { db.transaction(work).await })
    }

    /// Runs one transaction alone.
    pub(crate) fn transaction<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut SqliteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.finish(self.queue(work))
    }

    /// Runs what is queued, and returns the answer to this.
    pub(crate) fn finish<T>(&self, queued: Queued<T>) -> Result<T> {
        assert!(self.db.step());
        now(queued)
    }

    pub(crate) fn words(&self) -> Vec<String> {
        words(&self.place)
    }
}

fn queue_future<T, F: Future<Output = Result<T>> + 'static>(
    db: Sqlite,
    start: impl FnOnce(Sqlite) -> F,
) -> Queued<T> {
    let mut queued: Queued<T> = Box::pin(start(db));
    assert!(poll(queued.as_mut()).is_pending(), "answered before it was run");
    queued
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The value of a future that has nothing to wait for.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(std::pin::pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("not answered"),
    }
}

/// Inserts a word.
pub(crate) fn say(tx: &mut SqliteTx<'_>, word: &str) -> Result<()> {
    tx.execute("INSERT INTO words (word) VALUES (?1)", [word]).map(drop)
}

/// All words, read by a connection that is not ours.
pub(crate) fn words(place: &Place) -> Vec<String> {
    let connection = place.foreign();
    let mut statement = connection.prepare("SELECT word FROM words ORDER BY word").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

/// A number, read by a connection that is not ours.
pub(crate) fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A message for billing.
pub(crate) fn message(db: &Sqlite, id: &str) -> Message {
    let stamp = Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random());
    let new = NewMessage::json("billing", "Pay", &id).unwrap().id(MessageId::new(id).unwrap());
    stamp.message(&new).unwrap()
}

/// The delivery of a message to billing.
pub(crate) fn delivery(db: &Sqlite, id: &str, handler: &SqliteHandler) -> Delivery<SqliteHandler> {
    let message = Arc::new(message(db, id));
    let (body_hash, consumer) = (message.payload.sha256(), Consumer::new("billing").unwrap());
    Delivery { message, consumer, body_hash, treatment: Treatment::Handle(handler.clone()) }
}

/// Deliveries of messages 000, 001 and so on.
pub(crate) fn batch(db: &Sqlite, count: usize, handler: &SqliteHandler) -> Vec<Delivery<SqliteHandler>> {
    (0..count).map(|n| delivery(db, &format!("{n:03}"), handler)).collect()
}

/// Status and place of a message.
pub(crate) async fn status(db: &Sqlite, id: &str) -> Option<(String, i64)> {
    let found = db.message_status(&MessageId::new(id).unwrap()).await.unwrap();
    found.map(|found| (found.status, found.position))
}

/// How many commits are in the write-ahead log.
pub(crate) fn commits(path: &Path) -> usize {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let wal = std::fs::read(name).unwrap();
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let salt = &wal[16..24];
    let frame_bytes = 24 + usize::try_from(number(8)).unwrap();
    let frames = (32..wal.len()).step_by(frame_bytes).filter(|at| at + frame_bytes <= wal.len());
    // Frames of an earlier round have another salt; the last frame of a commit says how long the database is.
    frames.filter(|at| &wal[at + 8..at + 16] == salt && number(at + 4) != 0).count()
}

/// Says on the terminal why a test did not look.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}
