//! Dead letters: listing, replaying, purging, releasing keys, callbacks.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use twobox_core::id::IdMint;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{BlockedKey, DeadLetter, DeadLetterFilter, DeadLetterStore, Death, Replay};
use twobox_core::{Destination, Endpoint, OrderingKey, Result, Source, Timestamp, crash_point};

use super::keys::refresh;
use super::log::next_joined;
use crate::error::wrap;
use crate::row::lossy;
use crate::sql::Sql;
use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

/// Messages behind a blocked key are counted up to this.
const BEHIND_MAX: i64 = 10_000;

/// Before every death: when it was, and its place in the log.
const FROM_THE_START: (i64, i64) = (i64::MIN, i64::MIN);

impl DeadLetterStore for Sqlite {
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&DeadLetter<i64>>,
        limit: usize,
    ) -> Result<Vec<DeadLetter<i64>>> {
        let filter = filter.clone();
        let after = after.map_or(FROM_THE_START, |letter| (letter.died.as_micros(), letter.position));
        self.read(move |connection, sql| {
            find(connection, sql, &filter, after, limit).map_err(wrap("list dead letters"))
        })
        .await
    }

    async fn dead_letter_count(&self, filter: &DeadLetterFilter, limit: usize) -> Result<u64> {
        let filter = filter.clone();
        self.read(move |connection, sql| {
            count(connection, sql, &filter, limit).map_err(wrap("count dead letters"))
        })
        .await
    }

    async fn replay_deaths(&self, deaths: Vec<Death<i64>>, replay: Replay, ttl: Duration) -> Result<u64> {
        if deaths.is_empty() {
            return Ok(0);
        }
        let db = self.clone();
        let replayed = self
            .write(Class::Synced, move |tx| {
                db.each_death(tx, &deaths, |tx, death| db.replay_one(tx, death, replay, ttl))
            })
            .await?;
        crash_point!("replay.before-wake");
        self.state.wake();
        Ok(replayed)
    }

    async fn purge_deaths(&self, deaths: Vec<Death<i64>>) -> Result<u64> {
        if deaths.is_empty() {
            return Ok(0);
        }
        let db = self.clone();
        let purged = self.write(Class::Synced, move |tx| db.each_death(tx, &deaths, purge_one)).await?;
        crash_point!("purge.before-wake");
        self.state.wake();
        Ok(purged)
    }

    async fn blocked_keys(&self, limit: usize) -> Result<Vec<BlockedKey<i64>>> {
        self.read(move |connection, sql| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = blocked(connection, sql, limit).map_err(wrap("list blocked keys"))?;
            // Only a key that can be named can be released; one that cannot does not hide the others (S19).
            Ok(rows.into_iter().filter_map(|blocked| blocked.check().ok()).collect())
        })
        .await
    }

    async fn release_key(
        &self,
        source: &Source,
        destination: &Destination,
        key: &OrderingKey,
    ) -> Result<bool> {
        let (db, names) = (self.clone(), [source.to_string(), destination.to_string(), key.to_string()]);
        let released = self
            .write(Class::Synced, move |tx| {
                let lanes = tx.query(&tx.sql.release_key, params![names[0], names[1], names[2]], |row| {
                    row.get::<i64>(0)
                })?;
                if let Some(lane) = lanes.first() {
                    refresh(tx, *lane, &names[2], db.options.clock.now().as_micros())?;
                }
                Ok::<_, twobox_core::Error>(!lanes.is_empty())
            })
            .await?;
        self.state.wake();
        Ok(released)
    }

    async fn unannounced(
        &self,
        source: &Source,
        after: Option<&i64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter<i64>>> {
        let (source, after) = (source.to_string(), after.copied().unwrap_or(0));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let letters = self
            .read(move |connection, sql| {
                let list = |connection: &Connection| {
                    let mut statement = connection.prepare_cached(&sql.unannounced)?;
                    statement
                        .query_map(params![source, after, limit], letter)?
                        .collect::<rusqlite::Result<Vec<_>>>()
                };
                list(connection).map_err(wrap("list new dead letters"))
            })
            .await?;
        if !letters.is_empty() {
            self.barrier().await?;
        }
        Ok(letters)
    }

    async fn announced(&self, deaths: Vec<Death<i64>>) -> Result<()> {
        self.write(Class::Lazy, move |tx| {
            deaths.iter().try_for_each(|(position, died)| {
                tx.execute(&tx.sql.announced, [*position, died.as_micros()]).map(drop)
            })
        })
        .await
    }
}

