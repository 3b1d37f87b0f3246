//! A database file is damaged. What is lost is lost; but nobody goes on as if nothing had happened.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use twobox_testkit::eventually;

use crate::checks::is_delivered_once;
use crate::process::{EVER, Process};
use crate::world::{Database, World};

/// Enough orders for some pages of everything.
const MANY: i64 = 300;
const ONE_MORE: i64 = MANY + 1;
const PAGE: usize = 4096;

/// What went wrong with the lane or with a message.
const HEARD: &str = "SELECT held_error FROM outbox_lanes WHERE held_error IS NOT NULL
    UNION ALL SELECT last_error FROM outbox_messages WHERE last_error IS NOT NULL";

#[tokio::test(flavor = "multi_thread")]
async fn rf_15_sqlite_file_corruption() {
    damaged_outbox_takes_nothing_and_is_not_opened().await;
    damaged_inbox_acknowledges_nothing_and_is_not_opened().await;
}

async fn damaged_outbox_takes_nothing_and_is_not_opened() {
    let world = used_world().await;
    let mut shop = world.start_shop().await;
    let damaged = damage(&world.shop);
    let refusal = shop.try_to_place(ONE_MORE).await;
    assert!(refusal.starts_with("refused Corrupt: "), "{refusal}");
    assert!(refusal.contains("nothing was changed, restore a backup"), "{refusal}");
    let refusal = shop.try_to_place(ONE_MORE).await;
    assert!(refusal.starts_with("refused "), "{refusal}");
    shop.0.kill().await;
    assert!(std::fs::read(&world.shop.0).unwrap() == damaged, "the damaged file was changed");
    is_not_opened(&world.shop, || world.spawn_shop()).await;
}

async fn damaged_inbox_acknowledges_nothing_and_is_not_opened() {
    let world = used_world().await;
    let billing = world.start_billing().await;
    let damaged = damage(&world.billing);
    let mut shop = world.start_shop().await.relay().await;
    shop.place(ONE_MORE).await;
    let why = eventually("shop hears from billing", EVER, async || world.shop.rows(HEARD).pop()).await;
    // Nothing can be said about the message, and it is not to blame: it waits until billing is well.
    assert!(why.contains("the receiver's store cannot answer"), "{why}");
    let open = "SELECT message_id, retry_count FROM outbox_messages WHERE status IN ('Pending', 'Sending')";
    assert_eq!(world.shop.rows(open), [format!("order-{ONE_MORE} 0")]);
    let (events, acknowledged) = (world.events(), format!("order-{ONE_MORE} d")); // done or duplicate
    assert!(!events.iter().any(|event| event.starts_with(&acknowledged)), "{events:?}");

    billing.kill().await;
    assert!(std::fs::read(&world.billing.0).unwrap() == damaged, "the damaged file was changed");
    is_not_opened(&world.billing, || world.spawn_billing()).await;
}

/// Many orders were delivered, and both sides have stopped in order: everything is in the files, nothing in memory.
async fn used_world() -> World {
    let world = World::new();
    let billing = world.start_billing().await;
    let mut shop = world.start_shop().await.relay().await;
    shop.place_many(1, MANY).await;
    let orders: Vec<i64> = (1..=MANY).collect();
    is_delivered_once(&world, EVER, &orders).await;
    shop.0.stop().await;
    billing.stop().await;
    world
}

/// Overwrites the beginning of every page but the first, in place, under whoever has the file open. Returns what the
/// file is then.
fn damage(database: &Database) -> Vec<u8> {
    let mut bytes = std::fs::read(&database.0).unwrap();
    assert!(bytes.len() > 20 * PAGE, "the database is too small");
    for page in bytes.chunks_mut(PAGE).skip(1) {
        page[..16].iter_mut().for_each(|byte| *byte = !*byte);
    }
    File::options().write(true).open(&database.0).unwrap().write_all_at(&bytes, 0).unwrap();
    bytes
}

/// A damaged file is refused with a clear error, every time, and stays as it is.
async fn is_not_opened(database: &Database, start: impl Fn() -> Process) {
    let before = contents(&database.0);
    for _ in 0..2 {
        let reason = start().fails().await;
        assert!(reason.starts_with("failed Corrupt: "), "{reason}");
        assert!(reason.contains("nothing was changed, restore a backup"), "{reason}");
        assert!(contents(&database.0) == before, "the refused files were changed");
    }
}

/// Every file of the database that holds something, with its bytes.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = ["", "-wal", "-journal"].map(|suffix| PathBuf::from(format!("{}{suffix}", path.display())));
    let read = files.into_iter().filter_map(|file| std::fs::read(&file).ok().map(|bytes| (file, bytes)));
    read.filter(|(_, bytes)| !bytes.is_empty()).collect()
}
