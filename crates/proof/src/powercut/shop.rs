//! The sender's side: orders and their messages in one transaction, relayed, settled, swept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{Answer, DeliveryError, SweepPlan, SweepStore, Transport};
use twobox_core::{
    BoxError, Destination, Error, Message, MessageId, NewMessage, OrderingKey, Random, Response, Source,
    Stamp,
};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Relay, Shutdown, ShutdownHandle, Timer as _};
use twobox_testkit::ScriptedTransport;
use twobox_testkit::disk::{Disk, Record};

use super::run::{Store, Workload};

const ORDERS: &str = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)";

/// Marks of a record: the transaction returned, or the receiver has acknowledged.
const ENQUEUED: &str = "enqueued ";
const ACKNOWLEDGED: &str = "acknowledged ";

/// Places orders in groups of one to five callers, while a relay delivers and a sweeper trims.
pub(super) async fn work(store: &Store, disk: &Arc<Disk>, workload: &Workload) -> Result<(), BoxError> {
    let tolerant = workload.fault.is_some();
    settle(store.db.transaction::<_, Error, _>(|tx| tx.execute(ORDERS, [])).await.map(drop), tolerant)?;
    let marks = Arc::clone(disk);
    let random = Arc::clone(&store.random);
    let transport = ScriptedTransport::new(move |_, batch| {
        if random.next_u64().is_multiple_of(7) {
            return Err(DeliveryError::ambiguous("cut"));
        }
        let answer = |message: &Arc<Message>| {
            if random.next_u64().is_multiple_of(5) {
                return Answer::Retry { after: None, error: "not now".into() };
            }
            marks.mark(format!("{ACKNOWLEDGED}{}", message.id));
            Answer::Done(Some(Response::empty()))
        };
        Ok(batch.iter().map(answer).collect())
    });
    let relay = Relaying::start(store, Arc::new(transport))?;
    let mut placed = 0;
    while placed < workload.messages {
        let group = 1 + usize::try_from(store.random.next_u64() % 5)?;
        let callers: Vec<_> = (placed..placed + group).map(|n| place(store, disk, n)).collect();
        for caller in callers {
            settle(caller.await?, tolerant)?;
        }
        placed += group;
        store.clock.sleep(Duration::from_millis(store.random.next_u64() % 3000)).await;
        if store.random.next_u64().is_multiple_of(4) {
            let plan = SweepPlan { sent_retention: Duration::ZERO, batch: 3, ..SweepPlan::default() };
            settle(store.db.sweep(&plan).await.map(drop), tolerant)?;
        }
    }
    relay.stop().await;
    Ok(())
}

/// Passes errors on unless something was made to fail.
pub(super) fn settle(result: Result<(), Error>, tolerant: bool) -> Result<(), BoxError> {
    if tolerant { Ok(()) } else { Ok(result?) }
}

/// One business transaction, in a task of its own, so that several share a commit.
fn place(store: &Store, disk: &Arc<Disk>, n: usize) -> tokio::task::JoinHandle<Result<(), Error>> {
    let (db, disk) = (store.db.clone(), Arc::clone(disk));
    let (clock, random) = (Arc::clone(&store.clock), Arc::clone(&store.random));
    tokio::spawn(async move {
        let id = format!("m{n:03}");
        let stamp = Stamp::new(Source::new("shop")?, clock, random);
        let mut new = NewMessage::json("billing", "Pay", &n)?.id(MessageId::new(&id)?);
        if n.is_multiple_of(3) {
            new = new.ordering_key(OrderingKey::new(format!("k{}", n % 2))?);
        }
        let message = stamp.message(&new)?;
        let (store, name) = (db.clone(), id.clone());
        db.transaction::<_, Error, _>(move |tx| {
            tx.execute("INSERT INTO orders VALUES (?1)", [&name])?;
            store.append(tx, &message)
        })
        .await?;
        disk.mark(format!("{ENQUEUED}{id}"));
        Ok(())
    })
}

