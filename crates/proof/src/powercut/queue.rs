//! The receiver's queue: messages are stored and acknowledged, then claimed, handled, tried again, given up, replayed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use twobox_core::ports::{Answer, HeadPolicy, Queue, QueueStore as _, Work, WorkFilter};
use twobox_core::{
    BoxError, Clock as _, Consumer, Destination, Endpoint, Error, HandlerResult, Message, MessageId,
    NewMessage, OrderingKey, Payload, Random as _, Refusal, Response, Source, Stamp,
};
use twobox_engine::receiver::Route;
use twobox_engine::worker::{External, Handling, WorkerOptions};
use twobox_engine::{Receiver, Shutdown, ShutdownHandle, Timer as _, Worker};
use twobox_sqlite::{Durability, Sqlite, SqliteHandler};
use twobox_testkit::disk::Disk;

use super::neighbour;
use super::shop::wrong;
use super::style::{Chance, Style};
use super::told::{CALLED, DONE, ENQUEUED, Told, mark};
use super::workload::{Store, Workload};

const BUDGET: Duration = Duration::from_secs(5);
const MANY: usize = 1000;

/// Handled in the transaction that ends the message.
const PAY: &str = "Pay";
/// Handled outside of the database.
const CALL: &str = "Call";

const EFFECT: &str = "INSERT INTO effects (id) VALUES (?1)";
const EFFECTS: &str = "SELECT id FROM effects ORDER BY n";
const ORDERS: &str = "SELECT id FROM orders";
const ROWS: &str = "SELECT message_id FROM inbox ORDER BY row_id";
const HANDLED: &str = "SELECT message_id FROM inbox WHERE status = 'Done'";
const LEFT: &str = "SELECT i.message_id FROM inbox_queue AS q JOIN inbox AS i ON i.row_id = q.item_id";
/// Messages that somebody has to handle and nobody can find, and work that belongs to no message.
const ASTRAY: &str = "
    SELECT message_id FROM inbox WHERE status <> 'Done' AND row_id NOT IN (SELECT item_id FROM inbox_queue)
    UNION ALL
    SELECT 'item ' || q.item_id FROM inbox_queue AS q
    WHERE NOT EXISTS (SELECT 1 FROM inbox AS i WHERE i.row_id = q.item_id AND i.peer_id = q.peer_id
                      AND (i.status = 'Processing') = (q.state = 'Open') AND i.status <> 'Done')";

/// How a message comes into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A receiver stores what a sender delivers.
    Delivered,
    /// Somebody queues it.
    Enqueued,
    /// Somebody queues it together with an order.
    Ordered,
}

/// What a message is like.
#[derive(Clone, Debug)]
struct Deed {
    way: Way,
    is_external: bool,
    key: Option<String>,
    /// Not before this long after it was stored.
    delay: Option<Duration>,
    ttl: Option<Duration>,
}

impl Deed {
    fn of(seed: u64, n: usize) -> Self {
        let chance = Chance::of(seed, n as u64);
        let is_external = chance.one_in(5);
        Self {
            way: chance.pick([Way::Delivered, Way::Enqueued, Way::Ordered]),
            is_external,
            key: (chance.one_in(2) && !is_external).then(|| format!("k{}", chance.below(2))),
            delay: chance.one_in(6).then(|| Duration::from_millis(1 + chance.below(20_000))),
            ttl: chance.one_in(12).then_some(Duration::from_secs(3)),
        }
    }

    fn of_id(seed: u64, id: &str) -> Self {
        Self::of(seed, id.trim_start_matches('m').parse().unwrap_or(usize::MAX))
    }
}

fn id(n: usize) -> String {
    format!("m{n:03}")
}

