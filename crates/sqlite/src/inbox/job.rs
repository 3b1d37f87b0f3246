//! A batch of deliveries as a job of the writer.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use tokio::sync::oneshot;
use twobox_core::handler::shorten;
use twobox_core::ports::{Answer, Delivery, KeyGate};
use twobox_core::wire::ResponseRoom;
use twobox_core::{Consumer, Error, Result, Source, Timestamp, crash_point, mutant};

use super::SqliteHandler;
use super::ahead::Ahead;
use super::handle::{Handle, Turn};
use super::peers::Counts;
use crate::SqliteTx;
use crate::options::Options;
use crate::writer::{Budget, Class, Job, Left, Progress};

/// Handles deliveries in order, as many per group as the group's time allows.
pub(super) struct ProcessJob {
    options: Arc<Options>,
    deliveries: Vec<Delivery<SqliteHandler>>,
    answers: Vec<Answer>,
    /// What is left for their responses: those that no answer has room for are not kept until then.
    room: ResponseRoom,
    /// How many answers are committed.
    committed: usize,
    gate: KeyGate,
    /// As a rule there is one: a request is of one sender.
    peers: Vec<(Consumer, Source, Peer)>,
    /// When the request's time is up, on the monotonic clock.
    deadline: Duration,
    /// How long it may work once its turn has come, however late that is.
    share: Option<Duration>,
    reply: Option<oneshot::Sender<Answered>>,
}

/// The answers, and the job itself: what it holds is dropped by whoever waits for it, not by the writer.
type Answered = (Result<Vec<Answer>>, Box<ProcessJob>);

/// What an answer says that was not known before. Only then does the message's date count: one that was not checked
/// could move the watermark at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// The handler ran for it just now.
    Handled(RowChange),
    /// It was stored just now.
    Stored(RowChange),
}

/// What became of a message's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowChange {
    /// There was none before.
    pub(super) fresh: bool,
    /// It was a dead letter that is listed, and is none any more.
    pub(super) revived: bool,
}

/// A consumer and source.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) id: i64,
    pub(super) watermark: i64,
}

impl Peer {
    /// The bug of a watermark that is not stored but told from the clock.
    fn by_the_clock(self, tx: &mut SqliteTx<'_>, now: Timestamp) -> Result<Self> {
        let window = tx.query_optional(&tx.sql.meta_get, ["dedup_window"], |row| row.get::<i64>(0))?;
        let watermark = window.map_or(i64::MIN, |window| now.as_micros().saturating_sub(window));
        Ok(Self { watermark, ..self })
    }
}

/// What an answer adds to the counters.
fn counts(answer: &Answer, news: News, available: i64) -> Counts {
    let mut counts = Counts::default();
    if let News::Handled(row) | News::Stored(row) = news {
        counts.newest = available;
        counts.size = i64::from(row.fresh);
        counts.dead = -i64::from(row.revived);
    }
    match (answer, news) {
        (Answer::Done(_), News::Handled(_)) => counts.done = 1,
        (Answer::Done(_), News::Stored(_)) => counts.queued = 1,
        (Answer::Rejected { .. }, News::Handled(_)) => counts.died = 1,
        (Answer::Duplicate(_), _) => counts.duplicates = 1,
        (Answer::Conflict, _) => counts.conflicts = 1,
        (Answer::TooOld, _) => counts.too_old = 1,
        _ => {}
    }
    counts
}

impl ProcessJob {
    pub(super) fn new(
        options: &Arc<Options>,
        deliveries: Vec<Delivery<SqliteHandler>>,
        budget: Duration,
    ) -> (Box<Self>, oneshot::Receiver<Answered>) {
        let (reply, receiver) = oneshot::channel();
        let job = Self {
            options: Arc::clone(options),
            answers: Vec::with_capacity(deliveries.len()),
            room: ResponseRoom::of(deliveries.len()),
            deliveries,
            committed: 0,
            gate: KeyGate::default(),
            peers: Vec::new(),
            deadline: options.clock.monotonic().saturating_add(budget),
            share: Some(budget / 4),
            reply: Some(reply),
        };
        (Box::new(job), receiver)
    }

    /// Handles the next delivery.
    fn next(&mut self, tx: &mut SqliteTx<'_>, ahead: &mut Ahead) {
        let at = self.answers.len();
        let delivery = &self.deliveries[at];
        let message = &delivery.message;
        let answer = if self.gate.holds(message) {
            Answer::Held
        } else {
            let now = self.options.clock.now();
            let found = peer(&mut self.peers, tx, delivery, now).and_then(|peer| {
                let next = (&*self.deliveries, at);
                let row = match tx.is_lean() {
                    true => tx.isolate(|tx| ahead.row(tx, next, (&peer, &self.gate), now))?,
                    false => None, // what fails there fails alone, and takes its own row along
                };
                Ok((peer, Turn { now, row }))
            });
            match found {
                Ok((peer, turn)) => {
                    let (answer, news) = delivery.handle(tx, &self.options, &peer, turn);
                    let counts = counts(&answer, news, message.available.as_micros());
                    // What cannot be counted has failed the transaction, and the writer sees that.
                    let _: Result<()> = counts.write(tx, peer.id);
                    answer
                }
                Err(error) => retry(&error),
            }
        };
        self.gate.note(message, &answer);
        self.answers.push(self.room.keep(answer));
    }

