//! Waiting rows: what is due, which keys are held, what became of them.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use rusqlite::{Connection, params};
use twobox_core::config::CLOCK_SKEW_MAX;
use twobox_core::lifecycle::{Standing, State};
use twobox_core::ports::{Due, LaneLease, Look, Settled, WaitingMessage, WaitingOutcome, WaitingStore};
use twobox_core::{Message, OrderingKey, Result, Timestamp, crash_point, mutant};

use super::keys::{TouchedKeys, refresh};
use super::log::{Columns, count_deaths, next_joined, record_attempt, waiting_key};
use crate::error::wrap;
use crate::row::Decoder;
use crate::sql::Sql;
use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

/// Scheduled messages that join in one transaction.
const JOIN_MAX: i64 = 500;

impl WaitingStore for Sqlite {
    async fn due(&self, lease: &LaneLease<i64>, look: &Look) -> Result<Due<i64>> {
        self.join_scheduled(lease).await?;
        let query = DueQuery {
            lane: lease.lane.0,
            look: *look,
            now: self.options.clock.now(),
            ttl: self.options.ttl,
        };
        let (mut due, early) = self
            .read(move |connection, sql| query.run(connection, sql).map_err(wrap("look for due messages")))
            .await?;
        if !early.is_empty() {
            self.leave_keys(lease, early).await?;
            due.next = Some(Duration::ZERO); // for those that were behind them
        }
        Ok(due)
    }

    async fn held_keys(
        &self,
        lease: &LaneLease<i64>,
        keys: Vec<OrderingKey>,
    ) -> Result<HashSet<OrderingKey>> {
        let lane = lease.lane.0;
        self.read(move |connection, sql| {
            held_keys(connection, sql, lane, keys).map_err(wrap("look for held keys"))
        })
        .await
    }

    async fn settle_waiting(
        &self,
        lease: &LaneLease<i64>,
        outcomes: Vec<(i64, WaitingOutcome)>,
    ) -> Result<Settled> {
        let (db, lease) = (self.clone(), lease.clone());
        self.write(Class::Lazy, move |tx| db.settle_waiting_rows(tx, &lease, &outcomes)).await
    }
}

impl Sqlite {
    /// Scheduled messages that have come due become part of their keys (L5).
    async fn join_scheduled(&self, lease: &LaneLease<i64>) -> Result<()> {
        let (lane, now) = (lease.lane.0, self.options.clock.now().as_micros());
        let any = self
            .read(move |connection, sql| {
                exists(connection, &sql.has_scheduled_due, params![lane, now])
                    .map_err(wrap("look for scheduled messages"))
            })
            .await?;
        if !any {
            return Ok(());
        }
        let (db, lease) = (self.clone(), lease.clone());
        self.write(Class::Lazy, move |tx| {
            db.fenced(&lease, tx.execute(&tx.sql.fence_lane, params![lane, lease.token, 0, 0, 0])?)?;
            let due = tx.query(&tx.sql.scheduled_due, params![lane, now, JOIN_MAX], |row| {
                Ok((row.get::<i64>(0)?, row.get::<Option<String>>(1).unwrap_or(None), row.get::<i64>(2)?))
            })?;
            let (mut joined, mut joined_at, mut keys) = (0, None, BTreeSet::<String>::new());
            for (seq, key, due_at) in due {
                // Those due earlier come first in their key, whenever they are noticed.
                if joined_at.replace(due_at) != Some(due_at) {
                    joined = next_joined(tx, lane)?;
                }
                let next = key.is_none().then_some(now);
                tx.execute(&tx.sql.join_waiting, params![seq, joined, next])?;
                crash_point!("waiting.joined");
                keys.extend(key);
            }
            // Once for each when all have joined: it looks at everything that waits in the key.
            for key in &keys {
                refresh(tx, lane, key, now)?;
            }
            Ok(())
        })
        .await
    }

    /// Messages that have joined their keys while a clock was ahead are scheduled again: their receiver would put them off
    /// until they are due, and everything behind them with them (L5, S13).
    async fn leave_keys(&self, lease: &LaneLease<i64>, early: Vec<Early>) -> Result<()> {
        let (db, lease) = (self.clone(), lease.clone());
        self.write(Class::Lazy, move |tx| {
            let (lane, now) = (lease.lane.0, db.options.clock.now().as_micros());
            db.fenced(&lease, tx.execute(&tx.sql.fence_lane, params![lane, lease.token, 0, 0, 0])?)?;
            for Early { seq, key } in &early {
                tx.execute(&tx.sql.leave_key, [*seq, lane])?;
                if let Some(key) = key {
                    refresh(tx, lane, key.as_str(), now)?;
                }
            }
            Ok(())
        })
        .await
    }

