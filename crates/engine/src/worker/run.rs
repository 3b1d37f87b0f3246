//! A running worker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::Instrument;
use twobox_core::meters::HandledOutcome;
use twobox_core::ports::{Claim, Claimed, Handled, Job, MessageKey, QueueStore, WorkLease};
use twobox_core::{Endpoint, Error, HandlerResult, Refusal, Result, crash_point, one_line};

use super::in_hand::InHand;
use super::{Handling, Inner, WorkContext};
use crate::alarm::Alarm;
use crate::events::MESSAGES;
use crate::started::Started;
use crate::{Patience, Shutdown};

/// Leases that one reaping takes back.
const REAP_MAX: usize = 1_000;

/// Calls that handle messages at a time: one that commits, and one for the next commit.
const HANDLING_MAX: usize = 2;

/// After a failed claim, this long passes before the next one.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// What has ended.
enum Event<S: QueueStore> {
    Claimed(Result<Vec<Claimed>>),
    /// A handler outside of the transaction, with what settles its message.
    Prepared(Claimed, HandlerResult<S::Handler>),
    Handled(Vec<Settling>, Result<Vec<Handled>>),
    Renewed(Vec<WorkLease>, Result<Vec<WorkLease>>),
    Reaped(Result<u64>),
    Looked(Result<Option<Duration>>),
    Woken(u64),
}

/// A message that is being settled.
struct Settling {
    lease: WorkLease,
    endpoint: Endpoint,
}

pub(super) struct Run<S: QueueStore> {
    worker: Arc<Inner<S>>,
    calls: Started<Event<S>>,
    in_hand: InHand,
    /// Handlers outside of the transaction that are running.
    outside: usize,
    /// Finished outside of the transaction, to be settled in the next one.
    prepared: Vec<Job<S::Handler>>,
    claiming: bool,
    /// Calls that handle messages.
    handling: usize,
    renewing: bool,
    reaping: bool,
    /// Whether there may be something to claim.
    hungry: bool,
    /// Times on the monotonic clock.
    claim_at: Duration,
    renew_at: Duration,
    reap_at: Duration,
    /// A claim failed: there is none before this, whatever is said to be there meanwhile.
    store_pause: Duration,
    pause: Duration,
}

