//! The receiver: routes messages to handlers and lets the inbox make their effects happen once.

mod claim_first;
mod figures;
mod in_flight;
mod meet;
mod unheard;
mod wave;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use twobox_core::clock::BoxFuture;
use twobox_core::meters::{InboxMeters, Meters};
use twobox_core::ports::{Answer, InboxStore, InstanceStore, KeyGate, Link, Receive};
use twobox_core::wire::ResponseRoom;
use twobox_core::{Consumer, Endpoint, Error, ErrorKind, HandlerResult, Message, Result, crash_point};

pub use self::claim_first::{ClaimedHandler, OnError, claim_first};

use self::in_flight::InFlight;
use self::meet::Acquaintances;
use self::unheard::Unheard;
use self::wave::Wave;
use crate::sync::spawn;
use crate::{Patience, Timer};

/// A message that is being handled elsewhere is waited for this long (S7).
const IN_FLIGHT_WAIT: Duration = Duration::from_secs(2);
/// When to ask again about it after that.
const IN_FLIGHT_AFTER: Duration = Duration::from_secs(1);

/// How long a handler may take outside of a transaction while its sender waits, unless it is told otherwise.
pub const HANDLER_TIMEOUT: Duration = Duration::from_secs(30);

/// The first half of a handler that has to wait for something before its transaction (W8): it runs without one,
/// at least once, and returns the second half, whose effects happen exactly once.
pub type Prepare<H> = Arc<dyn Fn(Arc<Message>) -> BoxFuture<'static, HandlerResult<H>> + Send + Sync>;

/// A first half that claims its message before it runs code of the user's, with the [`Patience`] it is given, and notes
/// the outcome afterwards.
pub type Claim<H> = Arc<dyn Fn(Arc<Message>, Patience) -> BoxFuture<'static, HandlerResult<H>> + Send + Sync>;

/// How an endpoint is handled.
pub enum Route<H> {
    /// In the transaction alone.
    Handler(H),
    /// First without, then in the transaction.
    Prepared(Prepare<H>),
    /// First without, under a claim that is committed before; see [`claim_first`].
    Claimed(Claim<H>),
    /// Stored and acknowledged; a [`Worker`](crate::Worker) handles it later.
    Queued,
}

impl<H> Route<H> {
    fn has_first_half(&self) -> bool {
        matches!(self, Self::Prepared(_) | Self::Claimed(_))
    }
}

impl<H> fmt::Debug for Route<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handler(_) => "Handler",
            Self::Prepared(_) => "Prepared",
            Self::Claimed(_) => "Claimed",
            Self::Queued => "Queued",
        })
    }
}

/// Handles messages for one consumer. Cheap to clone.
pub struct Receiver<S: InboxStore>(Arc<Inner<S>>);

struct Inner<S: InboxStore> {
    store: S,
    consumer: Consumer,
    routes: HashMap<Endpoint, Route<S::Handler>>,
    default_route: Option<Route<S::Handler>>,
    /// Whether any of them has a first half: nobody has to ask about every message where none has.
    first_halves: bool,
    in_flight: InFlight,
    unheard: Unheard,
    acquaintances: Acquaintances,
    timer: Arc<dyn Timer>,
    prepare_max: usize,
    handler_timeout: Duration,
    meters: Arc<InboxMeters>,
}

impl<S: InboxStore> Inner<S> {
    fn route(&self, endpoint: &Endpoint) -> Option<&Route<S::Handler>> {
        self.routes.get(endpoint).or(self.default_route.as_ref())
    }

    fn has_first_half(&self, message: &Message) -> bool {
        self.first_halves && self.route(&message.endpoint).is_some_and(Route::has_first_half)
    }
}

/// Builds a [`Receiver`].
#[must_use = "a builder does nothing until it is built"]
pub struct ReceiverBuilder<S: InboxStore>(Inner<S>);

