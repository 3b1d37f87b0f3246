//! Shop: places orders, and tells billing about each in the same transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use twobox::{Http, MessageId, Outbox, Policy, RelayOptions, Signal, Sqlite, Twobox};

use super::child::parent_is_gone;
use super::order::{BILLING, ORDER, OrderPlaced, SHOP, keyring};
use crate::Result;

/// Customers at a time.
const CUSTOMERS: usize = 32;
/// Orders are let in about this often, or one by one if there are fewer.
const BEATS_PER_SECOND: u64 = 100;
const PROBE_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct ShopArguments {
    #[arg(long)]
    database: PathBuf,
    #[arg(long)]
    billing: String,
    #[arg(long)]
    orders: u64,
    #[arg(long)]
    orders_per_second: u64,
}

pub(crate) async fn run(arguments: ShopArguments) -> Result<()> {
    let db = Sqlite::open(&arguments.database).await?;
    db.migrate().await?;
    let placed = db
        .transaction::<_, twobox::Error, _>(|tx| {
            tx.execute(
                "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)",
                [],
            )?;
            Ok(tx
                .query("SELECT count(*) FROM orders", [], |row| row.get::<i64>(0))?
                .first()
                .copied()
                .unwrap_or(0))
        })
        .await?;
    let shop = Twobox::builder(SHOP, &db)
        .destination(BILLING, Http::signed(&arguments.billing, keyring()?)?)
        .relay(RelayOptions { probe: probe(), ..RelayOptions::default() })
        .build()?;
    let running = shop.start();
    let outbox = shop.outbox();
    let placing = place(&db, &outbox, u64::try_from(placed)?, &arguments);
    tokio::select! {
        placed = placing => {
            placed?;
            parent_is_gone().await;
        }
        () = parent_is_gone() => {}
    }
    running.shutdown().await;
    Ok(())
}

/// How often billing is asked whether it is back: often, because it is down on purpose and never for long.
fn probe() -> Policy {
    Policy::default().base(PROBE_EVERY).max(PROBE_EVERY * 4).jitter(PROBE_EVERY)
}

/// Places what is missing, at the given rate.
async fn place(db: &Sqlite, outbox: &Outbox, placed: u64, arguments: &ShopArguments) -> Result<()> {
    let next = Arc::new(AtomicU64::new(placed));
    let door = Arc::new(Semaphore::new(0));
    let mut customers: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..CUSTOMERS {
        let (db, outbox, next, door) = (db.clone(), outbox.clone(), Arc::clone(&next), Arc::clone(&door));
        let orders = arguments.orders;
        customers.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < orders {
                door.acquire().await?.forget();
                place_one(&db, &outbox).await?;
            }
            Ok(())
        });
    }
    let opening = open_door(&door, arguments.orders_per_second);
    let placing = async {
        while let Some(customer) = customers.join_next().await {
            customer??;
        }
        Ok(())
    };
    tokio::select! {
        placed = placing => placed,
        () = opening => Ok(()),
    }
}

/// Lets orders in, a few at every beat.
async fn open_door(door: &Semaphore, per_second: u64) {
    let per_beat = u32::try_from(per_second / BEATS_PER_SECOND).unwrap_or(u32::MAX).max(1);
    // As long as so many take at that rate.
    let every = Duration::from_secs(1).mul_f64(f64::from(per_beat) / per_second.max(1) as f64);
    let (per_beat, mut beat) = (per_beat as usize, tokio::time::interval(every));
    loop {
        beat.tick().await;
        if door.available_permits() < per_beat {
            door.add_permits(per_beat);
        }
    }
}

/// The business transaction: the order and the message exist together, or neither does.
async fn place_one(db: &Sqlite, outbox: &Outbox) -> Result<()> {
    let outbox = outbox.clone();
    db.transaction::<_, twobox::Error, _>(move |tx| {
        let orders = tx.query(
            "INSERT INTO orders (cents) VALUES (1 + abs(random() % 10000)) RETURNING id, cents",
            [],
            |row| Ok(OrderPlaced { order: row.get(0)?, cents: row.get(1)? }),
        )?;
        orders.iter().try_for_each(|placed| {
            let id = MessageId::new(format!("{ORDER}{}", placed.order))?;
            outbox.enqueue(tx, &placed.to(BILLING)?.id(id)).map(drop)
        })
    })
    .await?;
    Ok(())
}
