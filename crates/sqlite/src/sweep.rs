//! Cleaning up, a little at a time (S18).

use std::time::Duration;

use rusqlite::params;
use twobox_core::ports::{SweepPlan, SweepStore, Swept};
use twobox_core::{Result, Timestamp, crash_point, mutant, time};

use crate::writer::Class;
use crate::{Sqlite, SqliteTx};

/// Rows of the log that one statement looks at: a batch of a quiet lane may span many rows of busy ones.
const SCAN_MAX: i64 = 5_000;

/// What a part of the log costs beside the rows it loses: as much as removing a few, and looking at ten rows as
/// much as removing one.
const PART_COST: i64 = 5;
const ROWS_LOOKED_AT: i64 = 10;

/// Only one process sweeps a file at a time; this long after its last sweep, another one may.
const LEADER_FOR: Duration = Duration::from_secs(60);

impl SweepStore for Sqlite {
    async fn sweep(&self, plan: &SweepPlan) -> Result<Swept> {
        let (db, plan) = (self.clone(), plan.clone());
        let me = self.sweeper_id();
        // Lazy: a sweep that a power cut forgets is done again. Rows and watermark stay together either way.
        self.write(Class::Lazy, move |tx| {
            let now = db.options.clock.now();
            if !lead(tx, &me, now)? {
                return Ok(Swept::default());
            }
            let batch = i64::try_from(plan.batch.max(1)).unwrap_or(i64::MAX);
            let mut swept = Swept::default();
            trim(tx, (now, now.minus(plan.sent_retention)), batch, &mut swept)?;
            forget_keys(tx, (now, plan.once_retention), batch, &mut swept)?;
            purge(tx, (now, plan.dedup_window), batch, &mut swept)?;
            forget_audit(tx, now.minus(plan.audit_retention), batch, &mut swept)?;
            tx.execute(&tx.sql.meta_put, params!["dedup_window", time::micros(plan.dedup_window)])?;
            crash_point!("sweep.before-commit");
            Ok::<_, twobox_core::Error>(swept)
        })
        .await
        .inspect(|_| crash_point!("sweep.committed"))
    }
}

/// Becomes or stays the one that sweeps, unless somebody else is.
fn lead(tx: &mut SqliteTx<'_>, me: &str, now: Timestamp) -> Result<bool> {
    let text = tx.query_optional(&tx.sql.meta_get, ["sweeper"], |row| row.get::<String>(0))?;
    let other = text.as_deref().and_then(|text| text.split_once(' ')).filter(|(_, who)| *who != me);
    let until =
        other.and_then(|(until, _)| until.parse().ok()).map_or(Timestamp::default(), Timestamp::from_micros);
    // A lease that ends implausibly late was written by a clock that has jumped since.
    if until > now && until <= now.plus(LEADER_FOR) {
        return Ok(false);
    }
    let lease = format!("{} {me}", now.plus(LEADER_FOR).as_micros());
    tx.execute(&tx.sql.meta_put, params!["sweeper", lease])?;
    Ok(true)
}

