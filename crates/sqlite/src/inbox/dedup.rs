//! Dedup records by hand, and claims before handling (IBX §6.1, CEB).

use std::time::Duration;

use rusqlite::params;
use twobox_core::handler::shorten;
use twobox_core::ports::{
    ClaimFirst, ClaimOutcome, ClaimToken, ContentHash, DedupStore, InboxStatus, MessageKey, Noticed,
    Unfinished,
};
use twobox_core::{Consumer, Response, Result, Timestamp, crash_point};

use super::handle::{Placed, check_response, is_plausible, record};
use super::job;
use super::peers::Counts;
use crate::queue::{Ended, mismatch, named};
use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

impl DedupStore for Sqlite {
    async fn already_processed(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        hash: Option<&ContentHash>,
    ) -> Result<Noticed> {
        let (db, consumer, key, hash) = (self.clone(), consumer.clone(), key.clone(), hash.cloned());
        self.write(Class::Synced, move |tx| notice(&db, tx, &consumer, &key, hash.as_ref())).await
    }

    async fn mark_processing(&self, consumer: &Consumer, key: &MessageKey) -> Result<bool> {
        let (db, consumer, key) = (self.clone(), consumer.clone(), key.clone());
        self.write(Class::Synced, move |tx| {
            let now = db.options.clock.now().as_micros();
            let Some((_, known)) = find(tx, &consumer, &key)? else { return Ok(false) };
            let taken = tx.execute(&tx.sql.inbox_take, [known.row, now])? == 1;
            Ok(taken || known.record.status == InboxStatus::Processing)
        })
        .await
    }

    async fn mark_processed(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        response: &Response,
    ) -> Result<bool> {
        check_response(response, &self.options).map_err(twobox_core::Error::invalid)?;
        let (db, consumer, key, response) = (self.clone(), consumer.clone(), key.clone(), response.clone());
        self.write(Class::Synced, move |tx| processed(&db, tx, &consumer, &key, &response)).await
    }

    async fn mark_dead(&self, consumer: &Consumer, key: &MessageKey, error: &str) -> Result<bool> {
        let (db, consumer, key, error) = (self.clone(), consumer.clone(), key.clone(), shorten(error));
        self.write(Class::Synced, move |tx| dead(&db, tx, &consumer, &key, &error)).await
    }

    async fn claim_first(&self, consumer: &Consumer, claim: &ClaimFirst) -> Result<Option<ClaimToken>> {
        let (db, consumer, claim) = (self.clone(), consumer.clone(), claim.clone());
        self.write(Class::Synced, move |tx| {
            let now = db.options.clock.now();
            let peer = job::find(tx, &consumer, &claim.key.source)?;
            let available = claim.available.unwrap_or(now);
            if claim.available.is_some() && !is_plausible(available, &peer, now) {
                return Ok(None);
            }
            let token = db.options.random.next_u64().cast_signed();
            let row = Row {
                status: InboxStatus::Processing,
                topic: claim.topic.as_str(),
                handler: Some(&claim.handler),
                available,
                token: Some(token),
                replay: claim.replay,
            };
            let claimed = insert(tx, peer.id, &claim.key, &row, claim.hash.as_ref(), now)?;
            crash_point!("dedup.claimed");
            Ok(claimed.then_some(ClaimToken(token)))
        })
        .await
    }

    async fn settle_claim(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
        token: ClaimToken,
        outcome: &ClaimOutcome,
    ) -> Result<bool> {
        if let ClaimOutcome::Done(response) = outcome {
            check_response(response, &self.options).map_err(twobox_core::Error::invalid)?;
        }
        let (db, consumer, key, outcome) = (self.clone(), consumer.clone(), key.clone(), outcome.clone());
        self.write(Class::Synced, move |tx| {
            let peer = job::find(tx, &consumer, &key.source)?.id;
            let values = params![peer, key.id.as_str(), token.0];
            if tx.query_optional(&tx.sql.inbox_claimed, values, |_| Ok(()))?.is_none() {
                return Ok(false);
            }
            match &outcome {
                ClaimOutcome::Done(response) => processed(&db, tx, &consumer, &key, response),
                ClaimOutcome::Kept(error) => dead(&db, tx, &consumer, &key, &shorten(error)),
                ClaimOutcome::Released => released(tx, &consumer, &key),
            }
        })
        .await
    }

