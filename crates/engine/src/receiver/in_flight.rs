//! Which messages are being handled right now, so that a duplicate waits instead of running or getting a wrong
//! answer (S7).

use std::collections::{HashMap, hash_map};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use twobox_core::Message;

use crate::sync::{Mutex, MutexGuard};

/// The messages being handled.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<Identity, Entry>>>);

/// A message, told from others by its source and id.
#[derive(Clone, Debug)]
struct Identity(Arc<Message>);

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id && self.0.source == other.0.source
    }
}
impl Eq for Identity {}
impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Two sources that use the same id are rare, and are told apart all the same.
        self.0.id.hash(state);
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Made when somebody waits; dropped when the message is through, which tells them.
    ended: Option<watch::Sender<()>>,
}

/// Messages that are being handled until this is dropped.
#[derive(Debug)]
pub(super) struct Handling {
    of: InFlight,
    messages: Vec<Identity>,
}

impl InFlight {
    pub(super) fn handling(&self) -> Handling {
        Handling { of: self.clone(), messages: Vec::new() }
    }

    /// Completes when the message is through. `None` if somebody is waiting already: one waiter per message is
    /// enough, more would only hold connections. Completes at once if it is not being handled.
    pub(super) fn wait_for(&self, message: &Arc<Message>) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut entries = self.lock();
        let mut ended = match entries.get_mut(&Identity(Arc::clone(message))) {
            Some(Entry { ended: Some(ended) }) if ended.receiver_count() > 0 => return None,
            Some(entry) => Some(entry.ended.insert(watch::Sender::new(())).subscribe()),
            None => None,
        };
        Some(async move {
            if let Some(ended) = &mut ended {
                // The only change is that the sender goes.
                let _: Result<(), _> = ended.changed().await;
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handling {
    /// Begins to handle a message. `false` if somebody already does.
    pub(super) fn begin(&mut self, message: &Arc<Message>) -> bool {
        match self.of.lock().entry(Identity(Arc::clone(message))) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(vacant) => {
                self.messages.push(vacant.key().clone());
                vacant.insert(Entry::default());
                true
            }
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let mut entries = self.of.lock();
        for message in &self.messages {
            entries.remove(message);
        }
    }
}
