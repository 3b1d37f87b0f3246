//! The sender's side: orders and their messages in one transaction, relayed, settled, swept, replayed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use twobox_core::name::OnceKey;
use twobox_core::ports::{
    Answer, DeadLetterFilter, DeadLetterStore, DeliveryError, Replay, SweepPlan, SweepStore, Transport,
};
use twobox_core::{
    BoxError, Clock as _, Destination, Endpoint, Error, Message, MessageId, NewMessage, OrderingKey, Payload,
    Random, Response, Source, Stamp,
};
use twobox_engine::relay::{DeadLetterCallback, RelayOptions};
use twobox_engine::{Relay, Shutdown, ShutdownHandle, Timer as _};
use twobox_testkit::ScriptedTransport;
use twobox_testkit::disk::Disk;

use super::neighbour;
use super::style::{Chance, Style};
use super::told::{ACKNOWLEDGED, DIED, ENQUEUED, REPLAYED, SENT, Told, mark};
use super::workload::{Store, Workload};

const DESTINATIONS: [&str; 2] = ["billing", "mail"];
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What a message is about is in its payload, which stays the same when it is replayed under another id. A dead letter
/// that was replayed that way is over.
const ORDERS: &str = "SELECT id FROM orders";
const MESSAGES: &str = "SELECT CAST(m.payload AS TEXT) FROM outbox_messages AS m
    WHERE NOT EXISTS (SELECT 1 FROM outbox_waiting AS w WHERE w.seq = m.seq AND w.replayed_as IS NOT NULL)";
const OPEN: &str = "SELECT CAST(payload AS TEXT) FROM outbox_messages
    WHERE status NOT IN ('Sent', 'Failed', 'Expired')";
const DEAD: &str = "SELECT message_id FROM outbox_waiting WHERE reason IS NOT NULL AND replayed_as IS NULL";

/// Places orders in groups of one to five callers, while a relay delivers and a sweeper trims.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let style = Style::of(workload.seed);
    let relay =
        Relaying::start(store, &fickle(store, disk), Some(told_of_deaths(disk)), style.relay.clone())?;
    let mut placed = 0;
    while placed < workload.messages {
        let group = 1 + usize::try_from(store.random.next_u64() % 5)?;
        let callers: Vec<_> = (placed..placed + group).map(|n| place(store, disk, workload, n)).collect();
        for caller in callers {
            caller.await?.map_err(|error| format!("an order is refused for ever: {}", error.chain()))?;
        }
        placed += group;
        store.clock.sleep(Duration::from_millis(store.random.next_u64() % 3000)).await;
        tidy(store, disk, workload, &style).await?;
    }
    if workload.fault.is_some() {
        finish(store, disk, workload).await?;
    }
    relay.stop().await;
    Ok(())
}

/// Sweeps and replays now and then.
async fn tidy(store: &Store, disk: &Arc<Disk>, workload: &Workload, style: &Style) -> Result<(), Error> {
    if style.neighbour && store.random.next_u64().is_multiple_of(2) {
        neighbour::visit(store, disk);
    }
    if store.random.next_u64().is_multiple_of(4) {
        let plan = SweepPlan { sent_retention: Duration::ZERO, batch: 3, ..SweepPlan::default() };
        store.patiently(workload, || store.db.sweep(&plan)).await?;
    }
    if style.replays && store.random.next_u64().is_multiple_of(4) {
        let how = if store.random.next_u64().is_multiple_of(2) { Replay::SameId } else { Replay::NewId };
        disk.mark(mark(REPLAYED, "some"));
        store.patiently(workload, || replay(store, how)).await?;
    }
    Ok(())
}

async fn replay(store: &Store, how: Replay) -> Result<(), Error> {
    store.db.replay(&DeadLetterFilter::default(), how, DAY, 1000).await.map(drop)
}

