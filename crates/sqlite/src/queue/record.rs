//! What is known about a queued message, and when there is something to do.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::ports::{InboxStatus, MessageKey, WorkRecord};
use twobox_core::{Consumer, Endpoint, Payload, Result, Timestamp};

use crate::error::wrap;
use crate::inbox::handle::hash;
use crate::row::{bytes, lossy};
use crate::sql::Sql;

pub(super) fn read(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    key: &MessageKey,
) -> Result<Option<WorkRecord>> {
    let found = connection
        .prepare_cached(&sql.queue_get)
        .and_then(|mut statement| {
            let names = params![consumer.as_str(), key.source.as_str(), key.id.as_str()];
            statement
                .query_row(names, |row| Ok((lossy(row, 1)?.unwrap_or_default(), record(row, key)?)))
                .optional()
        })
        .map_err(wrap("look up a queued message"))?;
    let Some((topic, record)) = found else { return Ok(None) };
    // A message that was only noticed has no topic yet.
    let topic = if topic.is_empty() { None } else { Some(Endpoint::new(topic)?) };
    Ok(Some(WorkRecord { topic, ..record }))
}

fn record(row: &rusqlite::Row<'_>, key: &MessageKey) -> rusqlite::Result<WorkRecord> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|micros| micros.map(Timestamp::from_micros));
    let lease = row.get::<_, Option<Vec<u8>>>(10)?.zip(time(11)?);
    Ok(WorkRecord {
        key: key.clone(),
        // The schema allows no other text.
        status: row.get::<_, String>(0)?.parse().unwrap_or(InboxStatus::Processing),
        topic: None,
        payload: bytes(row, 2)?.map(Payload::new),
        hash: hash(row.get(3)?, row.get(4)?),
        attempts: row.get(5)?,
        first_seen: Timestamp::from_micros(row.get(6)?),
        last_seen: Timestamp::from_micros(row.get(7)?),
        due: time(8)?,
        ready: time(9)?,
        lease,
        last_error: lossy(row, 12)?,
        reason: lossy(row, 13)?.and_then(|reason| reason.parse().ok()),
    })
}

/// How long until something can be claimed.
pub(super) fn next(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    now: Timestamp,
) -> Result<Option<Duration>> {
    let mut next: Option<i64> = None;
    for scheduled in [false, true] {
        let ready: Option<i64> = connection
            .prepare_cached(&sql.queue_next)
            .and_then(|mut statement| {
                statement.query_row(params![consumer.as_str(), scheduled], |row| row.get(0))
            })
            .map_err(wrap("look for work"))?;
        next = next.into_iter().chain(ready).min();
    }
    Ok(next.map(|ready| Timestamp::from_micros(ready).since(now)))
}
