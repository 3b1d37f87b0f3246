//! The lanes by the names that stand in the log.

use std::collections::HashMap;

use rusqlite::Connection;
use twobox_core::Result;
use twobox_core::ports::ops::OutboxStatus;

use crate::outbox::lanes::{LaneRow, all};
use crate::sql::Sql;

/// All lanes, found by name without a copy.
pub(super) struct Lanes {
    pub(super) rows: Vec<LaneRow>,
    places: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>>,
}

impl Lanes {
    pub(super) fn read(connection: &Connection, sql: &Sql) -> Result<Self> {
        let rows = all(connection, sql)?;
        let mut places: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>> = HashMap::new();
        for (at, lane) in rows.iter().enumerate() {
            places.entry(lane.names.0.clone()).or_default().insert(lane.names.1.clone(), at);
        }
        Ok(Self { rows, places })
    }

    /// The place of a lane among them; a destination that is new may have none yet.
    pub(super) fn find(&self, source: &[u8], destination: &[u8]) -> Option<usize> {
        self.places.get(source)?.get(destination).copied()
    }

    /// Where a row of the log stands that has no waiting row.
    pub(super) fn status(&self, lane: Option<usize>, seq: i64) -> OutboxStatus {
        match lane.and_then(|at| self.rows.get(at)) {
            Some(lane) if seq <= lane.cursor => OutboxStatus::Sent,
            Some(lane) if seq <= lane.sending => OutboxStatus::Sending,
            _ => OutboxStatus::Pending,
        }
    }

    /// Messages of the log that no lane has passed.
    pub(super) fn pending(&self, end: i64) -> u64 {
        let passed: i64 = self.rows.iter().map(|lane| lane.passed).sum();
        u64::try_from(end.saturating_sub(passed)).unwrap_or(0)
    }
}
