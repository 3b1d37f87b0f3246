//! Starting things: every call to the store or a transport ends in an event.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use twobox_core::ports::{
    Answer, DeliveryError, LaneId, Link, Look, Outage, OutboxStore, Settlement, TakeLanes, Transport,
};
use twobox_core::{BoxError, Error, Message, Source, crash_point, mutant, one_line, panics};

use super::batch::Batch;
use super::event::{Asked, Delivered, Event, Of};
use super::figures::Outcomes;
use super::options::{Callback, DeadLetterCallback};
use super::run::Run;
use crate::Timer;
use crate::events::millis;
use crate::sync::{JoinHandle, spawn};

/// Dead letters announced in one go.
const ANNOUNCE_MAX: usize = 100;

/// How long a dead-letter callback may take before it is ended where it waits and counts as failed: as long as a handler
/// whose sender waits. One that hangs would keep all others from being called.
const CALLBACK_TIMEOUT: Duration = crate::receiver::HANDLER_TIMEOUT;

impl<S: OutboxStore> Run<S> {
    /// Starts whatever can be started.
    pub(super) async fn work(&mut self) {
        self.watch();
        if self.relay.timer.monotonic() < self.store_pause {
            return;
        }
        self.take_lanes();
        self.heed();
        self.discover();
        self.announce();
        self.read();
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            self.look(id);
            self.dispatch(id).await;
            self.show_sending(id);
        }
        self.lanes.values().for_each(|lane| lane.figures.show(&lane.breaker, lane.oldest()));
        self.settle_lanes();
        self.read(); // dispatching has made room
    }

    fn watch(&mut self) {
        if !std::mem::replace(&mut self.watching, true) {
            let (store, seen) = (self.relay.store.clone(), self.seen);
            self.calls.start(async move { Event::Changed(store.changed(seen).await) });
        }
    }

    fn take_lanes(&mut self) {
        let now = self.relay.timer.monotonic();
        if self.taking || now < self.take_at {
            return;
        }
        self.taking = true;
        let lease = self.relay.options.timing.lease;
        self.take_at = now.saturating_add(lease / 4);
        // Before anything is concluded from it: whatever the clock does from now on is noticed.
        let asked = Asked { monotonic: now, wall: self.relay.timer.now() };
        let route_grace = self.route_grace(now);
        let take = TakeLanes {
            owner: self.owner.clone(),
            source: self.relay.source.clone(),
            destinations: self.relay.transports.keys().cloned().collect(),
            everywhere: self.relay.fallback.is_some(),
            lease,
            retries_max: self.relay.options.timing.retry.retries_max(),
            route_grace,
        };
        let store = self.relay.store.clone();
        self.calls.start(async move { Event::Lanes { asked, result: store.take_lanes(&take).await } });
    }

    /// How long a destination may be unregistered. One that nobody could register, because nobody was running or the
    /// store or the machine stood still, has not been given up (L6), nor has one whose registration only looks old because
    /// the wall clock has jumped ahead (S13). Lanes are taken every quarter of a lease, if nothing is in the way.
    fn route_grace(&mut self, now: Duration) -> Duration {
        if self.relay.timer.now().since(self.taken) > self.relay.options.timing.lease / 2 {
            self.grace_since = now;
        }
        let grace = self.relay.options.route_grace;
        if now.saturating_sub(self.grace_since) >= grace { grace } else { Duration::MAX }
    }

    /// Finds out what operators have paused and resumed.
    fn heed(&mut self) {
        let version = self.relay.store.steered();
        if self.heeding || self.steered == Some(version) {
            return;
        }
        self.heeding = true;
        let (store, source) = (self.relay.store.clone(), self.relay.source.clone());
        self.calls
            .start(async move { Event::Steered { version, paused: store.paused_lanes(&source).await } });
    }

    fn discover(&mut self) {
        // Not while there is a backlog that can be read: those rows are read for their lanes first. A lane that is
        // full, because its destination is dead, must not hide new destinations.
        let backlog = self.reader.wants_tail(&self.lanes, &self.relay.options);
        if !self.discover_more || self.discovering || backlog {
            return;
        }
        self.discovering = true;
        self.discover_more = false; // whoever asks for a search from now on is not served by this one
        let (store, source) = (self.relay.store.clone(), self.relay.source.clone());
        self.calls.start(async move { Event::Discovered(store.discover_lanes(&source).await) });
    }

    fn announce(&mut self) {
        // In this order: a death during a scan, which may be past it, wants another one.
        if self.announcing || !std::mem::take(&mut self.announce_more) {
            return;
        }
        let Some(Callback(callback)) = self.relay.callback.clone() else { return };
        self.announcing = true;
        let (store, source) = (self.relay.store.clone(), self.relay.source.clone());
        let timer = Arc::clone(&self.relay.timer);
        self.calls.start(async move {
            let mut after = None;
            let announced = loop {
                match announce(&store, &source, &callback, &*timer, after.as_ref()).await {
                    Ok(Some(last)) => after = Some(last),
                    Ok(None) => break Ok(false),
                    Err(error) => break Err(error),
                }
            };
            Event::Announced(announced)
        });
    }

    fn read(&mut self) {
        if let Some((target, read)) = self.reader.next(&self.lanes, &self.relay.options) {
            let (store, epoch) = (self.relay.store.clone(), self.reader.epoch);
            self.calls
                .start(async move { Event::Read { epoch, target, result: store.read_log(read).await } });
        }
    }

    /// Looks at the waiting rows of a lane when it is time.
    fn look(&mut self, id: LaneId) {
        let now = self.relay.timer.monotonic();
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.wants_look(now)) else { return };
        lane.looking = true;
        lane.look_at = None;
        let (of, lease, options) = (of(lane), lane.lease.clone(), &self.relay.options);
        let look = Look {
            limit: options.batch_messages_max,
            bytes_max: options.batch_bytes_max,
            delay_max: options.timing.retry.delay_max(),
            expired_only: !lane.flows(),
        };
        let store = self.relay.store.clone();
        self.calls.start(async move { Event::Looked(of, store.due(&lease, &look).await) });
    }

    /// Sends what may be sent, probes when it is time.
    async fn dispatch(&mut self, id: LaneId) {
        loop {
            let (now, wall) = (self.relay.timer.monotonic(), self.store_time());
            let options = self.relay.options.clone();
            let Some(may_send) = self.lanes.get(&id).map(|lane| self.may_send(lane, now)) else { return };
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            lane.expire(wall);
            if !may_send {
                return;
            }
            if lane.start_probe(now) {
                self.probe(id);
                continue;
            }
            if let Some(batch) = lane.next_ready(&options) {
                batch.send(now);
                let request = Request::of(batch);
                lane.breaker.sent();
                self.send(id, request);
                continue;
            }
            if !lane.may_form(&options) || !self.form(id).await {
                return;
            }
        }
    }

    /// Forms a batch of the log; whether there was anything to put into it.
    async fn form(&mut self, id: LaneId) -> bool {
        let wall = self.store_time();
        let Some(lane) = self.lanes.get_mut(&id) else { return false };
        let Some(mut batch) = lane.form_batch(wall, &self.relay.options) else { return false };
        let keys: Vec<_> = batch.busy_keys().cloned().collect();
        if !keys.is_empty() {
            match self.relay.store.held_keys(&lane.lease, keys).await {
                Ok(held) => batch.hold(&held),
                Err(error) => {
                    self.lanes.remove(&id);
                    self.back_off(&error, "look for held keys; reloading the lane");
                    return false;
                }
            }
        }
        lane.add(batch);
        true
    }

    fn send(&mut self, id: LaneId, request: Request<S::Position>) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let (of, lease) = (of(lane), lane.lease.clone());
        let transport = self.relay.transport(&lease.link.destination);
        let (store, timer, link, epoch) =
            (self.relay.store.clone(), Arc::clone(&self.relay.timer), Arc::clone(&lease.link), lease.epoch);
        let timeout = self.relay.options.timing.request_timeout;
        self.calls.start(async move {
            let Request { batch, upto, messages, .. } = request;
            let sent = async {
                if let Some(upto) = upto {
                    crash_point!("relay.before-barrier");
                    store.make_durable(epoch, &upto).await?;
                }
                crash_point!("relay.before-send");
                let start = timer.monotonic();
                let result = deliver(transport, &link, messages, &*timer, timeout).await;
                let took = timer.monotonic().saturating_sub(start);
                crash_point!("relay.after-answer");
                Ok::<_, Error>(Delivered { result, took })
            };
            Event::Answered(of, batch, sent.await)
        });
    }

    /// Shows what is being sent, unless a settlement is about to do so.
    fn show_sending(&mut self, id: LaneId) {
        let (now, after) = (self.relay.timer.monotonic(), self.relay.options.sending_shown_after);
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.settling) else { return };
        let sending = lane.sending();
        let Some(upto) = lane.showing.next(sending, now, after) else { return };
        let (store, lease) = (self.relay.store.clone(), lane.lease.clone());
        self.calls.start(async move {
            let shown = store.mark_sending(&lease, &upto).await;
            crash_point!("relay.sending-shown");
            Event::Shown(shown)
        });
    }

    fn probe(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let (of, link) = (of(lane), Arc::clone(&lane.lease.link));
        let transport = self.relay.transport(&link.destination);
        let (timer, timeout) = (Arc::clone(&self.relay.timer), self.relay.options.timing.request_timeout);
        self.calls.start(async move {
            crash_point!("relay.before-probe");
            Event::Probed(of, deliver(transport, &link, Vec::new(), &*timer, timeout).await)
        });
    }

    /// Notes which inbox has answered, if it is not the one that is known.
    pub(super) fn meet_inbox(&mut self, of: Of) {
        let now = self.relay.timer.monotonic();
        let Some(link) = self.lane(of).map(|lane| Arc::clone(&lane.lease.link)) else { return };
        let inbox = self.relay.transport(&link.destination).and_then(|transport| transport.inbox(&link));
        let (Some(inbox), Some(lane)) = (inbox, self.lane(of)) else { return };
        if lane.meets(&inbox, now) {
            let lease = lane.lease.clone();
            let store = self.relay.store.clone();
            self.calls.start(async move { Event::Met(of, store.meet_inbox(&lease, &inbox).await) });
        }
    }

    /// Settles what is known, one settlement per lane and kind at a time.
    pub(super) fn settle_lanes(&mut self) {
        let (options, random) = (&self.relay.options, &*self.relay.random);
        for lane in self.lanes.values_mut() {
            let of = of(lane);
            if !lane.settling
                && let Some((settlement, outcomes)) = lane.settlement(options, random)
            {
                lane.settling = true;
                let (store, lease) = (self.relay.store.clone(), lane.lease.clone());
                self.calls.start(settle(store, lease, of, settlement, outcomes));
            }
            if !lane.settling_waiting
                && let Some((outcomes, told)) = lane.waiting_outcomes(options, random)
            {
                lane.settling_waiting = true;
                let (store, lease) = (self.relay.store.clone(), lane.lease.clone());
                self.calls.start(async move {
                    crash_point!("relay.before-settle-waiting");
                    let settled = store.settle_waiting(&lease, outcomes).await;
                    crash_point!("relay.after-settle-waiting");
                    Event::SettledWaiting(of, told, settled)
                });
            }
        }
    }

    /// Moves the cursors of lanes that have nothing to send, so that a restart need not read again what is not
    /// theirs, and the log can be trimmed.
    pub(super) fn advance_idle(&mut self) {
        for lane in self.lanes.values_mut().filter(|lane| lane.live && lane.is_idle() && !lane.settling) {
            if lane.position <= lane.lease.cursor {
                continue;
            }
            lane.settling = true;
            let settlement = Settlement {
                upto: lane.position.clone(),
                receipts: Vec::new(),
                waiting: Vec::new(),
                sending: None,
            };
            let (store, lease, outcomes) =
                (self.relay.store.clone(), lane.lease.clone(), lane.outcomes(&self.relay.options));
            self.calls.start(settle(store, lease, of(lane), settlement, outcomes));
        }
    }

    /// Shows operators that a lane is held, or no longer is.
    pub(super) fn show_outage(&mut self, of: Of, outage: Option<Outage>) {
        let Some(lane) = self.lane(of) else { return };
        let lease = lane.lease.clone();
        let (source, destination) = (lease.link.source.as_str(), lease.link.destination.as_str());
        match &outage {
            Some(Outage { error, next_probe }) => {
                let (error, next_probe_ms) = (error.as_str(), millis(*next_probe));
                tracing::warn!(source, destination, error, next_probe_ms, "lane held");
            }
            None => tracing::info!(source, destination, "lane flows again"),
        }
        let store = self.relay.store.clone();
        self.calls.start(async move {
            let shown = store.hold_lane(&lease, outage.as_ref()).await;
            crash_point!("relay.outage-shown");
            Event::Shown(shown)
        });
    }
}

