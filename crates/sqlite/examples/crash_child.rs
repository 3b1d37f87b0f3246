//! A shop and its billing, as a process that a test lets die at a crash point and starts again.
//!
//! `crash_child SHOP BILLING` (the two files may be one): places the orders that are missing, each together with its
//! message, delivers everything, cleans up, and ends well once nothing is left to do.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use twobox_core::config::Timing;
use twobox_core::ports::{SweepPlan, SweepStore};
use twobox_core::retry::Policy;
use twobox_core::system::SystemRandom;
use twobox_core::{
    BoxError, Consumer, Destination, Endpoint, Error, Message, NewMessage, OrderingKey, Refusal, Response,
    Source, Stamp,
};
use twobox_engine::receiver::Route;
use twobox_engine::relay::{DeadLetterCallback, RelayOptions};
use twobox_engine::{InProcess, Receiver, Relay, Shutdown, SystemTimer};
use twobox_sqlite::{Sqlite, SqliteHandler};
use twobox_testkit::eventually;

const ORDERS: i64 = 12;

/// Every fourth order each: goes well; fails at first; waits behind one that fails; can never work.
const KINDS: [&str; 4] = ["plain", "flaky", "plain", "doomed"];

/// The ledger keeps what the sweep removes from the log.
const SHOP: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, message_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ledger (message_id TEXT NOT NULL)",
    "CREATE TRIGGER IF NOT EXISTS note_message AFTER INSERT ON outbox_log
     BEGIN INSERT INTO ledger (message_id) VALUES (NEW.message_id); END",
    "CREATE TABLE IF NOT EXISTS callbacks (message_id TEXT NOT NULL)",
];
const BILLING: [&str; 1] = ["CREATE TABLE IF NOT EXISTS effects (message_id TEXT NOT NULL)"];

/// Messages that are not through, and deaths that nobody was told of.
const OPEN: &str = "
    SELECT (SELECT count(*) FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed'))
         + (SELECT count(*) FROM orders WHERE kind = 'doomed'
            AND message_id NOT IN (SELECT message_id FROM callbacks))";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [shop_path, billing_path] = paths.as_slice() else {
        return Err("usage: crash_child SHOP BILLING".into());
    };
    let shop = open(Path::new(shop_path), &SHOP).await?;
    let billing = open(Path::new(billing_path), &BILLING).await?;
    place_orders(&shop, 0..ORDERS / 2).await?;
    let (handle, shutdown) = Shutdown::new();
    let relay = tokio::spawn(relay(&shop, &billing)?.run(shutdown));
    place_orders(&shop, ORDERS / 2..ORDERS).await?;
    let look = Connection::open(shop_path)?;
    eventually("everything is through", Duration::from_secs(15), async || {
        let open: i64 = look.query_row(OPEN, [], |row| row.get(0)).ok()?;
        (open == 0).then_some(())
    })
    .await;
    handle.request();
    relay.await?;
    // Only now: a dedup window of zero is safe when nothing will be delivered again.
    sweep(&shop).await?;
    sweep(&billing).await?;
    Ok(())
}

async fn open(path: &Path, tables: &'static [&'static str]) -> Result<Sqlite, Error> {
    let db = Sqlite::open(path).await?;
    db.migrate().await?;
    db.transaction(move |tx| tables.iter().try_for_each(|sql| tx.execute(sql, []).map(drop))).await?;
    Ok(db)
}

/// Order and message in one transaction; an order that is there has its message.
async fn place_orders(shop: &Sqlite, range: Range<i64>) -> Result<(), Error> {
    let stamp = Stamp::new(Source::new("shop")?, shop.clock(), shop.random());
    let orders = (0..ORDERS).zip(KINDS.into_iter().cycle());
    for (id, kind) in orders.filter(|(id, _)| range.contains(id)) {
        let customer = OrderingKey::new(format!("customer {}", id / 4))?;
        let new = NewMessage::json("billing", "Pay", &kind)?;
        let message = stamp.message(&if kind == "doomed" { new } else { new.ordering_key(customer) })?;
        let db = shop.clone();
        shop.transaction::<_, Error, _>(move |tx| {
            let order = "INSERT OR IGNORE INTO orders (id, kind, message_id) VALUES (?1, ?2, ?3)";
            if tx.execute(order, (id, kind, message.id.as_str()))? == 1 {
                db.append(tx, &message)?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn relay(shop: &Sqlite, billing: &Sqlite) -> Result<Relay<Sqlite>, Error> {
    let retry = Policy::default().base(Duration::from_millis(20)).max(Duration::from_millis(200));
    let retry = retry.jitter(Duration::ZERO);
    let timing = Timing {
        request_timeout: Duration::from_millis(200),
        lease: Duration::from_millis(500),
        retry: retry.clone(),
        ..Timing::default()
    };
    let options = RelayOptions {
        timing,
        batch_messages_max: 2,
        in_flight_max: 2,
        probe: retry,
        shutdown_timeout: Duration::from_secs(2),
        ..RelayOptions::default()
    };
    let transport = InProcess::to(receiver(billing)?).budget(Duration::from_millis(100));
    let (timer, random) = (Arc::new(SystemTimer::default()), Arc::new(SystemRandom::default()));
    Relay::builder(shop.clone(), Source::new("shop")?, timer, random)
        .destination(Destination::new("billing")?, Arc::new(transport))?
        .options(options)
        .on_dead_letter(callback(shop))
        .build()
}

fn receiver(billing: &Sqlite) -> Result<Receiver<Sqlite>, Error> {
    let clock = billing.clock();
    let first_seen: Mutex<HashMap<String, Duration>> = Mutex::default();
    let handler = SqliteHandler::new(move |tx, message| {
        tx.execute("INSERT INTO effects (message_id) VALUES (?1)", [message.id.as_str()])?;
        let mut first_seen = first_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *first_seen.entry(message.id.to_string()).or_insert_with(|| clock.monotonic());
        match kind(message) {
            "doomed" => Err(Refusal::reject("never")),
            // By time and not by count: a handler may run more than once in one delivery.
            "flaky" if clock.monotonic() < first + Duration::from_millis(50) => {
                Err(Refusal::retry("not yet"))
            }
            _ => Ok(Response::empty()),
        }
    });
    let timer = Arc::new(SystemTimer::default());
    let builder = Receiver::builder(billing.clone(), Consumer::new("billing")?, timer);
    Ok(builder.route(Endpoint::new("Pay")?, Route::Handler(handler))?.build())
}

fn kind(message: &Message) -> &'static str {
    let known = |kind: &&&'static str| message.payload.as_bytes() == format!("{kind:?}").as_bytes();
    KINDS.iter().find(known).copied().unwrap_or("plain")
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

async fn sweep(db: &Sqlite) -> Result<(), Error> {
    let (sent_retention, dedup_window, once_retention) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let plan = SweepPlan { sent_retention, dedup_window, once_retention, batch: 2 };
    while db.sweep(&plan).await?.more {}
    Ok(())
}
