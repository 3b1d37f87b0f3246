//! The receiver's side: effects in one transaction with their inbox rows, duplicates, purges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{Answer, SweepPlan, SweepStore};
use twobox_core::{
    BoxError, Clock as _, Consumer, Endpoint, Error, Message, MessageId, NewMessage, Random, Refusal,
    Response, Source, Stamp,
};
use twobox_engine::receiver::Route;
use twobox_engine::{Receiver, Timer as _};
use twobox_sqlite::SqliteHandler;
use twobox_testkit::disk::{Disk, Record};

use super::run::{Store, Workload};
use super::shop::{names, settle};

const EFFECTS: &str = "CREATE TABLE IF NOT EXISTS effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)";
const BUDGET: Duration = Duration::from_secs(5);
/// The mark of a message that was answered as done.
const DONE: &str = "done ";

/// Handles batches, some of them again, some concurrently, and purges now and then.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let tolerant = workload.fault.is_some();
    settle(store.db.transaction::<_, Error, _>(|tx| tx.execute(EFFECTS, [])).await.map(drop), tolerant)?;
    let receiver = receiver(store, true)?;
    let mut at = 0;
    while at < workload.messages {
        let size = 1 + usize::try_from(store.random.next_u64() % 4)?;
        // Some of the last ones come again.
        let from = at.saturating_sub(usize::try_from(store.random.next_u64() % 3)?);
        let until = (at + size).min(workload.messages);
        let batch: Vec<_> = (from..until).map(|n| message(store, n)).collect::<Result<_, _>>()?;
        let (one, two) = batch.split_at(batch.len() / 2);
        let answers = [deliver(&receiver, disk, one), deliver(&receiver, disk, two)];
        for answered in answers {
            settle(answered.await?, tolerant)?;
        }
        at += size;
        if store.random.next_u64().is_multiple_of(4) {
            store.clock.sleep(Duration::from_secs(1)).await;
            settle(
                store.db.sweep(&SweepPlan { batch: 3, ..SweepPlan::default() }).await.map(drop),
                tolerant,
            )?;
        }
    }
    Ok(())
}

fn deliver(
    receiver: &Receiver<twobox_sqlite::Sqlite>,
    disk: &Arc<Disk>,
    batch: &[Arc<Message>],
) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (receiver, disk, batch) = (receiver.clone(), Arc::clone(disk), batch.to_vec());
    tokio::spawn(async move {
        let answers = receiver.receive(batch.clone(), BUDGET).await?;
        for (message, answer) in batch.iter().zip(answers) {
            if matches!(answer, Answer::Done(_) | Answer::Duplicate(_)) {
                disk.mark(format!("{DONE}{}", message.id));
            }
        }
        Ok(())
    })
}

/// Writes an effect per message; the first time some of them fail after having written it.
fn receiver(store: &Store, fickle: bool) -> Result<Receiver<twobox_sqlite::Sqlite>, Error> {
    let random = Arc::clone(&store.random);
    let handler = SqliteHandler::new(move |tx, message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        if fickle && random.next_u64().is_multiple_of(6) {
            return Err(Refusal::retry("not now"));
        }
        Ok(Response::empty())
    });
    Receiver::builder(store.db.clone(), Consumer::new("billing")?, Arc::clone(&store.clock) as _)
        .route(Endpoint::new("Pay")?, Route::Handler(handler))
        .map(twobox_engine::receiver::ReceiverBuilder::build)
}

fn message(store: &Store, n: usize) -> Result<Arc<Message>, Error> {
    let stamp =
        Stamp::new(Source::new("shop")?, Arc::clone(&store.clock) as _, Arc::clone(&store.random) as _);
    let new = NewMessage::json("billing", "Pay", &n)?.id(MessageId::new(format!("m{n:03}"))?);
    let mut message = stamp.message(&new)?;
    // As dated by its sender, however often it comes.
    message.available = store.clock.now().minus(store.clock.monotonic());
    message.created = message.available;
    Ok(Arc::new(message))
}

fn done(record: &Record, step: usize) -> BTreeSet<String> {
    record.marks(step).filter_map(|mark| mark.0.strip_prefix(DONE).map(str::to_owned)).collect()
}

/// How many messages had been acknowledged before `step`.
pub(super) fn acknowledged(record: &Record, step: usize) -> usize {
    done(record, step).len()
}

/// Checks a recovered database against what had been acknowledged before the cut, then delivers everything again.
pub(super) async fn check(
    store: &Store,
    record: &Record,
    step: usize,
    messages: usize,
) -> Result<(), String> {
    let acknowledged = done(record, step);
    let effects = effects(store).await?;
    if let Some(id) = acknowledged.iter().find(|id| !effects.contains(id)) {
        return Err(format!("{id} was acknowledged and its effect is lost"));
    }
    let rows = names(store, "SELECT message_id FROM inbox WHERE status = 'Done'").await?;
    if rows != BTreeSet::from_iter(effects) {
        return Err("effects and inbox rows differ: one was committed without the other".into());
    }
    again(store, &rows, messages).await
}

/// Every effect, doubled ones found on the way.
async fn effects(store: &Store) -> Result<Vec<String>, String> {
    let doubled = names(store, "SELECT id FROM effects GROUP BY id HAVING count(*) > 1").await?;
    if let Some(id) = doubled.first() {
        return Err(format!("the effect of {id} is there twice"));
    }
    Ok(names(store, "SELECT id FROM effects").await?.into_iter().collect())
}

/// Delivers everything again: what was done is a duplicate, the rest is done now, and nothing twice.
async fn again(store: &Store, rows: &BTreeSet<String>, messages: usize) -> Result<(), String> {
    let text = |error: Error| error.chain();
    store.db.transaction::<_, Error, _>(|tx| tx.execute(EFFECTS, [])).await.map_err(text)?;
    let receiver = receiver(store, false).map_err(text)?;
    let batch: Vec<_> = (0..messages).map(|n| message(store, n)).collect::<Result<_, _>>().map_err(text)?;
    let answers = receiver.receive(batch.clone(), BUDGET).await.map_err(text)?;
    for (message, answer) in batch.iter().zip(answers) {
        let known = rows.contains(message.id.as_str());
        match answer {
            Answer::Duplicate(_) if known => {}
            Answer::Done(_) if !known => {}
            other => return Err(format!("{} was answered {other:?} although known is {known}", message.id)),
        }
    }
    let count = effects(store).await?.len();
    if count == messages { Ok(()) } else { Err(format!("{count} effects of {messages} messages")) }
}
