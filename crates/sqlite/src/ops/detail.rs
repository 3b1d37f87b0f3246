//! One message: everything that is known about it, except for its payload and its response (S17).

use rusqlite::{Connection, OptionalExtension, Row};
use twobox_core::ports::ops::{
    AttemptRecord, InboxDetail, InboxFilter, InboxSummary, OutboxDetail, OutboxStatus, QueuedDetail, TraceIds,
};
use twobox_core::{Headers, MessageId, Payload, Result, Timestamp};

use super::inbox::Look;
use super::lanes::Lanes;
use super::outbox::{places, status, summary};
use super::stats::peers;
use crate::error::wrap;
use crate::inbox::handle::hash;
use crate::row::{lossy, raw};
use crate::sql::Sql;

pub(crate) fn outbox(connection: &Connection, sql: &Sql, id: &MessageId) -> Result<Vec<OutboxDetail<i64>>> {
    let lanes = Lanes::read(connection, sql)?;
    let read = || {
        let mut found = Vec::new();
        for place in places(connection, sql, id.as_str())? {
            found.extend(outbox_row(connection, sql, &lanes, place)?);
        }
        Ok(found)
    };
    read().map_err(wrap("look up a message of the outbox"))
}

fn outbox_row(
    connection: &Connection,
    sql: &Sql,
    lanes: &Lanes,
    place: i64,
) -> rusqlite::Result<Option<OutboxDetail<i64>>> {
    let mut statement = connection.prepare_cached(&sql.ops_outbox_row)?;
    let found = statement
        .query_row([place], |row| {
            let status = status(row, lanes)?;
            let lane = lanes.find(raw(row, 2)?, raw(row, 3)?).map(|at| lanes.rows[at].status.lane.0);
            Ok((detail(row, status)?, lane))
        })
        .optional()?;
    let Some((mut detail, lane)) = found else { return Ok(None) };
    if let (OutboxStatus::Sent, None, Some(lane)) = (detail.summary.status, detail.finished, lane) {
        let mut receipt = connection.prepare_cached(&sql.ops_receipt)?;
        let sent = receipt.query_row([lane, place], |row| row.get(0)).optional()?;
        detail.finished = sent.map(Timestamp::from_micros);
        detail.last_attempt = detail.finished;
    }
    detail.history = connection
        .prepare_cached(&sql.attempts)?
        .query_map([place], attempt)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(detail))
}

fn detail(row: &Row<'_>, status: OutboxStatus) -> rusqlite::Result<OutboxDetail<i64>> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
    let (headers, trace) = headers(row, 17)?;
    Ok(OutboxDetail {
        summary: summary(row, status)?,
        payload_sha256: Payload::new(raw(row, 25)?.to_vec()).sha256(),
        headers,
        correlation_id: lossy(row, 16)?,
        trace,
        expires: time(18)?,
        finished: time(19)?,
        last_attempt: time(20)?,
        reason: lossy(row, 21)?.and_then(|reason| reason.parse().ok()),
        replay: row.get(22)?,
        replayed_as: lossy(row, 23)?,
        holds_key: row.get(24)?,
        history: Vec::new(),
    })
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
    let (at, error) = (Timestamp::from_micros(row.get(2)?), lossy(row, 3)?.unwrap_or_default());
    Ok(AttemptRecord::new(row.get(0)?, row.get(1)?, at, error))
}

/// Names of the headers, and the trace they tell of. What cannot be decoded has none.
fn headers(row: &Row<'_>, column: usize) -> rusqlite::Result<(Vec<String>, Option<TraceIds>)> {
    let headers = lossy(row, column)?.and_then(|json| Headers::from_json(&json).ok()).unwrap_or_default();
    let trace = headers.get("traceparent").and_then(TraceIds::parse);
    Ok((headers.iter().map(|(name, _)| name.to_owned()).collect(), trace))
}

pub(super) fn inbox(connection: &Connection, sql: &Sql, id: &MessageId) -> Result<Vec<InboxDetail>> {
    let read = || {
        let peers = peers(connection, sql)?;
        let look = Look { connection, sql, peers: &peers, filter: &InboxFilter::default() };
        let page = look.of_id(id.as_str())?;
        let rows = page.items.into_iter().map(|summary| inbox_row(connection, sql, summary));
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(wrap("look up a message of the inbox"))
}

fn inbox_row(connection: &Connection, sql: &Sql, summary: InboxSummary) -> rusqlite::Result<InboxDetail> {
    let mut statement = connection.prepare_cached(&sql.ops_inbox_detail)?;
    statement.query_row([summary.place], |row| {
        let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
        let handler = lossy(row, 7)?.unwrap_or_default();
        Ok(InboxDetail {
            summary,
            hash: hash(row.get(0)?, row.get(1)?),
            available: Timestamp::from_micros(row.get(2)?),
            last_seen: Timestamp::from_micros(row.get(3)?),
            replay: row.get(4)?,
            response_bytes: row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs),
            response_type: lossy(row, 6)?,
            claimed: time(8)?.map(|since| (handler, since)),
            queued: if row.get(9)? { Some(queued(row)?) } else { None },
        })
    })
}

fn queued(row: &Row<'_>) -> rusqlite::Result<QueuedDetail> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
    let (headers, trace) = headers(row, 12)?;
    Ok(QueuedDetail {
        payload_bytes: row.get::<_, i64>(10)?.unsigned_abs(),
        content_type: lossy(row, 11)?.unwrap_or_default(),
        headers,
        correlation_id: lossy(row, 13)?,
        trace,
        due: time(14)?,
        // One that was replayed has no end.
        expires: time(15)?.filter(|at| *at < Timestamp::MAX),
        ready: time(16)?,
        lease: row.get::<_, Option<Vec<u8>>>(17)?.zip(time(18)?),
        last_attempt: time(19)?,
        reason: lossy(row, 20)?.and_then(|reason| reason.parse().ok()),
    })
}