/// Stores messages in groups of one to four callers while a worker handles them; some come again, some are replayed.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let style = Style::of(workload.seed);
    let hands = Hands {
        store: store.clone(),
        workload: *workload,
        disk: Some(Arc::clone(disk)),
        called: Arc::default(),
    };
    let working = Working::start(&hands)?;
    let receiver = receiver(store)?;
    let mut at = 0;
    while at < workload.messages {
        let size = 1 + usize::try_from(store.random.next_u64() % 4)?;
        let range = at..(at + size).min(workload.messages);
        let callers: Vec<_> = range.map(|n| put(store, &receiver, disk, workload, n)).collect();
        for caller in callers {
            caller.await?.map_err(|error| format!("a message is refused for ever: {}", error.chain()))?;
        }
        at += size;
        store.clock.sleep(Duration::from_millis(store.random.next_u64() % 3000)).await;
        if style.neighbour && store.random.next_u64().is_multiple_of(2) {
            neighbour::visit(store, disk);
        }
        let old = usize::try_from(store.random.next_u64() % at.min(workload.messages) as u64)?;
        // What a fault may have taken would come back without the order that it belongs to.
        if workload.keeps_acknowledged() || Deed::of(workload.seed, old).way != Way::Ordered {
            deliver(store, &receiver, disk, workload, old).await?;
        }
        if style.replays && store.random.next_u64().is_multiple_of(3) {
            store.patiently(workload, || replay(store, workload)).await?;
        }
    }
    if workload.fault.is_some() {
        let left = drain(store, workload).await?;
        if !left.is_empty() {
            return Err(format!("stuck after a fault: {left:?}").into());
        }
        let facts = store.patiently(workload, || Facts::read(store, workload)).await?;
        facts.judge(&Told::new(workload.keeps_acknowledged()).up_to(&disk.record(), usize::MAX))?;
    }
    working.stop().await;
    Ok(())
}

/// Stores one message, in a task of its own, so that several share a commit, and notes that it is stored.
fn put(
    store: &Store,
    receiver: &Receiver<Sqlite>,
    disk: &Arc<Disk>,
    workload: &Workload,
    n: usize,
) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (store, receiver, disk, workload) = (store.clone(), receiver.clone(), Arc::clone(disk), *workload);
    tokio::spawn(async move {
        let (message, queue) = (message(&store, &workload, n)?, queue(&workload)?);
        let work = Work { message, hash: None };
        match Deed::of(workload.seed, n).way {
            Way::Delivered => return deliver(&store, &receiver, &disk, &workload, n).await,
            Way::Enqueued => {
                store.patiently(&workload, || store.db.enqueue_work(&queue, &work)).await?;
            }
            Way::Ordered => {
                let attempt = || {
                    let (db, queue, work) = (store.db.clone(), queue.clone(), work.clone());
                    store.db.transaction::<_, Error, _>(move |tx| {
                        tx.execute(
                            "INSERT INTO orders VALUES (?1) ON CONFLICT DO NOTHING",
                            [work.message.id.as_str()],
                        )?;
                        db.enqueue_work_in(tx, &queue, &work)
                    })
                };
                store.patiently(&workload, attempt).await?;
            }
        }
        disk.mark(mark(ENQUEUED, &id(n)));
        Ok(())
    })
}

/// Delivers a message, perhaps again, and notes what was answered. One that has an order is queued by its own service.
async fn deliver(
    store: &Store,
    receiver: &Receiver<Sqlite>,
    disk: &Disk,
    workload: &Workload,
    n: usize,
) -> Result<(), Error> {
    let batch = vec![Arc::new(message(store, workload, n)?)];
    let answers = store.patiently(workload, || receiver.receive(batch.clone(), BUDGET)).await?;
    match answers.first() {
        Some(Answer::Done(_) | Answer::Duplicate(None)) => disk.mark(mark(ENQUEUED, &id(n))),
        Some(Answer::Duplicate(Some(_))) => disk.mark(mark(DONE, &id(n))),
        _ => {}
    }
    Ok(())
}

fn message(store: &Store, workload: &Workload, n: usize) -> Result<Message, Error> {
    let stamp =
        Stamp::new(Source::new("shop")?, Arc::clone(&store.clock) as _, Arc::clone(&store.random) as _);
    let (deed, id) = (Deed::of(workload.seed, n), id(n));
    let topic = Endpoint::new(if deed.is_external { CALL } else { PAY })?;
    // Large enough for the rows to lie on many pages.
    let payload = Payload::new(id.repeat(100).into_bytes());
    let mut new = NewMessage::raw(Destination::new("billing")?, topic, "text/plain", payload);
    if let Some(key) = deed.key {
        new = new.ordering_key(OrderingKey::new(key)?);
    }
    if let Some(delay) = deed.delay {
        new = new.due(store.clock.now().plus(delay));
    }
    if let Some(ttl) = deed.ttl {
        new = new.ttl(ttl);
    }
    stamp.message(&new.id(MessageId::new(id)?))
}

fn receiver(store: &Store) -> Result<Receiver<Sqlite>, Error> {
    Receiver::builder(store.db.clone(), Consumer::new("billing")?, Arc::clone(&store.clock) as _)
        .route(Endpoint::new(PAY)?, Route::Queued)?
        .route(Endpoint::new(CALL)?, Route::Queued)
        .map(twobox_engine::receiver::ReceiverBuilder::build)
}

