//! One reader for all lanes: it reads the log once and hands each message to its lane.
//!
//! Lanes that keep up share the *tail*. A lane that is full, or was taken over further back, catches up on its
//! own until it reaches the tail; nobody scans other destinations' rows again and again (L7).

use std::collections::BTreeMap;

use twobox_core::ports::{LaneId, LogChunk, ReadLog};

use super::lane::Lane;
use super::options::RelayOptions;

/// Rows looked at in one read: about a millisecond.
const SCAN_MAX: usize = 1_000;
/// Payload bytes of one read.
const BYTES_MAX: usize = 1 << 20;

/// Whom a read was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Everyone who keeps up.
    Tail,
    /// One lane that catches up, in this incarnation.
    Lane(LaneId, u64),
}

/// Where reading stands.
#[derive(Debug)]
pub(super) struct Reader<P> {
    tail: Option<P>,
    /// Whether there may be something behind the tail.
    pub(super) grown: bool,
    pub(super) reading: bool,
    /// Whose turn it is when both the tail and a lane behind it want to be read.
    tail_last: bool,
}

impl<P: Clone + Ord> Reader<P> {
    pub(super) fn new() -> Self {
        Self { tail: None, grown: true, reading: false, tail_last: false }
    }

    /// A lane was taken: it catches up from its cursor.
    pub(super) fn join(&mut self, lane: &mut Lane<P>) {
        let tail = self.tail.get_or_insert_with(|| lane.position.clone());
        lane.live = lane.position >= *tail;
        if lane.position > *tail {
            *tail = lane.position.clone();
        }
    }

    /// The next read, if one is wanted and nobody is reading.
    pub(super) fn next(
        &mut self,
        lanes: &BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) -> Option<(Target, ReadLog<P>)> {
        let tail = self.tail.clone()?;
        if self.reading {
            return None;
        }
        let behind = lanes.values().find(|lane| !lane.live && lane.has_room(options));
        let live = self.grown && lanes.values().any(|lane| lane.live && lane.has_room(options));
        let read =
            |after, until, lanes| ReadLog { after, until, lanes, scan_max: SCAN_MAX, bytes_max: BYTES_MAX };
        let next = match behind {
            Some(lane) if !live || self.tail_last => {
                let target = Target::Lane(lane.lease.lane, lane.incarnation);
                (target, read(lane.position.clone(), Some(tail), vec![lane.lease.clone()]))
            }
            _ if live => {
                self.grown = false;
                let wanted = lanes.values().filter(|lane| lane.live).map(|lane| lane.lease.clone());
                (Target::Tail, read(tail, None, wanted.collect()))
            }
            _ => return None,
        };
        self.tail_last = next.0 == Target::Tail;
        self.reading = true;
        Some(next)
    }

    /// Hands out what was read.
    pub(super) fn deliver(
        &mut self,
        target: Target,
        chunk: LogChunk<P>,
        lanes: &mut BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) {
        match target {
            Target::Tail => self.deliver_tail(chunk, lanes, options),
            Target::Lane(id, incarnation) => {
                let lane = lanes.get_mut(&id).filter(|lane| lane.incarnation == incarnation);
                if let Some(lane) = lane {
                    self.deliver_behind(chunk, lane);
                }
            }
        }
    }

    fn deliver_tail(
        &mut self,
        chunk: LogChunk<P>,
        lanes: &mut BTreeMap<LaneId, Lane<P>>,
        options: &RelayOptions,
    ) {
        for entry in chunk.entries {
            let Some(lane) = lanes.get_mut(&entry.lane).filter(|lane| lane.live) else { continue };
            if entry.position <= lane.position {
                continue;
            }
            if lane.has_room(options) {
                lane.push(entry);
            } else {
                lane.live = false;
            }
        }
        for lane in lanes.values_mut().filter(|lane| lane.live && lane.position < chunk.scanned) {
            lane.position = chunk.scanned.clone();
        }
        self.grown |= chunk.more;
        self.tail = Some(chunk.scanned);
    }

    fn deliver_behind(&mut self, chunk: LogChunk<P>, lane: &mut Lane<P>) {
        chunk.entries.into_iter().for_each(|entry| lane.push(entry));
        lane.position = chunk.scanned;
        if !chunk.more {
            // Everything up to the tail was looked at; the tail may be further than the last row.
            let tail = self.tail.as_ref().filter(|tail| **tail > lane.position);
            lane.position = tail.unwrap_or(&lane.position).clone();
            lane.live = true;
        }
    }
}