    fn settle_waiting_rows(
        &self,
        tx: &mut SqliteTx<'_>,
        lease: &LaneLease<i64>,
        outcomes: &[(i64, WaitingOutcome)],
    ) -> Result<Settled> {
        let now = self.options.clock.now();
        let lane = lease.lane.0;
        self.fenced(lease, tx.execute(&tx.sql.fence_lane, params![lane, lease.token, 0, 0, 0])?)?;

        let joined = next_joined(tx, lane)?;
        let mut touched = TouchedKeys::default();
        let mut settled = Vec::with_capacity(outcomes.len());
        for (seq, outcome) in outcomes {
            if !settle_row(tx, lane, *seq, outcome, joined, now)? {
                continue; // somebody finished it meanwhile, and what is final stays
            }
            settled.push(outcome);
            touched.note(*seq, waiting_key(tx, *seq)?.as_deref(), outcome);
            record_attempt(tx, *seq, outcome, now)?;
        }
        let (failed, expired) = count_deaths(settled.iter().copied());
        let is_sent = |outcome: &&&WaitingOutcome| outcome.step.standing.state == State::Succeeded;
        let sent = i64::try_from(settled.iter().filter(is_sent).count()).unwrap_or(i64::MAX);
        tx.execute(&tx.sql.fence_lane, params![lane, lease.token, sent, failed, expired])?;
        let behind = self.settle_keys(tx, lane, touched, now)?;
        crash_point!("settle.waiting-settled");
        Ok(Settled { died: u64::try_from(failed + expired).unwrap_or(0) + behind })
    }
}

fn settle_row(
    tx: &mut SqliteTx<'_>,
    lane: i64,
    seq: i64,
    outcome: &WaitingOutcome,
    joined: i64,
    now: Timestamp,
) -> Result<bool> {
    let columns = Columns::new(Some(outcome), joined, now);
    let tried = outcome.error.is_some() || outcome.step.standing.state == State::Succeeded;
    let changed = tx.execute(
        &tx.sql.settle_waiting,
        params![
            seq,
            lane,
            columns.state,
            columns.attempts,
            joined,
            columns.holds_key,
            columns.next_attempt_at,
            tried.then(|| now.as_micros()),
            columns.last_error,
            columns.reason,
            columns.finished_at
        ],
    )?;
    Ok(changed == 1)
}

