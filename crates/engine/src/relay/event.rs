//! What happens to a relay, and what it makes of it.

use std::collections::HashSet;

use twobox_core::meters::RequestOutcome;
use twobox_core::ports::{
    Answer, DeliveryError, Discovered, Due, LaneId, LaneLease, LogChunk, Met, OutboxStore, Settled,
};
use twobox_core::{Error, Timestamp, crash_point, one_line};

use super::figures::{Figures, Outcomes, tell_sent};
use super::lane::{Lane, Verdict};
use super::reader::Target;
use super::run::Run;

/// Which state of which lane an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    pub(super) lane: LaneId,
    pub(super) incarnation: u64,
}

/// Something that was started has ended.
pub(super) enum Event<P> {
    /// The log may have grown.
    Changed(u64),
    /// Lanes were taken and renewed.
    Lanes { asked: Asked, result: Result<Vec<LaneLease<P>>, Error> },
    /// It was looked up which lanes are paused, as of this version.
    Steered { version: u64, paused: Result<HashSet<LaneId>, Error> },
    /// New destinations were looked for; there may be more.
    Discovered(Result<Discovered, Error>),
    /// A part of the log was read.
    Read { epoch: u64, target: Target<P>, result: Result<LogChunk<P>, Error> },
    /// Waiting rows were looked at.
    Looked(Of, Result<Due<P>, Error>),
    /// A request came back; the outer error is the store's, before anything was sent.
    Answered(Of, u64, Result<Delivered, Error>),
    /// A probe came back.
    Probed(Of, Result<Vec<Answer>, DeliveryError>),
    /// The log was settled up to here, and perhaps rows moved to those that wait.
    SettledLog { of: Of, upto: P, moved: bool, outcomes: Outcomes, result: Result<Settled, Error> },
    /// A batch of waiting rows was settled.
    SettledWaiting(Of, Outcomes, Result<Settled, Error>),
    /// Dead letters were announced; there may be more.
    Announced(Result<bool, Error>),
    /// It was noted which inbox answers.
    Met(Of, Result<Met, Error>),
    /// Something that is only shown to people was written.
    Shown(Result<(), Error>),
}

/// When lanes were asked for, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) monotonic: std::time::Duration,
    pub(super) wall: Timestamp,
}

/// What came of a request, and how long that took.
pub(super) struct Delivered {
    pub(super) result: Result<Vec<Answer>, DeliveryError>,
    pub(super) took: std::time::Duration,
}

impl<S: OutboxStore> Run<S> {
    pub(super) fn handle(&mut self, event: Event<S::Position>) {
        match event {
            Event::Changed(version) => self.changed(version),
            Event::Lanes { asked, result } => self.lanes_taken(asked, result),
            Event::Steered { version, paused } => self.steered(version, paused),
            Event::Discovered(result) => {
                self.discovering = false;
                let discovered = self.logged(result, "look for new destinations");
                self.discover_more |= discovered.is_some_and(|discovered| discovered.more);
                if discovered.is_some_and(|discovered| discovered.found) && self.relay.fallback.is_some() {
                    self.take_at = self.relay.timer.monotonic(); // it has a route at once
                }
            }
            Event::Read { epoch, .. } if epoch != self.reader.epoch => {} // read before the store was reopened
            Event::Read { target, result, .. } => {
                self.reader.reading = false;
                match result {
                    Ok(chunk) => {
                        crash_point!("relay.log-read");
                        self.store_ahead =
                            chunk.now.as_micros().saturating_sub(self.relay.timer.now().as_micros());
                        self.reader.deliver(target, chunk, &mut self.lanes, &self.relay.options);
                    }
                    Err(error) => {
                        self.reader.grown = true;
                        self.back_off(&error, "read the log");
                    }
                }
            }
            Event::Looked(of, result) => self.looked(of, result),
            Event::Answered(of, batch, result) => self.answered(of, batch, result),
            Event::Probed(of, result) => self.probed(of, result),
            Event::SettledLog { of, upto, moved, outcomes, result } => {
                if let Some(settled) = self.settled(of, &outcomes, result)
                    && let Some(lane) = self.lane(of)
                {
                    lane.settling = false;
                    lane.settled(&upto);
                    if moved {
                        lane.look_at = Some(std::time::Duration::ZERO);
                    }
                    self.announce_more |= settled.died > 0;
                }
            }
            Event::SettledWaiting(of, outcomes, result) => {
                if let Some(settled) = self.settled(of, &outcomes, result)
                    && let Some(lane) = self.lane(of)
                {
                    lane.waiting_settled();
                    self.announce_more |= settled.died > 0;
                }
            }
            Event::Announced(result) => {
                self.announcing = false;
                self.announce_more |= self.logged(result, "announce dead letters").unwrap_or(false);
            }
            Event::Met(of, result) => self.met(of, result),
            Event::Shown(result) => {
                // Losing the lease shows when something that matters is written.
                let _: Option<()> = self.logged(result, "show what the lane does");
            }
        }
    }

    fn changed(&mut self, version: u64) {
        self.seen = version;
        self.watching = false;
        self.reader.grown = true;
        self.lanes.values_mut().for_each(Lane::nudge);
    }

    fn steered(&mut self, version: u64, paused: Result<HashSet<LaneId>, Error>) {
        self.heeding = false;
        let Some(paused) = self.logged(paused, "look for paused lanes") else { return };
        self.steered = Some(version);
        for (id, lane) in &mut self.lanes {
            let stop = paused.contains(id);
            if lane.steer(stop) {
                let link = &lane.lease.link;
                let (source, destination) = (link.source.as_str(), link.destination.as_str());
                match stop {
                    true => tracing::info!(source, destination, "lane paused"),
                    false => tracing::info!(source, destination, "lane resumed"),
                }
            }
        }
    }

