//! One reader for all lanes: it reads the log once and hands each message to its lane.
//!
//! Lanes that keep up share the *tail*. A lane that is full, or was taken over further back, catches up on its
//! own until it reaches the tail; nobody scans other destinations' rows again and again (L7).

use std::collections::{BTreeMap, HashSet};

use twobox_core::mutant;
use twobox_core::ports::{LaneId, LogChunk, ReadLog};

use super::lane::Lane;
use super::options::RelayOptions;

/// Rows looked at in one read: about a millisecond.
const SCAN_MAX: usize = 1_000;
/// Payload bytes of one read.
const BYTES_MAX: usize = 1 << 20;

/// Whom a read was for. Lanes are named with their incarnation: one that was thrown away and loaded again while
/// the read was under way must not be told that it has read what it has not.
#[derive(Debug)]
pub(super) enum Target<P> {
    /// Everyone who kept up when the read began.
    Tail(HashSet<(LaneId, u64)>),
    /// One lane that catches up, with where that read ended at the latest.
    Lane((LaneId, u64), P),
}

/// Where reading stands.
#[derive(Debug)]
pub(super) struct Reader<P> {
    /// Tells what was asked for from what was asked for before the store was reopened.
    pub(super) epoch: u64,
    tail: Option<P>,
    /// Whether there may be something behind the tail.
    pub(super) grown: bool,
    pub(super) reading: bool,
    /// Whose turn it is when both the tail and a lane behind it want to be read.
    tail_last: bool,
    /// The lane behind that was read last: the next one takes its turn.
    behind_last: Option<LaneId>,
}

impl<P: Clone + Ord> Reader<P> {
    pub(super) fn new() -> Self {
        Self { epoch: 0, tail: None, grown: true, reading: false, tail_last: false, behind_last: None }
    }

    /// The store was reopened: places it gave before may not be there any more, and may be given again. Everything is
    /// read anew from the cursors.
    pub(super) fn reopened(&mut self, epoch: u64) {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::new() };
        }
    }

    /// A lane was taken: it catches up from its cursor, unless that is where the others are. The tail itself
    /// never jumps: lanes that keep up have read nothing beyond it.
    pub(super) fn join(&mut self, lane: &mut Lane<P>) {
        let tail = self.tail.get_or_insert_with(|| lane.position.clone());
        lane.live = lane.position >= *tail;
    }

    /// Whether somebody who keeps up wants to read on.
    pub(super) fn wants_tail(&self, lanes: &BTreeMap<LaneId, Lane<P>>, options: &RelayOptions) -> bool {
        let waits = mutant!(FullLaneStopsReader) && lanes.values().any(|lane| !lane.has_room(options));
        self.grown && !waits && lanes.values().any(|lane| lane.live && lane.has_room(options))
    }

    /// The next read, if one is wanted and nobody is reading.
    pub(super) fn next(
        &mut self,
        lanes: &BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) -> Option<(Target<P>, ReadLog<P>)> {
        let tail = self.tail.clone()?;
        if self.reading {
            return None;
        }
        let live = self.wants_tail(lanes, options);
        let next = match self.next_behind(lanes, options) {
            Some(lane) if !live || self.tail_last => {
                self.behind_last = Some(lane.lease.lane);
                let read = read_log(lane.position.clone(), Some(tail.clone()), vec![lane.lease.clone()]);
                (Target::Lane(lane.name(), tail), read)
            }
            _ if live => {
                self.grown = false;
                let wanted = || lanes.values().filter(|lane| lane.live);
                let leases = wanted().map(|lane| lane.lease.clone()).collect();
                (Target::Tail(wanted().map(Lane::name).collect()), read_log(tail, None, leases))
            }
            _ => return None,
        };
        self.tail_last = matches!(next.0, Target::Tail(_));
        self.reading = true;
        Some(next)
    }

    /// The next lane that has to catch up, by turns.
    fn next_behind<'a>(
        &self,
        lanes: &'a BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) -> Option<&'a Lane<P>> {
        let behind = || lanes.values().filter(|lane| !lane.live && lane.has_room(options));
        behind().find(|lane| Some(lane.lease.lane) > self.behind_last).or_else(|| behind().next())
    }

    /// Hands out what was read.
    pub(super) fn deliver(
        &mut self,
        target: Target<P>,
        chunk: LogChunk<P>,
        lanes: &mut BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) {
        match target {
            Target::Tail(asked) => self.deliver_tail(&asked, chunk, lanes, options),
            Target::Lane(name, until) => {
                if let Some(lane) = lanes.get_mut(&name.0).filter(|lane| lane.name() == name) {
                    self.deliver_behind(chunk, &until, lane);
                }
            }
        }
    }

    fn deliver_tail(
        &mut self,
        asked: &HashSet<(LaneId, u64)>,
        chunk: LogChunk<P>,
        lanes: &mut BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) {
        for entry in chunk.entries {
            let lane = lanes.get_mut(&entry.lane).filter(|lane| lane.live && asked.contains(&lane.name()));
            let Some(lane) = lane.filter(|lane| entry.position > lane.position) else { continue };
            if lane.has_room(options) {
                lane.push(entry);
            } else {
                lane.live = false;
            }
        }
        for lane in lanes.values_mut().filter(|lane| lane.live && lane.position < chunk.scanned) {
            if asked.contains(&lane.name()) {
                lane.position = chunk.scanned.clone();
            } else {
                lane.live = false; // it joined while the read was under way, which was not for it
            }
        }
        self.grown |= chunk.more;
        self.tail = Some(chunk.scanned);
    }

    fn deliver_behind(&mut self, chunk: LogChunk<P>, until: &P, lane: &mut Lane<P>) {
        chunk.entries.into_iter().for_each(|entry| lane.push(entry));
        lane.position = chunk.scanned;
        if !chunk.more {
            // Everything up to there was looked at, also where the last row lies before it.
            lane.position = lane.position.clone().max(until.clone());
            lane.live = self.tail.as_ref().is_none_or(|tail| lane.position >= *tail);
        }
    }
}

fn read_log<P>(after: P, until: Option<P>, lanes: Vec<twobox_core::ports::LaneLease<P>>) -> ReadLog<P> {
    ReadLog { after, until, lanes, scan_max: SCAN_MAX, bytes_max: BYTES_MAX }
}