impl<S: QueueStore> Run<S> {
    pub(super) fn new(worker: Arc<Inner<S>>) -> Self {
        let now = worker.timer.monotonic();
        let pause = worker.options.poll_min;
        let renew_at = now.saturating_add(worker.options.renew_interval());
        Self {
            worker,
            calls: Started::new(),
            in_hand: InHand::default(),
            outside: 0,
            prepared: Vec::new(),
            claiming: false,
            handling: 0,
            renewing: false,
            reaping: false,
            hungry: true,
            claim_at: now,
            renew_at,
            reap_at: now,
            store_pause: now,
            pause,
        }
    }

    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        self.listen(0);
        let mut alarm = Alarm::new(&self.worker.timer);
        while !shutdown.is_requested() {
            self.work();
            let due = self.due();
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = self.event() => {}
                () = alarm.rings(due) => self.hungry = true,
            }
        }
        self.stop().await;
    }

    /// Starts whatever can be started.
    fn work(&mut self) {
        let now = self.worker.timer.monotonic();
        self.reap(now);
        self.renew(now);
        self.start_outside();
        self.handle();
        self.claim(now);
        self.worker.meters.in_hand.set_count(self.in_hand.len());
    }

    /// When something has to be done without being told.
    fn due(&self) -> Duration {
        // What is under way tells when it has ended.
        let reap = (!self.reaping).then_some(self.reap_at);
        let renew = (!self.renewing && self.in_hand.len() > 0).then_some(self.renew_at);
        let claim = (!self.claiming && self.worthwhile()).then(|| self.claim_due());
        [reap, renew, claim].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// When to claim, if that is worthwhile.
    fn claim_due(&self) -> Duration {
        self.claim_at.max(self.store_pause)
    }

    fn room(&self) -> usize {
        let options = &self.worker.options;
        options.in_hand_max.saturating_sub(self.in_hand.len()).min(options.batch)
    }

    /// Waits for something to end, then takes whatever else has ended.
    async fn event(&mut self) {
        let event = self.calls.next().await;
        self.take(event);
        while let Some(event) = self.calls.ended() {
            self.take(event);
        }
    }

    fn call(
        &mut self,
        call: impl FnOnce(Arc<Inner<S>>) -> futures_util::future::BoxFuture<'static, Event<S>>,
    ) {
        self.calls.start(call(Arc::clone(&self.worker)));
    }

    fn listen(&mut self, seen: u64) {
        self.call(|worker| Box::pin(async move { Event::Woken(worker.store.work_changed(seen).await) }));
    }

    /// Whether there is room for something. A fresh batch rather than a trickle: what is in hand begins first, but what
    /// has begun may take long, and nobody waits for it.
    fn worthwhile(&self) -> bool {
        let room = self.room();
        room == self.worker.options.batch
            || (room > 0 && !self.in_hand.any(|claimed| self.can_begin(claimed)))
    }

    /// Whether a message only waits for its turn.
    fn can_begin(&self, claimed: &Claimed) -> bool {
        self.outside < self.worker.options.concurrency || !self.worker.is_outside(claimed)
    }

    fn claim(&mut self, now: Duration) {
        if self.claiming || !self.hungry || !self.worthwhile() || now < self.claim_due() {
            return;
        }
        let (owner, lease) = (self.worker.owner, self.worker.options.lease);
        let Ok(claim) = Claim::new(owner, lease, self.room()) else { return };
        self.claiming = true;
        self.hungry = false;
        self.call(|worker| {
            Box::pin(async move { Event::Claimed(worker.store.claim(&worker.queue, &claim).await) })
        });
    }

    fn renew(&mut self, now: Duration) {
        if self.renewing || now < self.renew_at {
            return;
        }
        self.renew_at = now.saturating_add(self.worker.options.renew_interval());
        let leases = self.in_hand.leases();
        if leases.is_empty() {
            return;
        }
        self.renewing = true;
        self.call(|worker| {
            Box::pin(async move {
                let lease = worker.options.lease;
                let held = worker.store.renew(&worker.queue, worker.owner, &leases, lease).await;
                Event::Renewed(leases, held)
            })
        });
    }

    fn reap(&mut self, now: Duration) {
        if self.reaping || now < self.reap_at {
            return;
        }
        self.reaping = true;
        self.reap_at = now.saturating_add(self.worker.options.reap_interval);
        self.call(|worker| {
            Box::pin(async move { Event::Reaped(worker.store.reap(&worker.queue, REAP_MAX).await) })
        });
    }

    /// Starts handlers that run outside of the transaction, a bounded number at a time.
    fn start_outside(&mut self) {
        while self.outside < self.worker.options.concurrency {
            let worker = &self.worker;
            let outside = |claimed: &Claimed| worker.is_outside(claimed);
            let Some((claimed, lost)) = self.in_hand.next(outside) else { return };
            self.outside += 1;
            self.call(|worker| Box::pin(outside_of_transaction(worker, claimed, lost)));
        }
    }

    /// Settles what is finished, and handles what is handled in the transaction.
    fn handle(&mut self) {
        if self.handling >= HANDLING_MAX {
            return;
        }
        let mut jobs = std::mem::take(&mut self.prepared);
        // Results of handlers whose lease is lost do not count.
        jobs.retain(|job| {
            let held = self.in_hand.is_held(&job.lease);
            if !held {
                self.in_hand.ended(&job.lease);
            }
            held
        });
        let (worker, prepared) = (Arc::clone(&self.worker), jobs.len());
        let inside = |claimed: &Claimed| !worker.is_outside(claimed);
        while jobs.len() < worker.options.batch
            && let Some((claimed, _)) = self.in_hand.next(inside)
        {
            let handler = in_transaction(&worker, &claimed);
            jobs.push(Job { lease: claimed.lease, message: claimed.message, handler });
        }
        if jobs.is_empty() {
            return;
        }
        self.handling += 1;
        crash_point!("worker.before-handle");
        self.call(|worker| {
            Box::pin(async move {
                let settling = jobs
                    .iter()
                    .map(|job| Settling { lease: job.lease.clone(), endpoint: job.message.endpoint.clone() });
                let (settling, start) = (settling.collect(), worker.timer.monotonic());
                // Handlers outside of the transaction have been measured where they ran.
                let inside = jobs.len() - prepared;
                let handled = worker.store.handle(&worker.queue, worker.owner, jobs).await;
                worker.meters.work.took(worker.timer.monotonic().saturating_sub(start), inside);
                Event::Handled(settling, handled)
            })
        });
    }

    fn take(&mut self, event: Event<S>) {
        let now = self.worker.timer.monotonic();
        match event {
            Event::Claimed(claimed) => {
                self.claiming = false;
                self.claimed(claimed, now);
            }
            Event::Prepared(claimed, outcome) => {
                self.outside -= 1;
                let handler = outcome.unwrap_or_else(S::refusing);
                self.prepared.push(Job { lease: claimed.lease, message: claimed.message, handler });
            }
            Event::Handled(settling, handled) => {
                self.handling -= 1;
                self.handled(&settling, handled);
            }
            Event::Renewed(asked, held) => {
                self.renewing = false;
                // If nothing is known, nothing is lost yet: the next renewal tells.
                if let Some(held) = logged(held, "renew leases") {
                    let lost = self.in_hand.renewed(&asked, &held);
                    self.worker.meters.leases_lost.add(lost as u64);
                }
            }
            Event::Reaped(reaped) => {
                self.reaping = false;
                self.hungry |= logged(reaped, "take leases back").is_some_and(|reaped| reaped > 0);
            }
            Event::Looked(next) => {
                if let Some(next) = logged(next, "look for work").flatten() {
                    self.claim_at = self.claim_at.min(now.saturating_add(next));
                }
            }
            Event::Woken(seen) => {
                self.hungry = true;
                self.claim_at = now;
                self.pause = self.worker.options.poll_min;
                self.listen(seen);
            }
        }
    }

    fn claimed(&mut self, claimed: Result<Vec<Claimed>>, now: Duration) {
        if claimed.is_err() {
            // What waits is still there to be seen, and would be claimed again at once.
            self.store_pause = now.saturating_add(STORE_PAUSE);
        }
        let claimed = logged(claimed, "claim messages");
        let found = claimed.as_ref().is_some_and(|claimed| !claimed.is_empty());
        let claimed = claimed.unwrap_or_default();
        self.worker.meters.claimed.add(claimed.len() as u64);
        self.in_hand.take(claimed);
        if found {
            self.pause = self.worker.options.poll_min;
            self.claim_at = now;
            self.hungry = true;
            return;
        }
        // Nothing to do: look again later and later, unless something is known to come due earlier (IBX-124).
        self.claim_at = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.worker.options.poll_max);
        self.call(|worker| {
            Box::pin(async move { Event::Looked(worker.store.next_work(&worker.queue.consumer).await) })
        });
    }

    fn handled(&mut self, settling: &[Settling], handled: Result<Vec<Handled>>) {
        for settling in settling {
            self.in_hand.ended(&settling.lease);
        }
        // What is not known is found out when the leases are over.
        for (settling, handled) in settling.iter().zip(logged(handled, "handle messages").unwrap_or_default())
        {
            self.worker.meters.handled.one(HandledOutcome::from(&handled));
            tell_handled(&self.worker.name, settling, &handled);
        }
    }

    /// Finishes what has begun, as far as the time allows, and gives the rest back (S20).
    async fn stop(mut self) {
        let worker = Arc::clone(&self.worker);
        let mut deadline = worker.timer.sleep(worker.options.shutdown_timeout);
        let mut untried = self.in_hand.put_down();
        loop {
            tokio::select! {
                biased;
                given_back = worker.store.give_back(&worker.queue, worker.owner, &untried) => {
                    let _: Option<u64> = logged(given_back, "give messages back");
                }
                () = &mut deadline => break,
            }
            if self.in_hand.is_idle() && !self.claiming {
                break;
            }
            self.renew(worker.timer.monotonic());
            self.handle();
            tokio::select! {
                biased;
                () = self.event() => {}
                () = &mut deadline => break,
                () = worker.timer.sleep(worker.options.renew_interval()) => {}
            }
            untried = self.in_hand.put_down(); // a claim that was under way
        }
        let given_up = self.in_hand.give_up();
        let error = "its worker was stopped while handling it";
        // Their leases run out by themselves, if the store does not answer.
        tokio::select! {
            biased;
            abandoned = worker.store.abandon(&worker.queue, worker.owner, &given_up, Some(error), None) => {
                let _: Option<u64> = logged(abandoned, "give messages back");
            }
            () = worker.timer.sleep(worker.options.shutdown_timeout) => {}
        }
    }
}