    async fn release_claim(&self, consumer: &Consumer, key: &MessageKey) -> Result<bool> {
        let (consumer, key) = (consumer.clone(), key.clone());
        self.write(Class::Synced, move |tx| released(tx, &consumer, &key)).await
    }

    async fn unfinished(
        &self,
        consumer: &Consumer,
        older_than: Duration,
        limit: usize,
    ) -> Result<Vec<Unfinished>> {
        let consumer = consumer.clone();
        let before = self.options.clock.now().minus(older_than).as_micros();
        self.read(move |connection, sql| {
            let failed = || crate::error::wrap("list unfinished messages");
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows: Vec<(String, String, String, Option<String>, i64)> = connection
                .prepare_cached(&sql.inbox_unfinished)
                .and_then(|mut statement| {
                    let values = params![consumer.as_str(), before, limit];
                    let read = |row: &rusqlite::Row<'_>| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                    };
                    statement.query_map(values, read)?.collect()
                })
                .map_err(failed())?;
            rows.into_iter()
                .map(|(source, id, status, handler, since)| {
                    Ok(Unfinished {
                        key: MessageKey::new(source, id)?,
                        status: status.parse()?,
                        handler,
                        since: Timestamp::from_micros(since),
                    })
                })
                .collect()
        })
        .await
    }

    async fn release_unfinished(
        &self,
        consumer: &Consumer,
        older_than: Duration,
        limit: usize,
    ) -> Result<u64> {
        let (db, consumer) = (self.clone(), consumer.clone());
        self.write(Class::Synced, move |tx| {
            let before = db.options.clock.now().minus(older_than).as_micros();
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let values = params![consumer.as_str(), before, limit];
            let released = tx.query(&tx.sql.inbox_release_unfinished, values, |row| row.get::<i64>(0))?;
            released.iter().try_for_each(|peer| forget_row(tx, *peer))?;
            Ok(released.len() as u64)
        })
        .await
    }
}

/// Makes a message Done, unless it is.
fn processed(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    key: &MessageKey,
    response: &Response,
) -> Result<bool> {
    let now = db.options.clock.now();
    let Some((peer, Placed { row, available, listed, record })) = find(tx, consumer, key)? else {
        return Ok(false);
    };
    let values = params![row, now.as_micros(), response.content_type.as_str(), response.body.as_bytes()];
    let done = tx.execute(&tx.sql.queue_finish_row, values)? == 1;
    crash_point!("dedup.processed");
    if done {
        let key = tx.query_optional(&tx.sql.queue_drop, [row], |row| row.get::<Option<String>>(0))?;
        Ended { peer, key: key.flatten().as_deref() }.promote(tx, now)?;
        let is_dead = matches!(record.status, InboxStatus::Dead | InboxStatus::Expired);
        let queued = -i64::from(record.is_queued && !is_dead);
        let dead = -i64::from(listed && is_dead);
        Counts { newest: available, done: 1, queued, dead, ..Counts::default() }.write(tx, peer)?;
    }
    Ok(done)
}

/// Makes a message a dead letter, unless it is final.
fn dead(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    key: &MessageKey,
    error: &str,
) -> Result<bool> {
    let now = db.options.clock.now();
    let Some((peer, known)) = find(tx, consumer, key)? else { return Ok(false) };
    if matches!(known.record.status, InboxStatus::Done | InboxStatus::Dead | InboxStatus::Expired) {
        return Ok(false);
    }
    crate::queue::bury_by_hand(tx, (peer, known.row), error, now)?;
    Ok(true)
}

