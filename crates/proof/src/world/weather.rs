//! What goes wrong around the nodes: partitions, clocks, keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twobox_testkit::history::Event;

use super::keys::Step;
use super::network::{Network, Way};
use super::process::Node;
use super::stage::{Stage, index};
use super::tally::Kind;

/// Cuts one direction of the network now and then.
pub(super) async fn partitions(network: Arc<Network>, way: usize) {
    let (stage, way) = (&network.stage, &network.ways[way]);
    while !stage.is_healed() {
        tokio::time::sleep(stage.millis(500..6_000)).await;
        if stage.is_healed() {
            return;
        }
        stage.count(Kind::Partition);
        note(stage, way, "partition");
        way.is_cut.store(true, Ordering::SeqCst);
        tokio::time::sleep(stage.millis(100..2_000)).await;
        way.is_cut.store(false, Ordering::SeqCst);
        note(stage, way, "partition over");
    }
}

/// Exchanges the keys of one direction now and then, carefully or not.
pub(super) async fn rotations(network: Arc<Network>, way: usize) {
    let (stage, way) = (&network.stage, &network.ways[way]);
    while !stage.is_healed() {
        tokio::time::sleep(stage.millis(2_000..12_000)).await;
        if stage.is_healed() {
            return;
        }
        stage.count(Kind::KeyRotated);
        for step in Step::ORDERS[index(stage.up_to(2))] {
            note(stage, way, &format!("keys: {step:?}"));
            // The ids are legal and the secrets long enough.
            let _: Result<(), _> = way.keys.step(step);
            tokio::time::sleep(stage.millis(100..1_500)).await;
        }
    }
}

fn note(stage: &Stage, way: &Way, text: &str) {
    stage.note(&way.from.name, Event::Note(format!("{text} towards {}", way.to.name)));
}

/// Lets a clock go wrong now and then.
pub(super) async fn clocks(stage: Arc<Stage>, node: Arc<Node>) {
    let ahead = |seconds: i64| {
        seconds * 1_000_000 - i64::try_from(stage.up_to(seconds.unsigned_abs() * 2_000_000)).unwrap_or(0)
    };
    let most = if stage.plan.wild_clocks { 420 } else { 3 };
    if stage.up_to(2) == 0 {
        stage.count(Kind::Skew);
        node.wall.set_ahead(ahead(2));
    }
    while !stage.is_healed() {
        tokio::time::sleep(stage.millis(1_000..8_000)).await;
        if stage.is_healed() {
            return;
        }
        if stage.up_to(3) > 0 {
            step_clock(&stage, &node, ahead(most));
            // What is dated meanwhile is under way when the clock is right again.
            if stage.plan.wild_clocks && stage.up_to(2) == 0 {
                tokio::time::sleep(stage.millis(50..1_000)).await;
                step_clock(&stage, &node, 0);
            }
        } else {
            stage.count(Kind::Freeze);
            stage.note(&node.name, Event::Note("clock stands still".into()));
            node.wall.freeze();
            tokio::time::sleep(stage.millis(100..2_000)).await;
            node.wall.thaw();
        }
    }
}

fn step_clock(stage: &Stage, node: &Node, ahead: i64) {
    let step = node.wall.set_ahead(ahead);
    stage.count(if step > 0 { Kind::StepForward } else { Kind::StepBack });
    stage.note(&node.name, Event::Note(format!("clock steps by {step}")));
}