/// Lane and ordering key of a dead letter.
type Place = (i64, Option<String>);

impl Sqlite {
    /// Does something to each of these deaths, and gives the keys it touches their heads. Returns how many there were.
    fn each_death(
        &self,
        tx: &mut SqliteTx<'_>,
        deaths: &[Death<i64>],
        mut act: impl FnMut(&mut SqliteTx<'_>, Death<i64>) -> Result<Option<Place>>,
    ) -> Result<u64> {
        let (mut found, mut keys) = (0, BTreeSet::new());
        for death in deaths {
            let Some((lane, key)) = act(tx, *death)? else { continue };
            found += 1;
            keys.extend(key.map(|key| (lane, key)));
        }
        let now = self.options.clock.now().as_micros();
        keys.iter().try_for_each(|(lane, key)| refresh(tx, *lane, key, now))?;
        Ok(found)
    }

    fn replay_one(
        &self,
        tx: &mut SqliteTx<'_>,
        (seq, died): Death<i64>,
        replay: Replay,
        ttl: Duration,
    ) -> Result<Option<Place>> {
        let (now, died) = (self.options.clock.now(), died.as_micros());
        let expires = now.plus(ttl).as_micros();
        let now = now.as_micros();
        match replay {
            Replay::SameId => {
                let joined = lane_of(tx, seq)?.map(|lane| next_joined(tx, lane)).transpose()?;
                let values = params![seq, expires, joined, now, died];
                let reopened = tx.query_optional(&tx.sql.replay_same_id, values, place)?;
                crash_point!("replay.reopened");
                Ok(reopened)
            }
            Replay::NewId => {
                let id = IdMint::new(self.clock(), self.random()).mint();
                let values = params![seq, id.as_str(), now, expires, died];
                if tx.execute(&tx.sql.replay_new_id, values)? == 0 {
                    return Ok(None);
                }
                crash_point!("replay.copied");
                tx.query_optional(&tx.sql.mark_replayed, params![seq, id.as_str()], place)
            }
        }
    }
}

/// Removes every trace of a dead letter: a row of the log that is left alone behind the cursor would be shown as sent.
fn purge_one(tx: &mut SqliteTx<'_>, (seq, died): Death<i64>) -> Result<Option<Place>> {
    let purged = tx.query_optional(&tx.sql.purge_dead, params![seq, died.as_micros()], place)?;
    if purged.is_some() {
        crash_point!("purge.waiting-removed");
        tx.execute(&tx.sql.purge_log, [seq])?;
        tx.execute(&tx.sql.drop_attempts, [seq])?;
        crash_point!("purge.removed");
    }
    Ok(purged)
}

/// A key that is not text orders nothing.
fn place(row: &crate::Row<'_>) -> Result<Place> {
    Ok((row.get(0)?, row.get(1).unwrap_or(None)))
}

fn lane_of(tx: &mut SqliteTx<'_>, seq: i64) -> Result<Option<i64>> {
    tx.query_optional(&tx.sql.waiting_lane, [seq], |row| row.get(0))
}

/// The columns a filter asks for, apart from the message id.
struct Wanted<'a> {
    /// The last death that is meant.
    until: i64,
    source: Option<&'a str>,
    destination: Option<&'a str>,
    endpoint: Option<&'a str>,
    reason: Option<&'static str>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a DeadLetterFilter) -> Self {
        Self {
            until: filter.died_before.map_or(i64::MAX, |before| before.as_micros().saturating_sub(1)),
            source: filter.source.as_ref().map(Source::as_str),
            destination: filter.destination.as_ref().map(Destination::as_str),
            endpoint: filter.endpoint.as_ref().map(Endpoint::as_str),
            reason: filter.reason.map(Reason::as_str),
        }
    }
}

