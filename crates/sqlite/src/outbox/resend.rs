//! Sending again what was sent.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::ports::{LaneId, ResendFilter, ResendPlace, ResendStore, Resendable, Resent, Trimmed};
use twobox_core::{Destination, Endpoint, Result, Source, Timestamp, crash_point};

use super::keys::refresh;
use super::log::next_joined;
use crate::error::wrap;
use crate::sql::Sql;
use crate::writer::Class;
use crate::{Row, Sqlite, SqliteTx};

/// Rows of the log that one look goes through, wanted or not.
const SCAN_MAX: i64 = 20_000;
/// Receipts looked at in one go. When none of so many is young enough, no older one is, even if a clock has stepped.
const RECEIPTS: usize = 1_000;
/// Messages counted in one go.
const COUNTED: usize = 1_000;

impl ResendStore for Sqlite {
    async fn resendable(&self, filter: &ResendFilter, limit: usize) -> Result<Resendable> {
        let (mut messages, mut from) = (0, None);
        loop {
            let page = self.sent_page(filter, from.as_ref(), COUNTED.min(limit - messages)).await?;
            messages += page.rows.len();
            from = page.next;
            if from.is_none() || messages >= limit {
                break;
            }
        }
        let (since, source, destination) = (filter.since, name(&filter.source), name(&filter.destination));
        let trimmed = self
            .read(move |connection, sql| {
                trimmed(connection, sql, since, source.as_deref(), destination.as_deref())
            })
            .await?;
        Ok(Resendable { messages: u64::try_from(messages).unwrap_or(u64::MAX), trimmed })
    }

    async fn resend(
        &self,
        filter: &ResendFilter,
        from: Option<&ResendPlace<i64>>,
        limit: usize,
        ttl: Duration,
    ) -> Result<Resent<i64>> {
        let page = self.sent_page(filter, from, limit).await?;
        if page.rows.is_empty() {
            return Ok(Resent { resent: 0, next: page.next });
        }
        let (db, lane, rows) = (self.clone(), page.lane, page.rows);
        let resent = self.write(Class::Synced, move |tx| db.wait_again(tx, lane, &rows, ttl)).await?;
        crash_point!("resend.before-wake");
        self.state.wake();
        Ok(Resent { resent, next: page.next })
    }
}

/// Sent messages of one lane: their places, and whether they had to wait before.
struct SentPage {
    lane: i64,
    rows: Vec<(i64, bool)>,
    next: Option<ResendPlace<i64>>,
}

fn name(name: &Option<impl ToString>) -> Option<String> {
    name.as_ref().map(ToString::to_string)
}

impl Sqlite {
    async fn sent_page(
        &self,
        filter: &ResendFilter,
        from: Option<&ResendPlace<i64>>,
        limit: usize,
    ) -> Result<SentPage> {
        let search = Search {
            since: filter.since.as_micros(),
            before: filter.before.map_or(i64::MAX, Timestamp::as_micros),
            source: name(&filter.source),
            destination: name(&filter.destination),
            endpoint: filter.endpoint.as_ref().map(Endpoint::to_string),
            limit,
        };
        let from = from.cloned().unwrap_or(ResendPlace { lane: LaneId(i64::MIN), after: None });
        self.read(move |connection, sql| {
            search.page(connection, sql, &from).map_err(wrap("look for sent messages"))
        })
        .await
    }

    fn wait_again(
        &self,
        tx: &mut SqliteTx<'_>,
        lane: i64,
        rows: &[(i64, bool)],
        ttl: Duration,
    ) -> Result<u64> {
        let now = self.options.clock.now();
        let (expires, now) = (now.plus(ttl).as_micros(), now.as_micros());
        let joined = next_joined(tx, lane)?;
        let (mut resent, mut keys) = (0, BTreeSet::new());
        for &(seq, waited) in rows {
            let sql = if waited { &tx.sql.resend_waiting } else { &tx.sql.resend_log };
            let values = params![seq, lane, expires, joined, now];
            let again =
                tx.query_optional(sql, values, |row| Ok(row.get::<Option<String>>(1).unwrap_or(None)))?;
            crash_point!("resend.reopened");
            resent += u64::from(again.is_some());
            keys.extend(again.flatten());
        }
        keys.iter().try_for_each(|key| refresh(tx, lane, key, now))?;
        Ok(resent)
    }
}

