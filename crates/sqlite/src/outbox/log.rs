//! Reading and settling the log.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};
use twobox_core::lifecycle::{Next, State, Step};
use twobox_core::ports::{
    LaneId, LaneLease, LogChunk, LogEntry, LogStore, NewWaiting, ReadLog, Settled, Settlement, WaitingOutcome,
};
use twobox_core::{Error, ErrorKind, Message, Result, Source, Timestamp, crash_point, mutant};

use super::keys::{TouchedKeys, holds};
use super::lanes::ILLEGIBLE;
use super::lease_lost;
use crate::error::wrap;
use crate::row::{Decoder, raw};
use crate::sql::Sql;
use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

/// Failed attempts kept per message (L9).
const ATTEMPTS_KEPT: i64 = 20;

/// Whether there were messages of the reader's own source that are for none of its lanes.
type Strangers = bool;

impl LogStore for Sqlite {
    async fn changed(&self, seen: u64) -> u64 {
        let mut version = self.state.version.subscribe();
        // The sender lives in this store, so it cannot have gone.
        version.wait_for(|version| *version > seen).await.map_or(seen, |version| *version)
    }

    async fn read_log(&self, read: ReadLog<i64>) -> Result<LogChunk<i64>> {
        let (ttl, now) = (self.options.ttl, self.options.clock.now());
        let (after, reader) =
            (read.after, read.lanes.first().map(|lease| (lease.epoch, Arc::clone(&lease.link))));
        let (chunk, strangers) = match self.recent_chunk(&read, now) {
            Some(found) => found,
            None => {
                let read = move |connection: &Connection, sql: &Sql| {
                    read_chunk(connection, sql, &read, ttl, now).map_err(wrap("read the log"))
                };
                self.read(read).await?
            }
        };
        if let (Some((epoch, link)), false) = (reader, strangers) {
            self.state.routes.seen(epoch, &link.source, after, chunk.scanned);
        }
        Ok(chunk)
    }

    async fn make_durable(&self, epoch: u64, position: &i64) -> Result<()> {
        if *position > self.state.synced() && !mutant!(SentBeforeDurable) {
            self.barrier().await?;
        }
        // Asked last: the barrier itself may have found out that what was read is gone.
        if epoch == self.epoch() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::LeaseLost, "the database was reopened since this part of the log was read"))
    }

    async fn mark_sending(&self, lease: &LaneLease<i64>, upto: &i64) -> Result<()> {
        let (db, lease, upto) = (self.clone(), lease.clone(), *upto);
        self.write(Class::Ephemeral, move |tx| {
            db.fenced(&lease, tx.execute(&tx.sql.mark_sending, [lease.lane.0, lease.token, upto])?)
        })
        .await
    }

    async fn settle_log(&self, lease: &LaneLease<i64>, settlement: Settlement<i64>) -> Result<Settled> {
        let (db, lease) = (self.clone(), lease.clone());
        if mutant!(CursorWithoutWaiting) {
            return self.settle_apart(lease, settlement).await;
        }
        self.write(Class::Lazy, move |tx| db.settle(tx, &lease, &settlement)).await
    }

    fn reached(&self, source: &Source, upto: Option<&i64>) {
        self.note_reached(source, upto.copied());
    }
}

impl Sqlite {
    /// What a read would find, if all of it was appended by our own writer lately. The end is asked first: what is
    /// committed meanwhile is found by the next read.
    fn recent_chunk(&self, read: &ReadLog<i64>, now: Timestamp) -> Option<(LogChunk<i64>, Strangers)> {
        let end = self.state.end();
        let illegible = |lease: &LaneLease<i64>| lease.link.destination.as_str().contains(ILLEGIBLE);
        if read.until.is_some() || read.lanes.iter().any(illegible) {
            return None; // a lane that catches up, or one whose name is not what stands in the log
        }
        let recent = self.state.recent.after(read.after, end, read.scan_max)?;
        let lanes: HashMap<_, _> = read
            .lanes
            .iter()
            .map(|lease| ((&lease.link.source, &lease.link.destination), lease.lane))
            .collect();
        let lane = |message: &Message| lanes.get(&(&message.source, &message.destination)).copied();
        let more = recent.last().is_some_and(|(last, _)| *last < end);
        let mut chunk = LogChunk { entries: Vec::new(), scanned: read.after, more, now };
        let (mut bytes, mut strangers) = (0, false);
        for (position, message) in recent {
            chunk.scanned = position;
            let Some(lane) = lane(&message) else {
                strangers |= read.lanes.iter().any(|lease| lease.link.source == message.source);
                continue;
            };
            bytes += message.payload.len();
            chunk.entries.push(LogEntry { lane, position, message: Ok(message) });
            if bytes >= read.bytes_max {
                chunk.more = true;
                break;
            }
        }
        Some((chunk, strangers))
    }
}

