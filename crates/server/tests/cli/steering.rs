//! Lanes, keys, the trail, and who may do what.

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_destinations_are_paused_and_resumed_and_reasons_cannot_act_on_the_terminal() {
    let world = World::new().await;
    let node = world.serve();
    for place in [world.file(), node.place.clone()] {
        let run = |arguments: &[&str]| world.at(&place, arguments);
        let reason = "migration\u{9b}2J \u{202e}";
        let paused = run(&["lanes", "pause", "billing", "--reason", reason, "--json"]).ended(0).json();
        assert_eq!((&paused["paused"], &paused["changed"]), (&true.into(), &true.into()));
        assert_eq!(run(&["lanes", "pause", "billing"]).ended(0).out, "billing was paused already\n");
        let shown = run(&["lanes"]).ended(0).out;
        assert!(shown.contains("by cli:ada: migration") || shown.contains("by ada: migration"), "{shown}");
        assert!(!shown.contains('\u{202e}'), "{shown:?}");
        let lanes = run(&["lanes", "--json"]).ended(0).json();
        assert!(lanes["items"][0]["pausedSince"].is_string(), "{lanes:#}");
        assert_eq!(run(&["lanes", "resume", "billing"]).ended(0).out, "billing is no longer paused\n");
        run(&["lanes", "pause", "nowhere"]).ended(4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_blocked_keys_are_listed_and_released() {
    for on_node in [false, true] {
        let world = World::new().await;
        let node = on_node.then(|| world.serve());
        let place = node.as_ref().map_or_else(|| world.file(), |node| node.place.clone());
        let run = |arguments: &[&str]| world.at(&place, arguments);
        let keys = run(&["keys", "blocked", "--json"]).ended(0).json();
        assert_eq!(keys["outbox"]["items"][0]["orderingKey"], "customer-7");
        assert_eq!(keys["inbox"]["items"][0]["orderingKey"], "shelf-3");
        run(&["keys", "release", "customer-7"]).ended(2);
        run(&["keys", "release", "customer-7", "--to", "billing", "--from", "warehouse"]).ended(2);
        assert_eq!(
            run(&["keys", "release", "customer-7", "--to", "billing"]).ended(0).out,
            "customer-7 goes on\n"
        );
        run(&["keys", "release", "customer-7", "--to", "billing"]).ended(4);
        run(&["keys", "release", "shelf-3", "--from", "warehouse"]).ended(0);
        run(&["keys", "blocked"]).ended(4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_every_action_is_in_the_trail_with_who_did_it() {
    let world = World::new().await;
    let node = world.serve();
    world.at(&world.file(), &["outbox", "replay", "refund-0"]).ended(0);
    world.at(&node.place, &["inbox", "purge", "box-0", "--yes"]).ended(0);
    world.at(&world.file(), &["outbox", "replay", "no-such-id"]).ended(4);
    for place in [world.file(), node.place.clone()] {
        let trail = world.at(&place, &["audit", "--json"]).ended(0).json();
        let row = |at: usize| {
            let row = &trail["items"][at];
            ["actor", "action", "outcome"].map(|name| row[name].as_str().unwrap().to_owned())
        };
        assert_eq!(row(0), ["cli:ada", "outbox.retry", "refused"]);
        assert_eq!(row(1), ["ada", "inbox.purge", "done"]);
        assert_eq!(row(2), ["cli:ada", "outbox.retry", "done"]);
        let mine =
            world.at(&place, &["audit", "--actor", "cli:ada", "--action", "outbox.retry"]).ended(0).out;
        assert_eq!(mine.lines().count(), 3, "{mine}");
        world.at(&place, &["audit", "--actor", "nobody"]).ended(4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_token_comes_from_the_environment_or_a_file_and_must_be_right() {
    let world = World::new().await;
    let node = world.serve();
    let ask = |more: &[&str], token| {
        let arguments = ["status"].iter().chain(more).map(|part| (*part).to_owned());
        world.run_with(arguments.chain(node.place.iter().cloned()), token)
    };
    let missing = ask(&[], None).ended(2);
    assert!(missing.err.contains("TWOBOX_ADMIN_TOKEN"), "{missing:?}");
    ask(&[], Some("wrong-token-0123456789")).ended(5);
    ask(&["--token", "x"], None).ended(2);
    // The node's own file will do, name and all.
    ask(&["--token-file", world.path("token").to_str().unwrap()], None).ended(6);
    ask(&["--database", "shop.db"], None).ended(2);
    let nobody = world.run(["status", "--node", "http://127.0.0.1:9"]).ended(1);
    assert!(nobody.err.contains("the node does not answer"), "{nobody:?}");
}
