//! What the jobs of a group share, because each of them would pay for it as much as for a small statement.

use std::sync::Arc;

use rusqlite::{CachedStatement, Connection};
use twobox_core::{Consumer, Source};

use crate::inbox::peers::Counts;
use crate::shared::BoxState;

/// Consumers and sources that a group remembers: more than a queue usually hears from at once, few enough to look through.
const PEERS_MAX: usize = 16;

/// Statements of users that a group remembers: services have few that they run for every message.
const THEIRS_MAX: usize = 8;

/// What the jobs of a group pass on to each other. They may be of different boxes in the same file.
#[derive(Default)]
pub(crate) struct Kept<'c> {
    /// Statements of ours that run for every message, by the place of their text.
    statements: Vec<(*const u8, CachedStatement<'c>)>,
    /// Statements of the user's, by their text.
    theirs: Vec<(Box<str>, CachedStatement<'c>)>,
    /// Rows of consumers and sources. They are never deleted.
    peers: Vec<Peer<'c>>,
    counted: Vec<Counted<'c>>,
}

/// The row of a consumer and source.
struct Peer<'c> {
    boxes: &'c Arc<BoxState>,
    consumer: Consumer,
    source: Source,
    id: i64,
}

/// What is added to the counters of a peer when the group commits.
#[derive(Clone)]
pub(crate) struct Counted<'c> {
    boxes: &'c Arc<BoxState>,
    peer: i64,
    counts: Counts,
}

impl<'c> Kept<'c> {
    /// A statement that is prepared once for the whole group.
    pub(crate) fn statement(
        &mut self,
        connection: &'c Connection,
        sql: &'c str,
    ) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let at = match self.statements.iter().position(|(of, _)| *of == sql.as_ptr()) {
            Some(at) => at,
            None => {
                self.statements.push((sql.as_ptr(), connection.prepare_cached(sql)?));
                self.statements.len() - 1
            }
        };
        Ok(&mut self.statements[at].1)
    }

    /// A statement of the user's that is prepared, if this group remembers it or still can.
    pub(crate) fn their_statement(
        &mut self,
        connection: &'c Connection,
        sql: &str,
    ) -> rusqlite::Result<Option<&mut CachedStatement<'c>>> {
        let at = match self.theirs.iter().position(|(of, _)| **of == *sql) {
            Some(at) => at,
            None if self.theirs.len() < THEIRS_MAX => {
                self.theirs.push((sql.into(), connection.prepare_cached(sql)?));
                self.theirs.len() - 1
            }
            None => return Ok(None),
        };
        Ok(Some(&mut self.theirs[at].1))
    }

    /// The row of a consumer and source, if a job of this group has looked it up.
    pub(crate) fn peer(&self, boxes: &Arc<BoxState>, consumer: &Consumer, source: &Source) -> Option<i64> {
        let is_it = |peer: &&Peer<'_>| {
            Arc::ptr_eq(peer.boxes, boxes) && peer.consumer == *consumer && peer.source == *source
        };
        self.peers.iter().find(is_it).map(|peer| peer.id)
    }

    /// Lets the jobs behind this one know the row of a consumer and source.
    pub(crate) fn keep_peer(
        &mut self,
        boxes: &'c Arc<BoxState>,
        (consumer, source): (&Consumer, &Source),
        id: i64,
    ) {
        if self.peers.len() < PEERS_MAX {
            self.peers.push(Peer { boxes, consumer: consumer.clone(), source: source.clone(), id });
        }
    }

    /// Forgets rows that may be among what is undone, and what was counted since.
    pub(crate) fn undo(&mut self, counted: Vec<Counted<'c>>) {
        self.peers.clear();
        self.counted = counted;
    }

    pub(crate) fn has_counted(&self) -> bool {
        !self.counted.is_empty()
    }

    /// What is counted so far.
    pub(crate) fn counted(&self) -> Vec<Counted<'c>> {
        self.counted.clone()
    }

    /// Adds to the counters of a peer, which are written when the group commits.
    pub(crate) fn count(
        &mut self,
        connection: &'c Connection,
        (boxes, peer): (&'c Arc<BoxState>, i64),
        counts: &Counts,
    ) -> rusqlite::Result<()> {
        let is_it = |counted: &&mut Counted<'_>| counted.peer == peer && Arc::ptr_eq(counted.boxes, boxes);
        if let Some(counted) = self.counted.iter_mut().find(is_it) {
            counted.counts.add(counts);
            return Ok(());
        }
        if self.counted.len() == PEERS_MAX {
            self.write_counts(connection)?;
        }
        self.counted.push(Counted { boxes, peer, counts: *counts });
        Ok(())
    }

    /// Writes what was counted, in the transaction of what it counts.
    pub(crate) fn write_counts(&mut self, connection: &'c Connection) -> rusqlite::Result<()> {
        for Counted { boxes, peer, counts } in std::mem::take(&mut self.counted) {
            self.statement(connection, &boxes.sql.peer_count)?.execute(counts.params(peer))?;
        }
        Ok(())
    }
}
