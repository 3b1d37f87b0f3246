//! Replaying and purging.

use crate::world::{Place, World, ids};

fn dead(world: &World, place: &Place, of: &str) -> usize {
    let listed = world.at(place, &[of, "dead", "--json"]);
    assert!([0, 4].contains(&listed.code), "{listed:?}");
    ids(&listed.json()).len()
}

/// What holds for either box, on a file or through a node.
fn replay_and_purge(world: &World, place: &Place, of: &str, [first, second]: [&str; 2]) {
    let run = |arguments: &[&str]| world.at(place, &[&[of], arguments].concat());
    // Nobody means all by accident, nobody is asked without a terminal.
    run(&["replay"]).ended(2);
    run(&["purge"]).ended(2);
    run(&["replay", "--all", "--endpoint", "X"]).ended(2);
    let refused = run(&["replay", "--all"]).ended(5);
    assert!(refused.err.contains("Replay 3 dead letters?") && refused.err.contains("--yes"), "{refused:?}");
    run(&["purge", first]).ended(5);
    assert_eq!(dead(world, place, of), 3);
    // Counting does nothing.
    let counted = run(&["purge", "--all", "--dry-run", "--json"]).ended(0).json();
    assert_eq!(
        (&counted["dryRun"], &counted["matched"]["value"], &counted["done"]),
        (&true.into(), &3.into(), &0.into())
    );
    run(&["replay", "--endpoint", "Nowhere", "--yes"]).ended(4);
    assert_eq!(dead(world, place, of), 3);
    // One, and once.
    let one = run(&["replay", first]).ended(0).out;
    assert_eq!(one, "replayed 1 dead letter\n");
    run(&["replay", first]).ended(5);
    run(&["replay", "no-such-id"]).ended(4);
    assert_eq!(dead(world, place, of), 2);
    assert_eq!(run(&["purge", second, "--yes"]).ended(0).out, "removed 1 dead letter\n");
    assert_eq!(dead(world, place, of), 1);
    // All that is left.
    let rest = run(&["replay", "--all", "--yes", "--rate", "1000", "--json"]).ended(0).json();
    assert_eq!((&rest["done"], &rest["next"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(dead(world, place, of), 0);
    run(&["replay", "--all", "--yes"]).ended(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_05_dead_letters_of_a_file_are_replayed_and_purged() {
    let world = World::new().await;
    replay_and_purge(&world, &world.file(), "outbox", ["refund-0", "refund-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_05_dead_letters_of_a_node_are_replayed_and_purged() {
    let world = World::new().await;
    let node = world.serve();
    replay_and_purge(&world, &node.place, "outbox", ["refund-0", "refund-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ibx_8_2_dead_letters_of_an_inbox_are_reviewed_replayed_and_purged() {
    let world = World::new().await;
    replay_and_purge(&world, &world.file(), "inbox", ["box-0", "box-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ibx_8_2_dead_letters_of_a_nodes_inbox_are_reviewed_replayed_and_purged() {
    let world = World::new().await;
    let node = world.serve();
    replay_and_purge(&world, &node.place, "inbox", ["box-0", "box-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_05_a_message_can_be_sent_again_under_a_new_id() {
    let world = World::new().await;
    world.run(["outbox", "replay", "refund-0", "--new-id"]).ended(0);
    let old = world.run(["outbox", "show", "refund-0", "--json"]).ended(0).json();
    let new = old["messages"][0]["replayedAs"].as_str().unwrap();
    world.run(["outbox", "show", new]).ended(0);
}
