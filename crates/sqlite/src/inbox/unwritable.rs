//! What is answered while nothing can be written, because there is no room or the file is read-only: duplicates, which
//! take no writing.

use std::time::Duration;

use twobox_core::Result;
use twobox_core::ports::{Answer, ContentHash, Delivery, InboxStatus, InboxStore};
use twobox_core::wire::ResponseRoom;

use super::SqliteHandler;
use crate::Sqlite;

/// Answers what is known to be done; the rest is tried as ever, and told to come again if that still fails.
pub(super) async fn process(
    db: &Sqlite,
    deliveries: Vec<Delivery<SqliteHandler>>,
    budget: Duration,
) -> Result<Vec<Answer>> {
    let mut known = Vec::with_capacity(deliveries.len());
    let mut room = ResponseRoom::of(deliveries.len());
    for delivery in &deliveries {
        known.push(duplicate(db, delivery).await.map(|answer| room.keep(answer)));
    }
    if !known.iter().any(Option::is_some) {
        return db.handle(deliveries, budget).await;
    }
    // A row that was read may be of a commit whose end nobody has seen.
    let shared = std::sync::Arc::clone(db.shared());
    db.read(move |_, _| shared.sync_wal()).await?;
    let fresh = deliveries.into_iter().zip(&known).filter(|(_, known)| known.is_none());
    let fresh: Vec<_> = fresh.map(|(delivery, _)| delivery).collect();
    let mut handled = if fresh.is_empty() {
        Vec::new()
    } else {
        let count = fresh.len();
        db.handle(fresh, budget).await.unwrap_or_else(|_| vec![Answer::NotReached; count])
    }
    .into_iter();
    Ok(known
        .into_iter()
        .map(|known| known.or_else(|| handled.next()).unwrap_or(Answer::NotReached))
        .collect())
}

/// The stored answer to a message that is done.
async fn duplicate(db: &Sqlite, delivery: &Delivery<SqliteHandler>) -> Option<Answer> {
    let message = &delivery.message;
    let record = db.inbox_record(&delivery.consumer, &message.source, &message.id).await.ok()??;
    let hash = ContentHash::sha256(delivery.body_hash);
    let differs = record.hash.as_ref().is_some_and(|known| known.differs_from(&hash));
    (record.status == InboxStatus::Done && !differs).then_some(Answer::Duplicate(record.response))
}