/// Gives a claim back.
fn released(tx: &mut SqliteTx<'_>, consumer: &Consumer, key: &MessageKey) -> Result<bool> {
    let peer = job::find(tx, consumer, &key.source)?.id;
    let released = tx.execute(&tx.sql.inbox_release, params![peer, key.id.as_str()])? == 1;
    crash_point!("dedup.released");
    if released {
        forget_row(tx, peer)?;
    }
    Ok(released)
}

/// Counts a row that is gone.
fn forget_row(tx: &mut SqliteTx<'_>, peer: i64) -> Result<()> {
    Counts { size: -1, ..Counts::default() }.write(tx, peer)
}

/// The row of a message, if it is known, and its peer.
fn find(tx: &mut SqliteTx<'_>, consumer: &Consumer, key: &MessageKey) -> Result<Option<(i64, Placed)>> {
    let peer = job::find(tx, consumer, &key.source)?.id;
    let known = tx.note(record(tx.connection, tx.sql, peer, key.id.as_str()), "read an inbox row")?;
    Ok(known.map(|known| (peer, known)))
}

/// What a row says that is written by hand.
struct Row<'a> {
    status: InboxStatus,
    topic: &'a str,
    handler: Option<&'a str>,
    available: Timestamp,
    token: Option<i64>,
    replay: u32,
}

fn insert(
    tx: &mut SqliteTx<'_>,
    peer: i64,
    key: &MessageKey,
    row: &Row<'_>,
    hash: Option<&ContentHash>,
    now: Timestamp,
) -> Result<bool> {
    let values = params![
        peer,
        key.id.as_str(),
        row.status.as_str(),
        row.topic,
        hash.and_then(named),
        hash.map(ContentHash::as_bytes),
        now.as_micros(),
        row.handler,
        row.available.as_micros(),
        row.token,
        row.replay,
    ];
    let inserted = tx.execute(&tx.sql.inbox_notice, values)? == 1;
    if inserted {
        Counts { size: 1, ..Counts::default() }.write(tx, peer)?;
    }
    Ok(inserted)
}

/// Whether a message has been processed; if not, it is noted as seen (IBX-002…IBX-008).
fn notice(
    db: &Sqlite,
    tx: &mut SqliteTx<'_>,
    consumer: &Consumer,
    key: &MessageKey,
    hash: Option<&ContentHash>,
) -> Result<Noticed> {
    let now = db.options.clock.now();
    let peer = job::find(tx, consumer, &key.source)?.id;
    let seen =
        Row { status: InboxStatus::Seen, topic: "", handler: None, available: now, token: None, replay: 0 };
    if insert(tx, peer, key, &seen, hash, now)? {
        crash_point!("dedup.noticed");
        tracing::debug!(source = key.source.as_str(), message_id = key.id.as_str(), "not processed before");
        return Ok(Noticed { status: InboxStatus::Seen, differs: false });
    }
    let known = tx.note(record(tx.connection, tx.sql, peer, key.id.as_str()), "read an inbox row")?;
    let known = known.ok_or_else(|| {
        twobox_core::Error::new(twobox_core::ErrorKind::Statement, "an inbox row vanished while it was read")
    })?;
    let (row, known) = (known.row, known.record);
    let differs = known.hash.as_ref().zip(hash).is_some_and(|(known, hash)| known.differs_from(hash));
    if differs {
        mismatch(tx, peer, key.source.as_str(), key.id.as_str())?;
    }
    if known.status != InboxStatus::Done {
        let (algorithm, bytes) = (hash.and_then(named), hash.map(ContentHash::as_bytes));
        tx.execute(&tx.sql.inbox_touch, params![row, now.as_micros(), algorithm, bytes])?;
    }
    let (source, id, status) = (&key.source, &key.id, known.status.as_str());
    tracing::debug!(source = source.as_str(), message_id = id.as_str(), status, "known");
    Ok(Noticed { status: known.status, differs })
}
