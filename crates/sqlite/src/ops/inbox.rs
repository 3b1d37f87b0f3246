//! Messages of the inbox: rows by the time of their arrival, those that are not done by indexes of their own.

use rusqlite::types::ToSql;
use rusqlite::{Connection, Row, params};
use twobox_core::ports::InboxStatus;
use twobox_core::ports::ops::{EXAMINED_MAX, InboxFilter, InboxSummary, Page, PageToken, SAME_ID_MAX};
use twobox_core::{Result, Timestamp};

use super::range::Range;
use super::stats::{PeerRow, peers};
use super::{page_limit, token};
use crate::error::wrap;
use crate::row::{lossy, raw};
use crate::sql::Sql;

/// The kind of its page tokens.
const KIND: char = 'i';

/// Columns in the order in which every statement that lists rows has them.
mod column {
    pub(super) const ROW_ID: usize = 0;
    pub(super) const PEER_ID: usize = 1;
    pub(super) const MESSAGE_ID: usize = 2;
    pub(super) const STATUS: usize = 3;
    pub(super) const ENDPOINT: usize = 4;
    pub(super) const MESSAGE_TYPE: usize = 5;
    pub(super) const RECEIVED_AT: usize = 6;
    pub(super) const PROCESSED_AT: usize = 7;
    /// Only where it may be asked for.
    pub(super) const ORDERING_KEY: usize = 8;
}

pub(super) fn list(
    connection: &Connection,
    sql: &Sql,
    filter: &InboxFilter,
    after: Option<&PageToken>,
    limit: usize,
) -> Result<Page<InboxSummary>> {
    let after = token::read::<1>(KIND, after)?;
    let read = || {
        let peers = peers(connection, sql)?;
        let look = Look { connection, sql, peers: &peers, filter };
        if let Some(id) = &filter.message_id {
            return look.of_id(id.as_str());
        }
        let dates = (sql.ops_inbox_bounds.as_str(), sql.ops_inbox_dates.as_str());
        let range = Range::of_dates(connection, dates, filter.received_from, filter.received_until)?;
        look.walk(after.map_or(range, |[place]| range.before(place)), page_limit(limit))
    };
    read().map_err(wrap("list messages of the inbox"))
}

/// What is looked for, and whose peers' names are known.
pub(super) struct Look<'a> {
    pub(super) connection: &'a Connection,
    pub(super) sql: &'a Sql,
    pub(super) peers: &'a [PeerRow],
    pub(super) filter: &'a InboxFilter,
}

impl Look<'_> {
    /// The statement that passes over the fewest rows.
    fn statement(&self) -> (&str, Option<InboxStatus>) {
        let sql = self.sql;
        if self.filter.ordering_key.is_some() {
            return (&sql.ops_inbox_rows_queued, None);
        }
        match self.filter.status {
            None | Some(InboxStatus::Done) => (&sql.ops_inbox_rows, None),
            Some(InboxStatus::Processing) => (&sql.ops_inbox_rows_open, None),
            Some(status @ InboxStatus::Seen) => (&sql.ops_inbox_rows_noticed, Some(status)),
            Some(InboxStatus::Dead | InboxStatus::Expired) => (&sql.ops_inbox_rows_died, None),
        }
    }

    fn walk(&self, range: Range, limit: usize) -> rusqlite::Result<Page<InboxSummary>> {
        let most = i64::try_from(EXAMINED_MAX).unwrap_or(i64::MAX);
        let (sql, status) = self.statement();
        let status = status.map(InboxStatus::as_str);
        let mut values: Vec<&dyn ToSql> = vec![&range.below, &range.above, &most];
        if status.is_some() {
            values.push(&status);
        }
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(values.as_slice())?;
        let mut page = Page { items: Vec::new(), next: None, examined: 0 };
        let mut last = range.below;
        while page.items.len() < limit && page.examined < EXAMINED_MAX {
            let Some(row) = rows.next()? else { return Ok(page) };
            page.examined += 1;
            last = row.get(column::ROW_ID)?;
            page.items.extend(self.look(row)?);
        }
        page.next = Some(token::write(KIND, &[last]));
        Ok(page)
    }

    pub(super) fn of_id(&self, id: &str) -> rusqlite::Result<Page<InboxSummary>> {
        let mut page = Page { items: Vec::new(), next: None, examined: 0 };
        let mut statement = self.connection.prepare_cached(&self.sql.ops_inbox_of_id)?;
        let mut rows = statement.query(params![id, i64::try_from(SAME_ID_MAX).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            page.examined += 1;
            page.items.extend(self.look(row)?);
        }
        page.items.sort_by_key(|item| std::cmp::Reverse(item.place));
        Ok(page)
    }

    /// The row, if it matches.
    fn look(&self, row: &Row<'_>) -> rusqlite::Result<Option<InboxSummary>> {
        let id: i64 = row.get(column::PEER_ID)?;
        let Some(peer) = self.peers.iter().find(|peer| peer.id == id) else { return Ok(None) };
        // The schema allows no other text.
        let status = std::str::from_utf8(raw(row, column::STATUS)?).ok().and_then(|text| text.parse().ok());
        let Some(status) = status else { return Ok(None) };
        let received = Timestamp::from_micros(row.get(column::RECEIVED_AT)?);
        if !self.matches(row, peer, status, received)? {
            return Ok(None);
        }
        self.summary(row, peer, status, received).map(Some)
    }

    fn matches(
        &self,
        row: &Row<'_>,
        peer: &PeerRow,
        status: InboxStatus,
        received: Timestamp,
    ) -> rusqlite::Result<bool> {
        let filter = self.filter;
        let is = |column: usize, wanted: Option<&str>| match wanted {
            Some(wanted) => raw(row, column).map(|found| found == wanted.as_bytes()),
            None => Ok(true),
        };
        Ok(filter.status.is_none_or(|wanted| wanted == status)
            && filter.consumer.as_ref().is_none_or(|wanted| wanted.as_str() == peer.consumer)
            && filter.source.as_ref().is_none_or(|wanted| wanted.as_str() == peer.source)
            && is(column::ENDPOINT, filter.endpoint.as_ref().map(AsRef::as_ref))?
            && is(column::ORDERING_KEY, filter.ordering_key.as_ref().map(AsRef::as_ref))?
            && filter.received_from.is_none_or(|from| received >= from)
            && filter.received_until.is_none_or(|until| received < until))
    }

    fn summary(
        &self,
        row: &Row<'_>,
        peer: &PeerRow,
        status: InboxStatus,
        received: Timestamp,
    ) -> rusqlite::Result<InboxSummary> {
        let text = |column| Ok::<_, rusqlite::Error>(lossy(row, column)?.unwrap_or_default());
        let place: i64 = row.get(column::ROW_ID)?;
        let mut rest = self.connection.prepare_cached(&self.sql.ops_inbox_rest)?;
        rest.query_row([place], |rest| {
            Ok(InboxSummary {
                place,
                consumer: peer.consumer.clone(),
                source: peer.source.clone(),
                message_id: text(column::MESSAGE_ID)?,
                endpoint: text(column::ENDPOINT)?,
                message_type: text(column::MESSAGE_TYPE)?,
                ordering_key: lossy(rest, 0)?,
                status,
                is_queued: rest.get(1)?,
                attempts: rest.get(2)?,
                received,
                processed: row.get::<_, Option<i64>>(column::PROCESSED_AT)?.map(Timestamp::from_micros),
                last_error: lossy(rest, 3)?,
            })
        })
    }
}
