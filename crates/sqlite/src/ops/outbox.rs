//! Messages of the outbox: the log and what waits beside it, as one listing.

use rusqlite::{Connection, Row, params};
use twobox_core::ports::ops::{EXAMINED_MAX, OutboxFilter, OutboxStatus, OutboxSummary, Page, SAME_ID_MAX};
use twobox_core::{Error, Result, Timestamp};

use super::lanes::Lanes;
use super::range::Range;
use super::{page_limit, stats, token};
use crate::error::wrap;
use crate::row::{lossy, raw};
use crate::sql::Sql;

/// The kind of its page tokens.
const KIND: char = 'o';

/// Columns in the order in which every statement that lists messages has them.
mod column {
    pub(super) const SEQ: usize = 0;
    pub(super) const MESSAGE_ID: usize = 1;
    pub(super) const SOURCE: usize = 2;
    pub(super) const DESTINATION: usize = 3;
    pub(super) const ENDPOINT: usize = 4;
    pub(super) const MESSAGE_TYPE: usize = 5;
    pub(super) const CONTENT_TYPE: usize = 6;
    pub(super) const ORDERING_KEY: usize = 7;
    pub(super) const CREATED_AT: usize = 8;
    pub(super) const DUE_AT: usize = 9;
    pub(super) const PAYLOAD_BYTES: usize = 10;
    pub(super) const STATE: usize = 11;
    pub(super) const ATTEMPTS: usize = 12;
    pub(super) const NEXT_ATTEMPT_AT: usize = 13;
    pub(super) const LAST_ERROR: usize = 14;
    pub(super) const SHADOWED: usize = 15;
}

type Found = OutboxSummary<i64>;

pub(super) fn list(
    connection: &Connection,
    sql: &Sql,
    log_table: &str,
    filter: &OutboxFilter,
    after: Option<&twobox_core::ports::ops::PageToken>,
    limit: usize,
) -> Result<Page<Found>> {
    let after = token::read::<2>(KIND, after)?;
    let lanes = Lanes::read(connection, sql)?;
    let failed = wrap("list messages of the outbox");
    if let Some(id) = &filter.message_id {
        return of_id(connection, sql, &lanes, filter, id.as_str()).map_err(failed);
    }
    let read = || {
        let dates = (sql.ops_log_bounds.as_str(), sql.ops_log_dates.as_str());
        let range = Range::of_dates(connection, dates, filter.created_from, filter.created_until)?;
        // What is open need not be looked for once all of it was found.
        let open = match after {
            Some([_, open]) => open,
            None => {
                let end = stats::log_end(connection, sql, log_table)?;
                i64::try_from(lanes.pending(end)).unwrap_or(i64::MAX)
            }
        };
        let mut walk = Walk {
            connection,
            sql,
            lanes: &lanes,
            filter,
            limit: page_limit(limit),
            open,
            range: after.map_or(range, |[place, _]| range.before(place)),
            found: Vec::new(),
            examined: 0,
        };
        let more = walk.run()?;
        let next = more.then(|| token::write(KIND, &[walk.range.below, walk.open]));
        Ok(Page { items: walk.found, next, examined: walk.examined })
    };
    read().map_err(failed)
}

/// A walk from the newest to the oldest.
struct Walk<'a> {
    connection: &'a Connection,
    sql: &'a Sql,
    lanes: &'a Lanes,
    filter: &'a OutboxFilter,
    limit: usize,
    /// Messages of the log that are not settled and were not seen yet.
    open: i64,
    /// What is left to look at.
    range: Range,
    found: Vec<Found>,
    examined: usize,
}

/// Which rows a step of the walk reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    All,
    /// The log, and what waits to be sent beside it.
    Open,
    /// What is of one state beside the log.
    Of(OutboxStatus),
}