fn read_chunk(
    connection: &Connection,
    sql: &Sql,
    read: &ReadLog<i64>,
    ttl: std::time::Duration,
    now: Timestamp,
) -> rusqlite::Result<(LogChunk<i64>, Strangers)> {
    let lanes = lanes_by_name(connection, sql, &read.lanes)?;
    let mut chunk = LogChunk { entries: Vec::new(), scanned: read.after, more: false, now };
    let limit = i64::try_from(read.scan_max).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql.read_log)?;
    let mut rows = statement.query(params![read.after, read.until.unwrap_or(i64::MAX), limit])?;
    let mut decoder = Decoder::new(ttl);
    let (mut scanned, mut bytes, mut strangers) = (0_usize, 0_usize, false);
    while let Some(row) = rows.next()? {
        chunk.scanned = row.get(0)?;
        scanned += 1;
        let (source, destination) = (raw(row, 1)?, raw(row, 2)?);
        // Rows of other sources are none of this reader's business.
        let Some(lanes) = lanes.get(source) else { continue };
        let Some(&lane) = lanes.get(destination) else {
            strangers = true;
            continue;
        };
        let message = decoder.message(row, 0);
        if message.is_err() && mutant!(PoisonHidesRest) {
            break;
        }
        bytes += message.as_ref().map_or(0, |message| message.payload.len());
        chunk.entries.push(LogEntry { lane, position: chunk.scanned, message });
        if bytes >= read.bytes_max {
            chunk.more = true;
            return Ok((chunk, strangers));
        }
    }
    chunk.more = scanned >= read.scan_max;
    Ok((chunk, strangers))
}

/// Lanes by the bytes of their source and destination.
type LanesByName = HashMap<Vec<u8>, HashMap<Vec<u8>, LaneId>>;

fn lanes_by_name(
    connection: &Connection,
    sql: &Sql,
    leases: &[LaneLease<i64>],
) -> rusqlite::Result<LanesByName> {
    let mut lanes = LanesByName::new();
    for lease in leases {
        let name = lease.link.destination.as_str();
        // A name that was made legible is not what stands in the log.
        let destination = if name.contains(ILLEGIBLE) {
            let mut statement = connection.prepare_cached(&sql.lane_destination)?;
            statement.query_row([lease.lane.0], |row| raw(row, 0).map(<[u8]>::to_vec))?
        } else {
            name.as_bytes().to_vec()
        };
        lanes.entry(lease.link.source.as_str().into()).or_default().insert(destination, lease.lane);
    }
    Ok(lanes)
}

impl Sqlite {
    fn settle(
        &self,
        tx: &mut SqliteTx<'_>,
        lease: &LaneLease<i64>,
        settlement: &Settlement<i64>,
    ) -> Result<Settled> {
        let now = self.options.clock.now();
        let outcomes = settlement.waiting.iter().filter_map(|waiting| waiting.outcome.as_ref());
        let (failed, expired) = count_deaths(outcomes);
        let sent: u64 = settlement.receipts.iter().map(|(_, _, messages)| messages).sum();
        let sent = i64::try_from(sent).unwrap_or(i64::MAX);
        let waiting = i64::try_from(settlement.waiting.len()).unwrap_or(i64::MAX);
        let changed = tx.execute(
            &tx.sql.settle_lane,
            params![
                lease.lane.0,
                lease.token,
                settlement.upto,
                settlement.sending.unwrap_or(settlement.upto),
                sent,
                failed,
                expired,
                sent.saturating_add(waiting)
            ],
        )?;
        self.fenced(lease, changed)?;
        crash_point!("settle.cursor-moved");
        for (first, last, messages) in &settlement.receipts {
            let messages = i64::try_from(*messages).unwrap_or(i64::MAX);
            tx.execute(
                &tx.sql.insert_receipt,
                params![lease.lane.0, last, first, now.as_micros(), messages],
            )?;
        }
        crash_point!("settle.receipts-inserted");
        let behind = self.move_to_waiting(tx, lease.lane.0, &settlement.waiting, now)?;
        crash_point!("settle.waiting-inserted");
        let died = u64::try_from(failed + expired).unwrap_or(0) + behind;
        Ok(Settled { died })
    }

    /// The bug of two transactions where one is needed.
    async fn settle_apart(&self, lease: LaneLease<i64>, mut settlement: Settlement<i64>) -> Result<Settled> {
        let (db, waiting) = (self.clone(), std::mem::take(&mut settlement.waiting));
        let lane = lease.lane.0;
        let settled = self.write(Class::Lazy, move |tx| db.settle(tx, &lease, &settlement)).await?;
        let db = self.clone();
        let moved =
            self.write(Class::Lazy, move |tx| db.move_to_waiting(tx, lane, &waiting, db.options.clock.now()));
        moved.await.map(|_| settled)
    }

    /// Moves messages to the waiting rows; returns how many others died with the head of their key.
    fn move_to_waiting(
        &self,
        tx: &mut SqliteTx<'_>,
        lane: i64,
        waiting: &[NewWaiting<i64>],
        now: Timestamp,
    ) -> Result<u64> {
        if waiting.is_empty() {
            return Ok(0);
        }
        let joined = next_joined(tx, lane)?;
        let mut touched = TouchedKeys::default();
        for new in waiting {
            let columns = Columns::new(new.outcome.as_ref(), joined, now);
            self.insert_waiting(tx, lane, new.position, &columns)?;
            let Some(outcome) = &new.outcome else { continue };
            touched.note(new.position, waiting_key(tx, new.position)?.as_deref(), outcome);
            record_attempt(tx, new.position, outcome, now)?;
        }
        self.settle_keys(tx, lane, touched, now)
    }

