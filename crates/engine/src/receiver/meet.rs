//! Whom a receiver has met, so that a changed outbox is noticed once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use twobox_core::ports::{InboxStore, InstanceStore, Link, Met};
use twobox_core::{Error, Source, one_line};

use super::Receiver;
use crate::sync::{Mutex, MutexGuard, spawn};

/// Outboxes remembered in memory; beyond that, the store is asked again.
const KNOWN_MAX: usize = 1_024;

/// What need not be asked again as long as the process lives.
#[derive(Default)]
pub(super) struct Acquaintances {
    /// The instance of our own inbox. Whoever waits for it is told when it is known, and when it could not be read.
    inbox: watch::Sender<Option<Arc<str>>>,
    /// Whether somebody is reading that: however many want to know, one asks the store.
    reading: AtomicBool,
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
        let mut inbox = self.0.acquaintances.inbox.subscribe();
        if inbox.borrow().is_none() {
            self.read_inbox();
            inbox.changed().await.ok()?;
        }
        inbox.borrow().clone()
    }

    /// Has it read which inbox this is, unless somebody does. In a task of its own: whoever stops waiting for it must not
    /// leave it to the next one to read once more.
    fn read_inbox(&self) {
        if self.0.acquaintances.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let read = Read { receiver: self.clone(), known: None };
        drop(spawn(read.run()));
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

/// A read of which inbox this is. However it ends, also by a panic or with its runtime, whoever waits is told, and the
/// next one asks again.
struct Read<S: InboxStore> {
    receiver: Receiver<S>,
    known: Option<String>,
}

impl<S: InboxStore + InstanceStore> Read<S> {
    async fn run(mut self) {
        let inbox = self.receiver.0.store.inbox_instance().await;
        self.known = inbox.map_err(|error| unreadable(&error)).ok();
    }
}

impl<S: InboxStore> Drop for Read<S> {
    fn drop(&mut self) {
        let acquaintances = &self.receiver.0.acquaintances;
        // In this order: whoever sees that it is being read has yet to be told.
        acquaintances.reading.store(false, Ordering::Release);
        acquaintances.inbox.send_modify(|inbox| {
            if let Some(known) = self.known.take() {
                *inbox = Some(known.into());
            }
        });
    }
}

fn unreadable(error: &Error) {
    tracing::debug!(error = one_line(error), "cannot read which inbox this is");
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::Semaphore;
    use twobox_core::ports::{Answer, Delivery, InboxRecord, MetOutbox};
    use twobox_core::{Consumer, ErrorKind, MessageId, Refusal, Response, Result};

    use super::*;
    use crate::SystemTimer;

    /// A store that says which inbox it is when it is allowed to, and fails as often as it is told.
    #[derive(Clone)]
    struct Slow {
        reads: Arc<AtomicUsize>,
        allowed: Arc<Semaphore>,
        failures: usize,
        /// At the first read.
        panics: bool,
    }

    impl Slow {
        fn failing(failures: usize) -> Self {
            Self { reads: Arc::default(), allowed: Arc::new(Semaphore::new(0)), failures, panics: false }
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::Relaxed)
        }
    }

    impl InboxStore for Slow {
        type Handler = ();

        fn refusing(_: Refusal) {}

        fn answering(_: Response) {}

        async fn process(&self, deliveries: Vec<Delivery<()>>, _: Duration) -> Result<Vec<Answer>> {
            Ok(vec![Answer::Done(None); deliveries.len()])
        }

        async fn inbox_record(&self, _: &Consumer, _: &Source, _: &MessageId) -> Result<Option<InboxRecord>> {
            Ok(None)
        }
    }

    impl InstanceStore for Slow {
        async fn inbox_instance(&self) -> Result<String> {
            let read = self.reads.fetch_add(1, Ordering::Relaxed);
            self.allowed.acquire().await.expect("it is never closed").forget();
            assert!(!self.panics || read > 0, "a panic that is wanted");
            match read < self.failures {
                true => Err(Error::new(ErrorKind::Unavailable, "no disk")),
                false => Ok("inbox-1".into()),
            }
        }

        async fn meet_outbox(&self, _: &Consumer, _: &Source, _: &str) -> Result<Met> {
            Ok(Met::Known)
        }

        async fn met_outboxes(&self) -> Result<Vec<MetOutbox>> {
            Ok(Vec::new())
        }
    }

    fn receiver(store: &Slow) -> Receiver<Slow> {
        let consumer = Consumer::new("billing").expect("legal");
        Receiver::builder(store.clone(), consumer, Arc::new(SystemTimer::default())).build()
    }

    #[tokio::test(start_paused = true)]
    async fn s16_however_many_want_to_know_which_inbox_it_is_a_slow_store_is_asked_once() {
        let store = Slow::failing(0);
        let receiver = receiver(&store);
        for _ in 0..50 {
            let asked = tokio::time::timeout(Duration::from_secs(1), receiver.meet(None)).await;
            assert!(asked.is_err(), "it is not known yet");
        }
        let waiting: Vec<_> =
            (0..50).map(|_| receiver.clone()).map(|it| spawn(async move { it.meet(None).await })).collect();
        store.allowed.add_permits(1);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().as_deref(), Some("inbox-1"));
        }
        assert_eq!(receiver.meet(None).await.as_deref(), Some("inbox-1"));
        assert_eq!(store.reads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_the_inbox_is_told_that_it_cannot_be_read_and_the_next_one_asks_again() {
        let store = Slow::failing(1);
        let receiver = receiver(&store);
        store.allowed.add_permits(2);
        assert_eq!(receiver.meet(None).await, None);
        assert_eq!(receiver.meet(None).await.as_deref(), Some("inbox-1"));
        assert_eq!(store.reads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_panics_leaves_nobody_waiting_and_the_next_one_asks_again() {
        let store = Slow { panics: true, ..Slow::failing(0) };
        let receiver = receiver(&store);
        store.allowed.add_permits(2);
        assert_eq!(receiver.meet(None).await, None);
        assert_eq!(receiver.meet(None).await.as_deref(), Some("inbox-1"));
    }
}
