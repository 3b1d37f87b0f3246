//! The relays of a node: one in its process, perhaps one in a process beside it, which has a worker as well.

use std::sync::Arc;

use tokio::sync::Semaphore;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::DeadLetter;
use twobox_core::{Destination, Error, Source};
use twobox_engine::{Relay, Shutdown};
use twobox_sqlite::Sqlite;
use twobox_testkit::SeededRandom;
use twobox_testkit::history::Event;

use super::clock::ProcessClock;
use super::network::{Line, Network};
use super::process::{Node, Task, drive, open};
use super::stage::Stage;
use super::tally::Kind;
use super::work;

/// Starts a relay for what the node enqueues.
pub(super) fn relay(
    stage: &Arc<Stage>,
    node: &Arc<Node>,
    network: &Arc<Network>,
    db: &Sqlite,
    clock: &Arc<ProcessClock>,
    random: &Arc<SeededRandom>,
) -> Result<Task, Error> {
    let line = Line { network: Arc::clone(network), node: Arc::clone(node), clock: Arc::clone(clock) };
    let (told, whom) = (Arc::clone(stage), Arc::clone(node));
    let source = Source::new(&*node.name)?;
    let relay = Relay::builder(db.clone(), source, Arc::clone(clock) as _, Arc::clone(random) as _)
        .destination(Destination::new(&*node.peer)?, Arc::new(line))?
        .options(stage.plan.relay.clone())
        .on_dead_letter(Arc::new(move |letter| {
            tell(&told, &whom, &letter);
            Box::pin(async { Ok(()) })
        }))
        .build()?;
    let (handle, shutdown) = Shutdown::new();
    Ok(Task::spawn(async move {
        relay.run(shutdown).await;
        drop(handle);
    }))
}

fn tell(stage: &Stage, node: &Node, letter: &DeadLetter<i64>) {
    stage.count(Kind::Died);
    if letter.reason == Reason::Expired {
        stage.count(Kind::Expired);
    }
    stage.note(&node.name, Event::Died(letter.message_id.clone(), letter.reason.to_string()));
}

/// A process that relays and works on the same file, and receives nothing; it is killed and started again and again.
pub(super) fn second(stage: &Arc<Stage>, node: &Arc<Node>, network: &Arc<Network>) -> Task {
    let (stage, node, network) = (Arc::clone(stage), Arc::clone(node), Arc::clone(network));
    Task::spawn(async move {
        loop {
            tokio::time::sleep(stage.millis(50..800)).await;
            let clock = Arc::new(ProcessClock::start(&node.wall));
            let random = Arc::new(SeededRandom::new(stage.chance()));
            let Ok(db) = open(&node, &clock, &random).await else { continue };
            let driver = drive(&db);
            let relaying = relay(&stage, &node, &network, &db, &clock, &random);
            let ends = Arc::new(Semaphore::new(0));
            let working = work::worker(&stage, &node, &db, &clock, &random, &ends);
            tokio::time::sleep(stage.millis(500..3_000)).await;
            if stage.is_healed() {
                std::future::pending::<()>().await;
            }
            stage.count(Kind::RelayKilled);
            drop((relaying, working, driver));
        }
    })
}
