//! Shop: places orders with their messages, and relays them over a network that has its moments.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::config::Timing;
use twobox_core::name::OnceKey;
use twobox_core::ports::{Answer, DeliveryError, Link, Transport};
use twobox_core::retry::Policy;
use twobox_core::signing::{Keyring, Keyrings};
use twobox_core::system::SystemRandom;
use twobox_core::{BoxError, Destination, Error, Message, NewMessage, OrderingKey, Source, Stamp};
use twobox_engine::relay::{DeadLetterCallback, RelayOptions};
use twobox_engine::{InProcess, Receiver, Relay, SystemTimer};
use twobox_http::Http;
use twobox_sqlite::{Once, Sqlite};

use crate::clock::LATER;
use crate::orders::{endpoint, key, kind};

/// The ledger keeps what the sweep removes from the log.
pub(crate) const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, ordering_key TEXT,
                                        message_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ledger (message_id TEXT NOT NULL, destination TEXT NOT NULL, endpoint TEXT NOT NULL,
                                        payload BLOB NOT NULL, available_at INTEGER NOT NULL)",
    "CREATE TRIGGER IF NOT EXISTS note_message AFTER INSERT ON outbox_log BEGIN
         INSERT INTO ledger VALUES (NEW.message_id, NEW.destination, NEW.endpoint, NEW.payload,
                                    coalesce(NEW.due_at, NEW.created_at)); END",
    "CREATE TABLE IF NOT EXISTS callbacks (message_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS poison (x INTEGER PRIMARY KEY)",
    "INSERT OR IGNORE INTO poison VALUES (1)",
];

/// Places orders one after another.
pub(crate) async fn place(shop: &Sqlite, orders: Range<i64>) -> Result<(), Error> {
    for order in orders {
        place_one(shop.clone(), order).await?;
    }
    Ok(())
}

/// Places orders in one group of transactions. Returns how many were missing.
pub(crate) async fn place_together(shop: &Sqlite, orders: Range<i64>) -> Result<usize, BoxError> {
    together(shop, orders.map(|order| place_one(shop.clone(), order)).collect()).await
}

/// Places orders in one group with a transaction that takes the whole group down.
pub(crate) async fn place_beside_poison(shop: &Sqlite, orders: Range<i64>) -> Result<usize, BoxError> {
    // The poison comes last, when the others have something to lose.
    let poisoning: Placing = Box::pin(poison(shop.clone()));
    let orders = orders.map(|order| place_one(shop.clone(), order));
    together(shop, orders.chain([poisoning]).collect()).await
}

type Placing = BoxFuture<'static, Result<usize, Error>>;

/// Order and message in one transaction; an order that is there has its message. Returns how many were missing.
fn place_one(shop: Sqlite, order: i64) -> Placing {
    Box::pin(async move {
        let message = message(&shop, order)?;
        let db = shop.clone();
        shop.transaction::<_, Error, _>(move |tx| {
            let insert = "INSERT OR IGNORE INTO orders VALUES (?1, ?2, ?3, ?4)";
            if tx.execute(insert, (order, kind(order), key(order), message.id.as_str()))? == 0 {
                return Ok(0);
            }
            if kind(order) != "once" {
                return db.append(tx, &message).map(|()| 1);
            }
            let key = OnceKey::new(format!("order {order}"))?;
            let (first, again) = (db.append_once(tx, &key, &message)?, db.append_once(tx, &key, &message)?);
            let (enqueued, already) = (Once::Enqueued(message.id.clone()), Once::Already(message.id.clone()));
            if (first, again) == (enqueued, already) { Ok(1) } else { Err(Error::invalid("not once")) }
        })
        .await
    })
}

fn message(shop: &Sqlite, order: i64) -> Result<Message, Error> {
    let stamp = Stamp::new(Source::new("shop")?, shop.clock(), shop.random());
    let destination = if kind(order) == "archive" { "archive" } else { "billing" };
    let mut new = NewMessage::json(destination, endpoint(order), &(order, kind(order)))?;
    if let Some(key) = key(order) {
        new = new.ordering_key(OrderingKey::new(key)?);
    }
    if kind(order) == "later" {
        new = new.due(shop.clock().now().plus(LATER));
    }
    stamp.message(&new)
}

/// A transaction that leaves its neighbours without theirs: SQLite itself rolls everything back.
async fn poison(shop: Sqlite) -> Result<usize, Error> {
    let poisoned = shop
        .transaction::<_, Error, _>(|tx| tx.execute("INSERT OR ROLLBACK INTO poison VALUES (1)", []))
        .await;
    if poisoned.is_err() { Ok(0) } else { Err(Error::invalid("the poison did nothing")) }
}