    fn lanes_taken(&mut self, asked: Asked, result: Result<Vec<LaneLease<S::Position>>, Error>) {
        self.taking = false;
        let Some(mut leases) = self.logged(result, "take lanes") else { return };
        self.taken = self.relay.timer.now();
        crash_point!("relay.leased");
        if self.has_jumped(asked) {
            // What the store took for given up may only have looked so; if it was, it is found again (S13, L6).
            leases.retain(|lease| lease.routed);
            self.grace_since = self.relay.timer.monotonic();
        }
        let valid_until = asked.monotonic.saturating_add(self.relay.options.timing.lease);
        if let Some(lease) = leases.first() {
            self.reader.reopened(lease.epoch);
        }
        let held: std::collections::BTreeSet<LaneId> = leases.iter().map(|lease| lease.lane).collect();
        self.lanes.retain(|lane, _| held.contains(lane));
        for lease in leases {
            let same = |lane: &Lane<S::Position>| {
                (lane.lease.token, lane.lease.epoch, lane.lease.routed)
                    == (lease.token, lease.epoch, lease.routed)
            };
            if let Some(lane) = self.lanes.get_mut(&lease.lane).filter(|lane| same(lane)) {
                lane.valid_until = valid_until;
                continue;
            }
            self.incarnations += 1;
            let figures = Figures::new(&self.relay.meters, &lease.link);
            let mut lane = Lane::new(lease, self.incarnations, valid_until, &self.relay.options, figures);
            self.reader.join(&mut lane);
            self.lanes.insert(lane.lease.lane, lane);
        }
        self.reader.grown = true;
        self.discover_more = true;
        self.announce_more = true;
        // A lane may have been taken right before it was paused, and have come here right after that was noticed.
        self.steered = None;
        self.advance_idle();
    }

    /// Whether the wall clock has gone far ahead meanwhile: because it was set, or because the store stood still, in which
    /// case nobody else could register either.
    fn has_jumped(&self, asked: Asked) -> bool {
        self.taken.since(asked.wall) > self.relay.options.timing.lease / 2
    }

    fn looked(&mut self, of: Of, result: Result<Due<S::Position>, Error>) {
        let now = self.relay.timer.monotonic();
        match result {
            Ok(due) => {
                let options = self.relay.options.clone();
                if let Some(lane) = self.lane(of) {
                    lane.add_due(due, now, &options);
                }
            }
            Err(error) => self.doubt(of, &error),
        }
    }

    fn answered(&mut self, of: Of, batch: u64, result: Result<Delivered, Error>) {
        let Delivered { result, took } = match result {
            Ok(delivered) => delivered,
            Err(error) => return self.doubt(of, &error),
        };
        let (now, options, random) = (
            self.relay.timer.monotonic(),
            self.relay.options.clone(),
            std::sync::Arc::clone(&self.relay.random),
        );
        let Some(lane) = self.lane(of) else { return };
        lane.figures.0.requests.one(RequestOutcome::from(&result));
        if let Ok(answers) = &result {
            lane.figures.0.send.took(took, answers.len());
            lane.heard(answers.len(), took, now);
            tell_sent(|| lane.carried(batch), answers, took);
        }
        let verdict = match result {
            Ok(answers) => lane.answered(batch, answers, now, &options, &*random),
            Err(error) => lane.failed(batch, &error, now, &options, &*random),
        };
        match verdict {
            Verdict::Held(outage) => self.show_outage(of, Some(outage)),
            Verdict::Answered => self.meet_inbox(of),
        }
    }

    /// The receiver's inbox may be another one than before.
    fn met(&mut self, of: Of, result: Result<Met, Error>) {
        let met = self.logged(result, "note which inbox answers");
        if let (Some(Met::Changed), Some(lane)) = (met, self.lane(of)) {
            let inbox = lane.lease.inbox.as_deref().unwrap_or_default();
            tracing::warn!(
                source = lane.lease.link.source.as_str(),
                destination = lane.lease.link.destination.as_str(),
                inbox,
                "the receiver's inbox is another one than before"
            );
        }
    }

    fn probed(&mut self, of: Of, result: Result<Vec<Answer>, DeliveryError>) {
        let now = self.relay.timer.monotonic();
        let (policy, random) = (self.relay.options.probe.clone(), std::sync::Arc::clone(&self.relay.random));
        let Some(lane) = self.lane(of) else { return };
        lane.figures.0.probes.one(RequestOutcome::from(&result));
        match result {
            Ok(_) => {
                crash_point!("relay.probe-answered");
                lane.probe_answered();
                self.show_outage(of, None);
                self.meet_inbox(of);
            }
            Err(error) => {
                let outage =
                    lane.breaker.failed(one_line(&error), error.retry_after(), now, &policy, &*random);
                self.show_outage(of, Some(outage));
            }
        }
    }

    /// The result of a settlement, or the end of the lane's state: what it was based on is in doubt.
    fn settled(&mut self, of: Of, outcomes: &Outcomes, result: Result<Settled, Error>) -> Option<Settled> {
        match result {
            Ok(settled) => {
                outcomes.tell(settled);
                Some(settled)
            }
            Err(error) => {
                self.doubt(of, &error);
                None
            }
        }
    }

    /// Throws the lane's state away; it is loaded again from what the store says (L1).
    fn doubt(&mut self, of: Of, error: &Error) {
        if self.lane(of).is_some() {
            self.lanes.remove(&of.lane);
            self.back_off(error, "settle a lane; reloading it");
        }
    }
}
