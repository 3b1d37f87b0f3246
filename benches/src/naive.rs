//! What Twobox's relay is compared with: an outbox table with a status column, claimed and marked in batches.
//!
//! It is a good specimen of its kind: time-ordered ids, an index that finds what is due, cached statements,
//! and no network. It holds the same messages in the same file.

use std::path::Path;

use twobox_sqlite::rusqlite::{Connection, params, params_from_iter};

use crate::Result;
use crate::store::check;

/// Messages claimed at a time.
const BATCH: u32 = 50;

const CREATE: &str = "
    CREATE TABLE outbox_classic (
        id            TEXT PRIMARY KEY,
        destination   TEXT NOT NULL,
        endpoint      TEXT NOT NULL,
        payload       BLOB NOT NULL,
        status        TEXT NOT NULL,
        retry_count   INTEGER NOT NULL DEFAULT 0,
        next_retry_at INTEGER NOT NULL,
        created_at    INTEGER NOT NULL,
        sent_at       INTEGER
    );
    CREATE INDEX outbox_classic_due ON outbox_classic (status, next_retry_at);
    INSERT INTO outbox_classic (id, destination, endpoint, payload, status, next_retry_at, created_at)
        SELECT message_id, destination, endpoint, payload, 'Pending', created_at, created_at
        FROM outbox_log ORDER BY seq;
";

const CLAIM: &str = "
    UPDATE outbox_classic SET status = 'Sending'
    WHERE id IN (
        SELECT id FROM outbox_classic
        WHERE status = 'Pending' AND next_retry_at <= ?1
        ORDER BY next_retry_at LIMIT ?2
    )
    RETURNING id, payload";

/// Copies the messages of the log into the classic table.
pub(crate) fn fill(path: &Path) -> Result<()> {
    let connection = Connection::open(path)?;
    Ok(connection.execute_batch(CREATE)?)
}

/// The database as the loop uses it.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -8000;")?;
    Ok(connection)
}

/// Claims and marks until nothing is left; both steps are durable.
pub(crate) fn drain(connection: &Connection) -> Result<()> {
    loop {
        let claimed = claim(connection)?;
        if claimed.is_empty() {
            return Ok(());
        }
        mark(connection, &claimed)?;
    }
}

fn claim(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection.prepare_cached(CLAIM)?;
    let mut rows = statement.query(params![i64::MAX, BATCH])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        let payload: Vec<u8> = row.get(1)?;
        check("bytes of payload", 256, payload.len() as u64)?;
        ids.push(row.get(0)?);
    }
    Ok(ids)
}

fn mark(connection: &Connection, ids: &[String]) -> Result<()> {
    let places = vec!["?"; ids.len()].join(", ");
    let sql = format!("UPDATE outbox_classic SET status = 'Sent', sent_at = 1 WHERE id IN ({places})");
    let marked = connection.prepare_cached(&sql)?.execute(params_from_iter(ids))?;
    check("messages marked", ids.len() as u64, marked as u64)
}

/// Fails unless every message is sent.
pub(crate) fn check_sent(connection: &Connection, messages: u64) -> Result<()> {
    let count = "SELECT count(*) FROM outbox_classic WHERE status = 'Sent'";
    let sent: i64 = connection.query_row(count, [], |row| row.get(0))?;
    check("messages sent by the status loop", messages, u64::try_from(sent)?)
}
