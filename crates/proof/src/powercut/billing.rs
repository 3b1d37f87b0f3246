//! The receiver's side: effects in one transaction with their inbox rows and follow-ups, duplicates, rejections, purges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{Answer, SweepPlan, SweepStore};
use twobox_core::{
    BoxError, Consumer, Destination, Endpoint, Error, Message, MessageId, NewMessage, Payload, Random,
    Refusal, Response, Source, Stamp, Timestamp,
};
use twobox_engine::receiver::Route;
use twobox_engine::{Receiver, Timer as _};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::disk::Disk;

use super::neighbour;
use super::shop::wrong;
use super::style::{Chance, Style};
use super::told::{DONE, REJECTED, Told, mark};
use super::workload::{Store, Workload};

pub(super) const BUDGET: Duration = Duration::from_secs(5);

const PAY: &str = "Pay";

const EFFECTS: &str = "SELECT id FROM effects";
pub(super) const HANDLED: &str = "SELECT message_id FROM inbox WHERE status = 'Done'";
pub(super) const REFUSED: &str = "SELECT message_id FROM inbox WHERE status = 'Dead'";
const FOLLOW_UPS: &str = "SELECT CAST(payload AS TEXT) FROM outbox_messages";
const WATERMARK: &str = "SELECT CAST(watermark AS TEXT) FROM inbox_peers";

/// Handles batches, some of them again, some at the same time, and purges now and then.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let style = Style::of(workload.seed);
    let receiver = receiver(store, workload.seed, true)?;
    let mut at = 0;
    while at < workload.messages {
        let size = 1 + usize::try_from(store.random.next_u64() % 4)?;
        // Some of the last ones come again.
        let from = at.saturating_sub(usize::try_from(store.random.next_u64() % 3)?);
        let replay = u32::from(store.random.next_u64().is_multiple_of(3));
        let mut batch = messages(store, PAY, from..(at + size).min(workload.messages), replay)?;
        if at > 0 && store.random.next_u64().is_multiple_of(2) {
            let old = usize::try_from(store.random.next_u64() % at as u64)?;
            batch.extend(messages(store, PAY, old..old + 1, replay)?);
        }
        let (one, two) = batch.split_at(batch.len() / 2);
        let answers = [one, two].map(|part| deliver(store, &receiver, disk, workload, part));
        for answered in answers {
            answered.await?.map_err(|error| format!("a message is refused for ever: {}", error.chain()))?;
        }
        at += size;
        if style.neighbour && store.random.next_u64().is_multiple_of(2) {
            neighbour::visit(store, disk);
        }
        if store.random.next_u64().is_multiple_of(4) {
            store.clock.sleep(Duration::from_secs(1)).await;
            let plan = SweepPlan { batch: 3, dedup_window: style.dedup_window, ..SweepPlan::default() };
            store.patiently(workload, || store.db.sweep(&plan)).await?;
        }
    }
    if workload.fault.is_some() {
        // What failed on the way comes again, and then the running store must say what a new one would.
        let facts = store.patiently(workload, || examine(store, workload)).await?;
        facts.judge(&Told::new(workload.keeps_acknowledged()).up_to(&disk.record(), usize::MAX))?;
    }
    Ok(())
}

/// Delivers a batch, again if nothing can be said about it, and notes what was answered.
pub(super) fn deliver(
    store: &Store,
    receiver: &Receiver<Sqlite>,
    disk: &Arc<Disk>,
    workload: &Workload,
    batch: &[Arc<Message>],
) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (store, receiver, disk) = (store.clone(), receiver.clone(), Arc::clone(disk));
    let (workload, batch) = (*workload, batch.to_vec());
    tokio::spawn(async move {
        let answers = store.patiently(&workload, || receiver.receive(batch.clone(), BUDGET)).await?;
        for (message, answer) in batch.iter().zip(answers) {
            match answer {
                Answer::Done(_) | Answer::Duplicate(_) => disk.mark(mark(DONE, message.id.as_str())),
                Answer::Rejected { .. } => disk.mark(mark(REJECTED, message.id.as_str())),
                _ => {}
            }
        }
        Ok(())
    })
}

/// What is done about a message.
struct Deed {
    /// Whether it is rejected until somebody replays it.
    rejected: bool,
    /// Whether handling it sends another message.
    follow_up: bool,
}

impl Deed {
    fn of(seed: u64, id: &str) -> Self {
        let thing = id.bytes().fold(0, |thing, byte| thing << 8 | u64::from(byte));
        let chance = Chance::of(seed, thing);
        Self { rejected: chance.one_in(8), follow_up: chance.one_in(3) }
    }
}

/// Writes an effect per message, and fails afterwards now and then if it is fickle.
fn receiver(store: &Store, seed: u64, fickle: bool) -> Result<Receiver<Sqlite>, Error> {
    let (db, random) = (store.db.clone(), Arc::clone(&store.random));
    let stamp = Stamp::new(Source::new("billing")?, Arc::clone(&store.clock) as _, Arc::clone(&random) as _);
    let handler = SqliteHandler::new(move |tx, message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        let deed = Deed::of(seed, message.id.as_str());
        if deed.follow_up {
            let (to, endpoint) = (Destination::new("mail")?, Endpoint::new("Receipt")?);
            let new = NewMessage::raw(to, endpoint, "text/plain", message.payload.clone());
            db.append(tx, &stamp.message(&new)?)?;
        }
        if deed.rejected && message.replay == 0 {
            return Err(Refusal::reject("never"));
        }
        if fickle && random.next_u64().is_multiple_of(6) {
            return Err(Refusal::retry("not now"));
        }
        Ok(response(message.id.as_str()))
    });
    Receiver::builder(store.db.clone(), Consumer::new("billing")?, Arc::clone(&store.clock) as _)
        .route(Endpoint::new(PAY)?, Route::Handler(handler))
        .map(twobox_engine::receiver::ReceiverBuilder::build)
}

