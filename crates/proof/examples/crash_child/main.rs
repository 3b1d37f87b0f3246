//! A shop and its billing, as a process that a test lets die at a crash point and starts again.
//!
//! `crash_child SHOP BILLING` (the two files may be one): tidies up after whoever died before, places the orders that
//! are missing, each together with its message, delivers everything while a worker works on what is stored, works on
//! more by hand, purges what is of no use, replays what was mended, sends again what was sent, cleans up, backs both
//! files up and restores them elsewhere, delivers everything once more as a network would that repeats itself, and ends
//! well once nothing is left to do.

mod backup;
mod billing;
mod clock;
mod desk;
mod operator;
mod orders;
mod outside;
mod queue;
mod shop;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use twobox_core::ports::{
    DeadLetterFilter, DeadLetterStore, Listen, Replay, ResendFilter, ResendStore, SweepPlan, SweepStore,
};
use twobox_core::{BoxError, Destination, Endpoint, Error};
use twobox_engine::{Receiver, Shutdown};
use twobox_http::HttpServer;
use twobox_sqlite::Sqlite;

use crate::clock::Forward;
use crate::desk::Desk;
use crate::orders::{KEEP, MEND, ORDERS, QUEUE_MEND, RENEW, VOID};

/// Messages that are not through yet. What waits behind a dead letter or for its time is through only later.
const OPEN_AT_FIRST: &str = "
    SELECT (SELECT count(*) FROM outbox_messages AS m WHERE status NOT IN ('Sent', 'Failed')
            AND NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.message_id = m.message_id AND o.kind IN ('behind', 'freed', 'later')))";
const OPEN: &str = "SELECT count(*) FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed')";
/// Deaths that nobody was told of.
const UNTOLD: &str = "
    SELECT count(*) FROM orders
    WHERE kind = 'doomed' AND message_id NOT IN (SELECT message_id FROM callbacks)";
/// Stored messages that are not through yet. What waits behind a dead letter or for its time is through only later.
const QUEUED_AT_FIRST: &str = "
    SELECT count(*) FROM inbox_queue WHERE consumer = 'billing' AND ready_at IS NOT NULL AND scheduled = 0";
const QUEUED: &str = "SELECT count(*) FROM inbox_queue WHERE consumer = 'billing' AND state = 'Open'";

/// Longer than anything takes that works.
const EVER: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [shop_path, billing_path] = paths.as_slice() else {
        return Err("usage: crash_child SHOP BILLING".into());
    };
    let clock = Arc::new(Forward::default());
    let shop = open(shop_path, &clock, &shop::TABLES).await?;
    let billing = open(billing_path, &clock, &billing::TABLES).await?;
    let mended = billing::is_mended(&billing).await?;
    if mended {
        clock.go(); // it does not go back when a process dies
    }
    tidy(&billing).await?;
    shop::place(&shop, 0..ORDERS / 2).await?;
    shop::place_beside_poison(&shop, ORDERS / 2..ORDERS / 2 + 3).await?;

    queue::plan(&billing).await?;

    let receiver = billing::receiver(&billing)?;
    let service = Service { shop: &shop, billing: &billing, receiver: &receiver };
    // The rest is placed while messages flow.
    service.deliver(&[OPEN_AT_FIRST, UNTOLD], QUEUED_AT_FIRST, rest(&shop)).await?;
    purge(&shop, VOID).await?;
    if !mended {
        Desk::new(&billing)?.work().await?;
    }
    billing::mend(&billing).await?;
    let queue = queue::queue("billing")?;
    operator::replay(&billing, &queue, QUEUE_MEND).await?;
    // What was claimed and failed has left its content with the sender: both have to let it run again.
    operator::replay(&billing, &queue, KEEP).await?;
    replay(&shop, KEEP, Replay::SameId).await?;
    replay(&shop, MEND, Replay::SameId).await?;
    replay(&shop, RENEW, Replay::NewId).await?;
    clock.go();
    service.deliver(&[OPEN, UNTOLD], QUEUED, async { Ok(()) }).await?;

    // As for a receiver that has forgotten. This one has not, unless an earlier life has let it.
    if !mended {
        resend(&shop).await?;
    }
    service.deliver(&[OPEN, UNTOLD], QUEUED, async { Ok(()) }).await?;

    // Only now: a dedup window of zero is safe when nothing will be delivered for the first time.
    sweep(&shop).await?;
    sweep(&billing).await?;
    backup::keep(&shop).await?;
    backup::keep(&billing).await?;
    billing::echo(&shop, &receiver).await
}

