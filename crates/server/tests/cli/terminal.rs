//! What is different for a person at a terminal.

use crate::world::World;

const PURGE: [&str; 3] = ["outbox", "purge", "--all"];

#[tokio::test(flavor = "multi_thread")]
async fn rf_05_a_person_is_asked_before_dead_letters_are_removed() {
    let world = World::new().await;
    for no in ["n", "", "yess", "Y N"] {
        let (code, shown) = world.on_a_terminal(&PURGE, no, "");
        assert_eq!(code, 5, "{no:?}: {shown}");
        assert!(shown.contains("Remove for good 3 dead letters? [y/N]"), "{shown}");
        assert!(shown.contains("nothing was done"), "{shown}");
    }
    world.run(["outbox", "dead"]).ended(0);
    let (code, shown) = world.on_a_terminal(&PURGE, "y", "");
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("removed 3 dead letters"), "{shown}");
    world.run(["outbox", "dead"]).ended(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_colours_are_for_terminals_and_for_those_who_want_them() {
    let world = World::new().await;
    let red = "\u{1b}[38;5;9m";
    let (_, coloured) = world.on_a_terminal(&["status"], "", "");
    assert!(coloured.contains(red), "{coloured:?}");
    let (_, plain) = world.on_a_terminal(&["status"], "", "1");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    // Without a terminal there are none: every other test looks for control characters.
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_whoever_watches_the_demonstration_sees_how_far_it_is() {
    let world = World::new().await;
    let demo = ["demo", "--messages=50", "--kills=0"];
    let (code, shown) = world.on_a_terminal(&demo, "", "");
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("/50 invoices") && shown.contains("0 kills (0 in flight)"), "{shown:?}");
    assert!(shown.contains("Nothing was lost, nothing happened twice."), "{shown:?}");
}
