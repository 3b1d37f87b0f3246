//! The outbox log: read in order, settled in order.

use std::future::Future;
use std::sync::Arc;

use super::{LaneId, LaneLease, LaneStore, NewWaiting, Settled};
use crate::{Message, Result, Source, Timestamp};

/// A request for the next part of the log.
#[derive(Clone, Debug)]
pub struct ReadLog<P> {
    /// Read what comes after this.
    pub after: P,
    /// Read nothing beyond this, if given.
    pub until: Option<P>,
    /// The lanes whose messages are wanted.
    pub lanes: Vec<LaneLease<P>>,
    /// Most rows to look at, wanted or not.
    pub scan_max: usize,
    /// Stop once this many payload bytes were read.
    pub bytes_max: usize,
}

/// A part of the log.
#[derive(Clone, Debug)]
pub struct LogChunk<P> {
    /// Messages of the wanted lanes, in order.
    pub entries: Vec<LogEntry<P>>,
    /// Everything up to here was looked at.
    pub scanned: P,
    /// Whether there may be more.
    pub more: bool,
    /// The store's time, against which due dates and expiry are judged.
    pub now: Timestamp,
}

/// One message of the log.
#[derive(Clone, Debug)]
pub struct LogEntry<P> {
    /// Its lane.
    pub lane: LaneId,
    /// Its place.
    pub position: P,
    /// The message, or why it cannot be read (S19).
    pub message: Result<Arc<Message>, Undecodable>,
}

/// A row that cannot be decoded. Its bytes stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// What is wrong with it, without its content.
    pub error: String,
}

/// The outcome of one or more consecutive batches of one lane, persisted as a unit (L1).
#[derive(Clone, Debug)]
pub struct Settlement<P> {
    /// The cursor moves here; everything before is settled by this or an earlier settlement.
    pub upto: P,
    /// First and last place and number of messages of each batch that had acknowledged messages.
    pub receipts: Vec<(P, P, u64)>,
    /// Messages that did not go well.
    pub waiting: Vec<NewWaiting<P>>,
    /// Messages beyond the cursor that are in a request right now go up to here: shown as *Sending* (L2).
    pub sending: Option<P>,
}

/// Reading and settling the log.
pub trait LogStore: LaneStore {
    /// Completes when the log may have grown since the caller saw version `seen`, and returns the new version.
    /// Never misses a change; may report one that was none.
    fn changed(&self, seen: u64) -> impl Future<Output = u64> + Send;

    /// Reads a part of the log, in commit order. Returns only what is committed.
    ///
    /// # Errors
    /// Never skips a row it cannot decode: that is an entry with an error.
    fn read_log(
        &self,
        read: ReadLog<Self::Position>,
    ) -> impl Future<Output = Result<LogChunk<Self::Position>>> + Send;

    /// Completes once everything up to `position` would survive a power cut. Cheap when it already would:
    /// what is visible need not be durable, and must not be sent before it is (W6).
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the store was reopened since the lease of this `epoch` was
    /// taken: what was read before may not be there any more.
    fn make_durable(&self, epoch: u64, position: &Self::Position) -> impl Future<Output = Result<()>> + Send;

    /// Shows the messages between the lane's cursor and `upto` as *Sending*. Informative; may be lost.
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is not current.
    fn mark_sending(
        &self,
        lease: &LaneLease<Self::Position>,
        upto: &Self::Position,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Persists a settlement: waiting rows and cursor together or not at all, and only while the lease is
    /// current. May be unsynced as a unit: losing it causes a redelivery that the receiver absorbs.
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is not current; then nothing was written.
    fn settle_log(
        &self,
        lease: &LaneLease<Self::Position>,
        settlement: Settlement<Self::Position>,
    ) -> impl Future<Output = Result<Settled>> + Send;

    /// Hears how far the relay of `source` has come: of the lanes that flow and whose receivers answer in a few
    /// milliseconds, none has a message before `upto` that is still to be answered. `None`: what is told next is about
    /// other lanes, there is no such lane, or nobody relays any more.
    ///
    /// A store may hold callers a moment while delivery is behind them. By default it takes no notice.
    fn reached(&self, source: &Source, upto: Option<&Self::Position>) {
        let _: (&Source, Option<&Self::Position>) = (source, upto);
    }
}
