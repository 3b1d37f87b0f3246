//! Stopping, and exchanging keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::program::{DONE, Program};
use crate::world::{Node, World};

#[tokio::test(flavor = "multi_thread")]
async fn s20_a_graceful_stop_finishes_what_the_program_is_doing() {
    let (asked, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (noted, gate) = (Arc::clone(&asked), Arc::clone(&answer));
    let program = Program::start(move |_, _| {
        noted.store(true, Ordering::Relaxed);
        let gate = Arc::clone(&gate);
        // The program takes its time, on a thread of its own.
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(gate.acquire_owned()).unwrap()
        })
        .forget();
        DONE
    })
    .await;
    let world = World::new();
    let (_shop, mut billing) = world.start(&program.url()).await;
    world.enqueue(["slow".into()]);
    program.until_seen(1).await;
    billing.signal(Signal::TERM);
    world.until_logged("billing", "stopping", 1).await;
    answer.add_permits(1);
    assert_eq!(billing.ended().await.code(), Some(0));
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 1).await;
    assert_eq!(program.seen().len(), 1, "it was not handed over again");
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_a_second_signal_and_the_end_of_the_time_end_it_at_once() {
    let program = Program::start(|_, _| None).await;
    let world = World::new();
    let (shop, mut billing) = world.start(&program.url()).await;
    world.enqueue(["stuck".into()]);
    program.until_seen(1).await;
    billing.signal(Signal::INT);
    world.until_logged("billing", "stopping", 1).await;
    billing.signal(Signal::INT);
    assert_eq!(billing.ended().await.code(), Some(3));
    assert!(world.log("billing").contains("asked a second time"));
    // It is finished after the next start.
    let config = world.path("billing.toml");
    let mut billing = Node::start_with(&config, &["--set", "node.stop_timeout=4 s"]).await;
    program.until_seen(2).await;
    billing.signal(Signal::TERM);
    assert_eq!(billing.ended().await.code(), Some(0), "what hangs is given back in half of the time");
    shop.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_works_although_it_cannot_say_that_it_is_ready() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let billing = Node::start(&world.configure_billing(&program.url(), "127.0.0.1:0", &["1"])).await;
    let mut shop = Node::start_unheard(&world.configure_shop(billing.listen(), &["1"]));
    world.until_logged("shop", "cannot say that the node is ready", 1).await;
    world.enqueue(["m".into()]);
    program.until_seen(1).await;
    shop.signal(Signal::TERM);
    assert_eq!(shop.ended().await.code(), Some(0));
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_keys_are_exchanged_by_sighup_without_a_refused_message() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let (shop, billing) = world.start(&program.url()).await;
    let address = billing.listen();
    let mut enqueued = 0;
    let mut enqueue = |count: i64| {
        world.enqueue((enqueued..enqueued + count).map(|n| format!("m{n}")));
        enqueued += count;
        enqueued
    };
    let sent = "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'";
    world.until("shop", sent, enqueue(20)).await;

    // The receiver learns the new key, the sender changes to it, the receiver forgets the old one.
    world.write_key("2");
    world.configure_billing(&program.url(), "127.0.0.1:0", &["1", "2"]);
    billing.signal(Signal::HUP);
    enqueue(20);
    world.until_logged("billing", "keys and tokens are reloaded", 1).await;
    world.configure_shop(address, &["2"]);
    enqueue(20);
    shop.signal(Signal::HUP);
    let all = enqueue(20);
    world.until_logged("shop", "keys and tokens are reloaded", 1).await;
    world.until("shop", sent, all).await;
    world.configure_billing(&program.url(), "127.0.0.1:0", &["2"]);
    billing.signal(Signal::HUP);
    world.until_logged("billing", "keys and tokens are reloaded", 2).await;
    world.until("shop", sent, enqueue(20)).await;

    // A configuration with a mistake changes nothing.
    world.configure_shop(address, &["3"]);
    shop.signal(Signal::HUP);
    world.until_logged("shop", "keys and tokens are not reloaded", 1).await;
    assert!(world.log("shop").contains("cannot read"), "{}", world.log("shop"));
    world.until("shop", sent, enqueue(20)).await;

    assert!(!world.log("billing").contains("refused"), "{}", world.log("billing"));
    let retries: i64 = world.read("shop", "SELECT sum(retry_count) FROM outbox_messages").unwrap();
    assert_eq!(retries, 0);
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 120).await;
    billing.stop().await;
    shop.stop().await;
    let logs = [world.log("shop"), world.log("billing")].concat();
    assert!(!logs.contains("of a secret"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_says_what_it_does_not_take_over() {
    let program = Program::start(|_, _| DONE).await;
    let world = World::new();
    let (_shop, billing) = world.start(&program.url()).await;
    let config = world.path("billing.toml");
    let changed = std::fs::read_to_string(&config).unwrap().replace("retries_max = 1000", "retries_max = 7");
    std::fs::write(&config, changed).unwrap();
    billing.signal(Signal::HUP);
    world.until_logged("billing", "wait for a restart", 1).await;
    assert!(world.log("billing").contains("handler.retries_max"), "{}", world.log("billing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_is_told_how_things_are() {
    let world = World::new();
    let path = world.path("notify");
    let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
    let heard = async || {
        let mut line = [0; 64];
        let length = tokio::time::timeout(crate::world::EVER, socket.recv(&mut line)).await.unwrap().unwrap();
        String::from_utf8(line[..length].to_vec()).unwrap()
    };
    let config = world.configure_shop("127.0.0.1:1".parse().unwrap(), &["1"]);
    let shop = Node::start_notifying(&config, &path).await;
    assert_eq!(heard().await, "READY=1");
    shop.signal(Signal::HUP);
    assert_eq!((heard().await, heard().await), ("RELOADING=1".into(), "READY=1".into()));
    shop.stop().await;
    assert_eq!(heard().await, "STOPPING=1");
}
