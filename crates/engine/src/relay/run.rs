//! The event loop: starts what can be started, waits for something to end, and so on.

use std::collections::BTreeMap;
use std::time::Duration;

use twobox_core::ports::{LaneId, LaneLease, OutboxStore};
use twobox_core::{Error, Timestamp, crash_point, mutant, one_line};

use super::Relay;
use super::event::{Event, Of};
use super::lane::Lane;
use super::pace::Pace;
use super::reader::Reader;
use crate::Shutdown;
use crate::alarm::Alarm;
use crate::started::Started;

/// After a failed call to the store, this long passes before the next one.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// The relay looks around at least this often.
const IDLE: Duration = Duration::from_secs(1);

/// A running relay.
pub(super) struct Run<S: OutboxStore> {
    pub(super) relay: Relay<S>,
    /// Unique name under which lanes are leased.
    pub(super) owner: String,
    pub(super) lanes: BTreeMap<LaneId, Lane<S::Position>>,
    pub(super) reader: Reader<S::Position>,
    pub(super) calls: Started<Event<S::Position>>,
    pub(super) incarnations: u64,
    /// The version of the log that was last heard of.
    pub(super) seen: u64,
    pub(super) watching: bool,
    pub(super) taking: bool,
    pub(super) take_at: Duration,
    /// Which pauses are known; `None` if lanes have come since.
    pub(super) steered: Option<u64>,
    pub(super) heeding: bool,
    pub(super) discovering: bool,
    pub(super) discover_more: bool,
    pub(super) announcing: bool,
    pub(super) announce_more: bool,
    /// On the monotonic clock: the store failed, nothing is asked of it before this.
    pub(super) store_pause: Duration,
    /// How many microseconds the store's clock is ahead of ours. What is due and what has expired is judged by
    /// the store's (S13).
    pub(super) store_ahead: i64,
    /// Since when others have had the time to register what they can reach, on the monotonic clock (L6).
    pub(super) grace_since: Duration,
    /// When lanes were last taken, on the wall clock.
    pub(super) taken: Timestamp,
    pace: Pace<S::Position>,
}

impl<S: OutboxStore> Run<S> {
    pub(super) fn new(relay: Relay<S>) -> Self {
        let (store, source) = (relay.store.clone(), relay.source.clone());
        Self {
            pace: Pace::new(move |upto| store.reached(&source, upto)),
            owner: format!("{}-{:016x}", relay.source, relay.random.next_u64()),
            grace_since: relay.timer.monotonic(),
            taken: relay.timer.now(),
            relay,
            lanes: BTreeMap::new(),
            reader: Reader::new(),
            calls: Started::new(),
            incarnations: 0,
            seen: 0,
            watching: false,
            taking: false,
            take_at: Duration::ZERO,
            steered: None,
            heeding: false,
            discovering: false,
            discover_more: false,
            announcing: false,
            announce_more: false,
            store_pause: Duration::ZERO,
            store_ahead: 0,
        }
    }

    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        let mut alarm = Alarm::new(&self.relay.timer);
        while !shutdown.is_requested() {
            self.work().await;
            self.pace.tell(self.lanes.values_mut(), self.relay.timer.monotonic());
            let due = self.due();
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = self.event() => {}
                () = alarm.rings(due) => {}
            }
        }
        self.stop().await;
    }

    /// Waits for something to end, then takes whatever else has ended.
    async fn event(&mut self) {
        let event = self.calls.next().await;
        self.handle(event);
        while let Some(event) = self.calls.ended() {
            self.handle(event);
        }
    }

    /// When something has to be done without being told.
    fn due(&self) -> Duration {
        let now = self.relay.timer.monotonic();
        let lanes = self.lanes.values().flat_map(|lane| {
            let probe = lane.probe_due().filter(|_| self.may_send(lane, now));
            [probe, lane.look_due(), lane.showing.due().filter(|_| !lane.settling)]
        });
        let take = Some(self.take_at).filter(|_| !self.taking);
        let next = lanes.chain([take]).flatten().min().unwrap_or(now.saturating_add(IDLE));
        next.max(self.store_pause)
    }

    /// Whether a request that starts now ends before the lease does: afterwards somebody else may hold the lane,
    /// and a key would be in two requests at once (L4).
    pub(super) fn may_send(&self, lane: &Lane<S::Position>, now: Duration) -> bool {
        now.saturating_add(self.relay.options.timing.request_timeout) <= lane.valid_until
    }

    /// The time of the store, as far as it is known.
    pub(super) fn store_time(&self) -> Timestamp {
        let now = self.relay.timer.now().as_micros();
        Timestamp::from_micros(now.saturating_add(self.store_ahead))
    }

    /// Finishes or abandons what is in flight within the configured time, then gives the lanes back (S20).
    async fn stop(mut self) {
        self.pace.end();
        let timer = std::sync::Arc::clone(&self.relay.timer);
        let mut deadline = timer.sleep(self.relay.options.shutdown_timeout);
        loop {
            self.settle_lanes();
            if !self.lanes.values().any(|lane| lane.in_flight() > 0 || lane.settling || lane.settling_waiting)
            {
                break;
            }
            tokio::select! {
                biased;
                () = self.event() => {}
                () = &mut deadline, if !mutant!(StopUnbounded) => break,
            }
        }
        crash_point!("relay.before-release");
        let leases: Vec<LaneLease<_>> = self.lanes.values().map(|lane| lane.lease.clone()).collect();
        let released = tokio::select! {
            biased;
            released = self.relay.store.release_lanes(&leases) => released,
            () = timer.sleep(self.relay.options.shutdown_timeout) => Ok(()),
        };
        crash_point!("relay.released");
        let _: Option<()> = self.logged(released, "give lanes back");
    }

    pub(super) fn lane(&mut self, of: Of) -> Option<&mut Lane<S::Position>> {
        self.lanes.get_mut(&of.lane).filter(|lane| lane.incarnation == of.incarnation)
    }

    /// The value, or `None` after a line in the log.
    pub(super) fn logged<T>(&mut self, result: Result<T, Error>, attempted: &str) -> Option<T> {
        result.inspect_err(|error| self.back_off(error, attempted)).ok()
    }

    /// The store failed: leaves it alone for a moment, then asks for the lanes anew.
    pub(super) fn back_off(&mut self, error: &Error, attempted: &str) {
        tracing::warn!(
            source = self.relay.source.as_str(),
            attempted,
            error = one_line(error),
            "the relay cannot use its store"
        );
        self.store_pause = self.relay.timer.monotonic().saturating_add(STORE_PAUSE);
        self.take_at = self.store_pause;
    }
}
