//! Dead letters of the queue: listed, run again, removed (IBX-8.2).

use rusqlite::{Connection, params};
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{DeadWork, Death, Queue, WorkFilter};
use twobox_core::{Consumer, OrderingKey, Result, Source, Timestamp, crash_point};

use super::keys::{self, Ended};
use crate::error::wrap;
use crate::inbox::job;
use crate::inbox::peers::Counts;
use crate::row::lossy;
use crate::sql::Sql;
use crate::{Sqlite, SqliteTx};

pub(super) fn list(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: (i64, i64),
    limit: usize,
) -> Result<Vec<DeadWork>> {
    find(connection, sql, consumer, filter, after, limit).map_err(wrap("list dead letters"))
}

/// Those of one id, which the filter names.
pub(crate) fn of_id(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<DeadWork>> {
    find(connection, sql, consumer, filter, after, limit)
}

fn find(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<DeadWork>> {
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

fn letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<DeadWork> {
    let reason = lossy(row, 5)?.and_then(|reason| reason.parse().ok());
    Ok(DeadWork {
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
    })
}

/// A dead letter that is to be changed.
struct Letter {
    item: i64,
    peer: i64,
    is_queued: bool,
}

/// Does something to each of these deaths; one that is over is passed over. Returns how many there were.
fn each(
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    deaths: &[Death<i64>],
    mut act: impl FnMut(&mut SqliteTx<'_>, &Letter) -> Result<()>,
) -> Result<u64> {
    let mut found = 0;
    for (item, died) in deaths {
        let values = params![item, died.as_micros(), queue.consumer.as_str()];
        let letter = tx.query_optional(&tx.sql.queue_death, values, |row| {
            Ok(Letter { item: *item, peer: row.get(0)?, is_queued: row.get(1)? })
        })?;
        let Some(letter) = letter else { continue };
        act(tx, &letter)?;
        found += 1;
    }
    Ok(found)
}

pub(super) fn replay(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    deaths: &[Death<i64>],
) -> Result<u64> {
    let now = db.options.clock.now();
    each(tx, queue, deaths, |tx, letter| replay_one(tx, letter, now))
}

fn replay_one(tx: &mut SqliteTx<'_>, letter: &Letter, now: Timestamp) -> Result<()> {
    let Letter { item, peer, is_queued } = *letter;
    if !is_queued {
        // Its content was never here: it runs when it is delivered again.
        tx.execute(&tx.sql.queue_forget_row, [item])?;
        return Counts { size: -1, dead: -1, ..Counts::default() }.write(tx, peer);
    }
    let (key, joined) = place(tx, peer, item)?;
    tx.execute(&tx.sql.queue_replay, params![item, now.as_micros(), joined, i64::MAX])?;
    crash_point!("queue.replayed");
    tx.execute(&tx.sql.queue_replay_row, [item])?;
    Counts { queued: 1, dead: -1, ..Counts::default() }.write(tx, peer)?;
    settle_head(tx, peer, key.as_deref(), item, now)?;
    tx.note_work();
    Ok(())
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

pub(super) fn purge(db: &Sqlite, tx: &mut SqliteTx<'_>, queue: &Queue, deaths: &[Death<i64>]) -> Result<u64> {
    let now = db.options.clock.now();
    each(tx, queue, deaths, |tx, letter| purge_one(tx, letter, now))
}

fn purge_one(tx: &mut SqliteTx<'_>, letter: &Letter, now: Timestamp) -> Result<()> {
    let Letter { item, peer, .. } = *letter;
    tx.execute(&tx.sql.queue_forget_handler, [item])?;
    let key = tx.query_optional(&tx.sql.queue_drop, [item], |row| row.get::<Option<String>>(0))?;
    Counts { dead: -1, ..Counts::default() }.write(tx, peer)?;
    crash_point!("queue.purged");
    Ended { peer, key: key.flatten().as_deref() }.promote(tx, now)
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
