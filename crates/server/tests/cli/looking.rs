//! Commands that only look.

use crate::world::{World, ids};

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_status_is_the_same_on_a_file_and_on_a_node_and_tells_a_script_that_somebody_is_needed() {
    let world = World::new().await;
    let alone = world.at(&world.file(), &["status", "--json"]).ended(6).json();
    let node = world.serve();
    // The node has the file open.
    for place in [world.file(), node.place.clone()] {
        let status = world.at(&place, &["status", "--json"]).ended(6).json();
        assert_eq!(status["health"]["status"], "degraded");
        assert_eq!(status["health"]["source"], "shop");
        for count in ["dead", "sent", "held", "pending"] {
            assert_eq!(status["outbox"][count], alone["outbox"][count], "{count}");
        }
        assert_eq!((&status["outbox"]["dead"], &status["inbox"]["total"]["dead"]), (&3.into(), &3.into()));
        let shown = world.at(&place, &["status"]).ended(6).out;
        assert!(shown.contains("needs somebody"), "{shown}");
        assert!(shown.contains("! 3 messages could not be sent and wait for a decision"), "{shown}");
    }
    // The configuration says the same.
    assert_eq!(world.run(["status", "--json"]).ended(6).json()["inbox"], alone["inbox"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_messages_are_listed_searched_and_paged() {
    let world = World::new().await;
    let node = world.serve();
    for place in [world.file(), node.place.clone()] {
        let list = |arguments: &[&str]| world.at(&place, &[arguments, &["--json"]].concat());
        let all = ids(&list(&["outbox", "list"]).ended(0).json());
        assert_eq!(all.len(), 7, "{all:?}");
        let (mut paged, mut next) = (Vec::new(), None::<String>);
        loop {
            let go_on: Vec<&str> = next.iter().flat_map(|next| ["--next", next]).collect();
            let page = list(&[&["outbox", "list", "--limit", "2"], &go_on[..]].concat()).ended(0).json();
            paged.extend(ids(&page));
            next = page["next"].as_str().map(Into::into);
            if next.is_none() || paged.len() > all.len() {
                break;
            }
        }
        assert_eq!(paged, all);
        let found = |arguments: &[&str]| ids(&list(arguments).ended(0).json());
        assert_eq!(found(&["outbox", "list", "--status", "Sent"]).len(), 3);
        assert_eq!(
            found(&["outbox", "list", "--ordering-key", "customer-7", "--status", "Failed"]),
            ["refund-2"]
        );
        assert_eq!(found(&["outbox", "list", "--since", "1 h", "--destination", "billing"]).len(), 7);
        assert_eq!(found(&["inbox", "list", "--status", "Dead"]).len(), 3);
        assert_eq!(found(&["inbox", "list", "--id", "box-3"]), ["box-3"]);
        assert_eq!(found(&["outbox", "dead", "--reason", "rejected"]).len(), 3);
        assert_eq!(found(&["inbox", "dead", "--source", "warehouse"]).len(), 3);
        // Nothing matches; it makes no sense; there is no such time.
        assert_eq!(ids(&list(&["outbox", "list", "--id", "none"]).ended(4).json()).len(), 0);
        list(&["outbox", "list", "--until", "1 h"]).ended(4);
        let wrong = list(&["outbox", "list", "--status", "Wrong"]).ended(2);
        assert!(wrong.err.contains("status"), "{wrong:?}");
        list(&["inbox", "list", "--since", "yesterday"]).ended(2);
        let shown = world.at(&place, &["outbox", "dead"]).ended(0).out;
        let first = shown.lines().nth(1).unwrap();
        assert!(first.contains("refund-0") && first.contains("rejected: no such customer"), "{shown}");
        assert!(shown.contains("customer-7 (waits)") && shown.contains(" ago"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adr_09_a_message_is_shown_attempt_by_attempt_without_its_payload() {
    let world = World::new().await;
    let node = world.serve();
    for place in [world.file(), node.place.clone()] {
        let found = world.at(&place, &["outbox", "show", "refund-2", "--json"]).ended(0).json();
        let message = &found["messages"][0];
        assert_eq!(message["message"]["status"], "Failed");
        assert_eq!(message["holdsKey"], true);
        assert_eq!(message["history"][0]["error"], "no such customer");
        let shown = world.at(&place, &["outbox", "show", "refund-2"]).ended(0).out;
        for part in [
            "refund-2",
            "Failed",
            "customer-7",
            "4bf92f3577b34da6a3ce929d0e0e4736",
            "x-secret",
            "no such customer",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let shown = world.at(&place, &["inbox", "show", "box-2"]).ended(0).out;
        for part in ["box-2", "Dead", "warehouse", "Delivered", "cannot be handled"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        for none in ["no-such-id", "..", "a/b?c"] {
            let missing = world.at(&place, &["outbox", "show", none]);
            assert!([2, 4].contains(&missing.code) && missing.out.is_empty(), "{none}: {missing:?}");
        }
        world.at(&place, &["inbox", "show", "no-such-id"]).ended(4);
    }
}
