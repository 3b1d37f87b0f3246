//! Leasing lanes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use twobox_core::ports::ops::{Pause, WaitingCounts};
use twobox_core::ports::{
    Discovered, LaneId, LaneLease, LaneStatus, LaneStore, Link, Met, Outage, TakeLanes,
};
use twobox_core::{Destination, Result, Source, Timestamp, crash_point};

use super::lease_lost;
use crate::backup::OUTBOX_INSTANCE;
use crate::error::wrap;
use crate::row::raw;
use crate::writer::Class;
use crate::{Row, Sqlite, SqliteTx};

/// No lease is longer; one that seems to be was written by a clock that has jumped since (S13).
const LEASE_MAX: Duration = Duration::from_secs(3600);

impl LaneStore for Sqlite {
    type Position = i64;

    async fn take_lanes(&self, take: &TakeLanes) -> Result<Vec<LaneLease<i64>>> {
        let (db, mut take) = (self.clone(), take.clone());
        take.owner = self.owner(&take.owner);
        // A power cut that forgets a take-over also ends whoever held the lane.
        self.write(Class::Ephemeral, move |tx| db.take(tx, &take)).await
    }

    async fn release_lanes(&self, leases: &[LaneLease<i64>]) -> Result<()> {
        let leases: Vec<_> = leases.iter().map(|lease| [lease.lane.0, lease.token]).collect();
        self.write(Class::Lazy, move |tx| {
            leases.iter().try_for_each(|lease| tx.execute(&tx.sql.release_lane, *lease).map(drop))
        })
        .await
    }

    async fn hold_lane(&self, lease: &LaneLease<i64>, outage: Option<&Outage>) -> Result<()> {
        let (db, lease, outage) = (self.clone(), lease.clone(), outage.cloned());
        self.write(Class::Ephemeral, move |tx| {
            let now = db.options.clock.now();
            let error = outage.as_ref().map(|outage| &outage.error);
            let probe = outage.as_ref().map(|outage| now.plus(outage.next_probe).as_micros());
            let values = params![lease.lane.0, lease.token, error, probe, now.as_micros()];
            db.fenced(&lease, tx.execute(&tx.sql.hold_lane, values)?)
        })
        .await
    }

    async fn lanes(&self) -> Result<Vec<LaneStatus>> {
        self.read(|connection, sql| Ok(all(connection, sql)?.into_iter().map(|lane| lane.status).collect()))
            .await
    }

    fn steered(&self) -> u64 {
        self.state.steered()
    }

    async fn paused_lanes(&self, source: &Source) -> Result<HashSet<LaneId>> {
        let source = source.clone();
        self.read(move |connection, sql| {
            connection
                .prepare_cached(&sql.paused_lanes)
                .and_then(|mut statement| {
                    statement.query_map([source.as_str()], |row| row.get(0).map(LaneId))?.collect()
                })
                .map_err(wrap("look for paused lanes"))
        })
        .await
    }

    async fn meet_inbox(&self, lease: &LaneLease<i64>, inbox: &str) -> Result<Met> {
        self.note_inbox(lease, inbox).await
    }

    async fn discover_lanes(&self, source: &Source) -> Result<Discovered> {
        self.search_log(source).await
    }
}

impl Sqlite {
    fn take(&self, tx: &mut SqliteTx<'_>, take: &TakeLanes) -> Result<Vec<LaneLease<i64>>> {
        let now = self.options.clock.now();
        let (source, owner) = (take.source.as_str(), take.owner.as_str());
        let until = now.plus(take.lease).as_micros();
        let implausible = now.plus(LEASE_MAX).as_micros();
        let unrouted = now.minus(take.route_grace).as_micros();
        tx.execute(&tx.sql.renew_lanes, params![source, owner, until, now.as_micros()])?;
        self.free_lanes_of_dead(tx, take, now)?;
        for destination in &take.destinations {
            let destination = destination.as_str();
            tx.execute(
                &tx.sql.register_lane,
                params![source, destination, now.as_micros(), take.retries_max],
            )?;
            let values = params![source, destination, owner, until, now.as_micros(), implausible];
            tx.execute(&tx.sql.take_lane, values)?;
        }
        if take.everywhere {
            tx.execute(&tx.sql.register_all, params![source, now.as_micros(), take.retries_max])?;
        }
        let registered = if take.everywhere { i64::MAX } else { unrouted };
        let values = params![source, owner, until, registered, now.as_micros(), implausible];
        tx.execute(&tx.sql.take_unrouted, values)?;
        crash_point!("lanes.taken");
        self.held(tx, take, unrouted)
    }

    /// A process that was killed cannot give its lanes back; nobody should have to wait for its leases to end.
    fn free_lanes_of_dead(&self, tx: &mut SqliteTx<'_>, take: &TakeLanes, now: Timestamp) -> Result<()> {
        let values = params![take.source.as_str(), take.owner, now.as_micros()];
        let owners = tx.query(&tx.sql.owners, values, |row| row.get_lossy(0))?;
        for owner in owners.into_iter().flatten().filter(|owner| self.is_dead(owner)) {
            tracing::info!(owner, source = take.source.as_str(), "the owner of lanes is dead; taking over");
            tx.execute(&tx.sql.free_lanes, params![take.source.as_str(), owner, now.as_micros()])?;
            crash_point!("lanes.freed");
        }
        Ok(())
    }

