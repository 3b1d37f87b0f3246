//! Dedup rows of several deliveries, written with one statement before their handlers run (S3).
//!
//! To run a statement costs half as much again as the row it writes. So where nothing stands against it, the rows of the
//! next deliveries are written together, each as it will stand if all goes well; and if anything does not, the whole
//! transaction is rolled back and runs again, row by row. What must never be committed is a row whose handler did not
//! run: whoever stops in the middle takes the rows of the others back.
//!
//! Triggers of the user's on the inbox would hear of rows that are taken back, so then every row is written alone.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{params, params_from_iter};
use twobox_core::ports::{Delivery, KeyGate, Treatment};
use twobox_core::{Message, Response, Result, Timestamp, crash_point, mutant};

use super::SqliteHandler;
use super::handle::{is_plausible, not_as_written};
use super::job::Peer;
use crate::SqliteTx;

/// Rows that are written together, as many as the statement has. With more of them each costs hardly less.
const ROWS: usize = 8;
/// For fewer it is not worth it.
const ROWS_MIN: usize = 3;

/// Rows that are written, of deliveries whose handlers have run or are about to.
#[derive(Default)]
pub(super) struct Ahead {
    claimed: Option<Claimed>,
    /// Whether every row has to be written alone. Not known before somebody asks.
    alone: Option<bool>,
}

struct Claimed {
    /// The deliveries of a request that have rows, in their order.
    of: Range<usize>,
    first_row: i64,
    peer: i64,
    /// How many of them have had their turn.
    turns: usize,
}

impl Claimed {
    /// The row of a delivery, or where the next one would be.
    fn row(&self, at: usize) -> i64 {
        self.first_row.saturating_add_unsigned((at - self.of.start) as u64)
    }
}

impl Ahead {
    /// Whether there are rows whose end is to be seen to.
    pub(super) fn is_open(&self) -> bool {
        self.claimed.is_some()
    }

    /// The row of the delivery at `at`, if it is written. Writes it and those behind it if that can be done at once.
    /// Only where any failure fails the group.
    pub(super) fn row(
        &mut self,
        tx: &mut SqliteTx<'_>,
        (deliveries, at): (&[Delivery<SqliteHandler>], usize),
        (peer, gate): (&Peer, &KeyGate),
        now: Timestamp,
    ) -> Result<Option<i64>> {
        if self.claimed.as_ref().is_some_and(|claimed| at >= claimed.of.end) {
            self.end(tx, deliveries, at)?;
        }
        if self.claimed.is_none() {
            let next = alike(&deliveries[at..], peer, gate, now);
            if let (true, Some(usual)) = (next.len() >= ROWS_MIN, next.first().and_then(usual_of))
                && !self.is_alone(tx)?
            {
                self.claim(tx, (next, at), peer.id, usual, now)?;
            }
        }
        Ok(self.claimed.as_mut().map(|claimed| {
            claimed.turns += 1;
            tx.set_ahead(claimed.row(at + 1)..claimed.row(claimed.of.end));
            claimed.row(at)
        }))
    }

    fn is_alone(&mut self, tx: &mut SqliteTx<'_>) -> Result<bool> {
        match self.alone {
            Some(alone) => Ok(alone),
            None => tx.inbox_has_triggers().inspect(|has_triggers| self.alone = Some(*has_triggers)),
        }
    }

    fn claim(
        &mut self,
        tx: &mut SqliteTx<'_>,
        (next, at): (&[Delivery<SqliteHandler>], usize),
        peer: i64,
        usual: &Response,
        now: Timestamp,
    ) -> Result<()> {
        let sql = tx.sql;
        let written = tx.execute_kept(&sql.claim_ahead, params_from_iter(values(next, peer, usual, now)))?;
        crash_point!("inbox.claimed-ahead");
        // Others of the request may be known as well.
        self.alone = Some(written < next.len());
        if written == 0 {
            return Ok(());
        }
        // SQLite gives new rows the places behind the last one; were it otherwise, they would not be as written there.
        let last_row = tx.connection.last_insert_rowid();
        let first_row = last_row.saturating_sub_unsigned(written as u64 - 1);
        if written == next.len() {
            self.claimed = Some(Claimed { of: at..at + next.len(), first_row, peer, turns: 0 });
            return Ok(());
        }
        take_back(tx, (first_row, last_row), peer, next)
    }