impl<S: InboxStore> Receiver<S> {
    /// A receiver whose dedup rows carry this consumer's name: explicit and stable, because a new name is a new
    /// memory (S3).
    pub fn builder(store: S, consumer: Consumer, timer: Arc<dyn Timer>) -> ReceiverBuilder<S> {
        ReceiverBuilder(Inner {
            store,
            consumer,
            routes: HashMap::new(),
            default_route: None,
            first_halves: false,
            in_flight: InFlight::default(),
            unheard: Unheard::default(),
            acquaintances: Acquaintances::default(),
            timer,
            prepare_max: 16,
            handler_timeout: HANDLER_TIMEOUT,
            meters: Arc::default(),
        })
    }

    /// Handles messages in order and answers each once its outcome is durable, within about `budget`.
    ///
    /// The messages' source must be authentic: it is part of the dedup key.
    ///
    /// # Errors
    /// When nothing can be said about any of them; then none may be acknowledged.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop handlers that have begun; the outcome is found by delivering again.
    pub async fn receive(&self, messages: Vec<Arc<Message>>, budget: Duration) -> Result<Vec<Answer>> {
        let this = self.clone();
        // In a task of its own: a caller that hangs up must not make us forget what is being handled (S7).
        let span =
            tracing::debug_span!("receive", consumer = self.0.consumer.as_str(), messages = messages.len());
        let task = spawn(async move { this.receive_all(messages, budget).await }.instrument(span));
        task.await.map_err(|_| Error::new(ErrorKind::Unavailable, "the receiver failed"))?
    }

    async fn receive_all(&self, messages: Vec<Arc<Message>>, budget: Duration) -> Result<Vec<Answer>> {
        let start = self.0.timer.monotonic();
        let answers = self.answer_all(&messages, budget).await;
        let took = self.0.timer.monotonic().saturating_sub(start);
        figures::tell(&self.0, &messages, &answers, took);
        answers
    }

    async fn answer_all(&self, messages: &[Arc<Message>], budget: Duration) -> Result<Vec<Answer>> {
        let deadline = self.0.timer.monotonic().saturating_add(budget);
        let patience = deadline.min(self.0.timer.monotonic().saturating_add(IN_FLIGHT_WAIT.min(budget / 2)));
        let mut answers: Vec<Option<Answer>> = vec![None; messages.len()];
        let mut pending: Vec<usize> = (0..messages.len()).collect();
        let (mut gate, mut room) = (KeyGate::default(), ResponseRoom::of(messages.len()));
        while !pending.is_empty() {
            let wave = Wave::form(&self.0, messages, &pending, &mut gate, &mut answers);
            if wave.is_empty() {
                if !self.await_others(messages, &wave.later, patience).await {
                    answer_in_progress(messages, &wave.later, &mut gate, &mut answers);
                    break;
                }
            } else {
                crash_point!("receiver.in-flight");
                self.run_wave(&wave, messages, deadline, budget, &mut gate, &mut answers).await?;
                // Of all waves together, no more is kept than the answer has room for.
                let kept = |at: &usize| answers[*at] = answers[*at].take().map(|answer| room.keep(answer));
                wave.now.iter().for_each(kept);
            }
            pending = wave.later;
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Answer::NotReached)).collect())
    }

    async fn run_wave(
        &self,
        wave: &Wave,
        messages: &[Arc<Message>],
        deadline: Duration,
        budget: Duration,
        gate: &mut KeyGate,
        answers: &mut [Option<Answer>],
    ) -> Result<()> {
        // First halves may take half of the time, and what they have prepared gets a fair part of it as well:
        // otherwise a slow endpoint would be prepared for ever and never handled.
        let prepare_until = deadline.saturating_sub(budget / 2);
        let (reached, deliveries) = wave.deliveries(&self.0, messages, prepare_until).await;
        let left = deadline.saturating_sub(self.0.timer.monotonic()).max(budget / 4);
        let got = self.0.store.process(deliveries, left).await?;
        crash_point!("receiver.handled");
        if got.len() != reached.len() {
            return Err(Error::new(ErrorKind::Unavailable, "the store answered another number of messages"));
        }
        // Whoever carries a request answers it within twice its budget: this comes too late for that.
        let is_late = self.0.timer.monotonic() > deadline.saturating_add(budget);
        let mut got = reached.into_iter().zip(got).peekable();
        for &at in &wave.now {
            let answer =
                got.next_if(|(reached, _)| *reached == at).map_or(Answer::NotReached, |(_, got)| got);
            if is_late {
                self.0.unheard.note(&messages[at], &answer);
            }
            gate.note(&messages[at], &answer);
            answers[at] = Some(answer);
        }
        Ok(())
    }

    /// Waits until the first of these messages is no longer being handled elsewhere. `false`: time is up, or
    /// somebody is waiting for it already.
    async fn await_others(&self, messages: &[Arc<Message>], later: &[usize], patience: Duration) -> bool {
        let Some(&first) = later.first() else { return false };
        let left = patience.saturating_sub(self.0.timer.monotonic());
        let Some(done) = self.0.in_flight.wait_for(&messages[first]) else { return false };
        tokio::select! {
            biased;
            () = done => true,
            () = self.0.timer.sleep(left) => false,
        }
    }
}

