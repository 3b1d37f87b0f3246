//! Messages that did not go well: retries, scheduled messages, messages behind a failed head, dead letters.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{LaneLease, LaneStore, Undecodable};
use crate::lifecycle::{Standing, Step};
use crate::{Message, OrderingKey, Result};

/// What happens to an ordering key when its head dies or expires (S12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadPolicy {
    /// The key waits until an operator replays or releases it. Default: who asks for order gets order.
    #[default]
    Block,
    /// The next message of the key takes its turn.
    StepOver,
    /// Everything that waits behind the head dies with it, to be replayed together.
    FailKey,
}

/// A message that moves from the log to the waiting rows.
#[derive(Clone, Debug)]
pub struct NewWaiting<P> {
    /// Its place in the log.
    pub position: P,
    /// What becomes of it; `None` for a message scheduled for later, which joins when it comes due (L5).
    pub outcome: Option<WaitingOutcome>,
}

/// What became of a message and what it does next.
#[derive(Clone, Debug)]
pub struct WaitingOutcome {
    /// The lifecycle's decision.
    pub step: Step,
    /// What went wrong, if an attempt failed or the message died: leaves an attempt row (L9).
    pub error: Option<String>,
    /// What its death does to its ordering key.
    pub head_policy: HeadPolicy,
}

/// A waiting message whose turn has come.
#[derive(Clone, Debug)]
pub struct WaitingMessage<P> {
    /// Its place in the log.
    pub position: P,
    /// The message, or why it cannot be read (S19).
    pub message: Result<Arc<Message>, Undecodable>,
    /// Where it stands.
    pub standing: Standing,
    /// Whether its time to live is over.
    pub expired: bool,
}

/// What is due in a lane.
#[derive(Clone, Debug)]
pub struct Due<P> {
    /// Messages whose turn has come: heads of their keys, each followed by those right behind it, in order.
    pub messages: Vec<WaitingMessage<P>>,
    /// Delay until the next one comes due.
    pub next: Option<Duration>,
}

/// A look at the waiting messages of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Most messages it finds.
    pub limit: usize,
    /// No more are read once their payloads have this many bytes together: what does not fit into a request would be read
    /// for the next one again.
    pub bytes_max: usize,
    /// A message whose next attempt lies further ahead than this is due as well: the clock must have jumped (S13).
    pub delay_max: Duration,
    /// Finds only messages past their time to live.
    pub expired_only: bool,
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Messages that are now dead letters (dead or expired) and want their callback.
    pub died: u64,
}

/// Waiting messages of a lane.
pub trait WaitingStore: LaneStore {
    /// The messages that are due, within the limits of `look`, heads of keys first. Messages past their time to live
    /// are always due.
    fn due(
        &self,
        lease: &LaneLease<Self::Position>,
        look: &Look,
    ) -> impl Future<Output = Result<Due<Self::Position>>> + Send;

    /// Which of `keys` are held by an unfinished or blocking message of the lane.
    fn held_keys(
        &self,
        lease: &LaneLease<Self::Position>,
        keys: Vec<OrderingKey>,
    ) -> impl Future<Output = Result<HashSet<OrderingKey>>> + Send;

    /// Persists the outcomes at once, all or none, only while the lease is current (L5).
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is not current; then nothing was written.
    fn settle_waiting(
        &self,
        lease: &LaneLease<Self::Position>,
        outcomes: Vec<(Self::Position, WaitingOutcome)>,
    ) -> impl Future<Output = Result<super::Settled>> + Send;
}