async fn open(path: &str, clock: &Arc<Forward>, tables: &'static [&'static str]) -> Result<Sqlite, Error> {
    // A short write-ahead log, so that it is copied and started again on the way.
    let builder = Sqlite::builder().wal_pages_max(1).clock(Arc::clone(clock) as _);
    let db = builder.open(path).await?;
    db.migrate().await?;
    db.transaction(move |tx| tables.iter().try_for_each(|sql| tx.execute(sql, []).map(drop))).await?;
    Ok(db)
}

/// Tidies up after a process that died.
async fn tidy(billing: &Sqlite) -> Result<(), Error> {
    for consumer in ["billing", "desk"] {
        let queue = queue::queue(consumer)?;
        operator::take_back(billing, &queue).await?;
        operator::settle_claims(billing, &queue).await?;
    }
    Ok(())
}

/// Places what is missing of the last orders, and then lets a commit fail: in one life of many, because the relay takes
/// its time to trust the store again.
async fn rest(shop: &Sqlite) -> Result<(), BoxError> {
    if shop::place_together(shop, ORDERS / 2 + 3..ORDERS).await? > 0 {
        shop::fail_a_commit(shop).await?;
    }
    Ok(())
}

/// The relay of shop, the server of billing, and a worker of its queue.
struct Service<'a> {
    shop: &'a Sqlite,
    billing: &'a Sqlite,
    receiver: &'a Receiver<Sqlite>,
}

impl Service<'_> {
    /// Delivers, does something meanwhile, and stops once all of these count nothing in shop, and then this in billing.
    async fn deliver(
        &self,
        open: &[&str],
        queued: &str,
        meanwhile: impl Future<Output = Result<(), BoxError>>,
    ) -> Result<(), BoxError> {
        let (handle, mut shutdown) = Shutdown::new();
        let server = HttpServer::signed("127.0.0.1:0", shop::keyrings()?).await?;
        let relay = shop::relay(self.shop, server.local_addr(), self.receiver)?;
        let relaying = tokio::spawn(relay.run(shutdown.clone()));
        let working = tokio::spawn(queue::worker(self.billing)?.run(shutdown.clone()));
        let stop = Box::pin(async move { shutdown.requested().await });
        let serving = server.serve(Destination::new("billing")?, Arc::new(self.receiver.clone()), stop);
        let serving = tokio::spawn(serving);
        meanwhile.await?;
        tokio::time::timeout(EVER, through(self.shop.path(), open)).await??;
        tokio::time::timeout(EVER, through(self.billing.path(), &[queued])).await??;
        handle.request();
        relaying.await?;
        working.await?;
        Ok(serving.await?)
    }
}

/// Waits until all of these count nothing.
async fn through(file: &Path, counts: &[&str]) -> Result<(), BoxError> {
    let look = Connection::open(file)?;
    let left = |sql: &&str| look.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap_or(1);
    while counts.iter().map(left).sum::<i64>() > 0 {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn purge(shop: &Sqlite, endpoint: &str) -> Result<(), Error> {
    let filter = of(endpoint)?;
    while shop.purge(&filter, 1).await?.more {}
    Ok(())
}

async fn replay(shop: &Sqlite, endpoint: &str, replay: Replay) -> Result<(), Error> {
    let filter = of(endpoint)?;
    while shop.replay(&filter, replay, Duration::from_secs(3600), 1).await?.more {}
    Ok(())
}

async fn resend(shop: &Sqlite) -> Result<(), Error> {
    let (filter, mut from) = (ResendFilter::default(), None);
    loop {
        from = shop.resend(&filter, from.as_ref(), 10, Duration::from_secs(3600)).await?.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// The dead letters of an endpoint.
fn of(endpoint: &str) -> Result<DeadLetterFilter, Error> {
    Ok(DeadLetterFilter { endpoint: Some(Endpoint::new(endpoint)?), ..DeadLetterFilter::default() })
}

async fn sweep(db: &Sqlite) -> Result<(), Error> {
    let (sent_retention, dedup_window, once_retention) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let plan = SweepPlan { sent_retention, dedup_window, once_retention, batch: 8, ..SweepPlan::default() };
    while db.sweep(&plan).await?.more {}
    Ok(())
}