    /// Applies what the outcomes mean for their keys; returns how many others died of it.
    pub(super) fn settle_keys(
        &self,
        tx: &mut SqliteTx<'_>,
        lane: i64,
        touched: TouchedKeys,
        now: Timestamp,
    ) -> Result<u64> {
        let died = touched.settle(tx, lane, now.as_micros())?;
        if died > 0 {
            tx.execute(&tx.sql.count_failed, params![lane, i64::try_from(died).unwrap_or(i64::MAX)])?;
        }
        Ok(u64::try_from(died).unwrap_or(u64::MAX))
    }

    fn insert_waiting(
        &self,
        tx: &mut SqliteTx<'_>,
        lane: i64,
        position: i64,
        columns: &Columns<'_>,
    ) -> Result<()> {
        let ttl = twobox_core::time::micros(self.options.ttl);
        let moved = tx.execute(
            &tx.sql.move_to_waiting,
            params![
                position,
                lane,
                ttl,
                columns.state,
                columns.attempts,
                columns.joined,
                columns.holds_key,
                columns.next_attempt_at,
                columns.last_attempt_at,
                columns.last_error,
                columns.reason,
                columns.finished_at
            ],
        )?;
        if moved == 1 { Ok(()) } else { Err(lease_lost(lane)) }
    }
}

/// What an outcome means in columns.
pub(super) struct Columns<'a> {
    pub(super) state: &'static str,
    pub(super) attempts: u32,
    pub(super) joined: Option<i64>,
    pub(super) holds_key: bool,
    pub(super) next_attempt_at: Option<i64>,
    pub(super) last_attempt_at: Option<i64>,
    pub(super) last_error: Option<&'a str>,
    pub(super) reason: Option<&'static str>,
    pub(super) finished_at: Option<i64>,
}

impl<'a> Columns<'a> {
    /// `None` stands for a message that is scheduled for later and not yet part of its key.
    pub(super) fn new(outcome: Option<&'a WaitingOutcome>, joined: i64, now: Timestamp) -> Self {
        let Some(outcome) = outcome else {
            return Self {
                state: "Pending",
                attempts: 0,
                joined: None,
                holds_key: false,
                next_attempt_at: None,
                last_attempt_at: None,
                last_error: None,
                reason: None,
                finished_at: None,
            };
        };
        let Step { standing, next } = outcome.step;
        let (next_attempt_at, reason) = match next {
            Next::After(delay) => (Some(now.plus(delay).as_micros()), None),
            Next::BehindKey => (None, None),
            Next::Never(reason) => (None, reason.map(twobox_core::lifecycle::Reason::as_str)),
        };
        Self {
            state: match standing.state {
                State::Open => "Pending",
                State::Succeeded => "Sent",
                State::Dead => "Failed",
                State::Expired => "Expired",
            },
            attempts: standing.attempts,
            joined: Some(joined),
            holds_key: holds(outcome),
            next_attempt_at,
            last_attempt_at: outcome.error.as_ref().map(|_| now.as_micros()),
            last_error: outcome.error.as_deref(),
            reason,
            finished_at: (standing.state != State::Open).then(|| now.as_micros()),
        }
    }
}

/// How many of the outcomes are deaths: failed and expired.
pub(super) fn count_deaths<'a>(outcomes: impl Iterator<Item = &'a WaitingOutcome>) -> (i64, i64) {
    outcomes.fold((0, 0), |(failed, expired), outcome| match outcome.step.standing.state {
        State::Dead => (failed + 1, expired),
        State::Expired => (failed, expired + 1),
        State::Open | State::Succeeded => (failed, expired),
    })
}

pub(super) fn next_joined(tx: &mut SqliteTx<'_>, lane: i64) -> Result<i64> {
    let joined = tx.query_optional(&tx.sql.next_joined, [lane], |row| row.get(0))?;
    joined.ok_or_else(|| lease_lost(lane))
}

/// The ordering key of a waiting row. One that is not text orders nothing.
pub(super) fn waiting_key(tx: &mut SqliteTx<'_>, seq: i64) -> Result<Option<String>> {
    let key = tx
        .query_optional(&tx.sql.waiting_key, [seq], |row| Ok(row.get::<Option<String>>(0).unwrap_or(None)))?;
    Ok(key.flatten())
}

/// Leaves a row for a failed attempt; success leaves none.
pub(super) fn record_attempt(
    tx: &mut SqliteTx<'_>,
    seq: i64,
    outcome: &WaitingOutcome,
    now: Timestamp,
) -> Result<()> {
    let Some(error) = &outcome.error else { return Ok(()) };
    let attempts = outcome.step.standing.attempts;
    tx.execute(&tx.sql.insert_attempt, params![seq, attempts, now.as_micros(), error])?;
    tx.execute(&tx.sql.trim_attempts, [seq, ATTEMPTS_KEPT]).map(drop)
}