fn queue(workload: &Workload) -> Result<Queue, Error> {
    let relay = Style::of(workload.seed).relay;
    let (retry, head_policy) = (relay.timing.retry, relay.head_policy);
    Ok(Queue { consumer: Consumer::new("billing")?, retry, head_policy })
}

async fn replay(store: &Store, workload: &Workload) -> Result<(), Error> {
    store.db.replay_work(&queue(workload)?, &WorkFilter::default(), MANY).await.map(drop)
}

/// Lets a worker go on, and replays what dies, until nothing is left to do. Returns what is, if that takes for ever.
async fn drain(store: &Store, workload: &Workload) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for _ in 0..300 {
        left = store.patiently(workload, || store.names(LEFT)).await?;
        if left.is_empty() {
            break;
        }
        store.patiently(workload, || replay(store, workload)).await?;
        store.clock.sleep(Duration::from_secs(7)).await;
    }
    Ok(left)
}

/// What handles messages.
#[derive(Clone)]
struct Hands {
    store: Store,
    workload: Workload,
    /// Before the cut, handlers fail now and then, and what is done outside is noted.
    disk: Option<Arc<Disk>>,
    called: Arc<Mutex<BTreeSet<String>>>,
}

impl Hands {
    /// Fails now and then, before the cut.
    fn fickle(&self) -> HandlerResult<Response> {
        match (&self.disk, self.store.random.next_u64() % 16) {
            (Some(_), 0..3) => Err(Refusal::retry("not now")),
            (Some(_), 3) => Err(Refusal::reject("never")),
            _ => Ok(Response::empty()),
        }
    }

    fn transactional(&self) -> Handling<SqliteHandler> {
        let hands = self.clone();
        if self.workload.apart {
            return Handling::External(Arc::new(move |context| {
                let (hands, id) = (hands.clone(), context.message.id.to_string());
                Box::pin(async move {
                    let db = &hands.store.db;
                    db.transaction::<_, Error, _>(move |tx| tx.execute(EFFECT, [&id])).await?;
                    Ok(Response::empty())
                })
            }));
        }
        Handling::Transactional(SqliteHandler::new(move |tx, message| {
            tx.execute(EFFECT, [message.id.as_str()])?;
            hands.fickle()
        }))
    }

    fn external(&self) -> External {
        let hands = self.clone();
        Arc::new(move |context| {
            let called = hands.call(context.message.id.as_str());
            Box::pin(async move { called })
        })
    }

    fn call(&self, id: &str) -> HandlerResult<Response> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).insert(id.into());
        if let Some(disk) = &self.disk {
            disk.mark(mark(CALLED, id));
        }
        self.fickle()
    }
}

struct Working {
    stop: ShutdownHandle,
    task: tokio::task::JoinHandle<()>,
}

impl Working {
    fn start(hands: &Hands) -> Result<Self, Error> {
        let Hands { store, workload, .. } = hands;
        let batch = Style::of(workload.seed).relay.batch_messages_max;
        let options = WorkerOptions { batch, in_hand_max: 3 * batch, ..WorkerOptions::default() };
        let timer = Arc::clone(&store.clock) as _;
        let worker = Worker::builder(store.db.clone(), queue(workload)?, timer, &*store.random)
            .topic(Endpoint::new(PAY)?, hands.transactional())?
            .topic(Endpoint::new(CALL)?, Handling::External(hands.external()))?
            .options(options)
            .build()?;
        let (stop, shutdown) = Shutdown::new();
        Ok(Self { stop, task: tokio::spawn(worker.run(shutdown)) })
    }

    async fn stop(self) {
        self.stop.request();
        let _: Result<(), _> = self.task.await;
    }
}

/// What a database of this side holds, and what a worker then calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    rows: BTreeSet<String>,
    handled: BTreeSet<String>,
    /// Those among them that are handled outside of the database.
    external: BTreeSet<String>,
    called: BTreeSet<String>,
    /// Whether what was called must be there: with the weaker durability it may be lost like anything else.
    keeps_called: bool,
}

impl Facts {
    /// Compares them with what was told before the cut.
    pub(super) fn judge(&self, told: &Told) -> Result<(), String> {
        if let Some(id) = told.missing(ENQUEUED, &self.rows) {
            return Err(format!("{id} was acknowledged and is lost"));
        }
        if let Some(id) = told.missing(DONE, &self.handled) {
            return Err(format!("{id} was acknowledged and its effect is lost"));
        }
        if let (Some(id), true) = (told.missing(CALLED, &self.rows), self.keeps_called) {
            return Err(format!("{id} was called and is not there"));
        }
        let called = |id: &&String| self.called.contains(*id) || told.has(CALLED, id);
        match self.external.iter().find(|id| !called(id)) {
            Some(id) => Err(format!("{id} counts as handled and was never called")),
            None => Ok(()),
        }
    }