/// Has the writer take all of these as one group: it is kept busy until they have queued up. Returns their sum.
async fn together(shop: &Sqlite, jobs: Vec<Placing>) -> Result<usize, BoxError> {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let mut tasks = vec![tokio::spawn(wait_at(shop.clone(), gate))];
    tokio::task::yield_now().await;
    tasks.extend(jobs.into_iter().map(tokio::spawn));
    tokio::task::yield_now().await;
    drop(open);
    let mut sum = 0;
    for task in tasks {
        sum += task.await??;
    }
    Ok(sum)
}

/// Keeps the writer busy until the other end of the gate is dropped.
async fn wait_at(shop: Sqlite, gate: std::sync::mpsc::Receiver<()>) -> Result<usize, Error> {
    shop.transaction(move |_| {
        let _: Result<(), _> = gate.recv();
        Ok(0)
    })
    .await
}

/// Makes the writer doubt its connection, as a failed sync would: code of ours panics on its thread.
pub(crate) async fn fail_a_commit(shop: &Sqlite) -> Result<(), Error> {
    let db = shop.clone();
    let left =
        tokio::spawn(async move { db.transaction::<(), Bomb, _>(|_| panic_silently()).await.is_err() });
    // It goes off here as well, when the transaction's failure has to be told.
    let _: Result<bool, _> = left.await;
    // This one may have been in the same group, and learn nothing, or not what became of it.
    let _: Result<(), Error> = shop.transaction(|_| Ok(())).await;
    // Only once it has reopened the file may anybody else open it: it must have it for itself to recover.
    shop.transaction(|_| Ok(())).await
}

/// An error that cannot be made of others.
struct Bomb;

impl From<Error> for Bomb {
    fn from(_: Error) -> Self {
        panic_silently()
    }
}

/// Panics without a line on the console.
fn panic_silently() -> ! {
    std::panic::resume_unwind(Box::new("a bomb"))
}

/// The keys with which shop signs.
pub(crate) fn keyrings() -> Result<Keyrings, Error> {
    Keyrings::of("shop", keyring()?)
}

fn keyring() -> Result<Keyring, Error> {
    Keyring::of("crash", &[7; 32])
}

pub(crate) fn relay(
    shop: &Sqlite,
    billing: SocketAddr,
    archive: &Receiver<Sqlite>,
) -> Result<Relay<Sqlite>, Error> {
    let retry = Policy::default().base(Duration::from_millis(5)).max(Duration::from_millis(50));
    let retry = retry.jitter(Duration::ZERO);
    let timing = Timing {
        request_timeout: Duration::from_millis(500),
        // Longer than it takes to start the one who finds it: of leases that are over, no dead owner is named. Nobody waits
        // for the end of it.
        lease: Duration::from_secs(5),
        retry: retry.clone(),
        ..Timing::default()
    };
    let options = RelayOptions {
        timing,
        batch_messages_max: 3,
        in_flight_max: 2,
        sending_shown_after: Duration::ZERO,
        probe: retry,
        shutdown_timeout: Duration::from_secs(2),
        ..RelayOptions::default()
    };
    let network = Network {
        http: Http::signed(&format!("http://{billing}"), keyring()?)?,
        requests: AtomicU32::new(0),
    };
    let (timer, random) = (Arc::new(SystemTimer::default()), Arc::new(SystemRandom::default()));
    Relay::builder(shop.clone(), Source::new("shop")?, timer, random)
        .destination(Destination::new("billing")?, Arc::new(network))?
        .default_transport(Arc::new(InProcess::to(archive.clone())))
        .options(options)
        .on_dead_letter(callback(shop))
        .build()
}

/// Real requests, of which the second does not arrive, and the third is answered to nobody.
struct Network {
    http: Http,
    requests: AtomicU32,
}

impl Transport for Network {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let is_probe = batch.is_empty();
        let nth = if is_probe { 0 } else { self.requests.fetch_add(1, Ordering::Relaxed) + 1 };
        let delivered = self.http.deliver(link, batch, timeout);
        Box::pin(async move {
            match nth {
                2 => Err(DeliveryError::unreachable("no way there")),
                3 => delivered.await.and(Err(DeliveryError::ambiguous("the answer was lost"))),
                _ => delivered.await,
            }
        })
    }
}

fn callback(shop: &Sqlite) -> DeadLetterCallback<i64> {
    let shop = shop.clone();
    Arc::new(move |letter| {
        let shop = shop.clone();
        Box::pin(async move {
            let insert = "INSERT INTO callbacks (message_id) VALUES (?1)";
            shop.transaction::<_, Error, _>(move |tx| tx.execute(insert, [&letter.message_id])).await?;
            Ok(())
        })
    })
}
