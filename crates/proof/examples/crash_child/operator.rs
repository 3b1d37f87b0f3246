//! What is done about a process that died: its leases end by themselves, its claims are looked at by somebody.

use std::time::Duration;

use twobox_core::ports::{DedupStore as _, Queue, QueueStore as _, Replayed, WorkFilter};
use twobox_core::{Endpoint, Error, Response};
use twobox_sqlite::Sqlite;

use crate::LOOK_EVERY;
use crate::outside::Outside;

const MANY: usize = 1000;

/// Takes back what a dead worker had in hand, once its leases are over.
pub(crate) async fn take_back(db: &Sqlite, queue: &Queue) -> Result<(), Error> {
    let mut waited = false;
    while leases(db, queue, true).await? > 0 {
        waited = true;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if waited || leases(db, queue, false).await? > 0 {
        db.reap(queue, MANY).await?;
    }
    Ok(())
}

/// How many messages are leased; only those whose lease is not over, if asked for.
async fn leases(db: &Sqlite, queue: &Queue, current: bool) -> Result<i64, Error> {
    let consumer = queue.consumer.to_string();
    let after = if current { db.clock().now().as_micros() } else { i64::MIN };
    db.transaction::<_, Error, _>(move |tx| {
        let sql = "SELECT count(*) FROM inbox_queue WHERE consumer = ?1 AND lease_until >= ?2";
        Ok(tx.query_optional(sql, (&consumer, after), |row| row.get::<i64>(0))?.unwrap_or(0))
    })
    .await
}

/// Settles claims that a process has left behind when it died: what has happened outside is done, the rest is forgotten
/// and comes again. Notes what was found.
pub(crate) async fn settle_claims(db: &Sqlite, queue: &Queue) -> Result<(), Error> {
    let (consumer, outside) = (&queue.consumer, Outside::beside(db.path()));
    for unfinished in db.unfinished(consumer, Duration::ZERO, MANY).await? {
        let id = unfinished.key.id.to_string();
        if outside.knows(&id) {
            db.mark_processed(consumer, &unfinished.key, &Response::empty()).await?;
        }
        let insert = "INSERT INTO unfinished VALUES (?1)";
        db.transaction::<_, Error, _>(move |tx| tx.execute(insert, [&id])).await?;
    }
    db.release_unfinished(consumer, Duration::ZERO, MANY).await.map(drop)
}

/// Runs the dead letters of a topic again.
pub(crate) async fn replay(db: &Sqlite, queue: &Queue, topic: &str) -> Result<(), Error> {
    let filter = WorkFilter { topic: Some(Endpoint::new(topic)?), ..WorkFilter::default() };
    while let Replayed { more: true, .. } = db.replay_work(queue, &filter, 1).await? {}
    Ok(())
}
