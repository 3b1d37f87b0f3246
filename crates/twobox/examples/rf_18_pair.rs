//! A shop and its billing in one process, for tests of backup and restore (RF-18): a process that a test kills.
//!
//! - `rf_18_pair FOLDER load` places orders from 64 callers and delivers them. Once many are placed it backs up both
//!   files while the callers go on, prints `backed up MICROS` and goes on until it is killed. Every order that is
//!   acknowledged is a line in the file `acknowledged`.
//! - `rf_18_pair FOLDER finish [MICROS]` sends again what was sent since then, if a time is given, delivers everything,
//!   and ends.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twobox::ports::{InstanceStore, LaneStore, ResendFilter};
use twobox::replay::{Bulk, SentMessages};
use twobox::{
    BackupOptions, BoxError, Error, Running, Shutdown, Signal, Sqlite, SystemTimer, Timestamp, Twobox,
};

const CALLERS: usize = 64;
/// So many orders are placed before the backups are made.
const BEFORE: i64 = 400;
const TTL: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
}

impl Signal for OrderPlaced {
    const NAME: &'static str = "OrderPlaced";
}

struct Pair {
    folder: PathBuf,
    shop_db: Sqlite,
    billing_db: Sqlite,
    shop: Twobox,
    _running: [Running; 2],
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [folder, "load"] => Pair::start(Path::new(folder)).await?.load().await,
        [folder, "finish"] => Pair::start(Path::new(folder)).await?.finish(None).await,
        [folder, "finish", since] => {
            let since = Timestamp::from_micros(since.parse()?);
            Pair::start(Path::new(folder)).await?.finish(Some(since)).await
        }
        _ => Err("usage: rf_18_pair FOLDER load|finish [MICROS]".into()),
    }
}

async fn open(path: &Path, create: &'static str) -> twobox::Result<Sqlite> {
    let db = Sqlite::open(path).await?;
    db.migrate().await?;
    db.transaction::<_, Error, _>(move |tx| tx.execute(create, [])).await?;
    Ok(db)
}

impl Pair {
    async fn start(folder: &Path) -> Result<Self, BoxError> {
        let shop_db =
            open(&folder.join("shop.db"), "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
                .await?;
        let invoices = "CREATE TABLE IF NOT EXISTS invoices (order_id INTEGER NOT NULL)";
        let billing_db = open(&folder.join("billing.db"), invoices).await?;
        // Nothing but the inbox keeps an order from being invoiced twice.
        let billing = Twobox::builder("billing", &billing_db)
            .handle(|tx, placed: OrderPlaced, _| {
                tx.execute("INSERT INTO invoices VALUES (?1)", [placed.order])?;
                Ok(())
            })
            .build()?;
        let shop = Twobox::builder("shop", &shop_db).destination("billing", billing.in_process()).build()?;
        let running = [shop.start(), billing.start()];
        Ok(Self { folder: folder.into(), shop_db, billing_db, shop, _running: running })
    }

    async fn load(self) -> Result<(), BoxError> {
        let acknowledged =
            Arc::new(File::options().append(true).create(true).open(self.folder.join("acknowledged"))?);
        let (next, placed) = (Arc::new(AtomicI64::new(1)), Arc::new(AtomicI64::new(0)));
        for _ in 0..CALLERS {
            let (db, outbox, next) = (self.shop_db.clone(), self.shop.outbox(), Arc::clone(&next));
            let (acknowledged, placed) = (Arc::clone(&acknowledged), Arc::clone(&placed));
            tokio::spawn(async move {
                loop {
                    let (order, outbox) = (next.fetch_add(1, Ordering::Relaxed), outbox.clone());
                    let work = move |tx: &mut twobox::SqliteTx<'_>| {
                        tx.execute("INSERT INTO orders VALUES (?1)", [order])?;
                        outbox.enqueue(tx, &OrderPlaced { order }.to("billing")?).map(drop)
                    };
                    if db.transaction::<_, Error, _>(work).await.is_ok() {
                        // In one write, so that a line is there as a whole or not at all.
                        let _: std::io::Result<()> =
                            (&*acknowledged).write_all(format!("{order}\n").as_bytes());
                        placed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        while placed.load(Ordering::Relaxed) < BEFORE {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let options = BackupOptions::default();
        let first = self.shop_db.backup(self.folder.join("shop.backup"), &options).await?;
        let second = self.billing_db.backup(self.folder.join("billing.backup"), &options).await?;
        println!("backed up {}", first.at.min(second.at).as_micros());
        std::future::pending().await
    }

    async fn finish(self, since: Option<Timestamp>) -> Result<(), BoxError> {
        if let Some(since) = since {
            let sent = SentMessages::resend(
                self.shop_db.clone(),
                ResendFilter { since, ..ResendFilter::default() },
                TTL,
            );
            let fast = 100_000.try_into()?;
            let bulk = Bulk::new(Arc::new(SystemTimer::default())).batch(500.try_into()?).per_second(fast);
            let (_stop, shutdown) = Shutdown::new();
            let progress = bulk.run(sent, shutdown, |_| {}).await?;
            println!("sent again {}", progress.done);
        }
        let open = "SELECT count(*) FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed', 'Expired')";
        while count(&self.shop_db, open).await? > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let inboxes: u64 = self.shop_db.lanes().await?.iter().map(|lane| lane.inbox_changes).sum();
        let outboxes: u64 = self.billing_db.met_outboxes().await?.iter().map(|met| met.changes).sum();
        println!("finished, inbox changes {inboxes}, outbox changes {outboxes}");
        Ok(())
    }
}

async fn count(db: &Sqlite, query: &'static str) -> twobox::Result<i64> {
    let count =
        db.transaction::<_, Error, _>(move |tx| tx.query_optional(query, [], |row| row.get(0))).await?;
    Ok(count.unwrap_or_default())
}