/// A batch about to be sent.
struct Request<P> {
    batch: u64,
    messages: Vec<Arc<Message>>,
    /// The log must be durable up to here first: what is visible need not be (W6). That goes for waiting rows
    /// as well, which may have been moved from the log a moment ago.
    upto: Option<P>,
}

impl<P: Clone + Ord> Request<P> {
    fn of(batch: &Batch<P>) -> Self {
        let upto = batch.items.iter().map(|item| &item.position).max().cloned();
        Self { batch: batch.id, messages: batch.messages(), upto }
    }
}

fn of<P>(lane: &super::lane::Lane<P>) -> Of {
    Of { lane: lane.lease.lane, incarnation: lane.incarnation }
}

async fn settle<S: OutboxStore>(
    store: S,
    lease: twobox_core::ports::LaneLease<S::Position>,
    of: Of,
    settlement: Settlement<S::Position>,
    outcomes: Outcomes,
) -> Event<S::Position> {
    let (upto, moved) = (settlement.upto.clone(), !settlement.waiting.is_empty());
    crash_point!("relay.before-settle");
    let result = store.settle_log(&lease, settlement).await;
    crash_point!("relay.after-settle");
    Event::SettledLog { of, upto, moved, outcomes, result }
}

/// Calls the callback for one page of dead letters. Returns where the next page begins, if there may be one.
async fn announce<S: OutboxStore>(
    store: &S,
    source: &Source,
    callback: &DeadLetterCallback<S::Position>,
    timer: &dyn Timer,
    after: Option<&S::Position>,
) -> Result<Option<S::Position>, Error> {
    let letters = store.unannounced(source, after, ANNOUNCE_MAX).await?;
    let next = letters.last().filter(|_| letters.len() >= ANNOUNCE_MAX).map(|letter| letter.position.clone());
    let mut told = Vec::with_capacity(letters.len());
    for letter in letters {
        crash_point!("relay.before-announce");
        let (death, message_id) =
            ((letter.position.clone(), letter.died), twobox_core::handler::shorten(&letter.message_id));
        let callback = Arc::clone(callback);
        // In a task of its own: a callback that panics has failed, and no more. What a panic says is its own affair.
        let mut calling = AbortOnDrop(spawn(panics::handling(async move { callback(letter).await })));
        let called = tokio::select! {
            biased;
            called = &mut calling.0 => called.ok(),
            () = timer.sleep(CALLBACK_TIMEOUT) => Some(calling.end().await),
        };
        match called {
            Some(Ok(())) => told.push(death),
            Some(Err(error)) => {
                let error = one_line(&*error);
                tracing::warn!(message_id, error, "the dead-letter callback failed; it is called again");
            }
            None => tracing::error!(message_id, "the dead-letter callback panicked; it is called again"),
        }
    }
    if !told.is_empty() {
        crash_point!("relay.announced");
        store.announced(told).await?;
        crash_point!("relay.after-announced");
    }
    Ok(next)
}