/// Fails now and then, as a whole or by message.
fn fickle(store: &Store, disk: &Arc<Disk>) -> Arc<dyn Transport> {
    let (random, disk) = (Arc::clone(&store.random), Arc::clone(disk));
    Arc::new(ScriptedTransport::new(move |_, batch| {
        batch.iter().for_each(|message| disk.mark(mark(SENT, &subject(message))));
        if random.next_u64().is_multiple_of(7) {
            return Err(DeliveryError::ambiguous("cut"));
        }
        let answer = |message: &Arc<Message>| match random.next_u64() % 20 {
            0..4 => Answer::Retry { after: None, error: "not now".into() },
            4..6 => Answer::Rejected { error: "never".into() },
            _ => {
                disk.mark(mark(ACKNOWLEDGED, &subject(message)));
                Answer::Done(Some(Response::empty()))
            }
        };
        Ok(batch.iter().map(answer).collect())
    }))
}

fn told_of_deaths(disk: &Arc<Disk>) -> DeadLetterCallback<i64> {
    let disk = Arc::clone(disk);
    Arc::new(move |letter| {
        disk.mark(mark(DIED, &letter.message_id));
        Box::pin(async { Ok(()) })
    })
}

/// What a message is about.
fn subject(message: &Message) -> String {
    String::from_utf8_lossy(message.payload.as_bytes()).into_owned()
}

/// One business transaction, in a task of its own, so that several share a commit. Whoever may have to repeat it does so
/// under a key.
pub(super) fn place(
    store: &Store,
    disk: &Arc<Disk>,
    workload: &Workload,
    n: usize,
) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (store, disk, workload) = (store.clone(), Arc::clone(disk), *workload);
    tokio::spawn(async move {
        let chance = Chance::of(workload.seed, n as u64);
        let id = format!("m{n:03}");
        let message = message(&store, &chance, &id)?;
        let once = workload.fault.is_some() || chance.one_in(4);
        let key = once.then(|| OnceKey::new(&id)).transpose()?;
        let attempt = || {
            let (db, id, key, message) = (store.db.clone(), id.clone(), key.clone(), message.clone());
            store.db.transaction::<_, Error, _>(move |tx| {
                tx.execute("INSERT INTO orders VALUES (?1) ON CONFLICT DO NOTHING", [&id])?;
                match &key {
                    Some(key) => db.append_once(tx, key, &message).map(drop),
                    None => db.append(tx, &message),
                }
            })
        };
        store.patiently(&workload, attempt).await?;
        disk.mark(mark(ENQUEUED, &id));
        Ok(())
    })
}

fn message(store: &Store, chance: &Chance, id: &str) -> Result<Message, Error> {
    let stamp =
        Stamp::new(Source::new("shop")?, Arc::clone(&store.clock) as _, Arc::clone(&store.random) as _);
    let destination = Destination::new(DESTINATIONS[usize::from(chance.one_in(4))])?;
    let payload = Payload::new(id.as_bytes().to_vec());
    let mut new = NewMessage::raw(destination, Endpoint::new("Pay")?, "text/plain", payload);
    if chance.one_in(2) {
        new = new.id(MessageId::new(format!("id-{id}"))?);
    }
    if chance.one_in(3) {
        new = new.ordering_key(OrderingKey::new(format!("k{}", chance.below(2)))?);
    }
    if chance.one_in(6) {
        new = new.due(store.clock.now().plus(Duration::from_millis(chance.below(20_000))));
    }
    if chance.one_in(12) {
        new = new.ttl(Duration::from_secs(3));
    }
    stamp.message(&new)
}

/// After a fault the store must recover by itself: the same relay goes on until nothing is open or dead any more.
async fn finish(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    disk.mark(mark(REPLAYED, "all"));
    let open = drain(store, workload).await?;
    if !open.is_empty() {
        return Err(format!("stuck after a fault: {open:?}").into());
    }
    let facts = store.patiently(workload, || Facts::read(store)).await?;
    Ok(facts.judge(&Told::new(workload.keeps_acknowledged()).up_to(&disk.record(), usize::MAX))?)
}

/// Lets a relay go on, and replays what dies, until nothing is left to do. Returns what is, if that takes for ever.
async fn drain(store: &Store, workload: &Workload) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for _ in 0..500 {
        left = store.patiently(workload, || store.names(OPEN)).await?;
        let dead: Vec<String> = store.patiently(workload, || store.names(DEAD)).await?;
        if left.is_empty() && dead.is_empty() {
            break;
        }
        if !dead.is_empty() {
            store.patiently(workload, || replay(store, Replay::SameId)).await?;
        }
        left.extend(dead);
        store.clock.sleep(Duration::from_secs(2)).await;
    }
    Ok(left)
}

