//! The workers of a node: they handle what its receiver has stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Semaphore;
use twobox_core::ports::{DeadWork, Queue, QueueStore, WorkFilter};
use twobox_core::{Consumer, Endpoint, Error, MessageId, OrderingKey, Result, Source};
use twobox_engine::worker::Handling;
use twobox_engine::{Shutdown, Worker};
use twobox_sqlite::Sqlite;
use twobox_testkit::SeededRandom;
use twobox_testkit::history::Event;

use super::clock::ProcessClock;
use super::handlers::{QUEUED, QUEUED_SLOW, Work, slowly};
use super::operator::Care;
use super::process::{Node, Process, Task};
use super::stage::Stage;
use super::tally::Kind;

/// A worker's handler rejects once in so many times: often enough for operators to have something to do.
const REJECTS: u64 = 12;
/// More dead letters than a run has.
const LIST_MAX: usize = 1_000;

/// The queue of a node.
fn queue(stage: &Stage, node: &Node) -> Result<Queue> {
    let (retry, head_policy) = (stage.plan.work_retry.clone(), stage.plan.rules.head_policy);
    Ok(Queue { consumer: Consumer::new(&*node.name)?, retry, head_policy })
}

/// Starts a worker for what the node has stored.
pub(super) fn worker(
    stage: &Arc<Stage>,
    node: &Node,
    db: &Sqlite,
    clock: &Arc<ProcessClock>,
    random: &SeededRandom,
    ends: &Arc<Semaphore>,
) -> Result<Task, Error> {
    let handler = Work::new(stage, node, db, clock, REJECTS)?.handler(false);
    let slow = slowly(stage, [Kind::WorkSlow, Kind::WorkHung], handler.clone(), ends);
    let worker = Worker::builder(db.clone(), queue(stage, node)?, Arc::clone(clock) as _, random)
        .options(stage.plan.worker.clone())
        .topic(Endpoint::new(QUEUED)?, Handling::Transactional(handler))?
        .topic(Endpoint::new(QUEUED_SLOW)?, Handling::Prepared(slow))?
        .build()?;
    let (handle, shutdown) = Shutdown::new();
    Ok(Task::spawn(async move {
        worker.run(shutdown).await;
        drop(handle);
    }))
}

/// The dead letters of a node's inbox.
pub(super) async fn dead(node: &Node, process: &Process) -> Result<Vec<DeadWork>> {
    process.db.dead_work(&Consumer::new(&*node.name)?, &WorkFilter::default(), None, LIST_MAX).await
}

/// An operator looks at the dead letters of a node's inbox and the keys they block. Returns how much was done.
pub(super) async fn round(stage: &Stage, node: &Node, process: &Process, care: Care) -> Result<u64> {
    let queue = queue(stage, node)?;
    let (mut done, mut blocked) = (0, BTreeSet::new());
    for letter in dead(node, process).await? {
        let (replays, releases) = match care {
            Care::Some => (stage.up_to(8) == 0, stage.up_to(4) == 0),
            Care::All => (true, false),
            Care::Bury => (false, true),
        };
        if replays && process.is_alive() {
            stage.count(Kind::WorkReplayed);
            stage.note(&node.name, Event::WorkReplayed(letter.id.clone()));
            let filter = WorkFilter { id: Some(MessageId::new(&letter.id)?), ..WorkFilter::default() };
            process.db.replay_work(&queue, &filter, 1).await?;
            done += 1;
        } else if releases && letter.blocks_key {
            blocked.extend(letter.ordering_key.map(|key| (letter.source, key)));
        }
    }
    for (source, key) in blocked.into_iter().filter(|_| process.is_alive()) {
        stage.count(Kind::WorkReleased);
        stage.note(&node.name, Event::WorkReleased(key.clone()));
        process.db.release_work_key(&queue, &Source::new(source)?, &OrderingKey::new(key)?).await?;
        done += 1;
    }
    Ok(done)
}
