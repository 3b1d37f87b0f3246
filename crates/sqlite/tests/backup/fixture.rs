//! A database with rows and messages, and ways to look at files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use twobox_core::{Error, NewMessage, Result, Source, Stamp};
use twobox_sqlite::Sqlite;
use twobox_testkit::eventually;

pub(crate) const ORDERS: &str = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, filler BLOB)";

/// A folder with a database.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.file("shop.db")
    }

    /// Migrated, with a table of orders.
    pub(crate) async fn open(&self) -> Sqlite {
        open(&self.database()).await
    }

    /// The files in the folder, by name.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) async fn open(path: &Path) -> Sqlite {
    let db = Sqlite::open(path).await.unwrap();
    db.migrate().await.unwrap();
    db.transaction::<_, Error, _>(|tx| tx.execute(ORDERS, [])).await.unwrap();
    db
}

/// Closes a database, and waits until it is: the last closure that ran may hold it for a moment.
pub(crate) async fn close(db: Sqlite) {
    let path = db.path().to_owned();
    drop(db);
    eventually("the file is closed", Duration::from_secs(60), async || {
        // Whoever has the file alone can leave WAL mode.
        let alone = Connection::open(&path).unwrap();
        let mode = alone.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
        mode.is_ok_and(|mode| mode == "delete").then_some(())
    })
    .await;
}

/// Places an order together with its message.
pub(crate) async fn place(db: &Sqlite, order: i64) -> Result<()> {
    let stamp = Arc::new(Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random()));
    let inside = db.clone();
    db.transaction(move |tx| {
        tx.execute("INSERT INTO orders VALUES (?1, zeroblob(500))", [order])?;
        let message = stamp.message(&NewMessage::json("billing", "Pay", &order)?)?;
        inside.append(tx, &message).map(drop)
    })
    .await
}

/// A number.
pub(crate) fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A text.
pub(crate) fn text(path: &Path, sql: &str) -> String {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Runs statements on a database, whatever its constraints say.
pub(crate) fn change(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    connection.execute_batch(sql).unwrap();
}
