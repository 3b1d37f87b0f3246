//! A call of the queue is one transaction: what fails half-way has not happened (IBX-102).

use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{
    Claim, Claimed, DedupStore, Enqueued, Handled, InboxStatus, Job, MessageKey, OwnerToken, Queue,
    QueueStore, Work, WorkFilter, WorkLease, WorkRecord,
};
use twobox_core::{Consumer, Error, Payload, Refusal, Response};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::{ManualClock, SeededRandom};

use crate::fixture::{Place, message, number, say, words};

const LEASE: Duration = Duration::from_secs(30);

/// Whether a trigger of the queue was set off by message `b`.
const IS_B: &str = "(SELECT message_id FROM inbox WHERE row_id = NEW.item_id) = 'b'";

/// A queue on a file in which single statements can be made to fail.
struct World {
    place: Place,
    clock: Arc<ManualClock>,
    db: Sqlite,
    queue: Queue,
    owner: OwnerToken,
}

impl World {
    async fn new() -> Self {
        let (place, clock) = (Place::new(), Arc::new(ManualClock::default()));
        let db = place.open_with(Sqlite::builder().clock(Arc::clone(&clock) as _)).await;
        let queue = Queue::new(Consumer::new("billing").unwrap());
        Self { place, clock, db, queue, owner: OwnerToken::mint(&SeededRandom::new(1)) }
    }

    /// From now on, what touches message `b` in this way fails.
    fn break_at(&self, change: &str) {
        let sql = format!("CREATE TRIGGER breaks BEFORE {change} BEGIN SELECT RAISE(ABORT, 'broken'); END");
        self.place.foreign().execute_batch(&sql).unwrap();
    }

    fn mend(&self) {
        self.place.foreign().execute_batch("DROP TRIGGER breaks").unwrap();
    }

    async fn put(&self, id: &str) -> twobox_core::Result<Enqueued> {
        self.db.enqueue_work(&self.queue, &Work { message: message(&self.db, id), hash: None }).await
    }

    /// In one transaction: queues messages, then some in a part that is undone, then others.
    async fn put_and_undo<const B: usize, const U: usize, const A: usize>(
        &self,
        before: [&str; B],
        undone: [&str; U],
        after: [&str; A],
    ) {
        let work = |id: &str| Work { message: message(&self.db, id), hash: None };
        let (before, undone, after) = (before.map(work), undone.map(work), after.map(work));
        let (db, queue) = (self.db.clone(), self.queue.clone());
        let done = self.db.transaction::<_, Error, _>(move |tx| {
            let put = |tx: &mut SqliteTx<'_>, works: &[Work]| {
                works.iter().try_for_each(|work| db.enqueue_work_in(tx, &queue, work).map(drop))
            };
            put(tx, &before)?;
            let fails = tx.savepoint::<(), Error>(|tx| {
                put(tx, &undone)?;
                Err(Error::invalid("undone"))
            });
            assert!(fails.is_err());
            put(tx, &after)
        });
        done.await.unwrap();
    }

    async fn try_claim(&self) -> twobox_core::Result<Vec<Claimed>> {
        self.db.claim(&self.queue, &Claim::new(self.owner, LEASE, 10).unwrap()).await
    }

    /// Queues and claims `a` and `b`.
    async fn claimed(&self) -> Vec<WorkLease> {
        self.put("a").await.unwrap();
        self.put("b").await.unwrap();
        self.try_claim().await.unwrap().into_iter().map(|claimed| claimed.lease).collect()
    }

    async fn record(&self, id: &str) -> Option<WorkRecord> {
        let source = message(&self.db, id).source;
        self.db.work(&self.queue.consumer, &MessageKey::new(source, id).unwrap()).await.unwrap()
    }

    async fn records(&self) -> Vec<Option<WorkRecord>> {
        vec![self.record("a").await, self.record("b").await]
    }
}

/// The row of a source is looked up once per group; one that was undone must be made again.
#[tokio::test]
async fn ibx_102_a_source_whose_first_message_was_undone_is_made_again() {
    let world = World::new().await;
    world.put_and_undo([], ["a", "b"], ["c"]).await;
    assert_eq!(world.record("a").await, None);
    assert_eq!(world.record("b").await, None);
    assert_eq!(world.record("c").await.unwrap().status, InboxStatus::Processing);
    assert_eq!(number(&world.place.path(), "SELECT count(*) FROM inbox_work"), 1);
    assert_eq!(number(&world.place.path(), "SELECT size * 10 + queued FROM inbox_peers"), 11);
}

/// Counters are written once per group: what is undone must not be in them, what came before must.
#[tokio::test]
async fn ibx_102_what_was_undone_is_not_counted() {
    let world = World::new().await;
    world.put_and_undo(["a"], ["b"], ["c"]).await;
    assert_eq!(number(&world.place.path(), "SELECT size * 10 + queued FROM inbox_peers"), 22);
}

/// A group that commits has counted; one whose counters cannot be written has not happened.
#[tokio::test]
async fn ibx_102_what_cannot_be_counted_has_not_happened() {
    let world = World::new().await;
    world.put("a").await.unwrap();
    world.break_at("UPDATE ON inbox_peers");
    let error = world.put("b").await.unwrap_err();
    assert!(error.chain().contains("broken"), "{}", error.chain());
    assert_eq!(world.record("b").await, None);
    world.mend();
    assert_eq!(world.put("b").await.unwrap(), Enqueued::New);
    assert_eq!(number(&world.place.path(), "SELECT size * 10 + queued FROM inbox_peers"), 22);
}

