//! What requests share: room for their bodies, and turns to be handled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use twobox_core::meters::Meters;

use super::ServerLimits;
use super::connections::{Connection, Phase};
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
    /// Those others that are sending a body, in the order in which they have begun, with the room each has taken.
    strangers: Mutex<Vec<(Arc<Connection>, usize)>>,
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
        self.strangers().push((Arc::clone(connection), 0));
        ForBody { room: self, bodies: &self.strangers_bodies, stranger: Some(connection) }
    }

    /// Cuts the stranger who has been sending its body for longest, for the sake of another one that needs so many bytes.
    /// `false` if all of them together have less.
    fn displace(&self, newcomer: &Arc<Connection>, bytes: usize) -> bool {
        let mut strangers = self.strangers();
        let gives_room =
            |(other, taken): &&(Arc<Connection>, usize)| *taken > 0 && !Arc::ptr_eq(other, newcomer);
        let others: usize = strangers.iter().filter(gives_room).map(|(_, taken)| taken).sum();
        // Nobody is cut in vain: what is being handled gives no room yet.
        if others + self.strangers_bodies.available_permits() < bytes {
            return false;
        }
        let goes = |of: &(Arc<Connection>, usize)| gives_room(&of) && of.0.displace();
        let Some(at) = strangers.iter().position(goes) else { return false };
        strangers.remove(at);
        self.meters.http.displaced.one();
        true
    }

    /// A stranger has taken so much room.
    fn note(&self, stranger: &Arc<Connection>, bytes: usize) {
        let mut strangers = self.strangers();
        if let Some((_, taken)) = strangers.iter_mut().find(|(other, _)| Arc::ptr_eq(other, stranger)) {
            *taken += bytes;
        }
    }

    fn strangers(&self) -> MutexGuard<'_, Vec<(Arc<Connection>, usize)>> {
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
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Some(stranger) = self.stranger else {
            return Arc::clone(self.bodies).try_acquire_many_owned(permits).map_err(|_| no_room());
        };
        let share = loop {
            if let Ok(share) = Arc::clone(self.bodies).try_acquire_many_owned(permits) {
                break share;
            }
            if stranger.phase().0 == Phase::Displaced {
                // It is about to be cut itself, and must not take others along.
                std::future::pending::<()>().await;
            }
            if !self.room.displace(stranger, bytes) {
                return Err(no_room());
            }
            let given_back = Arc::clone(self.bodies).acquire_many_owned(permits);
            if let Ok(Ok(share)) = tokio::time::timeout(DISPLACED_WAIT, given_back).await {
                break share;
            }
        };
        self.room.note(stranger, bytes);
        Ok(share)
    }
}

fn no_room() -> Refusal {
    Why::NoRoom.because("too many bytes are being received")
}

impl Drop for ForBody<'_> {
    fn drop(&mut self) {
        if let Some(stranger) = self.stranger {
            self.room.strangers().retain(|(other, _)| !Arc::ptr_eq(other, stranger));
        }
    }
}
