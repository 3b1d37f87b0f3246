//! Telling boxes apart: one that was restored from a backup, or replaced, is another one than it was (RF-18).

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use super::Link;
use crate::{Consumer, Destination, Result, Source, Timestamp};

/// Links whose inboxes a transport remembers at most.
const LINKS_MAX: usize = 10_000;

/// Whether a box of a peer is the one it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It is, or none was known before.
    Known,
    /// It is not: it was restored or replaced, or there is a second one.
    Changed,
}

/// What a consumer knows about the outboxes of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetOutbox {
    /// Who receives.
    pub consumer: Consumer,
    /// Who sends.
    pub source: Source,
    /// The instance of the outbox that was met last.
    pub outbox: Option<String>,
    /// When one was met for the first time although another was known.
    pub changed: Option<Timestamp>,
    /// How often that happened.
    pub changes: u64,
}

impl MetOutbox {
    /// A source of which no outbox was met yet; stores fill in the rest.
    #[must_use]
    pub fn new(consumer: Consumer, source: Source) -> Self {
        Self { consumer, source, outbox: None, changed: None, changes: 0 }
    }
}

/// Knowing the instance of one's own inbox, and the outboxes of others.
pub trait InstanceStore: Clone + Send + Sync + 'static {
    /// The instance of this inbox. It changes when the store is restored from a backup, and never otherwise.
    fn inbox_instance(&self) -> impl Future<Output = Result<String>> + Send;

    /// Remembers, durably, that `source` sends to `consumer` from this outbox. A bounded number of outboxes is
    /// remembered for each source.
    fn meet_outbox(
        &self,
        consumer: &Consumer,
        source: &Source,
        outbox: &str,
    ) -> impl Future<Output = Result<Met>> + Send;

    /// Every source with what is known about its outboxes, for operators.
    fn met_outboxes(&self) -> impl Future<Output = Result<Vec<MetOutbox>>> + Send;
}

type ByLink = HashMap<(Source, Destination), Arc<str>>;

/// Which inbox answered last on which link: what a transport remembers for its relay. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Inboxes(Arc<Mutex<ByLink>>);

impl Inboxes {
    /// Remembers what an authentic answer says.
    pub fn answered(&self, link: &Link, inbox: &str) {
        let mut inboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (link.source.clone(), link.destination.clone());
        let known = inboxes.get(&key);
        if known.is_some_and(|known| **known == *inbox) || (known.is_none() && inboxes.len() >= LINKS_MAX) {
            return;
        }
        inboxes.insert(key, inbox.into());
    }

    /// The inbox that answered last, if one has said which it is.
    #[must_use]
    pub fn of(&self, link: &Link) -> Option<Arc<str>> {
        let inboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.get(&(link.source.clone(), link.destination.clone())).cloned()
    }
}