fn exists(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<bool> {
    connection.prepare_cached(sql)?.query_row(params, |row| row.get(0))
}

fn held_keys(
    connection: &Connection,
    sql: &Sql,
    lane: i64,
    keys: Vec<OrderingKey>,
) -> rusqlite::Result<HashSet<OrderingKey>> {
    let mut held = HashSet::new();
    if !exists(connection, &sql.any_held, [lane])? {
        return Ok(held);
    }
    for key in keys {
        if exists(connection, &sql.key_held, params![lane, key.as_str()])? {
            held.insert(key);
        }
    }
    Ok(held)
}

/// A look for due messages.
struct DueQuery {
    lane: i64,
    look: Look,
    now: Timestamp,
    ttl: Duration,
}

type Found = WaitingMessage<i64>;

/// A message that is due, be it the first of its key or one without.
struct Head {
    waiting: Found,
    joined: Option<i64>,
    /// Whether its receiver has said anything about it that was kept.
    was_answered: bool,
}

/// A message that has joined its key too early.
struct Early {
    seq: i64,
    key: Option<OrderingKey>,
}

/// How much more a look may read.
struct Room {
    bytes: usize,
}

impl Room {
    fn is_left(&self) -> bool {
        self.bytes > 0
    }

    fn take(&mut self, waiting: &Found) {
        let payload = waiting.message.as_ref().map_or(0, |message| message.payload.len());
        self.bytes = self.bytes.saturating_sub(payload);
    }
}

impl DueQuery {
    fn run(&self, connection: &Connection, sql: &Sql) -> rusqlite::Result<(Due<i64>, Vec<Early>)> {
        let mut found: Vec<Head> = Vec::new();
        let (now, mut room) = (self.now.as_micros(), Room { bytes: self.look.bytes_max });
        self.collect(connection, &sql.due_expired, now, &mut room, &mut found)?;
        if !self.look.expired_only {
            self.collect(connection, &sql.due, now, &mut room, &mut found)?;
            let too_far = self.now.plus(self.look.delay_max).as_micros();
            let too_far = if mutant!(ParkedByClock) { i64::MAX } else { too_far };
            self.collect(connection, &sql.due_too_far, too_far, &mut room, &mut found)?;
        }
        let mut messages = Vec::with_capacity(found.len());
        let (mut seen, mut early) = (HashSet::new(), Vec::new());
        for head in found {
            let (position, joined) = (head.waiting.position, head.joined);
            if !seen.insert(position) {
                continue;
            }
            if self.is_early(&head) {
                early.push(Early { seq: position, key: key_of(&head.waiting) });
                continue;
            }
            let key = (!head.waiting.expired).then(|| key_of(&head.waiting)).flatten();
            messages.push(head.waiting);
            if let (Some(key), Some(joined), false) = (key, joined, self.look.expired_only) {
                let head = (&key, joined, position);
                self.followers(connection, sql, head, &mut seen, &mut room, &mut messages)?;
            }
        }
        let next: Option<i64> =
            connection.prepare_cached(&sql.next_due)?.query_row([self.lane], |row| row.get(0))?;
        let next = next.map(|at| Timestamp::from_micros(at).since(self.now));
        Ok((Due { messages, next }, early))
    }

    /// Whether a message is scheduled for later than any receiver believes, and its receiver has said so. That is the one
    /// answer that leaves a trace and charges nothing. The clock here alone decides nothing: it may have been set back since
    /// the message was due, and others of its key must not overtake it for that.
    fn is_early(&self, Head { waiting, was_answered, .. }: &Head) -> bool {
        let is_scheduled = |message: &Message| message.available > message.created;
        !waiting.expired
            && *was_answered
            && waiting.standing.attempts == 0
            && waiting.message.as_ref().is_ok_and(|message| {
                is_scheduled(message) && message.available > self.now.plus(CLOCK_SKEW_MAX)
            })
    }

    fn collect(
        &self,
        connection: &Connection,
        sql: &str,
        bound: i64,
        room: &mut Room,
        found: &mut Vec<Head>,
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.lane, bound, self.places(found.len())])?;
        while room.is_left()
            && let Some(row) = rows.next()?
        {
            let waiting = self.waiting(row)?;
            room.take(&waiting);
            found.push(Head { waiting, joined: row.get(16)?, was_answered: row.get(17)? });
        }
        Ok(())
    }

    /// The pending messages right behind a head go with it, in order, as far as there is room.
    fn followers(
        &self,
        connection: &Connection,
        sql: &Sql,
        (key, joined, position): (&OrderingKey, i64, i64),
        seen: &mut HashSet<i64>,
        room: &mut Room,
        messages: &mut Vec<Found>,
    ) -> rusqlite::Result<()> {
        let places = self.places(messages.len());
        let mut statement = connection.prepare_cached(&sql.followers)?;
        let mut rows = statement.query(params![self.lane, key.as_str(), joined, position, places])?;
        while room.is_left()
            && let Some(row) = rows.next()?
        {
            let follower = self.waiting(row)?;
            let pending = row.get_ref(17)?.as_str().is_ok_and(|state| state == "Pending");
            if !pending || follower.expired || !seen.insert(follower.position) {
                break;
            }
            room.take(&follower);
            messages.push(follower);
        }
        Ok(())
    }

    /// How many more may be found.
    fn places(&self, found: usize) -> i64 {
        i64::try_from(self.look.limit.saturating_sub(found)).unwrap_or(i64::MAX)
    }

    fn waiting(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<Found> {
        let replay: u32 = row.get(14)?;
        Ok(WaitingMessage {
            position: row.get(0)?,
            message: Decoder::new(self.ttl).message(row, replay),
            standing: Standing { state: State::Open, attempts: row.get(15)? },
            expired: row.get::<_, i64>(13)? <= self.now.as_micros(),
        })
    }
}

fn key_of(waiting: &Found) -> Option<OrderingKey> {
    waiting.message.as_ref().ok().and_then(|message| message.ordering_key.clone())
}
