//! A node that makes backups of its database.

use twobox::{VerifyOptions, verify};
use twobox_testkit::eventually;

use crate::operators::{address, ask, serve_operators};
use crate::world::{EVER, Node, World};

#[tokio::test(flavor = "multi_thread")]
async fn rf_18_a_node_backs_up_its_database_while_it_runs() {
    let world = World::new();
    let folder = world.path("backups");
    std::fs::create_dir(&folder).unwrap();
    let config = world.configure("shop", &format!("[backup]\nfolder = {:?}\n", folder.to_str().unwrap()));
    serve_operators(&world, &config, "alice write-token-0123456789\n", "send-token-0123456789\n");
    let shop = Node::start(&config).await;
    let whole = || {
        let entry = std::fs::read_dir(&folder).unwrap().next()?.unwrap().path();
        (entry.extension()? == "backup").then_some(entry)
    };
    let backup = eventually("a backup", EVER, async || whole()).await;
    assert!(verify(&backup, VerifyOptions::Full).unwrap().is_sound());
    world.until_logged("shop", "backed up", 1).await;
    let figures = async || {
        let (_, page) = ask(address(&shop), "GET /metrics", "write-token-0123456789", "").await;
        let made = page.contains("twobox_backup_tries_total{outcome=\"made\"} 1\n");
        (made && page.contains("\ntwobox_backup_age_seconds ")).then_some(())
    };
    eventually("the figures", EVER, figures).await;
    shop.stop().await;
}
