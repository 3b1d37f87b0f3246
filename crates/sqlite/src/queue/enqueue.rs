//! Queueing: new messages, and what happens to known ones (IBX §6.2).

use rusqlite::params;
use twobox_core::ports::{ContentHash, Enqueued, InboxStatus, LEASE_MAX, Queue, Work};
use twobox_core::{Consumer, Error, ErrorKind, Message, Result, Timestamp, crash_point, mutant};

use super::claim::CRASHED;
use super::keys::{self, Ended};
use super::settle::{Again, Held, failed};
use crate::inbox::handle::hash;
use crate::inbox::job;
use crate::inbox::peers::Counts;
use crate::{Sqlite, SqliteTx};

/// Queues a message, or does to a known one what its state allows.
pub(super) fn enqueue(db: &Sqlite, tx: &mut SqliteTx<'_>, queue: &Queue, work: &Work) -> Result<Enqueued> {
    let now = db.options.clock.now();
    let message = &work.message;
    let peer = job::find_id(tx, &queue.consumer, &message.source)?;
    let computed;
    let hash = match &work.hash {
        Some(hash) => hash,
        None => {
            computed = ContentHash::sha256(message.payload.sha256());
            &computed
        }
    };
    let sql = tx.sql;
    let inserted = tx.execute_kept(
        &sql.queue_insert_row,
        params![
            peer,
            message.id.as_str(),
            message.endpoint.as_str(),
            message.message_type.as_str(),
            named(hash),
            hash.as_bytes(),
            Times::of(message, now).ready,
            now.as_micros(),
        ],
    )?;
    if inserted == 1 {
        let row = tx.connection.last_insert_rowid();
        crash_point!("queue.row-written");
        insert(tx, &queue.consumer, (peer, row), message, &Times::of(message, now))?;
        crash_point!("queue.inserted");
        Counts { size: 1, queued: 1, ..Counts::default() }.write(tx, peer)?;
        return Ok(Enqueued::New);
    }
    let known = known(tx, peer, message.id.as_str())?;
    tx.check_row(known.row)?;
    if known.hash.as_ref().is_some_and(|known| known.differs_from(hash)) {
        mismatch(tx, peer, message.source.as_str(), message.id.as_str())?;
    }
    if known.status == InboxStatus::Done && !mutant!(QueueDoneRunsAgain) {
        return Ok(Enqueued::Done);
    }
    // One that ends implausibly late was written by a clock that has jumped since (S13).
    let is_current = |until| until > now.as_micros() && until <= now.plus(LEASE_MAX).as_micros();
    if known.lease_until.is_some_and(is_current) {
        let values = params![known.row, now.as_micros(), named(hash), hash.as_bytes()];
        tx.execute(&tx.sql.inbox_touch, values)?;
        return Ok(Enqueued::Leased);
    }
    let known = take_back(db, tx, queue, (peer, known), message.id.as_str(), now)?;
    again(tx, &queue.consumer, (peer, &known), message, hash, now)
}

/// Ends a lease that is over, as the next claim would: whoever has it must not settle what it has not seen.
fn take_back(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    queue: &Queue,
    (peer, found): (i64, Known),
    id: &str,
    now: Timestamp,
) -> Result<Known> {
    if found.lease_until.is_none() {
        return Ok(found);
    }
    let held = Held { attempts: found.attempts, peer, key: found.key };
    failed(db, tx, queue, (found.row, &held), (Some(CRASHED), Again::Backoff), now)?;
    known(tx, peer, id)
}

/// What is known about a message.
struct Known {
    row: i64,
    status: InboxStatus,
    hash: Option<ContentHash>,
    is_queued: bool,
    lease_until: Option<i64>,
    attempts: u32,
    key: Option<String>,
    /// Whether it is a dead letter that is listed, if it is dead.
    is_listed: bool,
}

fn known(tx: &mut SqliteTx<'_>, peer: i64, id: &str) -> Result<Known> {
    let known = tx.query_optional(&tx.sql.queue_known, params![peer, id], |row| {
        Ok(Known {
            row: row.get(0)?,
            status: row.get::<String>(1)?.parse()?,
            hash: hash(row.get(2)?, row.get(3)?),
            is_queued: row.get(4)?,
            lease_until: row.get(5)?,
            attempts: row.get::<Option<u32>>(6)?.unwrap_or(0),
            key: row.get(7)?,
            is_listed: row.get(8)?,
        })
    })?;
    known.ok_or_else(|| Error::new(ErrorKind::Statement, "an inbox row vanished while it was read"))
}

