//! Operators: they list dead letters, send them again or remove them, release blocked keys, send again what was sent,
//! and pause destinations.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::ops::OpsStore;
use twobox_core::ports::{DeadLetter, DeadLetterFilter, DeadLetterStore, Replay, ResendFilter, ResendStore};
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
/// What is sent again at a time.
const RESEND_MAX: usize = 4;

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
            if stage.up_to(4) == 0 {
                let _: Result<()> = resend(&stage, &node, &process).await;
            }
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
        } else if care == Care::Some && has_given_id(&letter) && stage.up_to(12) == 0 && process.is_alive() {
            purge(stage, node, process, &letter).await?;
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

/// Whether its id is the one that its author has given it.
fn has_given_id(letter: &DeadLetter<i64>) -> bool {
    letter.message_id.len() <= GIVEN_ID_MAX
}

async fn replay(stage: &Stage, node: &Node, process: &Process, letter: &DeadLetter<i64>) -> Result<()> {
    let id = &letter.message_id;
    // What a receiver calls too old it calls so again; only a new id helps.
    let new = letter.reason == Reason::TooOld && has_given_id(letter);
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

async fn purge(stage: &Stage, node: &Node, process: &Process, letter: &DeadLetter<i64>) -> Result<()> {
    stage.count(Kind::LetterPurged);
    stage.note(&node.name, Event::Purged(letter.message_id.clone()));
    process.db.purge_deaths(vec![(letter.position, letter.died)]).await.map(drop)
}

/// Sends some of what was sent again, as after a restore of the other side.
async fn resend(stage: &Stage, node: &Node, process: &Process) -> Result<()> {
    let filter = ResendFilter::default();
    let resent = process.db.resend(&filter, None, RESEND_MAX, TTL).await?.resent;
    stage.note(&node.name, Event::Note(format!("operator: {resent} sent again")));
    (0..resent).for_each(|_| stage.count(Kind::Resent));
    Ok(())
}
