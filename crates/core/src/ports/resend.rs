//! Sending again what was sent: for a receiver that was restored from a backup and has forgotten it (RF-18).

use std::future::Future;
use std::time::Duration;

use super::{LaneId, LaneStore};
use crate::{Destination, Endpoint, Result, Source, Timestamp};

/// Which sent messages are meant.
#[derive(Clone, Debug, Default)]
pub struct ResendFilter {
    /// Those that were acknowledged at this time or later, by the sender's clock. Allow for clocks that differ: what
    /// is sent once more than needed is answered as a duplicate.
    pub since: Timestamp,
    /// Only those that were acknowledged before this time.
    pub before: Option<Timestamp>,
    /// Only this source.
    pub source: Option<Source>,
    /// Only this destination.
    pub destination: Option<Destination>,
    /// Only this endpoint.
    pub endpoint: Option<Endpoint>,
}

/// Where a resend has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResendPlace<P> {
    /// The lane it is at.
    pub lane: LaneId,
    /// Everything of the lane up to here was looked at. `None`: nothing yet.
    pub after: Option<P>,
}

/// What one batch of a resend came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resent<P> {
    /// Messages that are sent again.
    pub resent: u64,
    /// Where the next batch begins; `None` if it is through.
    pub next: Option<ResendPlace<P>>,
}

/// Messages of a lane that cannot be sent again, because they are no longer in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Whose messages.
    pub source: Source,
    /// Where they went.
    pub destination: Destination,
    /// The youngest of them was acknowledged at this time; whatever was acknowledged later is still there.
    pub until: Timestamp,
}

/// What a resend would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resendable {
    /// Messages that it would send again, counted up to a limit; the limit itself means that many or more.
    pub messages: u64,
    /// Lanes of which messages since the time asked for are gone.
    pub trimmed: Vec<Trimmed>,
}

/// Sending again what was sent.
///
/// The ids stay, so a receiver that remembers a message answers it as a duplicate, and one that has forgotten it
/// handles it. Messages of an ordering key keep their order among themselves, and new ones of the key wait for them.
pub trait ResendStore: LaneStore {
    /// What a resend would do, without doing it: messages are counted up to `limit`.
    fn resendable(
        &self,
        filter: &ResendFilter,
        limit: usize,
    ) -> impl Future<Output = Result<Resendable>> + Send;

    /// Sends the next messages again, at most `limit`, in one transaction, and says where the next batch begins. A
    /// message is worth delivering for at least `ttl` from now.
    fn resend(
        &self,
        filter: &ResendFilter,
        from: Option<&ResendPlace<Self::Position>>,
        limit: usize,
        ttl: Duration,
    ) -> impl Future<Output = Result<Resent<Self::Position>>> + Send;
}