#[tokio::test]
async fn ibx_102_a_message_is_queued_whole_or_not_at_all() {
    let world = World::new().await;
    world.break_at(&format!("INSERT ON inbox_queue WHEN {IS_B}"));
    world.put("a").await.unwrap();
    world.put("b").await.unwrap_err();
    assert_eq!(world.record("b").await, None);
    world.mend();
    assert_eq!(world.put("b").await.unwrap(), Enqueued::New);
}

#[tokio::test]
async fn ibx_102_a_claim_leases_all_it_returns_or_nothing() {
    let world = World::new().await;
    world.put("a").await.unwrap();
    world.put("b").await.unwrap();
    world.break_at(&format!("UPDATE ON inbox_queue WHEN {IS_B}"));
    world.try_claim().await.unwrap_err();
    assert_eq!(world.record("a").await.unwrap().lease, None);
    world.mend();
    assert_eq!(world.try_claim().await.unwrap().len(), 2);
}

#[tokio::test]
async fn ibx_102_settling_is_all_or_nothing() {
    let world = World::new().await;
    let leases = world.claimed().await;
    let before = world.records().await;
    let (db, queue, owner) = (&world.db, &world.queue, world.owner);
    world.break_at("UPDATE ON inbox WHEN NEW.message_id = 'b'");
    db.ack(queue, owner, &leases).await.unwrap_err();
    db.fail(queue, owner, &leases, "never").await.unwrap_err();
    world.mend();
    world.break_at(&format!("UPDATE ON inbox_queue WHEN {IS_B}"));
    db.abandon(queue, owner, &leases, None, None).await.unwrap_err();
    db.give_back(queue, owner, &leases).await.unwrap_err();
    db.renew(queue, owner, &leases, LEASE * 2).await.unwrap_err();
    assert_eq!(world.records().await, before);
    world.clock.advance(LEASE + Duration::from_secs(1));
    db.reap(queue, 10).await.unwrap_err();
    assert_eq!(world.records().await, before);
    world.mend();
    assert_eq!(db.ack(queue, owner, &leases).await.unwrap(), 2);
}

#[tokio::test]
async fn ibx_102_replaying_and_purging_are_all_or_nothing() {
    let world = World::new().await;
    let leases = world.claimed().await;
    let (db, queue, all) = (&world.db, &world.queue, WorkFilter::default());
    db.fail(queue, world.owner, &leases, "never").await.unwrap();
    let before = world.records().await;
    world.break_at("UPDATE ON inbox WHEN NEW.message_id = 'b'");
    db.replay_work(queue, &all, 10).await.unwrap_err();
    db.purge_work(queue, &all, 10).await.unwrap_err();
    assert_eq!(world.records().await, before);
    world.mend();
    assert_eq!(db.replay_work(queue, &all, 10).await.unwrap().replayed, 2);
}

/// IBX-008: every end is counted once, whichever way it came, and so is another content.
#[tokio::test]
async fn ibx_008_the_counters_count_each_message_once() {
    let world = World::new().await;
    let (db, queue, owner) = (&world.db, &world.queue, world.owner);
    for id in ["acked", "failed", "by hand", "dead by hand", "handled", "rejected"] {
        world.put(id).await.unwrap();
        world.put(id).await.unwrap();
    }
    let mut claimed = world.try_claim().await.unwrap();
    let jobs = claimed.split_off(4);
    let leases: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease).collect();
    db.ack(queue, owner, &leases[..1]).await.unwrap();
    db.fail(queue, owner, &leases[1..2], "never").await.unwrap();
    db.mark_processed(&queue.consumer, &leases[2].key, &Response::empty()).await.unwrap();
    db.mark_dead(&queue.consumer, &leases[3].key, "never").await.unwrap();
    let handler = SqliteHandler::new(|_, message| match message.id.as_str() {
        "handled" => Ok(Response::empty()),
        _ => Err(Refusal::reject("never")),
    });
    let job = |Claimed { lease, message, .. }: Claimed| Job { lease, message, handler: handler.clone() };
    db.handle(queue, owner, jobs.into_iter().map(job).collect()).await.unwrap();
    let mut changed = message(db, "acked");
    changed.payload = Payload::new(b"changed".to_vec());
    let work = Work { message: changed, hash: None };
    assert_eq!(db.enqueue_work(queue, &work).await.unwrap(), Enqueued::Done);
    let counted = |column| number(&world.place.path(), &format!("SELECT {column} FROM inbox_peers"));
    assert_eq!((counted("done"), counted("died"), counted("mismatches")), (3, 3, 1));
}

/// S3: a message whose end cannot be written has no effect, and its neighbour does.
#[tokio::test]
async fn s3_ibx_102_an_effect_without_its_end_is_undone() {
    let world = World::new().await;
    world.put("a").await.unwrap();
    world.put("b").await.unwrap();
    world.break_at("UPDATE ON inbox WHEN NEW.message_id = 'b' AND NEW.status = 'Done'");
    let handler = SqliteHandler::new(|tx, message| {
        say(tx, message.id.as_str())?;
        Ok(Response::empty())
    });
    let handle = async || {
        let job = |Claimed { lease, message, .. }: Claimed| Job { lease, message, handler: handler.clone() };
        let jobs = world.try_claim().await.unwrap().into_iter().map(job).collect();
        world.db.handle(&world.queue, world.owner, jobs).await.unwrap()
    };
    let handled = handle().await;
    assert_eq!(handled[0], Handled::Done(Response::empty()));
    assert!(matches!(handled[1], Handled::Retried { .. }), "{handled:?}");
    assert_eq!(words(&world.place), ["a"]);
    let record = world.record("b").await.unwrap();
    assert_eq!((record.status, record.attempts, record.lease), (InboxStatus::Processing, 1, None));
    world.mend();
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(handle().await, [Handled::Done(Response::empty())]);
    assert_eq!(words(&world.place), ["a", "b"]);
}
