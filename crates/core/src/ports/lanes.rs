//! Lanes: one per source and destination, leased by one relay at a time.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::ops::{Pause, WaitingCounts};
use super::{Link, Met};
use crate::{Destination, Result, Source, Timestamp};

/// Identifies a lane within one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub i64);

/// The right to deliver the messages of one lane, fenced by a token that grows with every take-over (S5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneLease<P> {
    /// The lane.
    pub lane: LaneId,
    /// Whose messages, where they go, and from which outbox.
    pub link: Arc<Link>,
    /// Fencing token: every write through this lease applies only while it is the lane's newest.
    pub token: i64,
    /// Which opening of the store the lease was taken from. A store that reopens refuses older leases, because
    /// what was read before may not be what is there now (L1, S14).
    pub epoch: u64,
    /// Everything up to here is settled.
    pub cursor: P,
    /// Whether a live process has registered the destination, or no longer does (L6).
    pub routed: bool,
    /// Whether somebody had paused the lane when the lease was taken or renewed.
    pub paused: bool,
    /// The instance of the inbox that answered before, if one has said which it is.
    pub inbox: Option<Arc<str>>,
}

/// What a relay asks for when it takes, renews and registers lanes.
#[derive(Clone, Debug)]
pub struct TakeLanes {
    /// Unique name of the asking relay.
    pub owner: String,
    /// Whose messages it relays.
    pub source: Source,
    /// Destinations it can reach; registering them keeps their messages from failing as *no route*.
    pub destinations: Vec<Destination>,
    /// Whether it has a transport for every other destination as well. It then takes every lane of the source.
    pub everywhere: bool,
    /// How long the leases last without renewal.
    pub lease: Duration,
    /// Retries its policy allows; shown to operators beside each message (RF-02).
    pub retries_max: u32,
    /// How long a destination may be unregistered before its messages fail (L6).
    pub route_grace: Duration,
}

/// Why a lane is held, and since when (L3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// What failed.
    pub error: String,
    /// Delay until the next probe.
    pub next_probe: Duration,
}

/// A lane as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStatus {
    /// The lane.
    pub lane: LaneId,
    /// Whose messages.
    pub source: Source,
    /// Where they go.
    pub destination: Destination,
    /// Who holds the lease, if anyone.
    pub owner: Option<String>,
    /// Since when the breaker is open.
    pub held_since: Option<Timestamp>,
    /// What opened it.
    pub held_error: Option<String>,
    /// When it is probed next.
    pub next_probe: Option<Timestamp>,
    /// Who stopped it, when and why, if somebody has.
    pub paused: Option<Pause>,
    /// What waits in it outside of the log.
    pub waiting: WaitingCounts,
    /// Messages acknowledged so far.
    pub sent: u64,
    /// Messages that died so far.
    pub failed: u64,
    /// Messages that expired so far.
    pub expired: u64,
    /// The instance of the inbox that answers, if it says which it is.
    pub inbox: Option<String>,
    /// When it was last another one than before: it was restored from a backup, or replaced, and may have forgotten
    /// what it had acknowledged.
    pub inbox_changed: Option<Timestamp>,
    /// How often that happened.
    pub inbox_changes: u64,
}

impl LaneStatus {
    /// A lane nothing has happened to yet; stores fill in the rest.
    #[must_use]
    pub fn new(lane: LaneId, source: Source, destination: Destination) -> Self {
        Self {
            lane,
            source,
            destination,
            owner: None,
            held_since: None,
            held_error: None,
            next_probe: None,
            paused: None,
            waiting: WaitingCounts::default(),
            sent: 0,
            failed: 0,
            expired: 0,
            inbox: None,
            inbox_changed: None,
            inbox_changes: 0,
        }
    }
}

/// What a look for new destinations has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Whether a destination got a lane.
    pub found: bool,
    /// Whether there is more to look at.
    pub more: bool,
}

/// Leasing lanes.
pub trait LaneStore: Clone + Send + Sync + 'static {
    /// A place in the log. Everything up to a lane's cursor is settled.
    type Position: Clone + Ord + std::fmt::Debug + Send + Sync + 'static;

    /// Registers the destinations, renews what `owner` holds, takes what is free, has expired or belongs to an owner
    /// that the store knows to be dead, and returns
    /// every lane of the source that `owner` now holds. A renewed lease keeps its token, a taken one gets a
    /// fresh, higher one. Lanes that nobody has registered for the grace period come back as not routed.
    fn take_lanes(
        &self,
        take: &TakeLanes,
    ) -> impl Future<Output = Result<Vec<LaneLease<Self::Position>>>> + Send;

    /// Gives lanes back at once. Leases that are no longer current are ignored.
    fn release_lanes(&self, leases: &[LaneLease<Self::Position>]) -> impl Future<Output = Result<()>> + Send;

    /// Records that the lane is held by an outage, or no longer is. Nothing else about it changes.
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is not current.
    fn hold_lane(
        &self,
        lease: &LaneLease<Self::Position>,
        outage: Option<&Outage>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Grows whenever a lane may have been paused or resumed, by whomever. Whoever waits for
    /// [`changed`](super::LogStore::changed) is told of it as well.
    fn steered(&self) -> u64;

    /// The lanes of the source that are paused.
    fn paused_lanes(&self, source: &Source) -> impl Future<Output = Result<HashSet<LaneId>>> + Send;

    /// Remembers, durably, which inbox answers on the lane.
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is not current.
    fn meet_inbox(
        &self,
        lease: &LaneLease<Self::Position>,
        inbox: &str,
    ) -> impl Future<Output = Result<Met>> + Send;

    /// All lanes, for operators.
    fn lanes(&self) -> impl Future<Output = Result<Vec<LaneStatus>>> + Send;

    /// Looks at part of the log for destinations that have no lane yet, so that they get one (L6).
    fn discover_lanes(&self, source: &Source) -> impl Future<Output = Result<Discovered>> + Send;
}
