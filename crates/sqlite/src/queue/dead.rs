//! Dead letters of the queue: listed, run again, removed (IBX-8.2).

use rusqlite::{Connection, params};
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{DeadWork, Queue, Replayed, WorkFilter};
use twobox_core::{Consumer, OrderingKey, Result, Source, Timestamp, crash_point};

use super::keys::{self, Ended};
use crate::error::wrap;
use crate::inbox::job;
use crate::inbox::peers::Counts;
use crate::row::lossy;
use crate::sql::Sql;
use crate::{Sqlite, SqliteTx};

/// A dead letter with what changing it needs.
struct Found {
    letter: DeadWork,
    peer: i64,
    is_queued: bool,
}

pub(super) fn list(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: (i64, i64),
    limit: usize,
) -> Result<Vec<DeadWork>> {
    let found = find(connection, sql, consumer, filter, after, limit).map_err(wrap("list dead letters"))?;
    Ok(found.into_iter().map(|found| found.letter).collect())
}

/// Those of one id, which the filter names.
pub(crate) fn of_id(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    limit: usize,
) -> rusqlite::Result<Vec<DeadWork>> {
    let found = find(connection, sql, consumer, filter, (i64::MIN, 0), limit)?;
    Ok(found.into_iter().map(|found| found.letter).collect())
}

fn find(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<Found>> {
    let source = filter.source.as_ref().map(AsRef::<str>::as_ref);
    let topic = filter.topic.as_ref().map(AsRef::<str>::as_ref);
    let reason = filter.reason.map(Reason::as_str);
    let limit = super::count(limit);
    let before = filter.died_before.map_or(i64::MAX, Timestamp::as_micros);
    if let Some(id) = &filter.id {
        let values =
            params![consumer.as_str(), id.as_str(), source, topic, reason, limit, after.0, after.1, before];
        return connection.prepare_cached(&sql.queue_dead_by_id)?.query_map(values, letter)?.collect();
    }
    let values = params![after.0, after.1, consumer.as_str(), source, topic, reason, limit, before];
    connection.prepare_cached(&sql.queue_dead)?.query_map(values, letter)?.collect()
}

fn letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<Found> {
    let reason = lossy(row, 5)?.and_then(|reason| reason.parse().ok());
    let letter = DeadWork {
        place: row.get(0)?,
        source: lossy(row, 1)?.unwrap_or_default(),
        id: lossy(row, 2)?.unwrap_or_default(),
        topic: lossy(row, 3)?.unwrap_or_default(),
        ordering_key: lossy(row, 4)?,
        // What was never queued has none of its own.
        reason: reason.unwrap_or(Reason::Rejected),
        error: lossy(row, 6)?,
        attempts: row.get(7)?,
        died: Timestamp::from_micros(row.get(8)?),
        blocks_key: row.get(9)?,
    };
    Ok(Found { letter, peer: row.get(10)?, is_queued: row.get(11)? })
}

/// Those that match, and whether there are more.
fn matching(
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    filter: &WorkFilter,
    limit: usize,
) -> Result<(Vec<Found>, bool)> {
    let found = find(tx.connection, tx.sql, &queue.consumer, filter, (i64::MIN, 0), limit.saturating_add(1));
    let mut found = tx.note(found, "find dead letters")?;
    let more = found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}

pub(super) fn replay(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    filter: &WorkFilter,
    limit: usize,
) -> Result<Replayed> {
    let now = db.options.clock.now();
    let (found, more) = matching(tx, queue, filter, limit)?;
    let mut replayed = 0;
    for found in found {
        let item = found.letter.place;
        if !found.is_queued {
            // Its content was never here: it runs when it is delivered again.
            tx.execute(&tx.sql.queue_forget_row, [item])?;
            Counts { size: -1, dead: -1, ..Counts::default() }.write(tx, found.peer)?;
            replayed += 1;
            continue;
        }
        let (key, joined) = place(tx, found.peer, item)?;
        let values = params![item, now.as_micros(), joined, i64::MAX];
        tx.execute(&tx.sql.queue_replay, values)?;
        crash_point!("queue.replayed");
        tx.execute(&tx.sql.queue_replay_row, [item])?;
        Counts { queued: 1, dead: -1, ..Counts::default() }.write(tx, found.peer)?;
        settle_head(tx, found.peer, key.as_deref(), item, now)?;
        tx.note_work();
        replayed += 1;
    }
    Ok(Replayed { replayed, more })
}

/// The key of a dead letter and its place in it: the one it has kept, or one at the end.
fn place(tx: &mut SqliteTx<'_>, peer: i64, item: i64) -> Result<(Option<String>, Option<i64>)> {
    let found = tx.query_optional(&tx.sql.queue_joined, [item], |row| {
        Ok((row.get::<Option<String>>(0)?, row.get::<Option<i64>>(1)?))
    })?;
    let Some((Some(key), joined)) = found else { return Ok((None, None)) };
    let joined = match joined {
        Some(joined) => joined,
        None => keys::behind(tx, peer, &key)?.unwrap_or(1),
    };
    Ok((Some(key), Some(joined)))
}

/// Only the head of a key can be claimed, whoever came back into it.
fn settle_head(tx: &mut SqliteTx<'_>, peer: i64, key: Option<&str>, item: i64, now: Timestamp) -> Result<()> {
    let Some(key) = key else { return Ok(()) };
    let head = tx.query_optional(&tx.sql.queue_key_head, params![peer, key], |row| row.get::<i64>(0))?;
    if head != Some(item) {
        tx.execute(&tx.sql.queue_demote, [item])?;
    }
    Ended { peer, key: Some(key) }.promote(tx, now)
}

pub(super) fn purge(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    filter: &WorkFilter,
    limit: usize,
) -> Result<Replayed> {
    let now = db.options.clock.now();
    let (found, more) = matching(tx, queue, filter, limit)?;
    let replayed = found.len() as u64;
    for found in found {
        let item = found.letter.place;
        tx.execute(&tx.sql.queue_forget_handler, [item])?;
        let key = tx.query_optional(&tx.sql.queue_drop, [item], |row| row.get::<Option<String>>(0))?;
        Counts { dead: -1, ..Counts::default() }.write(tx, found.peer)?;
        crash_point!("queue.purged");
        Ended { peer: found.peer, key: key.flatten().as_deref() }.promote(tx, now)?;
    }
    Ok(Replayed { replayed, more })
}

pub(super) fn release_key(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    source: &Source,
    key: &OrderingKey,
) -> Result<bool> {
    let now = db.options.clock.now();
    let peer = job::find(tx, &queue.consumer, source)?.id;
    let released = tx.execute(&tx.sql.queue_key_step_over, params![peer, key.as_str()])? > 0;
    Ended { peer, key: Some(key.as_str()) }.promote(tx, now)?;
    Ok(released)
}
