//! SIGKILL of either node, again and again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{DONE, Program};
use crate::world::{Node, World};

const ROUNDS: usize = 4;
const PER_ROUND: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn s2_nothing_is_lost_when_either_node_is_killed() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let program = Program::start(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        DONE
    })
    .await;
    let world = World::new();
    let (mut shop, mut billing) = world.start(&program.url()).await;
    let address = billing.listen();
    let listen = address.to_string();
    for round in 0..ROUNDS {
        world.enqueue((0..PER_ROUND).map(|n| format!("m{round}-{n}")));
        // At least one more is on its way.
        program.until_seen(round * PER_ROUND + 1).await;
        if round % 2 == 0 {
            billing.kill().await;
            billing = Node::start_with(&world.path("billing.toml"), &["--listen", &listen]).await;
        } else {
            shop.kill().await;
            shop = Node::start(&world.path("shop.toml")).await;
        }
    }
    let all = i64::try_from(ROUNDS * PER_ROUND).unwrap();
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", all).await;
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", all).await;
    let ids: BTreeSet<String> = program.seen().iter().map(crate::program::Request::id).collect();
    assert_eq!(ids.len(), ROUNDS * PER_ROUND);
    // External mode: at least once, and each repetition under the same key.
    assert!(handled.load(Ordering::Relaxed) >= ids.len());
    billing.stop().await;
    shop.stop().await;
}