struct Relaying {
    stop: ShutdownHandle,
    task: tokio::task::JoinHandle<()>,
}

impl Relaying {
    fn start(store: &Store, transport: Arc<dyn Transport>) -> Result<Self, Error> {
        let relay = Relay::builder(
            store.db.clone(),
            Source::new("shop")?,
            Arc::clone(&store.clock) as _,
            Arc::clone(&store.random) as _,
        )
        .destination(Destination::new("billing")?, transport)?
        .options(RelayOptions { batch_messages_max: 4, ..RelayOptions::default() })
        .build()?;
        let (stop, shutdown) = Shutdown::new();
        Ok(Self { stop, task: tokio::spawn(relay.run(shutdown)) })
    }

    async fn stop(self) {
        self.stop.request();
        let _: Result<(), _> = self.task.await;
    }
}

fn marked(record: &Record, step: usize, kind: &str) -> BTreeSet<String> {
    record.marks(step).filter_map(|mark| mark.0.strip_prefix(kind).map(str::to_owned)).collect()
}

/// How many messages had been acknowledged to their callers before `step`.
pub(super) fn acknowledged(record: &Record, step: usize) -> usize {
    marked(record, step, ENQUEUED).len()
}

/// Checks a recovered database against what had been acknowledged before the cut.
pub(super) async fn check(store: &Store, record: &Record, step: usize) -> Result<(), String> {
    let enqueued = marked(record, step, ENQUEUED);
    let gone = marked(record, step, ACKNOWLEDGED);
    let orders = names(store, "SELECT id FROM orders").await?;
    let messages = names(store, "SELECT message_id FROM outbox_messages").await?;
    if let Some(id) = enqueued.iter().find(|id| !orders.contains(*id)) {
        return Err(format!("order {id} was acknowledged and is lost"));
    }
    // A message that is not there any more was sent and swept.
    if let Some(id) = orders.iter().find(|id| !messages.contains(*id) && !gone.contains(*id)) {
        return Err(format!("order {id} has no message"));
    }
    if let Some(id) = messages.iter().find(|id| !orders.contains(*id)) {
        return Err(format!("message {id} has no order"));
    }
    deliver(store, &orders, &gone).await
}

/// Everything that nobody has acknowledged must still be delivered.
async fn deliver(store: &Store, orders: &BTreeSet<String>, gone: &BTreeSet<String>) -> Result<(), String> {
    let sink = ScriptedTransport::sink();
    let relay = Relaying::start(store, Arc::new(sink.clone())).map_err(|error| error.chain())?;
    let open = "SELECT message_id FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed', 'Expired')";
    for _ in 0..1000 {
        if names(store, open).await?.is_empty() {
            break;
        }
        store.clock.sleep(Duration::from_secs(1)).await;
    }
    let stuck = names(store, open).await?;
    relay.stop().await;
    let sent: BTreeSet<String> = sink.sent().into_iter().collect();
    let dead =
        names(store, "SELECT message_id FROM outbox_messages WHERE status IN ('Failed', 'Expired')").await?;
    match orders.iter().find(|id| !sent.contains(*id) && !gone.contains(*id) && !dead.contains(*id)) {
        _ if !stuck.is_empty() => Err(format!("stuck: {stuck:?}")),
        Some(id) => Err(format!("message {id} was never delivered")),
        None => Ok(()),
    }
}

/// One column of text.
pub(super) async fn names(store: &Store, sql: &'static str) -> Result<BTreeSet<String>, String> {
    let rows = store.db.transaction::<_, Error, _>(move |tx| tx.query(sql, [], |row| row.get::<String>(0)));
    rows.await.map(BTreeSet::from_iter).or_else(|error| {
        // The cut may have come before the tables.
        if error.chain().contains("no such table") { Ok(BTreeSet::new()) } else { Err(error.chain()) }
    })
}
