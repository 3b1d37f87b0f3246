//! The receiver's claims: a message is claimed, handled outside of the database, and its end is noted (CEB).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use twobox_core::ports::{Answer, DedupStore as _};
use twobox_core::{BoxError, Consumer, Endpoint, Error, HandlerResult, Random as _, Refusal, Response};
use twobox_engine::receiver::{OnError, claim_first};
use twobox_engine::{Receiver, Timer as _};
use twobox_sqlite::{Durability, Sqlite};
use twobox_testkit::disk::Disk;

use super::billing::{BUDGET, HANDLED, REFUSED, deliver, messages, response};
use super::neighbour;
use super::shop::wrong;
use super::style::{Chance, Style};
use super::told::{CALLED, DONE, REJECTED, Told, mark};
use super::workload::{Store, Workload};

const PAGE: &str = "Page";
const ROWS: &str = "SELECT message_id FROM inbox";
/// More claims than a run has.
const MANY: usize = 1000;

/// Handles batches, some of them again and some at the same time.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let hands = Hands::new(store, workload, Some(Arc::clone(disk)));
    let receiver = hands.receiver(store)?;
    let mut at = 0;
    while at < workload.messages {
        let size = 1 + usize::try_from(store.random.next_u64() % 4)?;
        // Some of the last ones come again, and all of it twice at the same time.
        let from = at.saturating_sub(usize::try_from(store.random.next_u64() % 3)?);
        let batch = messages(store, PAGE, from..(at + size).min(workload.messages), 0)?;
        let answers = [&batch, &batch].map(|batch| deliver(store, &receiver, disk, workload, batch));
        for answered in answers {
            answered.await?.map_err(|error| format!("a message is refused for ever: {}", error.chain()))?;
        }
        at += size;
        if Style::of(workload.seed).neighbour && store.random.next_u64().is_multiple_of(2) {
            neighbour::visit(store, disk);
        }
    }
    // A claim that a fault has taken is as if it had never been.
    if let Some(id) = hands.called_again().filter(|_| workload.keeps_acknowledged()) {
        return Err(format!("{id} was called twice").into());
    }
    if workload.fault.is_some() {
        let facts = store.patiently(workload, || Facts::read(store, workload)).await?;
        facts.judge(&Told::new(workload.keeps_acknowledged()).up_to(&disk.record(), usize::MAX))?;
    }
    Ok(())
}

/// What becomes of claims whose handlers fail.
fn on_error(workload: &Workload) -> OnError {
    Chance::of(workload.seed, u64::MAX - 1).pick([OnError::Keep, OnError::Release])
}

/// What is called outside of the database.
#[derive(Clone)]
struct Hands {
    on_error: OnError,
    /// Before the cut, calls fail now and then, and are noted.
    disk: Option<Arc<Disk>>,
    chance: Arc<twobox_testkit::SeededRandom>,
    called: Arc<Mutex<Vec<String>>>,
}

impl Hands {
    fn new(store: &Store, workload: &Workload, disk: Option<Arc<Disk>>) -> Self {
        Self { on_error: on_error(workload), disk, chance: Arc::clone(&store.random), called: Arc::default() }
    }

    fn receiver(&self, store: &Store) -> Result<Receiver<Sqlite>, Error> {
        let hands = self.clone();
        let handler = Arc::new(move |message: Arc<twobox_core::Message>| {
            let called = hands.call(message.id.as_str());
            Box::pin(async move { called }) as _
        });
        let consumer = Consumer::new("billing")?;
        let claimed = claim_first(store.db.clone(), consumer.clone(), "pager", self.on_error, handler);
        Receiver::builder(store.db.clone(), consumer, Arc::clone(&store.clock) as _)
            .route(Endpoint::new(PAGE)?, claimed)
            .map(twobox_engine::receiver::ReceiverBuilder::build)
    }