impl Walk<'_> {
    /// Whether there may be more.
    fn run(&mut self) -> rusqlite::Result<bool> {
        match self.filter.status {
            None | Some(OutboxStatus::Sent) => self.step(Rows::All),
            Some(status @ (OutboxStatus::Failed | OutboxStatus::Expired)) => self.step(Rows::Of(status)),
            Some(OutboxStatus::Pending | OutboxStatus::Sending) => {
                if self.open > 0 {
                    let more = self.step(Rows::Open)?;
                    if more && self.open > 0 {
                        return Ok(true);
                    }
                }
                if self.filter.status == Some(OutboxStatus::Sending) || self.is_full() {
                    return Ok(self.is_full());
                }
                self.step(Rows::Of(OutboxStatus::Pending))
            }
        }
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit || self.examined >= EXAMINED_MAX
    }

    /// Looks at rows until enough were found or looked at, or, for what is open, until the log has none left.
    fn step(&mut self, rows: Rows) -> rusqlite::Result<bool> {
        let (connection, sql, Range { above, below }) = (self.connection, self.sql, self.range);
        let room = i64::try_from(EXAMINED_MAX - self.examined).unwrap_or(0);
        let mut statement = connection.prepare_cached(match rows {
            Rows::All => &sql.ops_outbox_rows,
            Rows::Open => &sql.ops_outbox_rows_open,
            Rows::Of(_) => &sql.ops_outbox_rows_of,
        })?;
        let mut read = match rows {
            Rows::Of(status) => statement.query(params![below, above, room, status.as_str()])?,
            Rows::All | Rows::Open => statement.query(params![below, above, room])?,
        };
        while !self.is_full() {
            let Some(row) = read.next()? else { return Ok(false) };
            self.look(row)?;
            if rows == Rows::Open && self.open <= 0 {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn look(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        self.examined += 1;
        let seq: i64 = row.get(column::SEQ)?;
        if row.get(column::SHADOWED)? {
            // It is shown as what waits, which comes next and may be on the next page.
            self.range.below = seq.saturating_add(1);
            return Ok(());
        }
        self.range.below = seq;
        let status = status(row, self.lanes)?;
        let in_log = matches!(row.get_ref(column::STATE)?, rusqlite::types::ValueRef::Null);
        if in_log && status != OutboxStatus::Sent {
            self.open -= 1;
        }
        if matches(row, self.filter, status)? {
            self.found.push(summary(row, status)?);
        }
        Ok(())
    }
}

/// Where a row stands.
pub(super) fn status(row: &Row<'_>, lanes: &Lanes) -> rusqlite::Result<OutboxStatus> {
    Ok(match raw(row, column::STATE)? {
        b"Pending" => OutboxStatus::Pending,
        b"Sent" => OutboxStatus::Sent,
        b"Failed" => OutboxStatus::Failed,
        b"Expired" => OutboxStatus::Expired,
        _ => {
            let lane = lanes.find(raw(row, column::SOURCE)?, raw(row, column::DESTINATION)?);
            lanes.status(lane, row.get(column::SEQ)?)
        }
    })
}

fn matches(row: &Row<'_>, filter: &OutboxFilter, status: OutboxStatus) -> rusqlite::Result<bool> {
    let is = |column: usize, wanted: Option<&str>| match wanted {
        Some(wanted) => raw(row, column).map(|found| found == wanted.as_bytes()),
        None => Ok(true),
    };
    let created = Timestamp::from_micros(row.get(column::CREATED_AT)?);
    Ok(filter.status.is_none_or(|wanted| wanted == status)
        && is(column::SOURCE, filter.source.as_ref().map(AsRef::as_ref))?
        && is(column::DESTINATION, filter.destination.as_ref().map(AsRef::as_ref))?
        && is(column::ENDPOINT, filter.endpoint.as_ref().map(AsRef::as_ref))?
        && is(column::ORDERING_KEY, filter.ordering_key.as_ref().map(AsRef::as_ref))?
        && filter.created_from.is_none_or(|from| created >= from)
        && filter.created_until.is_none_or(|until| created < until))
}

/// What a listing shows of a row.
pub(super) fn summary(row: &Row<'_>, status: OutboxStatus) -> rusqlite::Result<Found> {
    let text = |column| Ok::<_, rusqlite::Error>(lossy(row, column)?.unwrap_or_default());
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
    Ok(OutboxSummary {
        position: row.get(column::SEQ)?,
        message_id: text(column::MESSAGE_ID)?,
        source: text(column::SOURCE)?,
        destination: text(column::DESTINATION)?,
        endpoint: text(column::ENDPOINT)?,
        message_type: text(column::MESSAGE_TYPE)?,
        ordering_key: lossy(row, column::ORDERING_KEY)?,
        status,
        attempts: row.get(column::ATTEMPTS)?,
        created: Timestamp::from_micros(row.get(column::CREATED_AT)?),
        due: time(column::DUE_AT)?,
        next_attempt: time(column::NEXT_ATTEMPT_AT)?,
        last_error: lossy(row, column::LAST_ERROR)?,
        payload_bytes: row.get::<_, i64>(column::PAYLOAD_BYTES)?.unsigned_abs(),
        content_type: text(column::CONTENT_TYPE)?,
    })
}

/// Places of the messages with this id, newest first.
pub(super) fn places(connection: &Connection, sql: &Sql, id: &str) -> rusqlite::Result<Vec<i64>> {
    let most = i64::try_from(SAME_ID_MAX).unwrap_or(i64::MAX);
    connection
        .prepare_cached(&sql.ops_outbox_of_id)?
        .query_map(params![id, most], |row| row.get(0))?
        .collect()
}

fn of_id(
    connection: &Connection,
    sql: &Sql,
    lanes: &Lanes,
    filter: &OutboxFilter,
    id: &str,
) -> rusqlite::Result<Page<Found>> {
    let places = places(connection, sql, id)?;
    let mut items = Vec::new();
    for place in &places {
        let mut statement = connection.prepare_cached(&sql.ops_outbox_row)?;
        let mut rows = statement.query([place])?;
        let Some(row) = rows.next()? else { continue };
        let status = status(row, lanes)?;
        if matches(row, filter, status)? {
            items.push(summary(row, status)?);
        }
    }
    Ok(Page { items, next: None, examined: places.len() })
}

/// A place in the log from its text.
pub(super) fn parse_position(text: &str) -> Result<i64> {
    text.parse().map_err(|_| Error::invalid(format!("{text:?} is not a place in the log")))
}
