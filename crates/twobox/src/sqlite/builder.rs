//! Building a service.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use twobox_core::Stamp;
use twobox_core::ports::Queue;
use twobox_engine::receiver::{HANDLER_TIMEOUT, OnError, Receiver, Route};
use twobox_engine::relay::{DeadLetterCallback, Relay};
use twobox_engine::worker::{Handling, Worker, WorkerOptions};
use twobox_engine::{SystemTimer, Timer};

use super::signal::{decode, encode, usual};
use super::{Context, Inbox, Outbox, Signal, Twobox};
use crate::{
    BoxError, Consumer, DeadLetter, Destination, Endpoint, Error, ErrorKind, HandlerResult, Listen, Message,
    Policy, RelayOptions, Response, Result, Source, Sqlite, SqliteHandler, SqliteTx, SweepPlan, Transport,
};

/// Builds a [`Twobox`]. Nothing is checked before [`build`](Self::build), which checks everything together.
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    pub(super) db: Sqlite,
    name: String,
    consumer: Option<String>,
    destinations: Vec<(String, Arc<dyn Transport>)>,
    default_transport: Option<Arc<dyn Transport>>,
    pub(super) routes: Vec<(String, RouteOf)>,
    pub(super) topics: Vec<(String, HandlingOf)>,
    pub(super) default_topic: Option<HandlingOf>,
    pub(super) claims: Claims,
    retry: Option<Policy>,
    handler_timeout: Duration,
    worker: WorkerOptions,
    listeners: Vec<Arc<dyn Listen>>,
    relay: RelayOptions,
    sweep: SweepPlan,
    sweep_interval: Duration,
    payload_bytes_max: usize,
    callback: Option<DeadLetterCallback<i64>>,
    timer: Arc<dyn Timer>,
}

/// A route that is finished once the service's outbox exists.
pub(super) type RouteOf = Box<dyn FnOnce(&Outbox, &Claims) -> Route<SqliteHandler> + Send>;

/// What a worker does with a topic, finished in the same way.
pub(super) type HandlingOf = Box<dyn FnOnce(&Outbox) -> Handling<SqliteHandler> + Send>;

/// How messages are claimed that are claimed first.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) is_on: bool,
    pub(super) on_error: OnError,
    pub(super) consumer: Option<Consumer>,
}

impl Builder {
    pub(super) fn new(name: &str, db: &Sqlite) -> Self {
        Self {
            db: db.clone(),
            name: name.into(),
            consumer: None,
            destinations: Vec::new(),
            default_transport: None,
            routes: Vec::new(),
            topics: Vec::new(),
            default_topic: None,
            claims: Claims { is_on: true, on_error: OnError::default(), consumer: None },
            retry: None,
            handler_timeout: HANDLER_TIMEOUT,
            worker: WorkerOptions::default(),
            listeners: Vec::new(),
            relay: RelayOptions::default(),
            sweep: SweepPlan::default(),
            sweep_interval: Duration::from_secs(300),
            payload_bytes_max: twobox_core::message::PAYLOAD_BYTES_MAX,
            callback: None,
            timer: Arc::new(SystemTimer::default()),
        }
    }

    /// Sends messages for `destination` through `transport`.
    pub fn destination(mut self, destination: &str, transport: impl Transport) -> Self {
        self.destinations.push((destination.into(), Arc::new(transport)));
        self
    }

    /// Sends messages for all other destinations through `transport`. Each destination still has its own lane:
    /// its own breaker and its own requests in flight, so that a dead one holds up nobody else.
    pub fn default_transport(mut self, transport: impl Transport) -> Self {
        self.default_transport = Some(Arc::new(transport));
        self
    }

    /// Handles messages of type `T`. Effects written through the transaction happen exactly once; what the
    /// handler returns is stored and given to duplicates. It runs on the database's writer, so it must be quick.
    pub fn handle<T, R>(
        self,
        handler: impl Fn(&mut SqliteTx<'_>, T, &Context<'_>) -> HandlerResult<R> + Send + Sync + 'static,
    ) -> Self
    where
        T: Signal + DeserializeOwned,
        R: Serialize,
    {
        let handler = move |tx: &mut SqliteTx<'_>, message: &Message, context: &Context<'_>| {
            let value = decode(T::NAME, message.payload.as_bytes())?;
            encode(&handler(tx, value, context)?)
        };
        self.handle_usually(T::NAME, usual::<R>(), handler)
    }

