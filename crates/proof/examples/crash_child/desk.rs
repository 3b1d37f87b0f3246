//! A desk that uses its inbox by hand: notices, queues, claims and settles without any handler.

use std::time::Duration;

use twobox_core::ports::{
    Claim, Claimed, DedupStore as _, InboxStatus, MessageKey, OwnerToken, Queue, QueueStore as _, WorkFilter,
};
use twobox_core::system::SystemRandom;
use twobox_core::{BoxError, MessageId, OrderingKey, Response};
use twobox_sqlite::Sqlite;

use crate::outside::Outside;
use crate::queue::{LEASE, queue, work};

const SOURCE: &str = "till";

/// Is never queued.
const AT_ONCE: &str = "at once";
/// Is given back at first.
const AGAIN: &str = "again";
/// Fails, and is run again by an operator.
const MENDED: &str = "mended";
/// Fails, and is removed by an operator.
const REMOVED: &str = "removed";

/// All slips that are queued, each with its ordering key.
const QUEUED: [(&str, Option<&str>); 6] = [
    ("plain", None),
    (AGAIN, None),
    (MENDED, Some("mended")),
    ("behind mended", Some("mended")),
    (REMOVED, Some("removed")),
    ("behind removed", Some("removed")),
];

/// The desk.
pub(crate) struct Desk<'a> {
    db: &'a Sqlite,
    queue: Queue,
    owner: OwnerToken,
    outside: Outside,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(db: &'a Sqlite) -> Result<Self, BoxError> {
        let owner = OwnerToken::mint(&SystemRandom::default());
        Ok(Self { db, queue: queue("desk")?, owner, outside: Outside::beside(db.path()) })
    }

    /// Does everything that is left to do.
    pub(crate) async fn work(&self) -> Result<(), BoxError> {
        self.at_once().await?;
        for (slip, key) in QUEUED {
            self.enqueue(slip, key).await?;
        }
        self.clear(false).await?;
        self.db.replay_work(&self.queue, &only(MENDED)?, 1).await?;
        self.db.purge_work(&self.queue, &only(REMOVED)?, 1).await?;
        self.clear(true).await
    }

    async fn at_once(&self) -> Result<(), BoxError> {
        let (consumer, key) = (&self.queue.consumer, MessageKey::new(SOURCE, AT_ONCE)?);
        if self.db.already_processed(consumer, &key, None).await?.is_processed() {
            return Ok(());
        }
        self.db.mark_processing(consumer, &key).await?;
        self.outside.act(AT_ONCE)?;
        self.db.mark_processed(consumer, &key, &Response::empty()).await?;
        Ok(())
    }

    async fn enqueue(&self, slip: &str, key: Option<&str>) -> Result<(), BoxError> {
        let mut work = work("Slip", (SOURCE, slip), "", self.db.clock().now())?;
        work.message.ordering_key = key.map(OrderingKey::new).transpose()?;
        let known = MessageKey::new(SOURCE, slip)?;
        let noticed = self.db.already_processed(&self.queue.consumer, &known, None).await?;
        if !matches!(noticed.status, InboxStatus::Done | InboxStatus::Dead) {
            self.db.enqueue_work(&self.queue, &work).await?;
        }
        Ok(())
    }

    /// Claims and settles until nothing is left that can be claimed.
    async fn clear(&self, mended: bool) -> Result<(), BoxError> {
        while let Some(next) = self.db.next_work(&self.queue.consumer).await? {
            tokio::time::sleep(next.min(Duration::from_millis(3))).await;
            let claim = Claim::new(self.owner, LEASE, 2)?;
            for claimed in self.db.claim(&self.queue, &claim).await? {
                self.settle(claimed, mended).await?;
            }
        }
        Ok(())
    }

    async fn settle(&self, claimed: Claimed, mended: bool) -> Result<(), BoxError> {
        let (db, queue, owner, slip) = (self.db, &self.queue, self.owner, claimed.message.id.as_str());
        let leases = [claimed.lease.clone()];
        if slip == AGAIN && claimed.attempts == 0 {
            db.abandon(queue, owner, &leases, Some("again"), Some(Duration::from_millis(2))).await?;
        } else if !mended && [MENDED, REMOVED].contains(&slip) {
            db.fail(queue, owner, &leases, "not like this").await?;
        } else {
            self.outside.act(slip)?;
            db.ack(queue, owner, &leases).await?;
        }
        Ok(())
    }
}

fn only(slip: &str) -> Result<WorkFilter, BoxError> {
    Ok(WorkFilter { id: Some(MessageId::new(slip)?), ..WorkFilter::default() })
}
