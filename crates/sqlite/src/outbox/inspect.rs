//! Looking at one message.

use rusqlite::OptionalExtension;
use twobox_core::{MessageId, Result, Timestamp};

use crate::Sqlite;
use crate::error::wrap;
use crate::row::lossy;

/// Where a message of the outbox stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStatus {
    /// Its place in the log.
    pub position: i64,
    /// Pending, Sending, Sent, Failed or Expired.
    pub status: String,
    /// Attempts charged.
    pub attempts: u32,
    /// The last error.
    pub last_error: Option<String>,
    /// Failed attempts, oldest first, the last few of them (L9).
    pub history: Vec<AttemptRecord>,
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Replay number it belongs to.
    pub replay: u32,
    /// Which attempt of that replay.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What went wrong.
    pub error: String,
}

impl Sqlite {
    /// Where the message with this id stands, found by index. `None` if it was never enqueued, is trimmed or
    /// was purged.
    ///
    /// # Errors
    /// The database's.
    pub async fn message_status(&self, id: &MessageId) -> Result<Option<MessageStatus>> {
        let id = id.to_string();
        self.read(move |connection, sql| {
            let find = || {
                let found = connection.prepare_cached(&sql.find)?.query_row([&id], status).optional()?;
                let Some(mut status) = found else { return Ok(None) };
                let mut statement = connection.prepare_cached(&sql.attempts)?;
                status.history =
                    statement.query_map([status.position], attempt)?.collect::<rusqlite::Result<_>>()?;
                Ok(Some(status))
            };
            find().map_err(wrap("look up a message"))
        })
        .await
    }
}

fn status(row: &rusqlite::Row<'_>) -> rusqlite::Result<MessageStatus> {
    Ok(MessageStatus {
        position: row.get(0)?,
        status: row.get(1)?,
        attempts: row.get(2)?,
        last_error: lossy(row, 3)?,
        history: Vec::new(),
    })
}

fn attempt(row: &rusqlite::Row<'_>) -> rusqlite::Result<AttemptRecord> {
    Ok(AttemptRecord {
        replay: row.get(0)?,
        attempt: row.get(1)?,
        at: Timestamp::from_micros(row.get(2)?),
        error: lossy(row, 3)?.unwrap_or_default(),
    })
}
