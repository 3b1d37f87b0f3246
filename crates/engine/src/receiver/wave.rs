//! A wave: the messages of a request that can be handled together.
//!
//! Most requests are one wave. A message that is being handled elsewhere, what follows it in its key, and the
//! second prepared message of a key wait for a later one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{Answer, Delivery, InboxStatus, InboxStore, KeyGate, Treatment};
use twobox_core::{HandlerResult, Message, OrderingKey, Refusal, Source, crash_point, mutant};

use super::in_flight::Handling;
use super::{Inner, Route};
use crate::Patience;
use crate::sync::JoinSet;

/// Which messages are handled now and which later.
pub(super) struct Wave {
    pub(super) now: Vec<usize>,
    pub(super) later: Vec<usize>,
    _handling: Handling,
}

type Key = (Source, OrderingKey);

impl Wave {
    /// Sorts out what can be handled now. What follows a failed message of its key is answered at once.
    pub(super) fn form<S: InboxStore>(
        inner: &Inner<S>,
        messages: &[Arc<Message>],
        pending: &[usize],
        gate: &mut KeyGate,
        answers: &mut [Option<Answer>],
    ) -> Self {
        let mut handling = inner.in_flight.handling();
        let (mut now, mut later) = (Vec::with_capacity(pending.len()), Vec::new());
        let mut postponed: HashSet<Key> = HashSet::new();
        let mut prepared: HashSet<Key> = HashSet::new();
        for &at in pending {
            let message = &messages[at];
            if gate.holds(message) {
                answers[at] = Some(Answer::Held);
                continue;
            }
            let key = message.ordering_key.clone().map(|key| (message.source.clone(), key));
            let is_prepared = inner.has_first_half(message);
            let waits = key
                .as_ref()
                .is_some_and(|key| postponed.contains(key) || (is_prepared && prepared.contains(key)));
            if !waits && let Some(answer) = inner.unheard.take(message) {
                gate.note(message, &answer);
                answers[at] = Some(answer);
                continue;
            }
            let begun = !waits && handling.begin(message);
            if !waits && !begun && mutant!(OkToInFlight) {
                answers[at] = Some(Answer::Duplicate(None));
                continue;
            }
            if !begun {
                later.push(at);
                postponed.extend(key);
                continue;
            }
            if is_prepared {
                prepared.extend(key);
            }
            now.push(at);
        }
        Self { now, later, _handling: handling }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// The deliveries of this wave, after the first halves of their handlers have run: places and deliveries of
    /// those that were reached by `until`.
    pub(super) async fn deliveries<S: InboxStore>(
        &self,
        inner: &Arc<Inner<S>>,
        messages: &[Arc<Message>],
        until: Duration,
    ) -> (Vec<usize>, Vec<Delivery<S::Handler>>) {
        let mut prepared = prepare(inner, messages, &self.now, until).await;
        // What follows a message of its key that was not reached must not overtake it (L4).
        let mut unreached = KeyGate::default();
        let delivery = |&at: &usize| {
            let message = Arc::clone(&messages[at]);
            let is_prepared = inner.has_first_half(&message);
            if unreached.holds(&message) || (is_prepared && !prepared.contains_key(&at)) {
                unreached.note(&message, &Answer::NotReached);
                return None;
            }
            let treatment = match inner.route(&message.endpoint) {
                None => Treatment::Unknown,
                Some(Route::Handler(handler)) => Treatment::Handle(handler.clone()),
                Some(Route::Prepared(_) | Route::Claimed(_)) => {
                    Treatment::Handle(prepared.remove(&at)?.unwrap_or_else(S::refusing))
                }
                Some(Route::Queued) => Treatment::Queue,
            };
            let body_hash = message.payload.sha256();
            Some((at, Delivery { message, consumer: inner.consumer.clone(), body_hash, treatment }))
        };
        self.now.iter().filter_map(delivery).unzip()
    }
}

type Halves<H> = std::collections::HashMap<usize, HandlerResult<H>>;

/// Runs the first halves, a bounded number at a time, and begins none after `until`. A panic is a failure (S6).
async fn prepare<S: InboxStore>(
    inner: &Arc<Inner<S>>,
    messages: &[Arc<Message>],
    now: &[usize],
    until: Duration,
) -> Halves<S::Handler> {
    let mut halves = Halves::new();
    let mut running = JoinSet::new();
    let mut waiting = now.iter().copied().filter(|&at| inner.has_first_half(&messages[at]));
    loop {
        while running.len() < inner.prepare_max
            && inner.timer.monotonic() < until
            && let Some(at) = waiting.next()
        {
            running.spawn(half(at, Arc::clone(inner), Arc::clone(&messages[at])));
        }
        match running.join_next().await {
            Some(Ok((at, half))) => drop(halves.insert(at, half)),
            Some(Err(_)) => tracing::error!("a task of the receiver panicked"),
            None => return halves,
        }
    }
}

async fn half<S: InboxStore>(
    at: usize,
    inner: Arc<Inner<S>>,
    message: Arc<Message>,
) -> (usize, HandlerResult<S::Handler>) {
    // A first half may call the outside world: not again for a message that is known to be done.
    let known = inner.store.inbox_record(&inner.consumer, &message.source, &message.id).await;
    if known.is_ok_and(|known| known.is_some_and(|known| known.status == InboxStatus::Done)) {
        return (at, Err(Refusal::retry("done before")));
    }
    let patience = Patience::new(Arc::clone(&inner.timer), inner.handler_timeout);
    let half = match inner.route(&message.endpoint) {
        Some(Route::Prepared(prepare)) => {
            let prepare = Arc::clone(prepare);
            patience.run(async move { prepare(message).await }).await
        }
        Some(Route::Claimed(claim)) => claim(message, patience).await,
        Some(Route::Handler(_) | Route::Queued) | None => Err(Refusal::retry("no handler")),
    };
    crash_point!("receiver.prepared");
    (at, half)
}
