//! Both boxes in numbers. Counters are read, not made; what a lane has pending is counted in the newest rows only.

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::ports::ops::{
    Count, EXAMINED_MAX, InboxCounts, InboxStats, LaneStats, OutboxStats, PeerStats,
};
use twobox_core::{Consumer, Result, Source, Timestamp};

use super::lanes::Lanes;
use crate::error::wrap;
use crate::row::{lossy, raw};
use crate::sql::Sql;

/// How far behind a lane's cursor its next message is looked for.
const NEXT_ROWS: i64 = 1_000;

/// What the newest rows of the log say about a lane.
#[derive(Clone, Copy, Default)]
struct Tail {
    pending: u64,
    /// When the oldest of them could have been sent.
    oldest: Option<i64>,
}

pub(super) fn outbox(
    connection: &Connection,
    sql: &Sql,
    log_table: &str,
    examine: usize,
    now: Timestamp,
) -> Result<OutboxStats> {
    let failed = || wrap("count the outbox");
    let lanes = Lanes::read(connection, sql)?;
    let end = log_end(connection, sql, log_table).map_err(failed())?;
    let pending = lanes.pending(end);
    let examine = examine.min(EXAMINED_MAX);
    let mut look = Look { tails: vec![Tail::default(); lanes.rows.len()], first: i64::MAX, left: pending };
    if examine > 0 {
        look.run(connection, sql, &lanes, examine).map_err(failed())?;
    }
    let mut budget = i64::try_from(examine).unwrap_or(0) / NEXT_ROWS;
    let mut stats =
        OutboxStats { enqueued: u64::try_from(end).unwrap_or(0), pending, ..OutboxStats::default() };
    for (lane, tail) in lanes.rows.into_iter().zip(&look.tails) {
        // What is not found may be any lane's that has not come to where we looked.
        let at_least = look.left > 0 && lane.cursor < look.first.saturating_sub(1);
        let mut oldest = tail.oldest;
        if at_least && budget > 0 {
            budget -= 1;
            let values = params![
                lane.cursor,
                lane.cursor.saturating_add(NEXT_ROWS),
                text(&lane.names.0),
                text(&lane.names.1)
            ];
            oldest = date(connection, &sql.ops_log_next, values).map_err(failed())?.or(oldest);
        }
        let waiting = lane.status.waiting;
        if waiting.retrying + waiting.held > 0 {
            let waited = date(connection, &sql.ops_oldest_waiting, [lane.status.lane.0]).map_err(failed())?;
            oldest = oldest.into_iter().chain(waited).min();
        }
        let oldest = oldest.map(|date| now.since(Timestamp::from_micros(date)));
        stats.push(LaneStats { lane: lane.status, pending: Count { value: tail.pending, at_least }, oldest });
    }
    Ok(stats)
}

/// A look at the newest rows of the log, until everything that is pending is found.
struct Look {
    tails: Vec<Tail>,
    /// The oldest row that was looked at.
    first: i64,
    /// Pending messages that were not found.
    left: u64,
}

impl Look {
    fn run(
        &mut self,
        connection: &Connection,
        sql: &Sql,
        lanes: &Lanes,
        examine: usize,
    ) -> rusqlite::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let mut statement = connection.prepare_cached(&sql.ops_log_tail)?;
        let mut rows = statement.query([i64::try_from(examine).unwrap_or(i64::MAX)])?;
        let mut examined = 0;
        while self.left > 0 {
            let Some(row) = rows.next()? else {
                // With fewer rows than asked for, there is nothing else to be found.
                self.first = if examined < examine { i64::MIN } else { self.first };
                break;
            };
            examined += 1;
            let seq: i64 = row.get(0)?;
            self.first = seq;
            let lane = lanes.find(raw(row, 1)?, raw(row, 2)?);
            if lane.is_some_and(|at| seq <= lanes.rows[at].cursor) {
                continue;
            }
            self.left -= 1;
            if let Some(tail) = lane.and_then(|at| self.tails.get_mut(at)) {
                tail.pending += 1;
                tail.oldest = Some(row.get(3)?);
            }
        }
        Ok(())
    }
}

/// A name as it is stored: bytes that are not text match as a blob would not.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn date(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()
}

/// The highest place ever given out.
pub(super) fn log_end(connection: &Connection, sql: &Sql, log_table: &str) -> rusqlite::Result<i64> {
    connection.prepare_cached(&sql.log_end)?.query_row([log_table], |row| row.get(0))
}

/// A consumer and source with its row.
pub(super) struct PeerRow {
    pub(super) id: i64,
    pub(super) consumer: String,
    pub(super) source: String,
    watermark: i64,
    counts: InboxCounts,
}

/// All consumers and sources. There are as many as there are senders to each consumer.
pub(super) fn peers(connection: &Connection, sql: &Sql) -> rusqlite::Result<Vec<PeerRow>> {
    connection.prepare_cached(&sql.ops_peers)?.query_map([], peer)?.collect()
}

fn peer(row: &rusqlite::Row<'_>) -> rusqlite::Result<PeerRow> {
    let count = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
    let mut counts = InboxCounts::default();
    counts.done = count(4)?;
    counts.duplicates = count(5)?;
    counts.died = count(6)?;
    counts.conflicts = count(7)?;
    counts.too_old = count(8)?;
    counts.mismatches = count(9)?;
    counts.rows = count(10)?;
    counts.queued = count(11)?;
    counts.dead = count(12)?;
    counts.outbox_changes = count(13)?;
    Ok(PeerRow {
        id: row.get(0)?,
        consumer: lossy(row, 1)?.unwrap_or_default(),
        source: lossy(row, 2)?.unwrap_or_default(),
        watermark: row.get(3)?,
        counts,
    })
}

pub(super) fn inbox(connection: &Connection, sql: &Sql) -> Result<InboxStats> {
    let mut stats = InboxStats::default();
    for peer in peers(connection, sql).map_err(wrap("count the inbox"))? {
        let PeerRow { consumer, source, watermark, counts, .. } = peer;
        stats.total.add(&counts);
        stats.peers.push(PeerStats {
            consumer: Consumer::new(consumer)?,
            source: Source::new(source)?,
            counts,
            watermark: (watermark > i64::MIN).then(|| Timestamp::from_micros(watermark)),
        });
    }
    Ok(stats)
}
