//! Whom a receiver has met, so that a changed outbox is noticed once.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use twobox_core::ports::{InboxStore, InstanceStore, Link, Met};
use twobox_core::{Error, Source, one_line};

use super::Receiver;
use crate::sync::{Mutex, MutexGuard, spawn};

/// Outboxes remembered in memory; beyond that, the store is asked again.
const KNOWN_MAX: usize = 1_024;

/// What need not be asked again as long as the process lives.
#[derive(Default)]
pub(super) struct Acquaintances {
    /// The instance of our own inbox.
    inbox: Mutex<Option<Arc<str>>>,
    /// The outboxes that are noted, or about to be.
    outboxes: Mutex<HashSet<(Source, String)>>,
}

impl Acquaintances {
    /// Whether nobody has met this outbox yet. From now on somebody has.
    fn is_new(&self, link: &Link) -> bool {
        let key = (link.source.clone(), link.outbox.clone());
        let mut outboxes = self.outboxes();
        if outboxes.len() >= KNOWN_MAX {
            outboxes.clear();
        }
        outboxes.insert(key)
    }

    fn forget(&self, link: &Link) {
        self.outboxes().remove(&(link.source.clone(), link.outbox.clone()));
    }

    fn outboxes(&self) -> MutexGuard<'_, HashSet<(Source, String)>> {
        self.outboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: InboxStore + InstanceStore> Receiver<S> {
    /// Notes who sends, and says which inbox this is, if that can be read.
    pub(super) async fn meet(&self, link: Option<Link>) -> Option<Arc<str>> {
        if let Some(link) = link.filter(|link| !link.outbox.is_empty() && self.0.acquaintances.is_new(link)) {
            let this = self.clone();
            // In a task of its own: what is only noted must not delay messages.
            drop(spawn(async move { this.note(&link).await }));
        }
        let known = self.inbox_known();
        if known.is_some() {
            return known;
        }
        let read: Arc<str> = match self.0.store.inbox_instance().await {
            Ok(inbox) => inbox.into(),
            Err(error) => return unreadable(&error),
        };
        *self.0.acquaintances.inbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&read));
        Some(read)
    }

    fn inbox_known(&self) -> Option<Arc<str>> {
        self.0.acquaintances.inbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn note(&self, link: &Link) {
        match self.0.store.meet_outbox(&self.0.consumer, &link.source, &link.outbox).await {
            Ok(Met::Known) => {}
            Ok(Met::Changed) => tracing::warn!(
                source = link.source.as_str(),
                outbox = link.outbox,
                "the sender's outbox is another one than before"
            ),
            Err(error) => {
                let source = link.source.as_str();
                tracing::debug!(error = one_line(&error), source, "cannot note the sender's outbox");
                self.0.acquaintances.forget(link);
            }
        }
    }
}

fn unreadable(error: &Error) -> Option<Arc<str>> {
    tracing::debug!(error = one_line(error), "cannot read which inbox this is");
    None
}
