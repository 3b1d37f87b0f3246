//! A lane in memory: what was read, what is on its way, what can be settled. No I/O and no waiting here.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use twobox_core::lifecycle::{Event, Reason, Standing};
use twobox_core::ports::{Answer, DeliveryError, Due, LaneId, LaneLease, LogEntry, Outage};
use twobox_core::{Message, OrderingKey, Random, Timestamp, mutant, one_line};

use super::batch::{Batch, Fate, Item, Origin, State};
use super::breaker::Breaker;
use super::figures::Figures;
use super::options::RelayOptions;
use super::prompt::Promptness;
use super::showing::Showing;

/// The state of a lane this relay holds. Thrown away and reloaded after any doubt about the lease (L1).
#[derive(Debug)]
pub(super) struct Lane<P> {
    pub(super) lease: LaneLease<P>,
    pub(super) figures: Figures,
    /// Tells events of this state from those of one that was thrown away.
    pub(super) incarnation: u64,
    /// On the monotonic clock: nothing is sent after this unless the lease was renewed.
    pub(super) valid_until: Duration,
    /// Everything up to here was read.
    pub(super) position: P,
    /// Whether the lane reads along with the others, or catches up on its own.
    pub(super) live: bool,
    queue: VecDeque<LogEntry<P>>,
    queue_bytes: usize,
    /// Batches of the log that are not settled, in log order.
    pub(super) log: VecDeque<Batch<P>>,
    /// The batch of waiting rows, at most one at a time.
    pub(super) waiting: Option<Batch<P>>,
    pub(super) breaker: Breaker,
    /// Somebody has stopped the lane: nothing new is sent until it is resumed.
    paused: bool,
    /// How many messages the receiver manages in one request (W7).
    batch_limit: usize,
    /// A batch of waiting rows broke the receiver: the next one has at most this many, and is suspect (L3).
    suspect_limit: Option<usize>,
    /// The last probe was kept for such a batch: the next one is the log's.
    log_first: bool,
    next_batch: u64,
    pub(super) showing: Showing<P>,
    pub(super) settling: bool,
    pub(super) settling_waiting: bool,
    pub(super) looking: bool,
    /// When waiting rows are looked at next, on the monotonic clock.
    pub(super) look_at: Option<Duration>,
    pub(super) looked: Option<Duration>,
    /// When it was last noted which inbox answers.
    met: Option<Duration>,
    prompt: Promptness,
    /// Whether callers are held for it, as the store was last told.
    pub(super) counted: bool,
}

/// Which inbox answers is noted at most this often: one that changes all the time must not keep the writer busy.
const MEET_EVERY: Duration = Duration::from_secs(60);

/// There is a look at waiting rows at least this often.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What to do about a request that came back.
pub(super) enum Verdict {
    /// The receiver answered.
    Answered,
    /// The lane is held.
    Held(Outage),
}

impl<P: Clone + Ord> Lane<P> {
    /// Whether it is to be noted that this inbox answers, because it is not the one that is known.
    pub(super) fn meets(&mut self, inbox: &Arc<str>, now: Duration) -> bool {
        let soon = self.met.is_some_and(|met| now.saturating_sub(met) < MEET_EVERY);
        if soon || self.lease.inbox.as_ref() == Some(inbox) {
            return false;
        }
        self.met = Some(now);
        self.lease.inbox = Some(Arc::clone(inbox));
        true
    }

    pub(super) fn new(
        lease: LaneLease<P>,
        incarnation: u64,
        valid_until: Duration,
        options: &RelayOptions,
        figures: Figures,
    ) -> Self {
        Self {
            position: lease.cursor.clone(),
            paused: lease.paused,
            lease,
            figures,
            incarnation,
            valid_until,
            live: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            log: VecDeque::new(),
            waiting: None,
            breaker: Breaker::CLOSED,
            batch_limit: options.batch_messages_max,
            suspect_limit: None,
            log_first: false,
            next_batch: 0,
            showing: Showing::new(),
            settling: false,
            settling_waiting: false,
            looking: false,
            look_at: Some(Duration::ZERO),
            looked: None,
            met: None,
            prompt: Promptness::UNKNOWN,
            counted: false,
        }
    }

    /// Whether more of the log may be read into memory.
    pub(super) fn has_room(&self, options: &RelayOptions) -> bool {
        self.queue.len() < options.queue_max() && self.queue_bytes < options.queue_bytes_max()
    }

    /// Which state of which lane this is.
    pub(super) fn name(&self) -> (LaneId, u64) {
        (self.lease.lane, self.incarnation)
    }