    /// Forgets what was not committed.
    fn undo(&mut self) {
        self.answers.truncate(self.committed);
        self.peers.clear();
        self.room = ResponseRoom::of(self.deliveries.len());
        for answer in &self.answers {
            if let Answer::Done(Some(response)) | Answer::Duplicate(Some(response)) = answer {
                self.room.take(response.body.len());
            }
        }
    }

    fn progress(&self) -> Progress {
        if self.answers.len() == self.deliveries.len() { Progress::Finished } else { Progress::More }
    }
}

/// The row of a delivery's consumer and source, read once per group.
fn peer(
    peers: &mut Vec<(Consumer, Source, Peer)>,
    tx: &mut SqliteTx<'_>,
    delivery: &Delivery<SqliteHandler>,
    now: Timestamp,
) -> Result<Peer> {
    let (consumer, source) = (&delivery.consumer, &delivery.message.source);
    if let Some((.., peer)) = peers.iter().find(|(of, from, _)| of == consumer && from == source) {
        return Ok(*peer);
    }
    let mut peer = find(tx, consumer, source)?;
    if mutant!(WatermarkFromClock) {
        peer = peer.by_the_clock(tx, now)?;
    }
    peers.push((consumer.clone(), source.clone(), peer));
    Ok(peer)
}

/// Finds or creates the row of a consumer and source.
pub(crate) fn find(tx: &mut SqliteTx<'_>, consumer: &Consumer, source: &Source) -> Result<Peer> {
    let names = params![consumer.as_str(), source.as_str()];
    let get = |tx: &mut SqliteTx<'_>| {
        tx.query_optional(&tx.sql.peer_get, names, |row| Ok(Peer { id: row.get(0)?, watermark: row.get(1)? }))
    };
    if let Some(peer) = get(tx)? {
        return Ok(peer);
    }
    tx.execute(&tx.sql.peer_insert, names)?;
    get(tx)?.ok_or_else(|| Error::new(twobox_core::ErrorKind::Statement, "a peer row vanished"))
}

/// The number of that row, which never changes and is looked up once per group.
pub(crate) fn find_id(tx: &mut SqliteTx<'_>, consumer: &Consumer, source: &Source) -> Result<i64> {
    if let Some(id) = tx.kept_peer(consumer, source) {
        return Ok(id);
    }
    let id = find(tx, consumer, source)?.id;
    tx.keep_peer(consumer, source, id);
    Ok(id)
}

fn retry(error: &Error) -> Answer {
    Answer::Retry { after: None, error: shorten(&error.chain()) }
}

impl Job for ProcessJob {
    fn class(&self) -> Class {
        Class::Synced
    }

    fn run(&mut self, tx: &mut SqliteTx<'_>, budget: &Budget<'_>) -> Progress {
        // Its sender still waits, for twice the time. Were nothing reached because its turn came late, the next request
        // would fare no better, and a writer that is full would starve its inbox.
        if let Some(share) = self.share.take() {
            self.deadline = self.deadline.max(budget.clock.monotonic().saturating_add(share));
        }
        let mut ahead = Ahead::default();
        while self.answers.len() < self.deliveries.len() && budget.clock.monotonic() < self.deadline {
            self.next(tx, &mut ahead);
            if tx.check().is_err() {
                return Progress::More; // the transaction is gone; the writer sees it and runs us again
            }
            if budget.is_over() {
                break;
            }
        }
        if ahead.is_open() && tx.isolate(|tx| ahead.end(tx, &self.deliveries, self.answers.len())).is_err() {
            return Progress::More; // as well
        }
        if budget.clock.monotonic() >= self.deadline {
            self.answers.resize(self.deliveries.len(), Answer::NotReached);
        }
        crash_point!("inbox.before-commit");
        self.peers.clear();
        self.progress()
    }

    fn committed(&mut self) {
        self.committed = self.answers.len();
    }

    fn rolled_back(&mut self) {
        self.undo();
        self.gate = KeyGate::default();
        for (delivery, answer) in self.deliveries.iter().zip(&self.answers) {
            self.gate.note(&delivery.message, answer);
        }
    }

    fn is_single(&self) -> bool {
        false
    }

    fn failed_alone(&mut self, error: Error) -> Progress {
        // The last one that ran is to blame: alone in its transaction, it made it fail.
        self.undo();
        if let Some(delivery) = self.deliveries.get(self.committed) {
            let answer = retry(&error);
            self.gate.note(&delivery.message, &answer);
            self.answers.push(answer);
        }
        self.committed = self.answers.len();
        self.progress()
    }

    fn answer(mut self: Box<Self>, result: Result<()>) -> Left {
        let answers = std::mem::take(&mut self.answers);
        // The caller may have stopped waiting; the effects stand all the same.
        let (_, left) = self.reply.take()?.send((result.map(|()| answers), self)).err()?;
        Some(left)
    }
}