fn answer_in_progress(
    messages: &[Arc<Message>],
    later: &[usize],
    gate: &mut KeyGate,
    answers: &mut [Option<Answer>],
) {
    for &at in later {
        let held = gate.holds(&messages[at]);
        let answer = if held { Answer::Held } else { Answer::InProgress { after: IN_FLIGHT_AFTER } };
        gate.note(&messages[at], &answer);
        answers[at] = Some(answer);
    }
}

impl<S: InboxStore + InstanceStore> Receive for Receiver<S> {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>>> {
        let this = self.clone();
        Box::pin(async move { Receiver::receive(&this, messages, budget).await })
    }

    fn meet(&self, link: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
        let (this, link) = (self.clone(), link.cloned());
        Box::pin(async move { Receiver::meet(&this, link).await })
    }
}

impl<S: InboxStore> ReceiverBuilder<S> {
    /// Handles an endpoint.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the endpoint has a handler already (RF-20).
    pub fn route(mut self, endpoint: Endpoint, route: Route<S::Handler>) -> Result<Self> {
        if self.0.routes.contains_key(&endpoint) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!("endpoint {endpoint} has two handlers: keep one"),
            ));
        }
        self.0.first_halves |= route.has_first_half();
        self.0.routes.insert(endpoint, route);
        Ok(self)
    }

    /// Handles all other endpoints. Default: they are unknown.
    pub fn default_route(mut self, route: Route<S::Handler>) -> Self {
        self.0.first_halves |= route.has_first_half();
        self.0.default_route = Some(route);
        self
    }

    /// Most first halves of handlers that run at once per request. Default 16.
    pub fn prepare_max(mut self, prepare_max: usize) -> Self {
        self.0.prepare_max = prepare_max.max(1);
        self
    }

    /// How long a first half, or a handler that is claimed first, may take before it is ended where it waits and counts
    /// as failed. Default 30 s: longer than a sender waits, so one that is merely slow is found done when the message
    /// comes again; one that hangs keeps its message, and the others of its request, no longer than this.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.0.handler_timeout = limit;
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    pub fn meters(mut self, meters: &Meters) -> Self {
        self.0.meters = meters.inbox(&self.0.consumer);
        self
    }

    /// The receiver.
    #[must_use]
    pub fn build(self) -> Receiver<S> {
        Receiver(Arc::new(self.0))
    }
}

impl<S: InboxStore> Clone for Receiver<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: InboxStore> fmt::Debug for Receiver<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("consumer", &self.0.consumer)
            .field("routes", &self.0.routes)
            .finish_non_exhaustive()
    }
}

impl<S: InboxStore> fmt::Debug for ReceiverBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverBuilder").field("routes", &self.0.routes).finish_non_exhaustive()
    }
}
