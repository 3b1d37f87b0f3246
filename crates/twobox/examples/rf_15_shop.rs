//! The sender of the failure scenarios (RF-15): a process that a test lets die, and starts again.
//!
//! `rf_15_shop DATABASE URL TIMEOUT_MILLIS` prints `ready`, then does what the lines on its input say:
//!
//! - `relay` starts the relay. Before that, every commit is one of its own, so that a crash point can be counted.
//! - `place FIRST LAST TTL_MILLIS` places orders, each with its message, all in one transaction. Prints `written`
//!   before that transaction commits, and `placed` afterwards or `refused` with the error.
//!
//! It ends when its input does.

mod rf_15;

use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use twobox::{
    BoxError, ClientLimits, DeadLetter, Http, MessageId, Outbox, Policy, RelayOptions, Signal, Sqlite,
    Timing, Twobox,
};

use crate::rf_15::{BILLING, OrderPlaced, SHOP, describe, end, keyring};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end(&run().await)
}

async fn run() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, url, timeout] = arguments.as_slice() else {
        return Err("usage: rf_15_shop DATABASE URL TIMEOUT_MILLIS".into());
    };
    let timeout = Duration::from_millis(timeout.parse()?);
    let db = open(database).await?;
    let limits = ClientLimits { answer_timeout: timeout, ..ClientLimits::default() };
    let cancelling = db.clone();
    let shop = Twobox::builder(SHOP, &db)
        .destination(BILLING, Http::signed(url, keyring()?)?.limits(limits))
        .relay(options(timeout))
        .on_dead_letter(move |letter| cancel(cancelling.clone(), letter))
        .build()?;
    println!("ready");
    obey(&db, &shop).await
}

async fn open(path: &str) -> twobox::Result<Sqlite> {
    let db = Sqlite::open(path).await?;
    db.migrate().await?;
    let create = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)";
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(create, [])).await?;
    Ok(db)
}

/// The lease stays as long as it is by default: longer than the test waits after a crash.
fn options(timeout: Duration) -> RelayOptions {
    let probe = Policy::default().base(Duration::from_millis(50)).max(Duration::from_millis(200));
    RelayOptions {
        timing: Timing { request_timeout: timeout, ..Timing::default() },
        probe: probe.jitter(Duration::ZERO),
        ..RelayOptions::default()
    }
}

/// The compensating action: an order that billing will never hear of is cancelled.
async fn cancel(db: Sqlite, letter: DeadLetter<i64>) -> Result<(), BoxError> {
    let state = format!("cancelled: {}", letter.reason);
    let update = "UPDATE orders SET state = ?2 WHERE 'order-' || id = ?1";
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(update, (&letter.message_id, &state))).await?;
    Ok(())
}

async fn obey(db: &Sqlite, shop: &Twobox) -> Result<(), BoxError> {
    let mut running = None;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["relay"] => running = Some(shop.start()),
            ["place", first, last, ttl] => {
                let ttl = Duration::from_millis(ttl.parse()?);
                match place(db, shop.outbox(), first.parse()?, last.parse()?, ttl).await {
                    Ok(()) => println!("placed"),
                    Err(error) => println!("refused {}", describe(&error.into())),
                }
            }
            _ => return Err(format!("what is {line:?}?").into()),
        }
    }
    if let Some(running) = running {
        running.shutdown().await;
    }
    Ok(())
}

/// The business transaction: the orders and their messages exist together, or none of them does.
async fn place(db: &Sqlite, outbox: Outbox, first: i64, last: i64, ttl: Duration) -> twobox::Result<()> {
    db.transaction(move |tx| {
        for order in first..=last {
            tx.execute("INSERT INTO orders VALUES (?1, 'placed')", [order])?;
            let id = MessageId::new(format!("order-{order}"))?;
            outbox.enqueue(tx, &OrderPlaced { order }.to(BILLING)?.id(id).ttl(ttl))?;
        }
        println!("written");
        Ok(())
    })
    .await
}