/// Says what became of a message.
fn tell_handled(store: &str, settling: &Settling, handled: &Handled) {
    let MessageKey { source, id } = &settling.lease.key;
    let (source, endpoint, message_id) = (source.as_str(), settling.endpoint.as_str(), id.as_str());
    match handled {
        Handled::Done(_) => {
            tracing::info!(target: MESSAGES, store, source, endpoint, message_id, "processed");
        }
        Handled::Retried { error } => {
            let error = error.as_str();
            tracing::error!(store, source, endpoint, message_id, error, "a handler failed");
        }
        Handled::Died { error } => {
            let error = error.as_str();
            tracing::error!(store, source, endpoint, message_id, error, "a message is a dead letter now");
        }
        Handled::LeaseLost => {
            tracing::warn!(store, source, endpoint, message_id, "the lease is lost, so nothing was done");
        }
    }
}

/// What handles a message in the transaction.
fn in_transaction<S: QueueStore>(worker: &Inner<S>, claimed: &Claimed) -> S::Handler {
    let topic = &claimed.message.endpoint;
    if let Some(Handling::Transactional(handler)) = worker.handling(topic) {
        tell(worker, claimed);
        return handler.clone();
    }
    // It may be deployed later (IBX-074).
    let (store, MessageKey { source, id }) = (&worker.name, &claimed.lease.key);
    let (source, endpoint, message_id) = (source.as_str(), topic.as_str(), id.as_str());
    tracing::warn!(store, source, endpoint, message_id, "no handler for this topic");
    S::refusing(Refusal::retry(format!("no handler for topic {topic}")))
}

