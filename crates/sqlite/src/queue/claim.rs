//! Claiming: a lease on messages that are due (IBX §6.3).

use std::time::Duration;

use rusqlite::params;
use twobox_core::lifecycle::{Event, Next, Reason, Standing, State, step};
use twobox_core::ports::{Claim, Claimed, MessageKey, Queue, QueueStore, WorkLease};
use twobox_core::{Message, Result, Timestamp, crash_point, mutant};

use super::keys::{self, Ended};
use super::settle::{Death, bury, holds};
use crate::row::Decoder;
use crate::{Sqlite, SqliteTx};

/// What a worker left that died, or stood still for longer than its lease.
pub(super) const CRASHED: &str = "its worker stopped, or took longer than its lease, while handling it";

/// Most messages that one claim sets aside, so that it does not hold the writer for long (S18).
const ASIDE_MAX: usize = 500;

/// A row that is ready, beside its message.
struct Ready {
    item: i64,
    ready: i64,
    message: Result<std::sync::Arc<Message>, String>,
    /// The key as it is stored, also of a row that cannot be decoded.
    key: Option<String>,
    attempts: u32,
    token: i64,
    was_leased: bool,
    joined: Option<i64>,
    last_error: Option<String>,
    peer: i64,
    first_seen: i64,
    last_seen: i64,
    expires: i64,
}

pub(super) fn claim(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    claim: &Claim,
) -> Result<Vec<Claimed>> {
    let now = db.options.clock.now();
    let (mut claimed, mut aside) = (Vec::new(), 0);
    // What turns out to be over, or to have to wait, takes no place: look again until there is enough or nothing left.
    while claimed.len() < claim.limit() {
        let (room, before) = (claim.limit() - claimed.len(), claimed.len());
        let ready = ready(tx, queue, now, room)?;
        let found = ready.len();
        for row in ready {
            claimed.extend(take(db, tx, queue, claim, row, now)?);
        }
        let taken = claimed.len() - before;
        aside += found - taken;
        if found < room && taken == found {
            break;
        }
        if aside >= ASIDE_MAX {
            tx.note_work(); // there may be more, for whoever asks next
            break;
        }
    }
    crash_point!("queue.claimed");
    let (consumer, messages) = (queue.consumer.as_str(), claimed.len());
    tracing::debug!(store = db.store_name(), consumer, messages, "claimed");
    Ok(claimed)
}

/// What is ready, the longest first, whether it was scheduled or not.
fn ready(tx: &mut SqliteTx<'_>, queue: &Queue, now: Timestamp, room: usize) -> Result<Vec<Ready>> {
    let mut ready = ready_of(tx, queue, true, now, room)?;
    ready.extend(ready_of(tx, queue, false, now, room)?);
    ready.sort_by_key(|row| (row.ready, row.item));
    ready.truncate(room);
    Ok(ready)
}

fn ready_of(
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    scheduled: bool,
    now: Timestamp,
    room: usize,
) -> Result<Vec<Ready>> {
    let mut decoder = Decoder::new(Duration::MAX);
    let values = params![queue.consumer.as_str(), scheduled, now.as_micros(), super::count(room)];
    let sql = tx.sql;
    tx.query_raw(&sql.queue_ready, values, |row| {
        let replay = row.get(22).unwrap_or(0);
        Ok(Ready {
            item: row.get(0)?,
            ready: row.get(23)?,
            message: decoder.message(row, replay).map_err(|undecodable| undecodable.error),
            key: crate::row::lossy(row, 9)?,
            attempts: row.get(14)?,
            token: row.get(15)?,
            was_leased: row.get(16)?,
            joined: row.get(17)?,
            last_error: crate::row::lossy(row, 18)?,
            peer: row.get(19)?,
            first_seen: row.get(20)?,
            last_seen: row.get(21)?,
            expires: row.get(13)?,
        })
    })
}

/// Leases one row, unless it is over or has to wait for others of its key.
fn take(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    claim: &Claim,
    row: Ready,
    now: Timestamp,
) -> Result<Option<Claimed>> {
    let mut attempts = row.attempts;
    let over = if row.expires <= now.as_micros() {
        Some((Reason::Expired, "past its time to live".to_owned()))
    } else if let Err(error) = &row.message {
        Some((Reason::Undecodable, error.clone()))
    } else if row.was_leased && !mutant!(QueueCrashUncharged) {
        // Whoever had it is gone: that counts as an attempt (S6).
        let standing = Standing { state: State::Open, attempts };
        let next = step(standing, &Event::Failed { after: None }, &queue.retry, &*db.options.random);
        attempts = next.map_or(attempts, |next| next.standing.attempts);
        let dead = matches!(next.map(|next| next.next), Some(Next::Never(_)));
        dead.then(|| (Reason::AttemptsExhausted, CRASHED.to_owned()))
    } else {
        None
    };
    let ended = Ended { peer: row.peer, key: row.key.as_deref() };
    if let Some((reason, error)) = over {
        let death = Death { reason, error: &error, attempts, holds: holds(queue, reason), queued: true };
        bury(tx, (row.peer, row.item), &death, now)?;
        // What has not joined its key yet was not its head.
        if row.joined.is_some() {
            ended.died(tx, queue, &error, now)?;
        }
        return Ok(None);
    }
    let Ok(message) = row.message else { return Ok(None) };
    let joined = match (&row.key, row.joined) {
        (Some(key), None) => match keys::behind(tx, row.peer, key)? {
            Some(place) => {
                tx.execute(&tx.sql.queue_join_behind, [row.item, place])?;
                return Ok(None);
            }
            None => Some(1),
        },
        (_, joined) => joined,
    };
    let until = now.plus(claim.lease()).as_micros();
    let sql = tx.sql;
    let crashed = row.was_leased.then_some(CRASHED);
    let owner = claim.owner();
    tx.execute_kept(&sql.queue_lease, params![row.item, owner.as_bytes(), until, attempts, joined, crashed])?;
    let key = MessageKey { source: message.source.clone(), id: message.id.clone() };
    let token = u64::try_from(row.token.saturating_add(1)).unwrap_or(0);
    Ok(Some(Claimed {
        lease: WorkLease { key, token, place: row.item },
        message,
        attempts,
        first_seen: Timestamp::from_micros(row.first_seen),
        last_seen: Timestamp::from_micros(row.last_seen),
        last_error: crashed.map(Into::into).or(row.last_error),
    }))
}