/// A look for sent messages.
struct Search {
    since: i64,
    before: i64,
    source: Option<String>,
    destination: Option<String>,
    endpoint: Option<String>,
    limit: usize,
}

struct Lane {
    id: i64,
    source: String,
    destination: String,
    cursor: i64,
}

impl Search {
    fn page(
        &self,
        connection: &Connection,
        sql: &Sql,
        from: &ResendPlace<i64>,
    ) -> rusqlite::Result<SentPage> {
        let Some(lane) = self.lane(connection, sql, from.lane.0)? else {
            return Ok(SentPage { lane: from.lane.0, rows: Vec::new(), next: None });
        };
        let after = match from.after.filter(|_| from.lane.0 == lane.id) {
            Some(after) => Some(after),
            None => self.first(connection, sql, &lane)?.map(|first| first - 1),
        };
        let next_lane = Some(ResendPlace { lane: LaneId(lane.id.saturating_add(1)), after: None });
        let Some(after) = after else {
            return Ok(SentPage { lane: lane.id, rows: Vec::new(), next: next_lane });
        };
        let upto = lane.cursor.min(after.saturating_add(SCAN_MAX));
        let rows = self.rows(connection, sql, &lane, (after, upto))?;
        let full = rows.last().filter(|_| rows.len() >= self.limit).map(|(last, _)| *last);
        let place = |after| Some(ResendPlace { lane: LaneId(lane.id), after: Some(after) });
        let next = match full {
            Some(last) => place(last),
            None if upto < lane.cursor => place(upto),
            None => next_lane,
        };
        Ok(SentPage { lane: lane.id, rows, next })
    }

    fn lane(&self, connection: &Connection, sql: &Sql, from: i64) -> rusqlite::Result<Option<Lane>> {
        let mut statement = connection.prepare_cached(&sql.resend_lane)?;
        let lane = statement.query_row(params![from, self.source, self.destination], |row| {
            Ok(Lane { id: row.get(0)?, source: row.get(1)?, destination: row.get(2)?, cursor: row.get(3)? })
        });
        lane.optional()
    }

    /// The first place of the lane at which something may be that is wanted.
    fn first(&self, connection: &Connection, sql: &Sql, lane: &Lane) -> rusqlite::Result<Option<i64>> {
        let waited: Option<i64> = connection
            .prepare_cached(&sql.resend_first)?
            .query_row([lane.id, self.since], |row| row.get(0))?;
        let (mut first, mut before) = (waited, i64::MAX);
        let mut statement = connection.prepare_cached(&sql.resend_receipts)?;
        loop {
            let rows = statement
                .query_map(params![lane.id, before, i64::try_from(RECEIPTS).unwrap_or(i64::MAX)], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
                })?;
            let receipts = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let young = receipts.iter().filter(|(_, _, sent_at)| *sent_at >= self.since);
            let youngest = young.map(|(_, first, _)| *first).min();
            first = [first, youngest].into_iter().flatten().min();
            match receipts.last() {
                Some((last, _, _)) if youngest.is_some() && receipts.len() == RECEIPTS => before = *last,
                _ => return Ok(first),
            }
        }
    }

    fn rows(
        &self,
        connection: &Connection,
        sql: &Sql,
        lane: &Lane,
        (after, upto): (i64, i64),
    ) -> rusqlite::Result<Vec<(i64, bool)>> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let values = params![
            lane.id,
            lane.source,
            lane.destination,
            after,
            upto,
            self.since,
            self.before,
            self.endpoint,
            limit
        ];
        let mut statement = connection.prepare_cached(&sql.resend_page)?;
        statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }
}

fn trimmed(
    connection: &Connection,
    sql: &Sql,
    since: Timestamp,
    source: Option<&str>,
    destination: Option<&str>,
) -> Result<Vec<Trimmed>> {
    let failed = || wrap("look for what is no longer in the log");
    let mut statement = connection.prepare_cached(&sql.trimmed).map_err(failed())?;
    let rows = statement
        .query_map(params![since.as_micros(), source, destination], |row| Ok(lane_trimmed(&Row::new(row))))
        .map_err(failed())?;
    rows.map(|row| row.map_err(failed())?).collect()
}

fn lane_trimmed(row: &Row<'_>) -> Result<Trimmed> {
    Ok(Trimmed {
        source: Source::new(row.get::<String>(0)?)?,
        destination: Destination::new(row.get::<String>(1)?)?,
        until: Timestamp::from_micros(row.get(2)?),
    })
}
