//! The life of a node: its process comes up, its power goes, it comes up again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use twobox_core::BoxError;
use twobox_testkit::SeededRandom;
use twobox_testkit::disk::{Cut, Fault, Kind as FaultKind};
use twobox_testkit::history::Event;

use super::network::Network;
use super::process::{Node, Process};
use super::stage::{Stage, index, lock};
use super::tally::Kind;

/// How often a node is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a commit is waited for in which the power is to go.
const ARMED: Duration = Duration::from_millis(300);
/// A store that does not come up although its disk is fine.
const STARTS_MAX: u32 = 50;

const FAULTS: [(FaultKind, Kind); 6] = [
    (FaultKind::Read, Kind::ReadFault),
    (FaultKind::Write, Kind::WriteFault),
    (FaultKind::Full, Kind::FullFault),
    (FaultKind::Sync, Kind::SyncFault),
    (FaultKind::SyncKeepingPages, Kind::KeptPages),
    (FaultKind::SyncDroppingPages, Kind::DroppedPages),
];

/// Keeps a node up, and cuts its power again and again until all is well.
pub(super) async fn live(stage: Arc<Stage>, node: Arc<Node>, network: Arc<Network>) -> Result<(), BoxError> {
    loop {
        let process = come_up(&stage, &node, &network).await?;
        *lock(&node.running) = Some(Arc::clone(&process));
        let fault = arm_fault(&stage, &node);
        until_trouble(&stage, &node, &process, fault).await?;
        if let Some(kind) = fault.filter(|_| node.disk.struck() > 0) {
            stage.count(kind);
        }
        drop(process);
        cut(&stage, &node).await?;
        tokio::time::sleep(stage.millis(10..600)).await;
    }
}

/// Starts a process; the power may go while its store recovers.
async fn come_up(
    stage: &Arc<Stage>,
    node: &Arc<Node>,
    network: &Arc<Network>,
) -> Result<Arc<Process>, BoxError> {
    for _ in 0..STARTS_MAX {
        if stage.up_to(8) == 0 && !stage.is_healed() {
            node.disk.power_off_after(stage.up_to(12));
        }
        let error = match Process::start(stage, node, network).await {
            Ok(process) => return Ok(process),
            Err(error) => error,
        };
        stage.note(&node.name, Event::Note(format!("does not come up: {:?}", error.kind())));
        tokio::time::sleep(Duration::from_millis(2)).await; // what has failed to start is gone
        if !node.disk.is_off() {
            return Err(error.into());
        }
        stage.count(Kind::WhileRecovering);
        cut(stage, node).await?;
    }
    Err("a node does not come up".into())
}

/// Lets a call of the disk fail sometime, perhaps.
fn arm_fault(stage: &Stage, node: &Node) -> Option<Kind> {
    if stage.up_to(4) != 0 || stage.is_healed() {
        return None;
    }
    let faults = if node.may_drop_pages { 6 } else { 5 };
    let (kind, counted) = FAULTS[index(stage.up_to(faults))];
    let nth = stage.up_to(30);
    stage.note(&node.name, Event::Note(format!("disk: {kind:?} number {nth} is to fail")));
    node.disk.fail(Fault { kind, nth });
    Some(counted)
}

/// Waits until the power is gone, or the process has to be killed.
async fn until_trouble(
    stage: &Stage,
    node: &Node,
    process: &Process,
    fault: Option<Kind>,
) -> Result<(), BoxError> {
    let end = Instant::now() + stage.millis(200..2_600);
    loop {
        tokio::time::sleep(LOOK).await;
        if node.disk.is_off() {
            stage.count(Kind::MidCommit);
            return Ok(());
        }
        if process.is_broken.load(Ordering::SeqCst) {
            stage.count(Kind::StoreStopped);
            return Ok(());
        }
        if process.is_incomplete() {
            return Err("a part of a process has ended by itself".into());
        }
        if node.cut_wanted.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        if Instant::now() >= end && !stage.is_healed() {
            break;
        }
    }
    // A cut within the recovery from a sync whose pages were kept may do damage, which is not promised not to happen.
    if stage.up_to(2) == 0 && fault != Some(Kind::KeptPages) {
        node.disk.power_off_after(stage.up_to(12));
        let end = Instant::now() + ARMED;
        while !node.disk.is_off() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if node.disk.is_off() {
            stage.count(Kind::MidCommit);
        }
    }
    Ok(())
}

/// Cuts the power, lets what is left of the process go, and puts back what the cut has left of the disk.
async fn cut(stage: &Stage, node: &Node) -> Result<(), BoxError> {
    let power = [(Cut::Lost, Kind::Lost), (Cut::Subset, Kind::Subset), (Cut::Torn, Kind::Torn)];
    let kill = (Cut::Kill, Kind::Kill);
    let (cut, kind) = if stage.up_to(7) == 0 { kill } else { power[index(stage.up_to(3))] };
    node.disk.power_off();
    stage.count(kind);
    stage.note(&node.name, Event::Note(format!("power cut: {cut:?}")));
    let running = lock(&node.running).take();
    if let Some(process) = running {
        process.end().await?;
    }
    let image = node.disk.image(cut, &SeededRandom::new(stage.chance()));
    node.disk.power_on(image)?;
    Ok(())
}