/// Large enough for the rows to lie on many pages: an old one is then read from the disk.
pub(super) fn response(id: &str) -> Response {
    Response { content_type: "text/plain".into(), body: Payload::new(id.repeat(200).into_bytes()) }
}

/// Numbered messages to an endpoint, as dated by their sender.
pub(super) fn messages(
    store: &Store,
    endpoint: &str,
    range: std::ops::Range<usize>,
    replay: u32,
) -> Result<Vec<Arc<Message>>, Error> {
    let stamp =
        Stamp::new(Source::new("shop")?, Arc::clone(&store.clock) as _, Arc::clone(&store.random) as _);
    let message = |n: usize| {
        let id = format!("m{n:03}");
        let payload = Payload::new(id.as_bytes().to_vec());
        let to = Destination::new("billing")?;
        let new = NewMessage::raw(to, Endpoint::new(endpoint)?, "text/plain", payload);
        let mut message = stamp.message(&new.id(MessageId::new(&id)?))?;
        // As dated by its sender, however often it comes.
        message.available = available(n);
        message.created = message.available;
        message.replay = replay;
        Ok(Arc::new(message))
    };
    range.map(message).collect()
}

/// When a message was sent, by the sender's clock.
fn available(n: usize) -> Timestamp {
    const FIRST: i64 = 1_780_000_000_000_000;
    Timestamp::from_micros(FIRST).plus(Duration::from_millis(100 * n as u64))
}

/// What a database of this side holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    effects: BTreeSet<String>,
    handled: BTreeSet<String>,
    refused: BTreeSet<String>,
    watermark: i64,
}

impl Facts {
    /// Compares them with what was told before the cut.
    pub(super) fn judge(&self, told: &Told) -> Result<(), String> {
        if let Some(id) = told.missing(DONE, &self.effects) {
            return Err(format!("{id} was acknowledged and its effect is lost"));
        }
        let known = |id: &&str| self.refused.contains(*id) || self.effects.contains(*id);
        match told.all(REJECTED).find(|id| !known(id)) {
            Some(id) => Err(format!("the rejection of {id} was acknowledged and is lost")),
            None => Ok(()),
        }
    }

    async fn read(store: &Store, seed: u64) -> Result<Self, Error> {
        let watermarks: Vec<String> = store.names(WATERMARK).await?;
        let facts = Self {
            effects: once(store, EFFECTS, "effect").await?,
            handled: store.names(HANDLED).await?,
            refused: store.names(REFUSED).await?,
            watermark: watermarks.first().and_then(|text| text.parse().ok()).unwrap_or(i64::MIN),
        };
        let follow_ups = once(store, FOLLOW_UPS, "follow-up").await?;
        let wanted = facts.effects.iter().filter(|id| Deed::of(seed, id).follow_up).cloned();
        if follow_ups != wanted.collect() {
            return Err(wrong("effects and follow-ups differ: one was committed without the other"));
        }
        if let Some(id) = facts.handled.difference(&facts.effects).next() {
            return Err(wrong(&format!("{id} counts as handled and has no effect")));
        }
        match facts.effects.difference(&facts.handled).find(|id| !facts.is_purged(id)) {
            Some(id) => Err(wrong(&format!("{id} has an effect and does not count as handled"))),
            None => Ok(facts),
        }
    }

    /// Whether the inbox may have forgotten the message.
    fn is_purged(&self, id: &str) -> bool {
        id.trim_start_matches('m').parse().is_ok_and(|n| available(n).as_micros() <= self.watermark)
    }
}

/// A column in which nothing may stand twice.
async fn once(store: &Store, sql: &'static str, what: &str) -> Result<BTreeSet<String>, Error> {
    let mut seen = BTreeSet::new();
    for id in store.names::<Vec<String>>(sql).await? {
        if let Some(id) = seen.replace(id) {
            return Err(wrong(&format!("the {what} of {id} is there twice")));
        }
    }
    Ok(seen)
}

/// Looks at a database and delivers everything again: what was done is a duplicate, what may have been forgotten is
/// refused, the rest is done now, and nothing twice.
pub(super) async fn examine(store: &Store, workload: &Workload) -> Result<Facts, Error> {
    let facts = Facts::read(store, workload.seed).await?;
    let receiver = receiver(store, workload.seed, false)?;
    let batch = messages(store, PAY, 0..workload.messages, 1)?;
    let answers = receiver.receive(batch.clone(), BUDGET).await?;
    for (message, answer) in batch.iter().zip(answers) {
        let id = message.id.as_str();
        let right = match &answer {
            Answer::Duplicate(stored) => facts.handled.contains(id) && *stored == Some(response(id)),
            Answer::TooOld => {
                !facts.handled.contains(id) && !facts.refused.contains(id) && facts.is_purged(id)
            }
            Answer::Done(_) => {
                facts.refused.contains(id) || !(facts.handled.contains(id) || facts.is_purged(id))
            }
            _ => false,
        };
        if !right {
            return Err(wrong(&format!("{id} was answered {answer:?}, which is wrong for {facts:?}")));
        }
    }
    Facts::read(store, workload.seed).await?;
    Ok(facts)
}
