//! What requests share: room for their bodies, and turns to be handled.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServerLimits;
use super::reply::{Refusal, Why};

/// How long a request waits for its turn.
pub(super) const TURN_WAIT: Duration = Duration::from_secs(1);

/// What is left of it.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes of bodies that may still be kept of connections that have sent something good before.
    bodies: Arc<Semaphore>,
    /// Bytes of bodies that may still be kept of all others.
    strangers_bodies: Arc<Semaphore>,
    /// Requests that may still be handled.
    requests: Arc<Semaphore>,
}

/// What a request uses up until it is handled, however long that takes.
#[derive(Debug)]
pub(super) struct Held {
    _turn: OwnedSemaphorePermit,
    _body: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            bodies: semaphore(limits.bodies_bytes_max / 2),
            strangers_bodies: semaphore(limits.bodies_bytes_max / 2),
            requests: semaphore(limits.requests_max),
        }
    }

    /// The room for bodies: strangers have one of their own.
    pub(super) fn for_bodies(&self, proved: bool) -> &Arc<Semaphore> {
        if proved { &self.bodies } else { &self.strangers_bodies }
    }

    /// A turn for a request whose body takes this much room.
    pub(super) async fn turn(&self, body: Option<OwnedSemaphorePermit>) -> Result<Held, Refusal> {
        let turn = tokio::time::timeout(TURN_WAIT, Arc::clone(&self.requests).acquire_owned()).await;
        match turn {
            Ok(Ok(turn)) => Ok(Held { _turn: turn, _body: body }),
            _ => Err(Why::Busy.because("too many requests are being handled")),
        }
    }
}