/// A task that ends when nobody waits for it any more.
struct AbortOnDrop<T>(JoinHandle<T>);

impl AbortOnDrop<Result<(), BoxError>> {
    /// Ends a callback where it waits, and waits for that: those that block their threads would take one after the other.
    /// What it has said by then counts.
    async fn end(&mut self) -> Result<(), BoxError> {
        self.0.abort();
        let in_time = (&mut self.0).await.ok();
        in_time.unwrap_or_else(|| Err(format!("it took longer than {CALLBACK_TIMEOUT:?}").into()))
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Delivers within the time a request has. A transport that panics has failed ambiguously. Where there is none, that is
/// an answer as well: a request or probe that never came back would stop its lane for good.
async fn deliver(
    transport: Option<Arc<dyn Transport>>,
    link: &Arc<Link>,
    messages: Vec<Arc<Message>>,
    timer: &dyn Timer,
    timeout: Duration,
) -> Result<Vec<Answer>, DeliveryError> {
    let (count, link) = (messages.len(), Arc::clone(link));
    let Some(transport) = transport else {
        return Err(DeliveryError::unreachable(format!("there is no transport to {}", link.destination)));
    };
    let span = tracing::debug_span!("send", destination = link.destination.as_str(), messages = count);
    let delivering = async move { transport.deliver(&link, messages, timeout).await }.instrument(span);
    let mut task = AbortOnDrop(spawn(delivering));
    if mutant!(SentBeforeAnswer) {
        return Ok(vec![Answer::Done(None); count]);
    }
    let answers = tokio::select! {
        biased;
        joined = &mut task.0 => joined.unwrap_or_else(|_| Err(DeliveryError::ambiguous("the transport panicked"))),
        () = timer.sleep(timeout) => Err(DeliveryError::ambiguous(format!("no answer within {timeout:?}"))),
    };
    let answers = match answers {
        Err(error) if error.is_ambiguous() && mutant!(AmbiguousIsSent) => vec![Answer::Done(None); count],
        answers => answers?,
    };
    if answers.len() == count {
        return Ok(answers);
    }
    Err(DeliveryError::ambiguous(format!("{} answers to {count} messages", answers.len())))
}
