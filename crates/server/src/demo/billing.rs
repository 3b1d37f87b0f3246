//! Billing: writes one invoice per order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use twobox::ports::{BoxFuture, Receive};
use twobox::signing::Keyrings;
use twobox::{Answer, Destination, HttpServer, Link, Listen, Message, Sqlite, Twobox};

use super::child::parent_is_gone;
use super::order::{BILLING, OrderPlaced, SHOP, keyring};
use crate::Result;

#[derive(Debug, Args)]
pub(crate) struct BillingArguments {
    #[arg(long)]
    database: PathBuf,
    /// Where duplicates are counted.
    #[arg(long)]
    duplicates: PathBuf,
}

pub(crate) async fn run(arguments: BillingArguments) -> Result<()> {
    let db = Sqlite::open(&arguments.database).await?;
    db.migrate().await?;
    db.transaction::<_, twobox::Error, _>(|tx| {
        // Nothing here keeps an order from being invoiced twice: that is what the inbox is for.
        tx.execute(
            "CREATE TABLE IF NOT EXISTS invoices (order_id INTEGER NOT NULL, cents INTEGER NOT NULL)",
            [],
        )?;
        tx.execute("CREATE INDEX IF NOT EXISTS invoices_of_order ON invoices (order_id)", [])
    })
    .await?;
    let billing = Twobox::builder(BILLING, &db)
        .handle(|tx, placed: OrderPlaced, _context| {
            tx.execute("INSERT INTO invoices VALUES (?1, ?2)", [placed.order, placed.cents])?;
            Ok("invoiced")
        })
        .build()?;
    let server = HttpServer::signed("127.0.0.1:0", Keyrings::of(SHOP, keyring()?)?).await?;
    println!("{}", server.local_addr());
    let running = billing.start();
    let receiver = Counting::new(Arc::new(billing.receiver()), &arguments.duplicates)?;
    server.serve(Destination::new(BILLING)?, Arc::new(receiver), Box::pin(parent_is_gone())).await;
    running.shutdown().await;
    Ok(())
}

/// Counts duplicates where a kill cannot undo it: what was written to a file outlives the process.
struct Counting {
    receiver: Arc<dyn Receive>,
    count: Arc<Mutex<Count>>,
}

impl Counting {
    fn new(receiver: Arc<dyn Receive>, path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { receiver, count: Arc::new(Mutex::new(Count { sum: read_count(&file), file })) })
    }
}

struct Count {
    sum: u64,
    file: File,
}

impl Count {
    /// Several requests are answered at a time: a smaller sum must not be written after a larger one.
    fn add(&mut self, duplicates: u64) {
        self.sum += duplicates;
        // Only a figure of the demonstration depends on it.
        let _: std::io::Result<()> = self.file.write_all_at(&self.sum.to_le_bytes(), 0);
    }
}

/// How many duplicates were counted in this file.
pub(super) fn read_count(file: &File) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
}

impl Receive for Counting {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, twobox::Result<Vec<Answer>>> {
        let (answers, counted) = (self.receiver.receive(messages, budget), Arc::clone(&self.count));
        Box::pin(async move {
            let answers = answers.await?;
            let duplicates =
                answers.iter().filter(|answer| matches!(answer, Answer::Duplicate(_))).count() as u64;
            if duplicates > 0 {
                counted.lock().unwrap_or_else(PoisonError::into_inner).add(duplicates);
            }
            Ok(answers)
        })
    }

    fn meet(&self, link: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
        self.receiver.meet(link)
    }
}
