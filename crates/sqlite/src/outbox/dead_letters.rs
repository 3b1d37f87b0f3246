//! Dead letters: listing, replaying, releasing keys, callbacks.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use twobox_core::id::IdMint;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{BlockedKey, DeadLetter, DeadLetterFilter, DeadLetterStore, Replay, Replayed};
use twobox_core::{Destination, OrderingKey, Result, Source, Timestamp, crash_point};

use super::keys::refresh;
use super::log::next_joined;
use crate::error::wrap;
use crate::row::lossy;
use crate::sql::Sql;
use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

/// Messages behind a blocked key are counted up to this.
const BEHIND_MAX: i64 = 10_000;

impl DeadLetterStore for Sqlite {
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&DeadLetter<i64>>,
        limit: usize,
    ) -> Result<Vec<DeadLetter<i64>>> {
        let filter = filter.clone();
        let after = after.map_or((i64::MIN, 0), |letter| (letter.died.as_micros(), letter.position));
        self.read(move |connection, sql| {
            find(connection, sql, &filter, after, limit).map_err(wrap("list dead letters"))
        })
        .await
    }

    async fn replay(
        &self,
        filter: &DeadLetterFilter,
        replay: Replay,
        ttl: Duration,
        limit: usize,
    ) -> Result<Replayed> {
        let (db, filter) = (self.clone(), filter.clone());
        let replayed = self
            .write(Class::Synced, move |tx| {
                let letters = find(tx.connection, tx.sql, &filter, (i64::MIN, 0), limit.saturating_add(1))
                    .map_err(wrap("find dead letters"))?;
                for letter in letters.iter().take(limit) {
                    db.replay_one(tx, letter.position, replay, ttl)?;
                }
                let replayed = letters.len().min(limit);
                Ok::<_, twobox_core::Error>(Replayed {
                    replayed: u64::try_from(replayed).unwrap_or(u64::MAX),
                    more: letters.len() > limit,
                })
            })
            .await?;
        crash_point!("replay.before-wake");
        self.state.wake();
        Ok(replayed)
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

    async fn announced(&self, deaths: Vec<(i64, Timestamp)>) -> Result<()> {
        self.write(Class::Lazy, move |tx| {
            deaths.iter().try_for_each(|(position, died)| {
                tx.execute(&tx.sql.announced, [*position, died.as_micros()]).map(drop)
            })
        })
        .await
    }
}

impl Sqlite {
    fn replay_one(&self, tx: &mut SqliteTx<'_>, seq: i64, replay: Replay, ttl: Duration) -> Result<()> {
        let now = self.options.clock.now();
        let expires = now.plus(ttl).as_micros();
        let now = now.as_micros();
        let touched = match replay {
            Replay::SameId => {
                let joined = lane_of(tx, seq)?.map(|lane| next_joined(tx, lane)).transpose()?;
                let values = params![seq, expires, joined, now];
                let reopened = tx.query_optional(&tx.sql.replay_same_id, values, place)?;
                crash_point!("replay.reopened");
                reopened
            }
            Replay::NewId => {
                let id = IdMint::new(self.clock(), self.random()).mint();
                tx.execute(&tx.sql.replay_new_id, params![seq, id.as_str(), now, expires])?;
                crash_point!("replay.copied");
                tx.query_optional(&tx.sql.mark_replayed, params![seq, id.as_str()], place)?
            }
        };
        match touched {
            Some((lane, Some(key))) => refresh(tx, lane, &key, now),
            _ => Ok(()),
        }
    }
}

/// Lane and ordering key of a dead letter. A key that is not text orders nothing.
fn place(row: &crate::Row<'_>) -> Result<(i64, Option<String>)> {
    Ok((row.get(0)?, row.get(1).unwrap_or(None)))
}

fn lane_of(tx: &mut SqliteTx<'_>, seq: i64) -> Result<Option<i64>> {
    tx.query_optional(&tx.sql.waiting_lane, [seq], |row| row.get(0))
}

fn find(
    connection: &Connection,
    sql: &Sql,
    filter: &DeadLetterFilter,
    after: (i64, i64),
    limit: usize,
) -> rusqlite::Result<Vec<DeadLetter<i64>>> {
    let source = filter.source.as_ref().map(Source::as_str);
    let destination = filter.destination.as_ref().map(Destination::as_str);
    let endpoint = filter.endpoint.as_ref().map(twobox_core::Endpoint::as_str);
    let reason = filter.reason.map(Reason::as_str);
    if let Some(id) = &filter.message_id {
        let mut statement = connection.prepare_cached(&sql.dead_by_id)?;
        let values = params![id.as_str(), source, destination, endpoint, reason];
        return statement.query_map(values, letter)?.take(limit).collect();
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql.dead_letters)?;
    let values = params![after.0, after.1, source, destination, endpoint, reason, limit];
    statement.query_map(values, letter)?.collect()
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter<i64>> {
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