struct Relaying {
    stop: ShutdownHandle,
    task: tokio::task::JoinHandle<()>,
}

impl Relaying {
    fn start(
        store: &Store,
        transport: &Arc<dyn Transport>,
        callback: Option<DeadLetterCallback<i64>>,
        options: RelayOptions,
    ) -> Result<Self, Error> {
        let (timer, random) = (Arc::clone(&store.clock) as _, Arc::clone(&store.random) as _);
        let mut relay =
            Relay::builder(store.db.clone(), Source::new("shop")?, timer, random).options(options);
        for destination in DESTINATIONS {
            relay = relay.destination(Destination::new(destination)?, Arc::clone(transport))?;
        }
        if let Some(callback) = callback {
            relay = relay.on_dead_letter(callback);
        }
        let (stop, shutdown) = Shutdown::new();
        Ok(Self { stop, task: tokio::spawn(relay.build()?.run(shutdown)) })
    }

    async fn stop(self) {
        self.stop.request();
        let _: Result<(), _> = self.task.await;
    }
}

/// What a database of this side holds, and what a relay then delivers of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    orders: BTreeSet<String>,
    messages: BTreeSet<String>,
    dead: BTreeSet<String>,
    delivered: BTreeSet<String>,
}

impl Facts {
    async fn read(store: &Store) -> Result<Self, Error> {
        Ok(Self {
            orders: store.names(ORDERS).await?,
            messages: store.names(MESSAGES).await?,
            dead: store.names(DEAD).await?,
            delivered: BTreeSet::new(),
        })
    }

    /// Compares them with what was told before the cut.
    pub(super) fn judge(&self, told: &Told) -> Result<(), String> {
        let Self { orders, messages, dead, delivered } = self;
        if let Some(id) = told.missing(ENQUEUED, orders) {
            return Err(format!("order {id} was acknowledged and is lost"));
        }
        if let Some(id) = told.missing(SENT, orders) {
            return Err(format!("message {id} was sent and its order is gone"));
        }
        if let (Some(id), None) = (told.missing(DIED, dead), told.all(REPLAYED).next()) {
            return Err(format!("the death of message {id} was announced and is forgotten"));
        }
        let open = |id: &&String| !told.has(ACKNOWLEDGED, id);
        // A message that is not there any more was sent and swept.
        if let Some(id) = orders.difference(messages).find(open) {
            return Err(format!("order {id} has no message"));
        }
        if let Some(id) = messages.difference(orders).next() {
            return Err(format!("message {id} has no order"));
        }
        match orders.difference(delivered).find(open) {
            Some(id) => Err(format!("message {id} was never delivered")),
            None => Ok(()),
        }
    }
}

/// Looks at a recovered database and lets a relay deliver all of it.
pub(super) async fn examine(store: &Store, workload: &Workload) -> Result<Facts, Error> {
    let calm = Workload { fault: None, ..*workload };
    let mut facts = Facts::read(store).await?;
    let listed: Vec<String> = store.names(MESSAGES).await?;
    if listed.len() > facts.messages.len() {
        return Err(wrong("a message is there twice"));
    }
    let delivered = Arc::new(Mutex::new(BTreeSet::new()));
    let heard = Arc::clone(&delivered);
    let sink = ScriptedTransport::each(move |message| {
        heard.lock().unwrap_or_else(PoisonError::into_inner).insert(subject(message));
        Answer::Done(Some(Response::empty()))
    });
    let relay =
        Relaying::start(store, &(Arc::new(sink) as Arc<dyn Transport>), None, RelayOptions::default())?;
    let left = drain(store, &calm).await?;
    relay.stop().await;
    if !left.is_empty() {
        return Err(wrong(&format!("stuck: {left:?}")));
    }
    facts.delivered = std::mem::take(&mut *delivered.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(facts)
}

/// What is wrong with a database.
pub(super) fn wrong(text: &str) -> Error {
    Error::new(twobox_core::ErrorKind::Corrupt, text)
}