    async fn read(store: &Store, workload: &Workload) -> Result<Self, Error> {
        let rows: Vec<String> = store.names(ROWS).await?;
        let handled: BTreeSet<String> = store.names(HANDLED).await?;
        let effects = effects(store).await?;
        let deed = |id: &String| Deed::of_id(workload.seed, id);
        let (external, inside): (BTreeSet<_>, BTreeSet<_>) =
            handled.iter().cloned().partition(|id| deed(id).is_external);
        let seen: BTreeSet<String> = effects.into_iter().collect();
        if let (Some(id), false) = (seen.symmetric_difference(&inside).next(), workload.apart) {
            return Err(wrong(&format!(
                "{id} has an effect and does not count as handled, or the other way round"
            )));
        }
        if let Some(id) = store.names::<Vec<String>>(ASTRAY).await?.first() {
            return Err(wrong(&format!("{id} is astray between inbox and queue")));
        }
        let orders: BTreeSet<String> = store.names(ORDERS).await?;
        let ordered = rows.iter().filter(|id| deed(id).way == Way::Ordered).cloned().collect();
        if orders != ordered {
            return Err(wrong("orders and their work differ: one was committed without the other"));
        }
        Ok(Self {
            rows: rows.into_iter().collect(),
            handled,
            external,
            called: BTreeSet::new(),
            keeps_called: workload.durability == Durability::Full,
        })
    }
}

/// All effects in their order, none twice.
async fn effects(store: &Store) -> Result<Vec<String>, Error> {
    let effects: Vec<String> = store.names(EFFECTS).await?;
    let mut seen = BTreeSet::new();
    match effects.iter().find(|id| !seen.insert(*id)) {
        Some(id) => Err(wrong(&format!("the effect of {id} is there twice"))),
        None => Ok(effects),
    }
}

/// Messages of a key that blocks have their effects in the order in which they were stored. Those for later join their
/// key when they are due.
async fn check_order(store: &Store, workload: &Workload) -> Result<(), Error> {
    if queue(workload)?.head_policy != HeadPolicy::Block {
        return Ok(());
    }
    let (stored, effects) = (store.names::<Vec<String>>(ROWS).await?, effects(store).await?);
    for key in ["k0", "k1"] {
        let of_key = |id: &&String| {
            let deed = Deed::of_id(workload.seed, id);
            deed.key.as_deref() == Some(key) && deed.delay.is_none()
        };
        if stored.iter().filter(of_key).ne(effects.iter().filter(of_key)) {
            return Err(wrong(&format!("a message of {key} has overtaken another: {effects:?}")));
        }
    }
    Ok(())
}

/// Looks at a recovered database, delivers everything again and lets a worker finish all of it: what is stored is a
/// duplicate, the rest is stored now, and in the end each message has its effect once.
pub(super) async fn examine(store: &Store, workload: &Workload) -> Result<Facts, Error> {
    let mut facts = Facts::read(store, workload).await?;
    let hands = Hands { store: store.clone(), workload: *workload, disk: None, called: Arc::default() };
    let working = Working::start(&hands)?;
    let wanted = |n: &usize| Deed::of(workload.seed, *n).way != Way::Ordered || facts.rows.contains(&id(*n));
    let all: Vec<usize> = (0..workload.messages).filter(wanted).collect();
    let batch: Vec<_> =
        all.iter().map(|n| message(store, workload, *n).map(Arc::new)).collect::<Result<_, _>>()?;
    let answers = receiver(store)?.receive(batch.clone(), BUDGET).await?;
    for (message, answer) in batch.iter().zip(answers) {
        let id = message.id.as_str();
        let right = match &answer {
            Answer::Duplicate(_) => facts.rows.contains(id),
            Answer::Done(_) => !facts.rows.contains(id),
            _ => false,
        };
        if !right {
            return Err(wrong(&format!("{id} was answered {answer:?}, which is wrong for {facts:?}")));
        }
    }
    let left = drain(store, workload).await?;
    working.stop().await;
    if !left.is_empty() {
        return Err(wrong(&format!("stuck: {left:?}")));
    }
    let finished = Facts::read(store, workload).await?;
    if finished.handled != all.into_iter().map(id).collect() {
        return Err(wrong(&format!("not everything is handled: {finished:?}")));
    }
    check_order(store, workload).await?;
    facts.called = std::mem::take(&mut *hands.called.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(facts)
}
