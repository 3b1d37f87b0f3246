//! The worker: claims queued messages and hands them to handlers by topic (IBX §6.8).

mod in_hand;
mod options;
mod run;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use twobox_core::clock::BoxFuture;
use twobox_core::meters::{InboxMeters, Meters};
use twobox_core::ports::{Claimed, OwnerToken, Queue, QueueStore};
use twobox_core::{Endpoint, Error, ErrorKind, HandlerResult, Message, MessageId, Random, Response, Result};

pub use self::options::WorkerOptions;

use self::run::Run;
use crate::receiver::Prepare;
use crate::sync::run_loop;
use crate::{Shutdown, Timer};

/// What a handler outside of the transaction is: any future. It runs at least once.
pub type External = Arc<dyn Fn(WorkContext) -> BoxFuture<'static, HandlerResult<Response>> + Send + Sync>;

/// How a topic is handled.
#[derive(Clone)]
pub enum Handling<H> {
    /// In the transaction that ends the message: effects happen exactly once.
    Transactional(H),
    /// First without a transaction, at least once; then in the one that ends the message, exactly once.
    Prepared(Prepare<H>),
    /// Outside of the database, at least once. The message's id is the idempotency key for whatever it calls.
    External(External),
}

impl<H> fmt::Debug for Handling<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transactional(_) => "Transactional",
            Self::Prepared(_) => "Prepared",
            Self::External(_) => "External",
        })
    }
}

/// What a handler outside of the transaction is told.
#[derive(Clone, Debug)]
pub struct WorkContext {
    /// The message.
    pub message: Arc<Message>,
    /// Attempts that have failed before this one.
    pub attempts: u32,
    lost: watch::Receiver<bool>,
}

impl WorkContext {
    /// The key under which the outside world can recognise a repetition: the message's id.
    #[must_use]
    pub fn idempotency_key(&self) -> &MessageId {
        &self.message.id
    }

    /// Whether the lease is lost: somebody else may be handling the message, and nothing that this handler returns
    /// counts any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Completes when the lease is lost, or the worker has stopped waiting for the handler.
    pub async fn lost(&mut self) {
        // An error means that the worker is gone, which is the same to the handler.
        let _: Result<_, _> = self.lost.wait_for(|lost| *lost).await.map(drop);
    }
}

/// Handles a consumer's queued messages. Several may work on one queue, in one process or in many.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker<S: QueueStore>(Arc<Inner<S>>);

struct Inner<S: QueueStore> {
    store: S,
    /// What the log calls the store.
    name: String,
    queue: Queue,
    owner: OwnerToken,
    topics: HashMap<Endpoint, Handling<S::Handler>>,
    default_topic: Option<Handling<S::Handler>>,
    options: WorkerOptions,
    timer: Arc<dyn Timer>,
    meters: Arc<InboxMeters>,
}

impl<S: QueueStore> Inner<S> {
    fn handling(&self, topic: &Endpoint) -> Option<&Handling<S::Handler>> {
        self.topics.get(topic).or(self.default_topic.as_ref())
    }

    /// Whether a message is handled outside of the transaction first.
    fn is_outside(&self, claimed: &Claimed) -> bool {
        let handling = self.handling(&claimed.message.endpoint);
        matches!(handling, Some(Handling::Prepared(_) | Handling::External(_)))
    }
}

/// Builds a [`Worker`].
#[must_use = "a builder does nothing until it is built"]
pub struct WorkerBuilder<S: QueueStore>(Inner<S>);

impl<S: QueueStore> Worker<S> {
    /// A worker for this queue, under an identity of its own.
    pub fn builder(store: S, queue: Queue, timer: Arc<dyn Timer>, random: &dyn Random) -> WorkerBuilder<S> {
        let owner = OwnerToken::mint(random);
        let options = WorkerOptions::default();
        let name = store.store_name();
        let (topics, default_topic, meters) = (HashMap::new(), None, Arc::default());
        WorkerBuilder(Inner { store, name, queue, owner, topics, default_topic, options, timer, meters })
    }

    /// Works until asked to stop, then finishes or gives back what is in hand within the configured time (S20).
    pub async fn run(self, shutdown: Shutdown) {
        run_loop(Run::new(self.0).run(shutdown)).await;
    }
}

impl<S: QueueStore> WorkerBuilder<S> {
    /// Handles a topic.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the topic has a handler already.
    pub fn topic(mut self, topic: Endpoint, handling: Handling<S::Handler>) -> Result<Self> {
        if self.0.topics.contains_key(&topic) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!("topic {topic} has two handlers: keep one"),
            ));
        }
        self.0.topics.insert(topic, handling);
        Ok(self)
    }

    /// Handles all other topics. Default: they wait until they have a handler, or die.
    pub fn default_topic(mut self, handling: Handling<S::Handler>) -> Self {
        self.0.default_topic = Some(handling);
        self
    }

    /// Limits of the worker.
    pub fn options(mut self, options: WorkerOptions) -> Self {
        self.0.options = options;
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    pub fn meters(mut self, meters: &Meters) -> Self {
        self.0.meters = meters.inbox(&self.0.queue.consumer);
        self
    }

    /// Checks everything together (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), naming what is wrong and the remedy.
    pub fn build(self) -> Result<Worker<S>> {
        self.0.options.check()?;
        self.0.queue.retry.check()?;
        Ok(Worker(Arc::new(self.0)))
    }
}

impl<S: QueueStore> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.0.queue)
            .field("owner", &self.0.owner)
            .field("topics", &self.0.topics)
            .finish_non_exhaustive()
    }
}

impl<S: QueueStore> fmt::Debug for WorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("topics", &self.0.topics).finish_non_exhaustive()
    }
}