    /// Handles messages of an endpoint as they are.
    pub fn handle_raw(
        self,
        endpoint: &str,
        handler: impl Fn(&mut SqliteTx<'_>, &Message, &Context<'_>) -> HandlerResult<Response>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.handle_usually(endpoint, Response::empty(), handler)
    }

    fn handle_usually(
        mut self,
        endpoint: &str,
        usual: Response,
        handler: impl Fn(&mut SqliteTx<'_>, &Message, &Context<'_>) -> HandlerResult<Response>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let route: RouteOf = Box::new(move |outbox, _| {
            let outbox = outbox.clone();
            let handle = move |tx: &mut SqliteTx<'_>, message: &Message| {
                handler(tx, message, &Context::new(message, &outbox))
            };
            Route::Handler(SqliteHandler::new(handle).usually(usual))
        });
        self.routes.push((endpoint.into(), route));
        self
    }

    /// Handles messages of type `T` in two halves: `prepare` may await anything, runs without a transaction and
    /// at least once; what it returns runs with the transaction, and its effects happen exactly once. Halves of
    /// one ordering key run one after another.
    pub fn handle_async<T, P, F, R>(
        mut self,
        prepare: impl Fn(T, Arc<Message>) -> P + Send + Sync + 'static,
    ) -> Self
    where
        T: Signal + DeserializeOwned + Send + 'static,
        P: Future<Output = HandlerResult<F>> + Send + 'static,
        F: Fn(&mut SqliteTx<'_>, &Context<'_>) -> HandlerResult<R> + Send + Sync + 'static,
        R: Serialize,
    {
        let prepare = Arc::new(prepare);
        let route: RouteOf = Box::new(move |outbox, _| {
            let outbox = outbox.clone();
            Route::Prepared(Arc::new(move |message: Arc<Message>| {
                let (prepare, outbox) = (Arc::clone(&prepare), outbox.clone());
                Box::pin(async move {
                    let value = decode(T::NAME, message.payload.as_bytes())?;
                    let finish = prepare(value, message).await?;
                    let handle = move |tx: &mut SqliteTx<'_>, message: &Message| {
                        encode(&finish(tx, &Context::new(message, &outbox))?)
                    };
                    Ok(SqliteHandler::new(handle).usually(usual::<R>()))
                })
            }))
        });
        self.routes.push((T::NAME.into(), route));
        self
    }

    /// Takes messages that arrive at `listener`. It serves once the service is started.
    pub fn listen(mut self, listener: impl Listen) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Name under which messages are deduplicated. Default: the service's. A new name is a new memory.
    pub fn consumer(mut self, consumer: &str) -> Self {
        self.consumer = Some(consumer.into());
        self
    }

    /// Limits and policies of the relay.
    pub fn relay(mut self, options: RelayOptions) -> Self {
        self.relay = options;
        self
    }

    /// How long things are kept, and how often that is looked at. Default: a week, every 5 minutes.
    pub fn sweep(mut self, plan: SweepPlan, interval: Duration) -> Self {
        self.sweep = plan;
        self.sweep_interval = interval;
        self
    }

    /// Largest payload that may be enqueued. Default 1 MiB.
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }

    /// Calls `callback` for every message that dies or expires: at least once, after its death is durable, also
    /// after a restart. An error means "call me again later".
    pub fn on_dead_letter<C, P>(mut self, callback: C) -> Self
    where
        C: Fn(DeadLetter<i64>) -> P + Send + Sync + 'static,
        P: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.callback = Some(Arc::new(move |letter| Box::pin(callback(letter))));
        self
    }

    /// How often and when a queued message is tried again. Default: ten attempts, `min(2^n s, 60 s)` between them.
    pub fn retry(mut self, policy: Policy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// How long a handler may take that waits for others while the sender waits for it: `prepare` of
    /// [`handle_async`](Self::handle_async), and handlers added by [`handle_claimed`](Self::handle_claimed). After that it
    /// is ended at its next `await` and counts as failed; what it has handed to tasks of its own goes on. Default 30 s. Those of queued messages have
    /// [`WorkerOptions::handler_timeout`].
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = limit;
        self
    }

    /// Limits of the worker that handles queued messages.
    pub fn worker(mut self, options: WorkerOptions) -> Self {
        self.worker = options;
        self
    }

    /// Where time comes from. Default: the machine.
    pub fn timer(mut self, timer: Arc<dyn Timer>) -> Self {
        self.timer = timer;
        self
    }

    /// Checks everything together (S10) and builds the service. Nothing runs yet.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) or [`Misconfigured`](ErrorKind::Misconfigured), naming what is wrong and
    /// the remedy.
    pub fn build(self) -> Result<Twobox> {
        let source = Source::new(&self.name)?;
        self.check_sweep()?;
        if self.handler_timeout.is_zero() {
            return misconfigured("the handler_timeout is zero: no handler would have time".into());
        }
        let stamp = Stamp::new(source.clone(), self.db.clock(), self.db.random())
            .ttl(self.relay.timing.ttl)
            .payload_bytes_max(self.payload_bytes_max);
        let outbox = Outbox::new(self.db.clone(), stamp);
        let consumer = self.consumer.map_or_else(|| Ok(Consumer::from(&source)), Consumer::new)?;
        let mut receiver = Receiver::builder(self.db.clone(), consumer.clone(), Arc::clone(&self.timer))
            .handler_timeout(self.handler_timeout)
            .meters(&self.db.meters());
        let mut queue = Queue::new(consumer.clone());
        queue.head_policy = self.relay.head_policy;
        queue.retry = self.retry.unwrap_or(queue.retry);
        let claims = Claims { consumer: Some(consumer), ..self.claims };
        for (endpoint, route) in self.routes {
            receiver = receiver.route(Endpoint::new(endpoint)?, route(&outbox, &claims))?;
        }
        let mut topics = Vec::with_capacity(self.topics.len());
        for (topic, handling) in self.topics {
            let topic = Endpoint::new(topic)?;
            receiver = receiver.route(topic.clone(), Route::Queued)?;
            topics.push((topic, handling(&outbox)));
        }
        let default_topic = self.default_topic.map(|handling| handling(&outbox));
        if default_topic.is_some() {
            receiver = receiver.default_route(Route::Queued);
        }
        let inbox = Inbox::new(self.db.clone(), source.clone(), queue.clone(), self.payload_bytes_max);
        self.listeners.iter().try_for_each(|listener| listener.check())?;
        self.default_transport.iter().try_for_each(|transport| transport.check())?;
        let mut destinations = Vec::with_capacity(self.destinations.len());
        for (destination, transport) in self.destinations {
            transport.check()?;
            destinations.push((Destination::new(destination)?, transport));
        }
        let service = Twobox {
            db: self.db,
            source,
            outbox,
            inbox,
            queue,
            topics,
            default_topic,
            worker: self.worker,
            receiver: receiver.build(),
            listeners: self.listeners,
            destinations,
            default_transport: self.default_transport,
            relay: self.relay,
            sweep: self.sweep,
            sweep_interval: self.sweep_interval,
            callback: self.callback,
            timer: self.timer,
        };
        // Refuses now what would fail later.
        let _: Relay<Sqlite> = service.relay()?;
        let _: Option<Worker<Sqlite>> = service.worker()?;
        Ok(service)
    }

    fn check_sweep(&self) -> Result<()> {
        let (sweep, timing) = (self.sweep.dedup_window, self.relay.timing.dedup_window);
        if sweep != timing {
            return misconfigured(format!(
                "the sweeper's dedup_window ({sweep:?}) differs from the timing's dedup_window ({timing:?}): set both to the same"
            ));
        }
        if self.sweep_interval.is_zero() {
            return misconfigured("the sweeper's interval is zero: it would never rest".into());
        }
        Ok(())
    }
}

fn misconfigured<T>(text: String) -> Result<T> {
    Err(Error::new(ErrorKind::Misconfigured, text))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