    pub(super) fn push(&mut self, entry: LogEntry<P>) {
        self.position = entry.position.clone();
        self.queue_bytes += bytes_of(&entry);
        self.queue.push_back(entry);
    }

    /// Since when the oldest message of the log that is not settled could have been sent.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        let unsettled = self.log.front().and_then(|batch| batch.items.first()?.message.as_ref());
        let queued = self.queue.front().and_then(|entry| entry.message.as_ref().ok());
        unsettled.or(queued).map(|message| message.available)
    }

    /// Whether callers may be held until this lane has caught up: it flows, and its receiver answers in a moment.
    pub(super) fn counts(&self, now: Duration) -> bool {
        let oldest = self.batches().filter_map(Batch::under_way).min();
        self.flows() && !self.prompt.is_slow(oldest, now)
    }

    /// The receiver has answered a request with so many messages, while it is still among those under way.
    pub(super) fn heard(&mut self, messages: usize, took: Duration, now: Duration) {
        self.prompt.answered(messages, self.in_flight(), took, now);
    }

    /// Everything before this has been answered.
    pub(super) fn reached(&self) -> &P {
        let unanswered = self.log.iter().find(|batch| batch.state != State::Answered);
        let on_its_way = unanswered.and_then(|batch| batch.items.first()).map(|item| &item.position);
        let queued = self.queue.front().map(|entry| &entry.position);
        on_its_way.or(queued).unwrap_or(&self.position)
    }

    /// Whether nothing of the log is in memory.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.log.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.batches().filter(|batch| batch.state == State::InFlight).count()
    }

    /// Whether messages may be sent, as far as the receiver and operators are concerned.
    pub(super) fn flows(&self) -> bool {
        self.breaker.is_closed() && (!self.paused || mutant!(PauseIgnored))
    }

    /// When the receiver has to be probed. Nobody asks about a destination that is paused.
    pub(super) fn probe_due(&self) -> Option<Duration> {
        self.breaker.due().filter(|_| !self.paused)
    }

    /// Starts a probe if it is due.
    pub(super) fn start_probe(&mut self, now: Duration) -> bool {
        !self.paused && self.breaker.start_probe(now)
    }

    /// An operator has stopped the lane or lets it go on. What is on its way is settled either way. Returns whether that
    /// is news.
    pub(super) fn steer(&mut self, paused: bool) -> bool {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return false;
        }
        if paused {
            self.drop_waiting();
        }
        self.look_at = Some(Duration::ZERO);
        true
    }

    /// Whether waiting rows should be looked at now.
    pub(super) fn wants_look(&self, now: Duration) -> bool {
        self.look_due().is_some_and(|at| at <= now)
    }

    /// When waiting rows should be looked at, unless that is under way or has to wait for a batch of them.
    pub(super) fn look_due(&self) -> Option<Duration> {
        self.look_at.filter(|_| !self.looking && self.waiting.is_none())
    }

    /// The furthest place that was sent and is not settled, answered or not.
    pub(super) fn sending(&self) -> Option<P> {
        let is_sent = |batch: &&Batch<P>| matches!(batch.state, State::InFlight | State::Answered);
        let last = self.log.iter().rev().find(is_sent)?;
        last.items.last().map(|item| item.position.clone())
    }

    fn batches(&self) -> impl Iterator<Item = &Batch<P>> {
        self.log.iter().chain(&self.waiting)
    }

    /// Takes the next messages of the log into a batch. Decides what needs no request: expiry, also while the
    /// lane is held (L6), schedule, undecodable rows (S19), no route.
    pub(super) fn form_batch(&mut self, now: Timestamp, options: &RelayOptions) -> Option<Batch<P>> {
        let busy: HashSet<OrderingKey> = self.batches().flat_map(Batch::busy_keys).cloned().collect();
        let mut held: HashSet<OrderingKey> = self.batches().flat_map(Batch::held_keys).cloned().collect();
        let held_lane = !self.flows();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = self.queue.front() {
            let mut item = plan(entry, now, self.is_routed());
            if item.fate == Fate::Send {
                bytes += item.message.as_ref().map_or(0, |message| message.payload.len());
                let full =
                    items.len() >= self.batch_limit || (bytes > options.batch_bytes_max && !items.is_empty());
                // A key travels alone: what follows a message that is on its way waits for its answer (L4).
                if held_lane || full || item.key().is_some_and(|key| busy.contains(key)) {
                    break;
                }
                if item.key().is_some_and(|key| held.contains(key)) && !mutant!(RetryOvertakesKey) {
                    item.fate = Fate::Known(Event::Held, None);
                }
            }
            if matches!(item.fate, Fate::Known(..)) {
                held.extend(item.key().cloned());
            }
            self.queue_bytes -= bytes_of(entry);
            self.queue.pop_front();
            items.push(item);
        }
        (!items.is_empty()).then(|| Batch::new(self.batch_id(), Origin::Log, items))
    }

    /// Whether its messages can go somewhere. While somebody keeps them from going, nobody gives up on them.
    fn is_routed(&self) -> bool {
        self.lease.routed || self.paused
    }

    /// Adds a batch of the log behind the others.
    pub(super) fn add(&mut self, batch: Batch<P>) {
        self.log.push_back(batch);
    }

    /// Takes waiting messages whose turn has come.
    pub(super) fn add_due(&mut self, due: Due<P>, now: Duration, options: &RelayOptions) {
        /// A full look leaves the rest for right after it; never for the same instant, which would spin.
        const SOON: Duration = Duration::from_millis(20);
        /// While the lane is held, what is due stays due; only expiry has to be noticed.
        const HELD: Duration = Duration::from_secs(1);
        let flows = self.flows();
        let pause = if flows { SOON } else { HELD };
        self.looking = false;
        self.looked = Some(now);
        // Whatever asked for a look while this one was under way still wants it. And the clock that says when
        // something is due may jump, so there is always a next look.
        let next = now.saturating_add(due.next.unwrap_or(LOOK_MAX).clamp(pause, LOOK_MAX));
        self.look_at = Some(self.look_at.map_or(next, |asked| asked.min(next)));
        let busy: HashSet<OrderingKey> = self.batches().flat_map(Batch::busy_keys).cloned().collect();
        let limit = self.suspect_limit.unwrap_or(self.batch_limit);
        let (mut items, mut sends, mut bytes) = (Vec::with_capacity(due.messages.len()), 0, 0);
        for waiting in due.messages {
            let fate = match &waiting.message {
                Err(undecodable) => Fate::dead(Reason::Undecodable, undecodable.error.clone()),
                Ok(_) if waiting.expired => Fate::Known(Event::Expired, None),
                Ok(_) if !self.is_routed() => no_route(&self.lease),
                Ok(_) => Fate::Send,
            };
            let (position, standing) = (waiting.position, waiting.standing);
            let item = Item { position, message: waiting.message.ok(), standing, fate };
            if item.fate == Fate::Send {
                // If the lane has stopped meanwhile, what is to be sent would be in the way of looks for what expires.
                if !flows || item.key().is_some_and(|key| busy.contains(key)) {
                    continue;
                }
                bytes += item.message.as_ref().map_or(0, |message| message.payload.len());
                if sends >= limit || (bytes > options.batch_bytes_max && sends > 0) {
                    break; // the rest stays in the database until its turn
                }
                sends += 1;
            }
            items.push(item);
        }
        if !items.is_empty() {
            let mut batch = Batch::new(self.batch_id(), Origin::Waiting, items);
            batch.suspect = sends > 0 && self.suspect_limit.is_some();
            self.waiting = Some(batch);
        }
    }

    /// Expires messages that were to be sent (again), also while the lane is held (L6).
    pub(super) fn expire(&mut self, now: Timestamp) {
        let ready = self.log.iter_mut().chain(&mut self.waiting).filter(|batch| batch.state == State::Ready);
        ready.for_each(|batch| batch.expire(now));
        self.hold_behind();
        self.part_known();
    }

    /// What is known at the front of the log can be settled although the rest of its batch has to wait.
    fn part_known(&mut self) {
        let front = self.log.front().filter(|batch| batch.state == State::Ready);
        let known = front.and_then(|batch| Some((batch.id, batch.place_after(0).filter(|at| *at > 0)?)));
        if let Some((id, at)) = known {
            let next = self.batch_id();
            self.part(id, at, next);
        }
    }

    /// What follows a message of its key that did not go well must not overtake it, also in a batch that was
    /// formed before (L4).
    fn hold_behind(&mut self) {
        let mut held: HashSet<OrderingKey> = HashSet::new();
        for batch in &mut self.log {
            if batch.state == State::Ready && !held.is_empty() {
                batch.hold(&held);
            }
            held.extend(batch.held_keys().cloned());
        }
    }

    /// The receiver answers again.
    pub(super) fn probe_answered(&mut self) {
        self.breaker.probe_answered();
        self.look_at = Some(Duration::ZERO);
    }

    /// The log or a waiting row may have changed: looks again, but not more than once a second.
    pub(super) fn nudge(&mut self) {
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        let at = self.looked.map_or(Duration::ZERO, |looked| looked.saturating_add(LOOK_EVERY));
        self.look_at = Some(self.look_at.map_or(at, |look_at| look_at.min(at)));
    }

    /// Whether the log waits for a look at waiting rows: one of them is suspect, and can be charged only if it is what
    /// is sent first after the probe. A lane with traffic always has something else to send (L3).
    ///
    /// A look that is due is under way before anything is sent, and if it finds nothing the log goes on. No two probes
    /// in a row are kept: a receiver that is broken again and again has to get to the log in between.
    fn keeps_probe(&self) -> bool {
        // Rows that need no request were found before the probe was answered: a look follows when they are settled.
        let look_follows = |batch: &Batch<P>| batch.state == State::Answered;
        let looks = self.waiting.as_ref().map_or(self.looking, look_follows);
        // A batch of several is not charged, so it need not be the first.
        let keeps = looks && self.suspect_limit == Some(1) && !self.log_first && self.breaker.is_probed();
        keeps && !mutant!(ProbeNotKept)
    }

    /// The next batch to send, if one may be sent now. Suspects travel alone and in order (L3).
    pub(super) fn next_ready(&mut self, options: &RelayOptions) -> Option<&mut Batch<P>> {
        if !self.flows() || self.keeps_probe() {
            return None;
        }
        let suspects = self.batches().any(|batch| batch.suspect);
        let allowed = if suspects { 1 } else { options.in_flight_max };
        if self.in_flight() >= allowed {
            return None;
        }
        let ready = |batch: &Batch<P>| batch.state == State::Ready;
        let suspect = self.first_free(|batch| ready(batch) && batch.suspect);
        // A suspect may have to wait for one that is none but comes before it in a key.
        let id = suspect.or_else(|| self.first_free(ready))?;
        self.cut(id);
        let probed = self.breaker.is_probed();
        let batch = self.batch(id)?;
        batch.chargeable = probed && batch.suspect && batch.is_lone();
        Some(batch)
    }

    /// The first wanted batch that shares no key with a batch before it that is still to be answered: parts of one
    /// batch may share keys, and a key travels alone (L4).
    fn first_free(&self, wanted: impl Fn(&Batch<P>) -> bool) -> Option<u64> {
        let mut busy: HashSet<&OrderingKey> = HashSet::new();
        for batch in self.waiting.iter().chain(&self.log) {
            if wanted(batch) && !batch.busy_keys().any(|key| busy.contains(key)) {
                return Some(batch.id);
            }
            busy.extend(batch.busy_keys());
        }
        None
    }

    /// Cuts a batch to what the receiver manages in one request.
    fn cut(&mut self, id: u64) {
        let (limit, next) = (self.batch_limit, self.batch_id());
        if let Some(at) = self.batch(id).and_then(|batch| batch.place_after(limit)) {
            self.part(id, at, next);
        }
    }

    /// Whether a new batch of the log may be formed. Not before it can be sent: a batch is whatever has queued
    /// by then. While the lane is held, what has expired can be settled without being sent.
    pub(super) fn may_form(&self, options: &RelayOptions) -> bool {
        let suspects = self.batches().any(|batch| batch.suspect);
        let ready = self.log.iter().any(|batch| batch.state == State::Ready);
        if self.flows() && (self.in_flight() >= options.in_flight_max || self.keeps_probe()) {
            return false;
        }
        // Unsettled batches are bounded as well: one that waits for an outage must not collect a tail.
        !self.queue.is_empty()
            && !suspects
            && !ready
            && self.log.len() < options.in_flight_max.saturating_mul(2)
    }

    /// Takes the answers to a request.
    pub(super) fn answered(
        &mut self,
        id: u64,
        answers: Vec<Answer>,
        now: Duration,
        options: &RelayOptions,
        random: &dyn Random,
    ) -> Verdict {
        let next = self.batch_id();
        let Some(batch) = self.batch(id) else { return Verdict::Answered };
        let sent = batch.messages().len();
        batch.suspect = false;
        let unreached = batch.answered(answers);
        let reached = sent - batch.messages().len();
        let origin = batch.origin;
        match origin {
            Origin::Waiting => self.suspect_limit = None,
            Origin::Log => self.log_first = false,
        }
        self.breaker.heard();
        self.hold_behind();
        let Some(at) = unreached else {
            self.batch_limit = self.batch_limit.saturating_mul(2).min(options.batch_messages_max);
            return Verdict::Answered;
        };
        self.part(id, at, next);
        self.hold_behind();
        if reached > 0 {
            self.batch_limit = reached;
            return Verdict::Answered;
        }
        self.batch_limit = (self.batch_limit / 2).max(1);
        self.drop_waiting();
        let error = "the receiver did not get to any message within the request's time".into();
        Verdict::Held(self.breaker.failed(error, None, now, &options.probe, random))
    }

    /// Takes note of a request that failed as a whole. Nobody is charged, except a message that failed alone
    /// right after the receiver had answered a probe (L3).
    pub(super) fn failed(
        &mut self,
        id: u64,
        error: &DeliveryError,
        now: Duration,
        options: &RelayOptions,
        random: &dyn Random,
    ) -> Verdict {
        let text = one_line(error);
        let next = self.batch_id();
        if let Some(batch) = self.batch(id).filter(|batch| batch.chargeable) {
            self.log_first = batch.origin == Origin::Waiting;
        }
        if let Some(batch) = self.batch(id) {
            batch.state = State::Ready;
            if (error.is_ambiguous() && batch.chargeable) || mutant!(WholeBatchCharged) {
                batch.charge_lone(&text);
                batch.suspect = false;
                self.breaker.heard();
                self.hold_behind();
                return Verdict::Answered;
            }
            if error.is_ambiguous() {
                self.suspect(id, next);
            }
        }
        self.drop_waiting();
        Verdict::Held(self.breaker.failed(text, error.retry_after(), now, &options.probe, random))
    }

    /// One of the messages of a batch may have broken the receiver: it goes on in halves.
    fn suspect(&mut self, id: u64, next: u64) {
        let Some(batch) = self.batch(id) else { return };
        let half = batch.messages().len().div_ceil(2);
        batch.suspect = true;
        if batch.origin == Origin::Waiting {
            self.suspect_limit = Some(half);
        } else if let Some(middle) = batch.place_after(half) {
            self.part(id, middle, next);
        }
    }

    /// While the lane is held, waiting rows are better off in the database: there they expire, and are found.
    fn drop_waiting(&mut self) {
        if self.waiting.as_ref().is_some_and(|batch| batch.state == State::Ready) {
            self.waiting = None;
            self.look_at = Some(Duration::ZERO);
        }
    }

    /// Splits a batch in two. What is left of a batch of waiting rows stays in the database until its turn.
    fn part(&mut self, id: u64, at: usize, next: u64) {
        if at == 0 {
            // Nothing to split off from: all of it is to be sent again.
            self.batch(id).into_iter().for_each(|batch| batch.state = State::Ready);
        } else if let Some(place) = self.log.iter().position(|batch| batch.id == id) {
            let rest = self.log[place].split_off(at, next);
            self.log.insert(place + 1, rest);
        } else if let Some(batch) = self.waiting.as_mut().filter(|batch| batch.id == id) {
            drop(batch.split_off(at, next));
            self.look_at = Some(Duration::ZERO);
        }
    }

    /// The messages that a request carries.
    pub(super) fn carried(&self, id: u64) -> Vec<Arc<Message>> {
        self.batches().find(|batch| batch.id == id).map(Batch::messages).unwrap_or_default()
    }

    fn batch(&mut self, id: u64) -> Option<&mut Batch<P>> {
        self.log.iter_mut().chain(&mut self.waiting).find(|batch| batch.id == id)
    }

    fn batch_id(&mut self) -> u64 {
        self.next_batch += 1;
        self.next_batch
    }
}

