//! Settling what was claimed: done, again, never (IBX §6.4–6.7). Only while the lease is current (S5).

use std::time::Duration;

use rusqlite::params;
use twobox_core::handler::shorten;
use twobox_core::lifecycle::{Event, Next, Reason, Standing, State, Step, step};
use twobox_core::message::JSON;
use twobox_core::ports::{HeadPolicy, InboxStatus, LEASE_MAX, OwnerToken, Queue, QueueStore, WorkLease};
use twobox_core::{Response, Result, Timestamp, crash_point};

use super::claim::CRASHED;
use super::keys::Ended;
use crate::inbox::peers::Counts;
use crate::{Sqlite, SqliteTx};

/// What becomes of a claimed message.
#[derive(Clone, Debug)]
pub(super) enum Settle {
    Done,
    Failed { error: Option<String>, delay: Option<Duration> },
    Rejected { error: String },
    Untried,
}

/// What a lease is for.
pub(super) struct Held {
    pub(super) attempts: u32,
    pub(super) peer: i64,
    pub(super) key: Option<String>,
}

/// How a message dies.
pub(super) struct Death<'a> {
    pub(super) reason: Reason,
    pub(super) error: &'a str,
    pub(super) attempts: u32,
    /// Whether its ordering key waits for an operator.
    pub(super) holds: bool,
    /// Whether it was queued.
    pub(super) queued: bool,
}

/// When a message is tried again after a failed attempt.
#[derive(Clone, Copy)]
pub(super) enum Again {
    /// After the back-off.
    Backoff,
    /// After what its handler asks for: never sooner than the back-off, and never later than its longest delay (RF-04).
    Asked(Duration),
    /// After this delay, however long (IBX-053).
    Exactly(Duration),
}

/// Settles one message. `false`: the lease is not current, so nothing was written.
pub(super) fn settle(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    (owner, lease): (OwnerToken, &WorkLease),
    settle: &Settle,
    now: Timestamp,
) -> Result<bool> {
    let Some((held, available)) = held(tx, owner, lease)? else { return Ok(false) };
    match settle {
        Settle::Done => {
            let done = finish(tx, (owner, lease), &held, &Response::empty(), now)?;
            if done {
                Counts::done_later(available).write(tx, held.peer)?;
            }
            return Ok(done);
        }
        Settle::Untried => {
            let values =
                params![lease.place, now.as_micros(), false, held.attempts, None::<&str>, None::<i64>];
            tx.execute(&tx.sql.queue_retry, values)?;
            tx.note_work();
        }
        Settle::Failed { error, delay } => {
            let error = error.as_deref().map(shorten);
            let again = delay.map_or(Again::Backoff, Again::Exactly);
            failed(db, tx, queue, (lease.place, &held), (error.as_deref(), again), now)?;
        }
        Settle::Rejected { error } => {
            let (attempts, error) = (held.attempts.saturating_add(1), shorten(error));
            die(tx, queue, (lease.place, &held), (Reason::Rejected, &error, attempts), now)?;
        }
    }
    crash_point!("queue.settled");
    Ok(true)
}

/// What the lease is for, and the date of the message's row, if it is current.
pub(super) fn held(
    tx: &mut SqliteTx<'_>,
    owner: OwnerToken,
    lease: &WorkLease,
) -> Result<Option<(Held, i64)>> {
    let values = params![lease.place, token(lease), owner.as_bytes(), lease.key.id.as_str()];
    let sql = tx.sql;
    tx.read_kept(&sql.queue_held, values, |row| {
        let held = Held { attempts: row.get(0)?, peer: row.get(1)?, key: row.get(2)? };
        Ok((held, row.get(3)?))
    })
}

fn token(lease: &WorkLease) -> i64 {
    i64::try_from(lease.token).unwrap_or(-1)
}

/// The fenced end: the row in the queue goes, the row in the inbox says Done. `false`: the lease is not current.
pub(super) fn finish(
    tx: &mut SqliteTx<'_>,
    (owner, lease): (OwnerToken, &WorkLease),
    held: &Held,
    response: &Response,
    now: Timestamp,
) -> Result<bool> {
    let sql = tx.sql;
    let values = params![lease.place, token(lease), owner.as_bytes(), lease.key.id.as_str()];
    if tx.execute_kept(&sql.queue_finish, values)? != 1 {
        return Ok(false);
    }
    crash_point!("queue.finished");
    let (kind, body) = (&response.content_type, response.body.as_bytes());
    let kind = if kind.is_empty() { JSON } else { kind };
    if tx.execute_kept(&sql.queue_finish_row, params![lease.place, now.as_micros(), kind, body])? != 1 {
        return Ok(false);
    }
    Ended { peer: held.peer, key: held.key.as_deref() }.promote(tx, now)?;
    Ok(true)
}

