//! An order and its message in one transaction; one invoice per order, whatever happens in between.
//!
//! Run it with `cargo run -p example-order`.

use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twobox::ports::LaneStore;
use twobox::{OrRefuse, Signal, Sqlite, Twobox};

#[derive(Serialize, Deserialize)]
struct OrderApproved {
    order: i64,
    cents: i64,
}

impl Signal for OrderApproved {
    const NAME: &'static str = "OrderApproved";
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Each service has its own database: outbox and inbox live beside its business tables.
    let directory = tempfile::tempdir()?;
    let shop_db =
        open(&directory.path().join("shop.db"), "CREATE TABLE orders (id INTEGER PRIMARY KEY)").await?;
    let billing_db =
        open(&directory.path().join("billing.db"), "CREATE TABLE invoices (order_id INTEGER, cents INTEGER)")
            .await?;

    // Billing writes one invoice per order. Its effects and the memory of the message commit together.
    let billing = Twobox::builder("billing", &billing_db)
        .handle(|tx, approved: OrderApproved, _context| {
            // Said where the knowledge is: this can never work, so the sender keeps it as a dead letter.
            u32::try_from(approved.cents).rejected()?;
            tx.execute("INSERT INTO invoices VALUES (?1, ?2)", [approved.order, approved.cents])?;
            Ok("invoiced")
        })
        .build()?;

    // The shop sends: the message exists exactly when the order does.
    let (died, dead) = mpsc::channel();
    let shop = Twobox::builder("shop", &shop_db)
        .destination("billing", billing.in_process())
        .on_dead_letter(move |letter| {
            let told = died.send(format!("{}: {}", letter.endpoint, letter.reason));
            async move { told.map_err(Into::into) }
        })
        .build()?;
    let running = shop.start();

    place_order(&shop, &shop_db, 1, 1_250).await?;
    place_order(&shop, &shop_db, 2, 990).await?;
    place_order(&shop, &shop_db, 3, -5).await?;
    let again = place_order(&shop, &shop_db, 2, 990).await;
    println!(
        "ordering twice: {}",
        if again.is_err() { "refused, and no message was sent" } else { "accepted" }
    );

    until_settled(&shop_db, 3).await?;
    println!("dead letter: {}", dead.recv()?);
    running.shutdown().await;

    let read = |tx: &mut twobox::SqliteTx<'_>| {
        tx.query("SELECT order_id FROM invoices ORDER BY order_id", [], |row| row.get::<i64>(0))
    };
    let invoices = billing_db.transaction::<_, twobox::Error, _>(read).await?;
    println!("invoices for orders: {invoices:?}");
    Ok(())
}

/// Waits until this many messages are delivered or dead.
async fn until_settled(db: &Sqlite, count: u64) -> anyhow::Result<()> {
    loop {
        let lanes = db.lanes().await?;
        if lanes.iter().map(|lane| lane.sent + lane.failed).sum::<u64>() >= count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn open(path: &std::path::Path, table: &'static str) -> anyhow::Result<Sqlite> {
    let db = Sqlite::open(path).await?;
    db.migrate().await?;
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(table, [])).await?;
    Ok(db)
}

/// The order and its message: both, or neither.
async fn place_order(shop: &Twobox, db: &Sqlite, order: i64, cents: i64) -> twobox::Result<()> {
    let outbox = shop.outbox();
    db.transaction(move |tx| {
        let message = OrderApproved { order, cents }.to("billing")?;
        outbox.enqueue(tx, &message)?;
        tx.execute("INSERT INTO orders VALUES (?1)", [order]).map(drop)
    })
    .await
}