fn bytes_of<P>(entry: &LogEntry<P>) -> usize {
    entry.message.as_ref().map_or(0, |message| message.payload.len())
}

/// What a message of the log needs.
fn plan<P: Clone>(entry: &LogEntry<P>, now: Timestamp, routed: bool) -> Item<P> {
    let item =
        |message, fate| Item { position: entry.position.clone(), message, standing: Standing::FRESH, fate };
    let message = match &entry.message {
        Ok(message) => message,
        Err(undecodable) => return item(None, Fate::dead(Reason::Undecodable, undecodable.error.clone())),
    };
    let fate = if message.expires <= now {
        Fate::Known(Event::Expired, None)
    } else if is_scheduled(message) && message.available > now {
        Fate::Scheduled
    } else if !routed {
        Fate::dead(Reason::NoRoute, format!("no live process has registered {}", message.destination))
    } else {
        Fate::Send
    };
    item(Some(Arc::clone(message)), fate)
}

/// Whether its author has set a date. A message that is merely dated ahead of our clock was written before the clock
/// stepped back: it is not parked until the clock has caught up, and nothing of its key may overtake it (S13, L4).
fn is_scheduled(message: &Message) -> bool {
    message.available > message.created
}

fn no_route<P>(lease: &LaneLease<P>) -> Fate {
    Fate::dead(Reason::NoRoute, format!("no live process has registered {}", lease.link.destination))
}