/// A known message that nobody has is queued again (IBX-029).
fn again(
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    (peer, known): (i64, &Known),
    message: &Message,
    hash: &ContentHash,
    now: Timestamp,
) -> Result<Enqueued> {
    let times = Times::of(message, now);
    let (topic, now_micros) = (message.endpoint.as_str(), now.as_micros());
    let values = params![known.row, topic, named(hash), hash.as_bytes(), now_micros, times.ready];
    tx.execute(&tx.sql.queue_renew_row, values)?;
    let is_dead = matches!(known.status, InboxStatus::Dead | InboxStatus::Expired);
    if known.is_queued {
        update(tx, known.row, message, &times)?;
        if times.scheduled {
            Ended { peer, key: known.key.as_deref() }.promote(tx, now)?;
        }
    } else if !is_dead {
        tx.execute(&tx.sql.queue_reopen, [known.row])?;
        store(tx, consumer, (peer, known.row), message, &times)?;
        Counts { queued: 1, ..Counts::default() }.write(tx, peer)?;
        return Ok(Enqueued::New);
    } else if known.is_listed {
        store(tx, consumer, (peer, known.row), message, &times)?;
        tx.execute(&tx.sql.queue_store_dead, [known.row])?;
    }
    Ok(if is_dead { Enqueued::Dead } else { Enqueued::Updated })
}

/// Visible and counted, but no error (IBX-008).
pub(crate) fn mismatch(tx: &mut SqliteTx<'_>, peer: i64, source: &str, id: &str) -> Result<()> {
    tracing::warn!(source, message_id = id, "a message was received again with another content");
    Counts { mismatches: 1, ..Counts::default() }.write(tx, peer)
}

/// Queues a message that was delivered and whose row in the inbox says that it is to be handled. The caller counts it.
pub(crate) fn store_delivered(
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    place: (i64, i64),
    message: &Message,
    now: Timestamp,
) -> Result<()> {
    store(tx, consumer, place, message, &Times::of_delivered(message, now))
}

fn store(
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    place: (i64, i64),
    message: &Message,
    times: &Times,
) -> Result<()> {
    insert(tx, consumer, place, message, times)?;
    crash_point!("queue.stored");
    Ok(())
}

fn insert(
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    (peer, row): (i64, i64),
    message: &Message,
    times: &Times,
) -> Result<()> {
    // A message for later is no part of its key before it is due (L5).
    let (ready, joined) = match message.ordering_key.as_ref().filter(|_| !times.scheduled) {
        Some(key) => match keys::behind(tx, peer, key.as_str())? {
            Some(place) => (None, Some(place)),
            None => (Some(times.ready), Some(1)),
        },
        None => (Some(times.ready), None),
    };
    let headers = (!message.headers.is_empty()).then(|| message.headers.to_json());
    let sql = tx.sql;
    tx.execute_kept(
        &sql.queue_insert,
        params![
            row,
            consumer.as_str(),
            peer,
            message.destination.as_str(),
            message.payload.as_bytes(),
            message.content_type.as_str(),
            message.correlation_id.as_ref().map(AsRef::<str>::as_ref),
            message.ordering_key.as_ref().map(AsRef::<str>::as_ref),
            headers,
            message.created.as_micros(),
            times.due,
            message.expires.as_micros(),
            ready,
            times.scheduled,
            joined,
        ],
    )?;
    if ready.is_some() {
        tx.note_work();
    }
    Ok(())
}

fn update(tx: &mut SqliteTx<'_>, row: i64, message: &Message, times: &Times) -> Result<()> {
    let headers = (!message.headers.is_empty()).then(|| message.headers.to_json());
    tx.execute(
        &tx.sql.queue_update,
        params![
            row,
            message.payload.as_bytes(),
            message.content_type.as_str(),
            headers,
            times.due,
            message.expires.as_micros(),
            times.ready,
            times.scheduled,
        ],
    )?;
    tx.note_work();
    Ok(())
}

/// When a message can be claimed.
struct Times {
    due: Option<i64>,
    ready: i64,
    scheduled: bool,
}

impl Times {
    fn of(message: &Message, now: Timestamp) -> Self {
        let due = (message.available > message.created).then(|| message.available.as_micros());
        let ready = due.map_or(now.as_micros(), |due| due.max(now.as_micros()));
        Self { due, ready, scheduled: due.is_some_and(|due| due > now.as_micros()) }
    }

    /// Its sender has waited until it was due, by its own clock, and has held its ordering key from then on. Were it to
    /// wait here for a clock that is behind, those that follow it would overtake it (L4).
    fn of_delivered(message: &Message, now: Timestamp) -> Self {
        Self { ready: now.as_micros(), scheduled: false, ..Self::of(message, now) }
    }
}

/// The name of a hash's algorithm as it is stored: none for SHA-256, which nearly all are.
pub(crate) fn named(hash: &ContentHash) -> Option<&str> {
    Some(hash.algorithm()).filter(|algorithm| *algorithm != ContentHash::SHA256)
}
