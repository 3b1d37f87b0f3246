//! Handlers: they write an effect, and then all sorts of things happen to them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use twobox_core::{
    Consumer, Endpoint, Error, HandlerResult, Message, MessageId, NewMessage, OrderingKey, Refusal, Response,
    Source, Stamp,
};
use twobox_engine::Receiver;
use twobox_engine::receiver::{Prepare, Route};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::history::Event;

use super::clock::ProcessClock;
use super::process::Node;
use super::stage::Stage;
use super::tally::Kind;

/// Has an effect.
pub(super) const PLAIN: &str = "Plain";
/// Has an effect and enqueues a message for whoever sent it.
pub(super) const FOLLOWED: &str = "Followed";
/// Takes its time before its transaction.
pub(super) const SLOW: &str = "Slow";

/// Is stored; a worker has its effect.
pub(super) const QUEUED: &str = "Queued";
/// Is stored; a worker takes its time before the transaction that has its effect.
pub(super) const QUEUED_SLOW: &str = "QueuedSlow";

/// How long the first half of a handler may take, of the receiver and of workers: longer than whoever asks waits.
pub(super) const HANDLER_TIMEOUT: Duration = Duration::from_millis(400);
/// A first half that hangs.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// How what happens to a first half is counted: it takes its time, or hangs.
type Slowness = [Kind; 2];
const SLOWNESS: Slowness = [Kind::HandlerSlow, Kind::HandlerHung];

/// What a handler needs.
pub(super) struct Work {
    stage: Arc<Stage>,
    name: Arc<str>,
    peer: Arc<str>,
    db: Sqlite,
    clock: Arc<ProcessClock>,
    /// Rejects once in so many times.
    rejects: u64,
    stamp: Stamp,
}

pub(super) fn receiver(
    stage: &Arc<Stage>,
    node: &Arc<Node>,
    db: &Sqlite,
    clock: &Arc<ProcessClock>,
    ends: &Arc<Semaphore>,
) -> Result<Receiver<Sqlite>, Error> {
    let work = Work::new(stage, node, db, clock, 40)?;
    let handler = |follows: bool| work.handler(follows);
    let receiver = Receiver::builder(db.clone(), Consumer::new(&*node.name)?, Arc::clone(clock) as _)
        .route(Endpoint::new(PLAIN)?, Route::Handler(handler(false)))?
        .route(Endpoint::new(FOLLOWED)?, Route::Handler(handler(true)))?
        .handler_timeout(HANDLER_TIMEOUT)
        .route(Endpoint::new(SLOW)?, Route::Prepared(slowly(stage, SLOWNESS, handler(false), ends)))?
        .route(Endpoint::new(QUEUED)?, Route::Queued)?
        .route(Endpoint::new(QUEUED_SLOW)?, Route::Queued)?;
    Ok(receiver.build())
}

/// A first half that waits; it ends with its process.
pub(super) fn slowly(
    stage: &Arc<Stage>,
    [slow, hung]: Slowness,
    handler: SqliteHandler,
    ends: &Arc<Semaphore>,
) -> Prepare<SqliteHandler> {
    let (stage, ends) = (Arc::clone(stage), Arc::clone(ends));
    Arc::new(move |_| {
        let pause = match () {
            () if stage.mishap(8, hung) => FOR_EVER,
            () if stage.mishap(2, slow) => stage.millis(20..600),
            () => Duration::ZERO,
        };
        let (handler, ends) = (handler.clone(), Arc::clone(&ends));
        Box::pin(async move {
            tokio::select! {
                biased;
                _ = ends.acquire() => Err(Refusal::retry("the process ends")),
                () = tokio::time::sleep(pause) => Ok(handler),
            }
        })
    })
}

impl Work {
    pub(super) fn new(
        stage: &Arc<Stage>,
        node: &Node,
        db: &Sqlite,
        clock: &Arc<ProcessClock>,
        rejects: u64,
    ) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            stage: Arc::clone(stage),
            name: Arc::clone(&node.name),
            peer: Arc::clone(&node.peer),
            db: db.clone(),
            clock: Arc::clone(clock),
            rejects,
            stamp: Stamp::new(Source::new(&*node.name)?, Arc::clone(clock) as _, db.random()),
        }))
    }

    /// What writes the effect, and perhaps enqueues a message for whoever sent it.
    pub(super) fn handler(self: &Arc<Self>, follows: bool) -> SqliteHandler {
        let work = Arc::clone(self);
        SqliteHandler::new(move |tx, message| work.handle(tx, message, follows))
    }

    fn handle(&self, tx: &mut SqliteTx<'_>, message: &Message, follows: bool) -> HandlerResult {
        let name = name_of(message);
        tx.execute("INSERT INTO effects (id, of) VALUES (?1, ?2)", [message.id.as_str(), &name])?;
        if follows {
            self.stage.count(Kind::FollowUp);
            self.db.append(tx, &self.follow_up(message, &name)?)?;
        }
        if self.stage.mishap(10, Kind::HandlerRetry) {
            return Err(Refusal::retry("not now"));
        }
        if self.stage.mishap(self.rejects, Kind::HandlerReject) {
            self.stage.note(&self.name, Event::Rejected(message.id.to_string()));
            return Err(Refusal::reject("never"));
        }
        if self.stage.mishap(30, Kind::HandlerSwallow) {
            // The result is thrown away, as careless handlers do.
            let _: Result<usize, Error> = tx.execute("INSERT INTO nowhere VALUES (1)", []);
        }
        if self.stage.mishap(40, Kind::HandlerPanic) {
            // Unwinds as a panic does, but without a line on standard error.
            std::panic::resume_unwind(Box::new("a handler panics"));
        }
        if self.stage.mishap(20, Kind::HandlerBusy) {
            self.clock.be_busy(self.stage.millis(5..300));
        }
        Ok(Response::empty())
    }

    fn follow_up(&self, message: &Message, name: &str) -> Result<Message, Error> {
        let mut new = NewMessage::json(&self.peer, PLAIN, &follow_up_of(name))?
            .id(MessageId::new(follow_up_of(message.id.as_str()))?);
        if let Some(key) = &message.ordering_key {
            new = new.ordering_key(OrderingKey::new(follow_up_of(key.as_str()))?);
        }
        self.stamp.message(&new)
    }
}

/// The name of what a handler enqueues because of `name`.
pub(super) fn follow_up_of(name: &str) -> String {
    format!("f-{name}")
}

/// The name a message got from its author: it stays when a dead letter is sent again under a new id.
fn name_of(message: &Message) -> String {
    String::from_utf8_lossy(message.payload.as_bytes()).trim_matches('"').to_owned()
}