/// Says that a handler begins.
fn tell<S: QueueStore>(worker: &Inner<S>, claimed: &Claimed) {
    let (store, endpoint) = (&worker.name, claimed.message.endpoint.as_str());
    let MessageKey { source, id } = &claimed.lease.key;
    let (source, message_id, attempt) = (source.as_str(), id.as_str(), claimed.attempts.saturating_add(1));
    tracing::info!(target: MESSAGES, store, source, endpoint, message_id, attempt, "handling");
}

/// Runs a handler outside of the transaction. A panic is a failure (S6).
async fn outside_of_transaction<S: QueueStore>(
    worker: Arc<Inner<S>>,
    claimed: Claimed,
    lost: watch::Receiver<bool>,
) -> Event<S> {
    tell(&worker, &claimed);
    let (message, attempts) = (Arc::clone(&claimed.message), claimed.attempts);
    let (of_task, start) = (Arc::clone(&worker), worker.timer.monotonic());
    let endpoint = message.endpoint.as_str();
    let span = tracing::debug_span!("handle", endpoint, message_id = message.id.as_str());
    let handling = async move {
        match of_task.handling(&message.endpoint) {
            Some(Handling::Prepared(prepare)) => prepare(Arc::clone(&message)).await,
            Some(Handling::External(external)) => {
                external(WorkContext { message, attempts, lost }).await.map(S::answering)
            }
            Some(Handling::Transactional(_)) | None => Err(Refusal::retry("no handler")),
        }
    };
    let patience = Patience::new(Arc::clone(&worker.timer), worker.options.handler_timeout);
    let outcome = patience.run(handling.instrument(span)).await;
    worker.meters.work.took(worker.timer.monotonic().saturating_sub(start), 1);
    crash_point!("worker.handled-outside");
    Event::Prepared(claimed, outcome)
}

/// The value, or `None` after a line in the log.
fn logged<T>(result: Result<T, Error>, attempted: &str) -> Option<T> {
    let tell = |error: &Error| {
        tracing::warn!(attempted, error = one_line(error), "the worker cannot use its store");
    };
    result.inspect_err(tell).ok()
}