    /// Ends when `ran` deliveries of the request have their answers: the rows of those must be there as they were
    /// written, and the others are taken back.
    pub(super) fn end(
        &mut self,
        tx: &mut SqliteTx<'_>,
        deliveries: &[Delivery<SqliteHandler>],
        ran: usize,
    ) -> Result<()> {
        let Some(claimed) = self.claimed.take() else { return Ok(()) };
        tx.set_ahead(0..0);
        let (start, middle, end) = (claimed.of.start, ran.min(claimed.of.end), claimed.of.end);
        let handled = (claimed.first_row, claimed.row(middle) - 1);
        as_written(tx, handled, claimed.peer, &deliveries[start..middle])?;
        if claimed.turns != middle - start {
            return Err(not_as_written()); // somebody was passed over, and his row says that he was not
        }
        if mutant!(ClaimedAheadKept) {
            return Ok(());
        }
        let others = (claimed.row(middle), claimed.row(end) - 1);
        take_back(tx, others, claimed.peer, &deliveries[middle..end])
    }
}

/// The next deliveries that usually have the same answer, and of which nothing is known that stands against handling
/// them.
fn alike<'d>(
    next: &'d [Delivery<SqliteHandler>],
    peer: &Peer,
    gate: &KeyGate,
    now: Timestamp,
) -> &'d [Delivery<SqliteHandler>] {
    let fits = |delivery: &&Delivery<SqliteHandler>| {
        let (message, first) = (&delivery.message, &next[0]);
        let is_alike = match (usual_of(delivery), usual_of(first)) {
            (Some(usual), Some(other)) => Arc::ptr_eq(usual, other) || usual == other,
            _ => false,
        };
        is_alike
            && delivery.consumer == first.consumer
            && message.source == first.message.source
            && is_plausible(message.available, peer, now)
            && !gate.holds(message)
            && !mutant!(DedupRowLast) // which writes no row before the effect
    };
    &next[..next.iter().take(ROWS).take_while(fits).count()]
}

/// What a handler usually answers. None for what only answers: its row is there before.
fn usual_of(delivery: &Delivery<SqliteHandler>) -> Option<&Arc<Response>> {
    match &delivery.treatment {
        Treatment::Handle(handler) if !handler.answers => Some(&handler.usual),
        Treatment::Handle(_) | Treatment::Queue | Treatment::Unknown => None,
    }
}

/// The values of `claim_ahead.sql`, in their order. What it has too many rows for gets the first once more, which is
/// known by then.
fn values<'d>(
    next: &'d [Delivery<SqliteHandler>],
    peer: i64,
    usual: &'d Response,
    now: Timestamp,
) -> impl Iterator<Item = ToSqlOutput<'d>> {
    let of_all =
        [integer(peer), integer(now.as_micros()), text(&usual.content_type), blob(usual.body.as_bytes())];
    let of_each = next.iter().chain(iter::repeat(&next[0])).take(ROWS).flat_map(|delivery| {
        let message: &Message = &delivery.message;
        [
            text(message.id.as_str()),
            text(message.endpoint.as_str()),
            text(message.message_type.as_str()),
            blob(&delivery.body_hash),
            integer(message.available.as_micros()),
            integer(message.replay.into()),
        ]
    });
    iter::chain(of_all, of_each)
}

fn integer(value: i64) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(Value::Integer(value))
}

fn text(text: &str) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

fn blob(bytes: &[u8]) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Blob(bytes))
}

/// Takes rows back that nobody else has seen, of some of these deliveries.
fn take_back(
    tx: &mut SqliteTx<'_>,
    (first, last): (i64, i64),
    peer: i64,
    of: &[Delivery<SqliteHandler>],
) -> Result<()> {
    if first > last {
        return Ok(());
    }
    as_written(tx, (first, last), peer, of)?;
    let sql = tx.sql;
    let taken = tx.execute_kept(&sql.take_back, params![first, last])?;
    if taken as u64 == last.abs_diff(first) + 1 { Ok(()) } else { Err(not_as_written()) }
}

/// Fails unless every row from the first to the last is there as it was written for one of these deliveries, in their
/// order.
fn as_written(
    tx: &mut SqliteTx<'_>,
    (first, last): (i64, i64),
    peer: i64,
    of: &[Delivery<SqliteHandler>],
) -> Result<()> {
    let (sql, mut ids) = (tx.sql, of.iter().map(|delivery| delivery.message.id.as_str()));
    let mut found = 0;
    tx.each_kept(&sql.still_done_ahead, params![first, last, peer], |row| {
        let id = row.get_ref(0)?.as_str()?;
        found += i64::from(ids.any(|of| of == id));
        Ok(())
    })?;
    if found == last - first + 1 { Ok(()) } else { Err(not_as_written()) }
}