pub(crate) fn find(
    connection: &Connection,
    sql: &Sql,
    filter: &DeadLetterFilter,
    (died, seq): (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<DeadLetter<i64>>> {
    let Wanted { until, source, destination, endpoint, reason } = Wanted::new(filter);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement;
    let letters = if let Some(id) = &filter.message_id {
        statement = connection.prepare_cached(&sql.dead_by_id)?;
        let values = params![id.as_str(), seq, until, source, destination, endpoint, reason, limit];
        statement.query_map(values, letter)?
    } else {
        statement = connection.prepare_cached(&sql.dead_letters)?;
        let values = params![died, seq, until, source, destination, endpoint, reason, limit];
        statement.query_map(values, letter)?
    };
    letters.collect()
}

fn count(
    connection: &Connection,
    sql: &Sql,
    filter: &DeadLetterFilter,
    limit: usize,
) -> rusqlite::Result<u64> {
    if filter.message_id.is_some() {
        let letters = find(connection, sql, filter, FROM_THE_START, limit)?;
        return Ok(u64::try_from(letters.len()).unwrap_or(u64::MAX));
    }
    let Wanted { until, source, destination, endpoint, reason } = Wanted::new(filter);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = params![until, source, destination, endpoint, reason, limit];
    let count: i64 = connection.prepare_cached(&sql.count_dead)?.query_row(values, |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

pub(crate) fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter<i64>> {
    let reason = lossy(row, 5)?.unwrap_or_default();
    Ok(DeadLetter {
        position: row.get(0)?,
        message_id: lossy(row, 1)?.unwrap_or_default(),
        destination: lossy(row, 2)?.unwrap_or_default(),
        endpoint: lossy(row, 3)?.unwrap_or_default(),
        ordering_key: lossy(row, 4)?,
        reason: reason.parse().unwrap_or(Reason::Undecodable),
        error: lossy(row, 6)?,
        attempts: row.get(7)?,
        died: Timestamp::from_micros(row.get(8)?),
        blocks_key: row.get(9)?,
    })
}

struct Blocked {
    names: [String; 3],
    head: i64,
    waiting: u64,
}

impl Blocked {
    fn check(self) -> Result<BlockedKey<i64>> {
        let [source, destination, key] = self.names;
        Ok(BlockedKey {
            source: Source::new(source)?,
            destination: Destination::new(destination)?,
            ordering_key: OrderingKey::new(key)?,
            head: self.head,
            waiting: self.waiting,
        })
    }
}

fn blocked(connection: &Connection, sql: &Sql, limit: i64) -> rusqlite::Result<Vec<Blocked>> {
    let mut statement = connection.prepare_cached(&sql.blocked_keys)?;
    let mut rows = statement.query([limit])?;
    let mut blocked = Vec::new();
    while let Some(row) = rows.next()? {
        let names = [0, 1, 2].map(|column| lossy(row, column).ok().flatten().unwrap_or_default());
        let lane: i64 = row.get(4)?;
        let waiting: Option<i64> = connection
            .prepare_cached(&sql.count_behind)?
            .query_row(params![lane, names[2], BEHIND_MAX], |row| row.get(0))
            .optional()?;
        let waiting = u64::try_from(waiting.unwrap_or(0)).unwrap_or(0);
        blocked.push(Blocked { names, head: row.get(3)?, waiting });
    }
    Ok(blocked)
}