    fn call(&self, id: &str) -> HandlerResult<Response> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).push(id.into());
        let Some(disk) = &self.disk else { return Ok(response(id)) };
        disk.mark(mark(CALLED, id));
        match self.chance.next_u64() % 8 {
            0 => Err(Refusal::retry("not now")),
            1 => Err(Refusal::reject("never")),
            _ => Ok(response(id)),
        }
    }

    fn called(&self) -> BTreeSet<String> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// One that was called more than once although claims are kept.
    fn called_again(&self) -> Option<String> {
        let called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeSet::new();
        called.iter().find(|id| !seen.insert(*id) && self.on_error == OnError::Keep).cloned()
    }
}

/// What a database of this side holds, and what is called when everything comes again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    rows: BTreeSet<String>,
    handled: BTreeSet<String>,
    refused: BTreeSet<String>,
    called: BTreeSet<String>,
    /// Whether nothing may be called twice: not if claims are released, and not if they may be lost.
    at_most_once: bool,
}

impl Facts {
    /// Compares them with what was told before the cut.
    pub(super) fn judge(&self, told: &Told) -> Result<(), String> {
        if let Some(id) = told.missing(DONE, &self.handled) {
            return Err(format!("{id} was acknowledged and its end is lost"));
        }
        if let Some(id) = told.missing(REJECTED, &self.refused) {
            return Err(format!("the rejection of {id} was acknowledged and is lost"));
        }
        if !self.at_most_once {
            return Ok(());
        }
        if let Some(id) = told.missing(CALLED, &self.rows) {
            return Err(format!("{id} was called and its claim is lost"));
        }
        match self.called.iter().find(|id| told.has(CALLED, id)) {
            Some(id) => Err(format!("{id} was called before the cut and after it")),
            None => Ok(()),
        }
    }

    async fn read(store: &Store, workload: &Workload) -> Result<Self, Error> {
        Ok(Self {
            rows: store.names(ROWS).await?,
            handled: store.names(HANDLED).await?,
            refused: store.names(REFUSED).await?,
            called: BTreeSet::new(),
            at_most_once: on_error(workload) == OnError::Keep && workload.durability == Durability::Full,
        })
    }

    /// Whether an answer to a message that has come again is right.
    fn allow(&self, id: &str, answer: &Answer) -> bool {
        let (is_known, is_done) = (self.rows.contains(id), self.handled.contains(id));
        match answer {
            Answer::Duplicate(stored) => is_done && *stored == Some(response(id)),
            // It is called now, and answered when its end is noted.
            Answer::Done(stored) => !is_known && *stored == Some(response(id)),
            Answer::Rejected { .. } => self.refused.contains(id),
            Answer::InProgress { .. } => is_known && !is_done && !self.refused.contains(id),
            _ => false,
        }
    }
}

/// Looks at a recovered database and delivers everything again: what was claimed is not called, and what is unfinished
/// is called once somebody has released it.
pub(super) async fn examine(store: &Store, workload: &Workload) -> Result<Facts, Error> {
    let mut facts = Facts::read(store, workload).await?;
    let hands = Hands::new(store, workload, None);
    let receiver = hands.receiver(store)?;
    let batch = messages(store, PAGE, 0..workload.messages, 0)?;
    for (message, answer) in batch.iter().zip(receiver.receive(batch.clone(), BUDGET).await?) {
        if !facts.allow(message.id.as_str(), &answer) {
            let text = format!("{} was answered {answer:?}, which is wrong for {facts:?}", message.id);
            return Err(wrong(&text));
        }
    }
    facts.called = hands.called();
    if let Some(id) = facts.called.intersection(&facts.rows).next() {
        return Err(wrong(&format!("{id} was claimed and is called again")));
    }
    store.clock.sleep(Duration::from_secs(1)).await;
    store.db.release_unfinished(&Consumer::new("billing")?, Duration::ZERO, MANY).await?;
    let answers = receiver.receive(batch.clone(), BUDGET).await?;
    let is_over = |answer: &Answer| {
        matches!(answer, Answer::Done(Some(_)) | Answer::Duplicate(Some(_)) | Answer::Rejected { .. })
    };
    match answers.iter().find(|answer| !is_over(answer)) {
        Some(answer) => Err(wrong(&format!("what was released is answered {answer:?}"))),
        None => Ok(facts),
    }
}