/// Trims what was sent long ago: log rows of each lane behind its own cursor, then waiting rows.
fn trim(
    tx: &mut SqliteTx<'_>,
    (now, before): (Timestamp, Timestamp),
    batch: i64,
    swept: &mut Swept,
) -> Result<()> {
    let lanes = tx.query(&tx.sql.sweep_lanes, [], |row| {
        // A name that is no text at all stays: nothing of its lane is ever trimmed, and nobody else's is kept.
        let names = row.get::<String>(1).ok().zip(row.get::<String>(2).ok());
        Ok((row.get::<i64>(0)?, names, row.get::<i64>(3)?))
    })?;
    let mut room = batch;
    for (lane, names, cursor) in lanes {
        let Some((source, destination)) = names else { continue };
        while room > 0 {
            let receipt = tx.query_optional(&tx.sql.old_receipt, [lane], |row| {
                Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
            })?;
            // A date to come is of a clock that has jumped since: it would keep the lane's log until then (S13).
            if receipt.is_some_and(|(_, _, sent_at)| sent_at > now.as_micros()) {
                let values = [lane, now.as_micros(), SCAN_MAX];
                let redated = count(tx.execute(&tx.sql.redate_receipts, values)?);
                room -= PART_COST + redated / ROWS_LOOKED_AT;
                break;
            }
            let old = receipt.filter(|(_, _, sent_at)| *sent_at <= before.as_micros());
            let Some((first, last, sent_at)) = old else { break };
            let part = last.min(cursor).min(first.saturating_add(SCAN_MAX));
            let values = params![source, destination, first, part, room];
            let trimmed = count(tx.execute(&tx.sql.trim_log, values)?);
            crash_point!("sweep.log-trimmed");
            if trimmed > 0 {
                tx.execute(&tx.sql.note_trimmed, [lane, sent_at])?;
            }
            swept.trimmed += u64::try_from(trimmed).unwrap_or(0);
            room -= trimmed;
            if room > 0 && part < last {
                tx.execute(&tx.sql.shorten_receipt, [lane, last, part + 1])?;
            } else if room > 0 {
                tx.execute(&tx.sql.drop_receipt, [lane, last])?;
            }
            room -= PART_COST + (part - first) / ROWS_LOOKED_AT;
        }
    }
    crash_point!("sweep.trimmed");
    let gone = tx.query(&tx.sql.trim_over, [before.as_micros(), batch], |row| {
        Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, row.get::<Option<i64>>(2)?))
    })?;
    for (seq, lane, sent_at) in &gone {
        crash_point!("sweep.waiting-trimmed");
        tx.execute(&tx.sql.drop_attempts, [seq])?;
        if let Some(sent_at) = sent_at {
            tx.execute(&tx.sql.note_trimmed, [lane, sent_at])?;
        }
    }
    swept.more |= room <= 0 || count(gone.len()) >= batch;
    Ok(())
}

fn forget_keys(
    tx: &mut SqliteTx<'_>,
    (now, retention): (Timestamp, Duration),
    batch: i64,
    swept: &mut Swept,
) -> Result<()> {
    let forgotten = tx.execute(&tx.sql.sweep_once, [now.as_micros(), time::micros(retention), batch])?;
    swept.once_keys += u64::try_from(forgotten).unwrap_or(0);
    crash_point!("sweep.keys-forgotten");
    swept.more |= count(forgotten) >= batch;
    Ok(())
}

fn forget_audit(tx: &mut SqliteTx<'_>, before: Timestamp, batch: i64, swept: &mut Swept) -> Result<()> {
    let forgotten = tx.execute(&tx.sql.sweep_audit, [before.as_micros(), batch])?;
    swept.audit_rows += u64::try_from(forgotten).unwrap_or(0);
    swept.more |= count(forgotten) >= batch;
    Ok(())
}

/// Purges inbox rows of each peer, oldest first, and raises its watermark with them in the same transaction (S9).
fn purge(
    tx: &mut SqliteTx<'_>,
    (now, window): (Timestamp, Duration),
    batch: i64,
    swept: &mut Swept,
) -> Result<()> {
    let peers = tx.query(&tx.sql.sweep_peers, [], |row| {
        Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
    })?;
    let mut room = batch;
    for (peer, newest, watermark) in peers {
        // Counted in the sender's own dates, not on our clock: safety must not depend on clocks. Ours can only put it
        // off: what was scheduled and has ended early has a date to come, which says nothing about how old the rest is.
        let now = if mutant!(PurgeByNewest) { i64::MAX } else { now.as_micros() };
        let target = newest.min(now).saturating_sub(time::micros(window));
        // What has the date of the watermark itself may be left of an earlier batch.
        if target < watermark || room <= 0 {
            swept.more |= target >= watermark;
            continue;
        }
        let bound = tx.query_optional(&tx.sql.purge_bound, params![peer, target, room], |row| {
            Ok((row.get::<Option<i64>>(0)?, row.get::<i64>(1)?))
        })?;
        let (Some(bound), rows) = bound.unwrap_or((None, 0)) else { continue };
        let purged = tx.execute(&tx.sql.purge, [peer, bound, room])?;
        swept.purged += u64::try_from(purged).unwrap_or(0);
        crash_point!("sweep.purged");
        tx.execute(&tx.sql.raise_watermark, [peer, bound, count(purged)])?;
        crash_point!("sweep.watermark-raised");
        swept.more |= rows >= room;
        room -= rows;
    }
    Ok(())
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
