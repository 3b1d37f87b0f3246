//! What requests share: room for their bodies, and turns to be handled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use twobox_core::meters::Meters;

use super::ServerLimits;
use super::connections::Connection;
use super::reply::{Refusal, Why};

/// How long a request waits for its turn.
pub(super) const TURN_WAIT: Duration = Duration::from_secs(1);

/// How long a stranger that was cut has to give back what its body holds, before the next one is cut.
const DISPLACED_WAIT: Duration = Duration::from_millis(100);

/// What is left of it.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes of bodies that may still be kept of connections that have sent something good before.
    bodies: Arc<Semaphore>,
    /// Bytes of bodies that may still be kept of all others.
    strangers_bodies: Arc<Semaphore>,
    /// Those others that are sending a body, in the order in which they have begun.
    strangers: Mutex<Vec<Arc<Connection>>>,
    /// Requests that may still be handled.
    requests: Arc<Semaphore>,
    meters: Arc<Meters>,
}

/// The room for one body, while it is received.
#[derive(Debug)]
pub(super) struct ForBody<'r> {
    room: &'r Room,
    bodies: &'r Arc<Semaphore>,
    /// If this is a stranger's.
    stranger: Option<&'r Arc<Connection>>,
}

/// What a request uses up until it is handled, however long that takes.
#[derive(Debug)]
pub(super) struct Held {
    _turn: OwnedSemaphorePermit,
    _body: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(limits: &ServerLimits, meters: &Arc<Meters>) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            bodies: semaphore(limits.bodies_bytes_max / 2),
            strangers_bodies: semaphore(limits.bodies_bytes_max / 2),
            strangers: Mutex::default(),
            requests: semaphore(limits.requests_max),
            meters: Arc::clone(meters),
        }
    }

    /// The room for a body: those of strangers have one of their own.
    pub(super) fn for_body<'r>(&'r self, connection: &'r Arc<Connection>) -> ForBody<'r> {
        if connection.is_proved() {
            return ForBody { room: self, bodies: &self.bodies, stranger: None };
        }
        self.strangers().push(Arc::clone(connection));
        ForBody { room: self, bodies: &self.strangers_bodies, stranger: Some(connection) }
    }

    /// Cuts the stranger who has been sending its body for longest, for the sake of another one. `false` if there is
    /// nobody else.
    fn displace(&self, newcomer: &Arc<Connection>) -> bool {
        let mut strangers = self.strangers();
        let mut others = strangers.iter().filter(|other| !Arc::ptr_eq(other, newcomer));
        let Some(displaced) = others.find(|other| other.displace()).cloned() else { return false };
        strangers.retain(|other| !Arc::ptr_eq(other, &displaced));
        self.meters.http.displaced.one();
        true
    }

    fn strangers(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
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

impl ForBody<'_> {
    /// Room for so many more bytes. Strangers make room for each other, whoever began first before the others: an honest
    /// one is done in a moment, and one who hoards is soon the first.
    pub(super) async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        loop {
            if let Ok(share) = Arc::clone(self.bodies).try_acquire_many_owned(share) {
                return Ok(share);
            }
            if !self.stranger.is_some_and(|newcomer| self.room.displace(newcomer)) {
                return Err(Why::NoRoom.because("too many bytes are being received"));
            }
            let given_back = Arc::clone(self.bodies).acquire_many_owned(share);
            if let Ok(Ok(share)) = tokio::time::timeout(DISPLACED_WAIT, given_back).await {
                return Ok(share);
            }
        }
    }
}

impl Drop for ForBody<'_> {
    fn drop(&mut self) {
        if let Some(stranger) = self.stranger {
            self.room.strangers().retain(|other| !Arc::ptr_eq(other, stranger));
        }
    }
}