    /// What the owner holds; a lane that somebody else can route again is given back.
    fn held(&self, tx: &mut SqliteTx<'_>, take: &TakeLanes, unrouted: i64) -> Result<Vec<LaneLease<i64>>> {
        let values = params![take.source.as_str(), take.owner];
        let rows = tx.query(&tx.sql.held_lanes, values, |row| {
            Ok((
                row.get::<i64>(0)?,
                row.get_lossy(1)?.unwrap_or_default(),
                row.get::<i64>(2)?,
                row.get(3)?,
                row.get::<i64>(4)?,
                row.get(5)?,
                row.get_lossy(6)?,
            ))
        })?;
        let mut held = Vec::with_capacity(rows.len());
        let outbox = tx
            .query_optional(&tx.sql.meta_get, [OUTBOX_INSTANCE], |row| row.get_lossy(0))?
            .flatten()
            .unwrap_or_default();
        for (lane, destination, token, cursor, registered_at, paused, inbox) in rows {
            let destination = legible(&destination);
            let routed = take.everywhere || take.destinations.contains(&destination);
            if !routed && registered_at > unrouted {
                tx.execute(&tx.sql.release_lane, [lane, token])?;
                continue;
            }
            let link = Arc::new(Link { source: take.source.clone(), destination, outbox: outbox.clone() });
            let (lane, epoch, inbox) = (LaneId(lane), self.epoch(), inbox.map(Into::into));
            held.push(LaneLease { lane, link, token, epoch, cursor, routed, paused, inbox });
        }
        Ok(held)
    }

    /// Fails unless the fenced statement touched its one row and the lease is of this opening of the file.
    pub(crate) fn fenced(&self, lease: &LaneLease<i64>, changed: usize) -> Result<()> {
        if changed == 1 && lease.epoch == self.epoch() { Ok(()) } else { Err(lease_lost(lease.lane.0)) }
    }
}

/// Stands for what is not legal in a name.
pub(super) const ILLEGIBLE: char = char::REPLACEMENT_CHARACTER;

/// A destination's name. One that is not legal, which a plain INSERT can cause, is made legible: its lane is like
/// one that nobody routes, and its messages become dead letters (S19).
fn legible(destination: &str) -> Destination {
    let legal = |c: char| if c.is_control() { ILLEGIBLE } else { c };
    let name: String = destination.chars().map(legal).take(twobox_core::name::NAME_CHARS_MAX).collect();
    Destination::new(name).unwrap_or_else(|_| Destination::new("?").expect("a legal name"))
}

/// A lane with how far it has come.
pub(crate) struct LaneRow {
    pub(crate) status: LaneStatus,
    /// Its names as they are stored.
    pub(crate) names: (Vec<u8>, Vec<u8>),
    pub(crate) cursor: i64,
    pub(crate) sending: i64,
    pub(crate) passed: i64,
}

/// All lanes, by source and destination. There are as many as there are destinations.
pub(crate) fn all(connection: &rusqlite::Connection, sql: &crate::sql::Sql) -> Result<Vec<LaneRow>> {
    let mut statement = connection.prepare_cached(&sql.lanes).map_err(wrap("list lanes"))?;
    let rows = statement.query_map([], |row| Ok(lane_row(row))).map_err(wrap("list lanes"))?;
    rows.map(|row| row.map_err(wrap("list lanes"))?).collect()
}

fn lane_row(row: &rusqlite::Row<'_>) -> Result<LaneRow> {
    let number = |column| row.get::<_, i64>(column).map_err(wrap("read a lane"));
    let name = |column| raw(row, column).map(<[u8]>::to_vec).map_err(wrap("read a lane"));
    Ok(LaneRow {
        status: status(row)?,
        names: (name(1)?, name(2)?),
        cursor: number(17)?,
        sending: number(18)?,
        passed: number(19)?,
    })
}

fn status(row: &rusqlite::Row<'_>) -> Result<LaneStatus> {
    let row = Row::new(row);
    let time = |column: usize| row.get::<Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
    let count = |column: usize| row.get::<i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
    let (source, destination) =
        (row.get_lossy(1)?.unwrap_or_default(), row.get_lossy(2)?.unwrap_or_default());
    let mut status = LaneStatus::new(LaneId(row.get(0)?), Source::new(source)?, legible(&destination));
    status.owner = row.get(3)?;
    status.held_since = time(4)?;
    status.held_error = row.get(5)?;
    status.next_probe = time(6)?;
    status.sent = count(7)?;
    status.failed = count(8)?;
    status.expired = count(9)?;
    status.waiting =
        WaitingCounts { retrying: count(10)?, scheduled: count(11)?, held: count(12)?, dead: count(13)? };
    status.paused = time(14)?
        .map(|since| -> Result<Pause> {
            let text = |column| Ok::<_, twobox_core::Error>(row.get_lossy(column)?.unwrap_or_default());
            Ok(Pause { since, by: text(15)?, reason: text(16)? })
        })
        .transpose()?;
    status.inbox = row.get(20)?;
    status.inbox_changed = time(21)?;
    status.inbox_changes = count(22)?;
    Ok(status)
}