/// An attempt has failed: again later, or never.
pub(super) fn failed(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    (item, held): (i64, &Held),
    (error, again): (Option<&str>, Again),
    now: Timestamp,
) -> Result<bool> {
    let standing = Standing { state: State::Open, attempts: held.attempts };
    let after = if let Again::Asked(delay) = again { Some(delay) } else { None };
    let Some(Step { standing, next }) =
        step(standing, &Event::Failed { after }, &queue.retry, &*db.options.random)
    else {
        return Ok(false);
    };
    let Next::After(backoff) = next else {
        let error = error.unwrap_or("abandoned");
        die(tx, queue, (item, held), (Reason::AttemptsExhausted, error, standing.attempts), now)?;
        return Ok(true);
    };
    // What is scheduled may be as far away as it likes; what is further away than a back-off otherwise comes of a clock
    // that has jumped (S13).
    let (delay, scheduled) = if let Again::Exactly(delay) = again { (delay, true) } else { (backoff, false) };
    let ready = now.plus(delay).as_micros();
    let values = params![item, ready, scheduled, standing.attempts, error, now.as_micros()];
    tx.execute(&tx.sql.queue_retry, values)?;
    tx.note_work();
    Ok(false)
}

/// Makes a message a dead letter, with the consequences for its key.
pub(super) fn die(
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    (item, held): (i64, &Held),
    (reason, error, attempts): (Reason, &str, u32),
    now: Timestamp,
) -> Result<()> {
    let death = Death { reason, error, attempts, holds: holds(queue, reason), queued: true };
    bury(tx, (held.peer, item), &death, now)?;
    Ended { peer: held.peer, key: held.key.as_deref() }.died(tx, queue, error, now)
}

/// Whether a message that died of this keeps later ones of its key waiting.
pub(super) fn holds(queue: &Queue, reason: Reason) -> bool {
    // What cannot be decoded may not have a key that anyone could release.
    queue.head_policy == HeadPolicy::Block && reason != Reason::Undecodable
}

/// Writes a death, and counts it.
pub(super) fn bury(
    tx: &mut SqliteTx<'_>,
    (peer, item): (i64, i64),
    death: &Death<'_>,
    now: Timestamp,
) -> Result<()> {
    let (state, status) = match death.reason {
        Reason::Expired => ("Expired", InboxStatus::Expired),
        _ => ("Dead", InboxStatus::Dead),
    };
    let now = now.as_micros();
    let Death { reason, error, attempts, holds, queued } = death;
    let values = params![item, state, attempts, error, reason.as_str(), now, holds];
    tx.execute(&tx.sql.queue_bury, values)?;
    crash_point!("queue.buried");
    tx.execute(&tx.sql.queue_bury_row, params![item, status.as_str(), now, error])?;
    Counts { died: 1, dead: 1, queued: -i64::from(*queued), ..Counts::default() }.write(tx, peer)?;
    let (reason, attempt) = (reason.as_str(), attempts);
    tracing::warn!(item, reason, attempt, error, "a queued message is a dead letter now");
    Ok(())
}

/// Somebody has said that a message can never work, whether it is queued or not. Its key goes on.
pub(crate) fn bury_by_hand(
    tx: &mut SqliteTx<'_>,
    (peer, row): (i64, i64),
    error: &str,
    now: Timestamp,
) -> Result<()> {
    let queued = tx.query_optional(&tx.sql.queue_joined, [row], |row| {
        Ok((row.get::<Option<String>>(0)?, row.get::<u32>(2)?))
    })?;
    let is_queued = queued.is_some();
    let (key, attempts) = queued.unwrap_or_default();
    let death = Death { reason: Reason::Rejected, error, attempts, holds: false, queued: is_queued };
    bury(tx, (peer, row), &death, now)?;
    Ended { peer, key: key.as_deref() }.promote(tx, now)
}

pub(super) fn renew(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    owner: OwnerToken,
    leases: &[WorkLease],
    lease: Duration,
) -> Result<Vec<WorkLease>> {
    let until = db.options.clock.now().plus(lease).as_micros();
    let mut renewed = Vec::new();
    for lease in leases {
        let values = params![lease.place, token(lease), owner.as_bytes(), lease.key.id.as_str(), until];
        if tx.execute(&tx.sql.queue_renew, values)? == 1 {
            renewed.push(lease.clone());
        }
    }
    Ok(renewed)
}

/// Takes leases back that are over.
pub(super) fn reap(db: &Sqlite, tx: &mut SqliteTx<'_>, queue: &Queue, limit: usize) -> Result<u64> {
    let now = db.options.clock.now();
    let bounds = (now.as_micros(), now.plus(LEASE_MAX).as_micros());
    let values = params![queue.consumer.as_str(), bounds.0, bounds.1, super::count(limit)];
    let overdue = tx.query(&tx.sql.queue_overdue, values, |row| {
        Ok((row.get::<i64>(0)?, Held { attempts: row.get(1)?, peer: row.get(2)?, key: row.get(3)? }))
    })?;
    for (item, held) in &overdue {
        failed(db, tx, queue, (*item, held), (Some(CRASHED), Again::Backoff), now)?;
    }
    crash_point!("queue.reaped");
    let too_far = now.plus(queue.retry.delay_max()).as_micros();
    let values = params![queue.consumer.as_str(), bounds.0, too_far, super::count(limit)];
    if tx.execute(&tx.sql.queue_too_far, values)? > 0 {
        tx.note_work();
    }
    if !overdue.is_empty() {
        let (store, consumer, messages) = (db.store_name(), queue.consumer.as_str(), overdue.len());
        tracing::info!(store, consumer, messages, "took leases back that were over");
    }
    Ok(overdue.len() as u64)
}
