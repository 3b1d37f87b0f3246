//! Operators: they list dead letters, send them again, release blocked keys, and pause destinations.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::ops::OpsStore;
use twobox_core::ports::{DeadLetter, DeadLetterFilter, DeadLetterStore, Replay};
use twobox_core::{Destination, MessageId, Result, Source};
use twobox_testkit::history::Event;

use super::process::{Node, Process};
use super::stage::Stage;
use super::tally::Kind;
use super::work;

/// Time to live of what is sent again: longer than any run.
const TTL: Duration = Duration::from_secs(3600);
/// Ids of authors are shorter than minted ones.
const GIVEN_ID_MAX: usize = 24;
const LIST_MAX: usize = 50;

/// How thorough an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Does something about some of it.
    Some,
    /// Sends everything again.
    All,
    /// Lets dead letters lie, and lets keys go on without them.
    Bury,
}

/// Looks at a node from time to time, until all is well.
pub(super) async fn watch(stage: Arc<Stage>, node: Arc<Node>) {
    while !stage.is_healed() {
        tokio::time::sleep(stage.millis(500..3_000)).await;
        if let Some(process) = node.process() {
            // The process may die over it; the next round finds what is left to do.
            let _: Result<u64> = round(&stage, &node, &process, Care::Some).await;
        }
    }
}

/// Pauses what a node sends now and then, and resumes it later. All is well only when nothing is paused any more.
pub(super) async fn pauses(stage: Arc<Stage>, node: Arc<Node>) {
    // Names of nodes are legal ones.
    let (Ok(source), Ok(destination)) = (Source::new(&*node.name), Destination::new(&*node.peer)) else {
        return;
    };
    while !stage.is_healed() {
        tokio::time::sleep(stage.millis(1_000..10_000)).await;
        let Some(process) = node.process().filter(|_| !stage.is_healed()) else { continue };
        stage.note(&node.name, Event::Note("operator: pause".into()));
        if process.db.pause_lane(&source, &destination, "operator", "trouble").await.is_ok_and(|is| is) {
            stage.count(Kind::Paused);
        }
        drop(process);
        loop {
            tokio::time::sleep(stage.millis(100..2_000)).await;
            let Some(process) = node.process() else { continue };
            match process.db.resume_lane(&source, &destination).await {
                Ok(_) if process.is_alive() => {
                    stage.note(&node.name, Event::Note("operator: resume".into()));
                    break;
                }
                Ok(_) => {}
                Err(error) => process.note_stopped(&error),
            }
        }
    }
}

/// One look at the dead letters and blocked keys of a node. Returns how much was done about them.
pub(super) async fn round(stage: &Stage, node: &Node, process: &Process, care: Care) -> Result<u64> {
    let mut done = 0;
    for letter in process.db.dead_letters(&DeadLetterFilter::default(), None, LIST_MAX).await? {
        let now = match care {
            Care::Some => stage.up_to(3) == 0,
            Care::All => true,
            Care::Bury => false,
        };
        if now && process.is_alive() {
            replay(stage, node, process, &letter).await?;
            done += 1;
        }
    }
    for blocked in process.db.blocked_keys(LIST_MAX).await? {
        let now = match care {
            Care::Some => stage.up_to(4) == 0,
            Care::All => false,
            Care::Bury => true,
        };
        if now && process.is_alive() {
            stage.count(Kind::Released);
            stage.note(&node.name, Event::Released(blocked.ordering_key.to_string()));
            process.db.release_key(&blocked.source, &blocked.destination, &blocked.ordering_key).await?;
            done += 1;
        }
    }
    Ok(done + work::round(stage, node, process, care).await?)
}

async fn replay(stage: &Stage, node: &Node, process: &Process, letter: &DeadLetter<i64>) -> Result<()> {
    let id = &letter.message_id;
    // What a receiver calls too old it calls so again; only a new id helps.
    let new = letter.reason == Reason::TooOld && id.len() <= GIVEN_ID_MAX;
    let (kind, event, how) = if new {
        (Kind::ReplayedNew, Event::ReplayedAsNew(id.clone()), Replay::NewId)
    } else {
        (Kind::ReplayedSame, Event::Replayed(id.clone()), Replay::SameId)
    };
    stage.count(kind);
    stage.note(&node.name, event);
    let filter = DeadLetterFilter { message_id: Some(MessageId::new(id)?), ..DeadLetterFilter::default() };
    process.db.replay(&filter, how, TTL, 1).await.map(drop)
}
