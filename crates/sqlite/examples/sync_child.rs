//! Commits, lazy work and barriers, with marks between them. Started by `tests/writer/sync.rs` under strace, which
//! counts the syncs between the marks.

#![allow(clippy::unwrap_used, reason = "part of a test, which fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use twobox_core::ports::{LogStore, SweepPlan, SweepStore};
use twobox_core::{Error, NewMessage, Stamp};
use twobox_sqlite::{Durability, Sqlite, rusqlite};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, path] = arguments.as_slice() else { panic!("usage: sync_child SCENARIO PATH") };
    match scenario.as_str() {
        "full" => full(Path::new(path)).await,
        "process-crash" => process_crash(Path::new(path)).await,
        "foreign" => foreign(Path::new(path)).await,
        "unchanged" => unchanged(Path::new(path)).await,
        "checkpoint" => checkpoint(Path::new(path)).await,
        other => panic!("no scenario {other}"),
    }
}

fn mark(name: &str) {
    std::io::stderr().write_all(format!("mark: {name}\n").as_bytes()).unwrap();
}

async fn open(path: &Path, durability: Durability) -> Sqlite {
    let db = Sqlite::builder().durability(durability).open(path).await.unwrap();
    db.migrate().await.unwrap();
    db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE words (word)", [])).await.unwrap();
    db
}

async fn enqueue(db: &Sqlite) -> i64 {
    let inside = db.clone();
    let stamp = Stamp::new("s".parse().unwrap(), db.clock(), db.random());
    let message = stamp.message(&NewMessage::json("d", "e", &1).unwrap()).unwrap();
    let id = message.id.clone();
    let append = db.transaction::<_, Error, _>(move |tx| {
        tx.execute("INSERT INTO words VALUES ('word')", [])?;
        inside.append(tx, &message)
    });
    append.await.unwrap();
    db.message_status(&id).await.unwrap().unwrap().position
}

/// Lets time pass.
async fn pass(db: &Sqlite, time: Duration) {
    let never = tokio::time::timeout(time, db.changed(u64::MAX)).await;
    assert!(never.is_err());
}

async fn full(path: &Path) {
    let db = open(path, Durability::Full).await;
    mark("commit");
    let position = enqueue(&db).await;
    mark("sent");
    db.make_durable(1, &position).await.unwrap();
    mark("lazy");
    db.sweep(&SweepPlan::default()).await.unwrap();
    mark("some seconds");
    pass(&db, Duration::from_secs(4)).await;
    mark("idle");
    pass(&db, Duration::from_millis(1_500)).await;
    mark("end");
}

async fn process_crash(path: &Path) {
    let db = open(path, Durability::ProcessCrash).await;
    mark("commit");
    let position = enqueue(&db).await;
    durable(&db, position).await;
}

async fn foreign(path: &Path) {
    let db = open(path, Durability::Full).await;
    let position = insert(path);
    durable(&db, position).await;
}

/// Synced groups that leave everything as it is come between the insert and the sending.
async fn unchanged(path: &Path) {
    let db = open(path, Durability::Full).await;
    db.transaction::<_, Error, _>(|tx| tx.execute("INSERT INTO words VALUES ('same')", [])).await.unwrap();
    let position = insert(path);
    db.migrate().await.unwrap();
    let same = "UPDATE words SET word = 'same'";
    db.transaction::<_, Error, _>(|tx| tx.execute(same, [])).await.unwrap();
    durable(&db, position).await;
}

/// Commits until the log was copied into the database file and started again, or until that has failed and the file
/// was opened anew.
async fn checkpoint(path: &Path) {
    const PAGES: u32 = 1_000;
    let db = Sqlite::builder().wal_pages_max(PAGES).open(path).await.unwrap();
    db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE words (word)", [])).await.unwrap();
    let store = &db.meters().store;
    let mut was_long = false;
    mark("checkpoint");
    for _ in 0..10_000 {
        // What a commit that was in doubt is told is for other tests.
        let large = "INSERT INTO words VALUES (zeroblob(100000))";
        let _told = db.transaction::<_, Error, _>(|tx| tx.execute(large, [])).await;
        let is_long = store.wal_pages.get() > i64::from(PAGES);
        was_long |= is_long;
        if store.reopened.get() > 0 {
            return mark("opened anew");
        }
        if was_long && !is_long {
            return mark("started again");
        }
    }
}

/// A message by a connection that does not sync.
fn insert(path: &Path) -> i64 {
    let foreign = rusqlite::Connection::open(path).unwrap();
    foreign.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
    mark("commit");
    let insert = "INSERT INTO outbox_log (source, destination, endpoint, payload) VALUES ('s', 'd', 'e', '')";
    foreign.execute(insert, []).unwrap();
    foreign.last_insert_rowid()
}

async fn durable(db: &Sqlite, position: i64) {
    mark("durable");
    db.make_durable(1, &position).await.unwrap();
    mark("again");
    db.make_durable(1, &position).await.unwrap();
    mark("end");
}
