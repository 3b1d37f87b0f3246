//! Both sides notice when a box of the other is not the one it was.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{InstanceStore, LaneStatus, LaneStore, Met, OpsStore};
use twobox_core::{Consumer, Destination, Endpoint, Source};
use twobox_engine::receiver::Route;
use twobox_engine::relay::Relay;
use twobox_engine::{InProcess, Receiver, Shutdown, SystemTimer};
use twobox_sqlite::{BackupOptions, Existing, RestoreOptions, Sqlite, SqliteHandler, restore};
use twobox_testkit::eventually;

use crate::fixture::{Place, close, open, place};

const EVER: Duration = Duration::from_secs(30);

fn consumer() -> Consumer {
    Consumer::new("billing").unwrap()
}

fn shop() -> Source {
    Source::new("shop").unwrap()
}

#[tokio::test]
async fn rf_18_an_outbox_that_was_not_known_beside_others_is_a_change_and_only_once() {
    let folder = Place::new();
    let db = folder.open().await;
    let meet = async |outbox: &str| db.meet_outbox(&consumer(), &shop(), outbox).await.unwrap();
    assert_eq!(meet("first").await, Met::Known, "there was none before");
    assert_eq!(meet("first").await, Met::Known);
    assert_eq!(meet("second").await, Met::Changed);
    assert_eq!(
        (meet("first").await, meet("second").await),
        (Met::Known, Met::Known),
        "both are known by now"
    );
    let [met] = &db.met_outboxes().await.unwrap()[..] else { panic!("one source") };
    assert_eq!((met.outbox.as_deref(), met.changes), (Some("second"), 1));
    assert!(met.changed.is_some());
    assert_eq!(db.inbox_stats().await.unwrap().total.outbox_changes, 1, "operators see it");
    for outbox in 0..100 {
        meet(&format!("outbox {outbox}")).await;
    }
    let kept = crate::fixture::number(&folder.database(), "SELECT count(*) FROM inbox_outboxes");
    assert_eq!(kept, 64, "a source cannot fill the table");
}

/// Relays until `done` is true of the only lane.
async fn relay(sender: &Sqlite, receiver: &Sqlite, done: impl Fn(&LaneStatus) -> bool) -> LaneStatus {
    let timer = Arc::new(SystemTimer::default());
    let handler = SqliteHandler::new(|_, _| Ok(twobox_core::Response::empty()));
    let to = Receiver::builder(receiver.clone(), consumer(), timer.clone())
        .route(Endpoint::new("Pay").unwrap(), Route::Handler(handler))
        .unwrap()
        .build();
    let relay = Relay::builder(sender.clone(), shop(), timer, sender.random())
        .destination(Destination::new("billing").unwrap(), Arc::new(InProcess::to(to)))
        .unwrap()
        .build()
        .unwrap();
    let (stop, shutdown) = Shutdown::new();
    let running = tokio::spawn(relay.run(shutdown));
    let lane = eventually("the lane", EVER, async || {
        sender.lanes().await.unwrap().into_iter().find(|lane| done(lane))
    })
    .await;
    stop.request();
    running.await.unwrap();
    lane
}

async fn back_up_and_restore(db: Sqlite, folder: &Place, name: &str) -> Sqlite {
    let (path, backup) = (db.path().to_owned(), folder.file(name));
    db.backup(&backup, &BackupOptions::default()).await.unwrap();
    close(db).await;
    let options = RestoreOptions { existing: Existing::SetAside, ..RestoreOptions::default() };
    restore(&backup, &path, &options).unwrap();
    open(&path).await
}

/// Fault 56: either side is restored, and the other one shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_both_sides_notice_when_the_other_was_restored() {
    let (here, there) = (Place::new(), Place::new());
    let (shop, billing) = (here.open().await, there.open().await);
    place(&shop, 1).await.unwrap();
    let lane = relay(&shop, &billing, |lane| lane.sent == 1 && lane.inbox.is_some()).await;
    assert_eq!((lane.inbox_changes, lane.inbox_changed), (0, None), "the first one is no change");
    assert_eq!(lane.inbox, Some(billing.inbox_instance().await.unwrap()));

    let billing = back_up_and_restore(billing, &there, "backup.db").await;
    place(&shop, 2).await.unwrap();
    let lane = relay(&shop, &billing, |lane| lane.sent == 2 && lane.inbox_changes == 1).await;
    assert!(lane.inbox_changed.is_some());
    assert_eq!(lane.inbox, Some(billing.inbox_instance().await.unwrap()));
    let met = async |db: &Sqlite| db.met_outboxes().await.unwrap().pop().map(|met| met.changes);
    eventually("billing has met shop", EVER, async || (met(&billing).await == Some(0)).then_some(())).await;

    let shop = back_up_and_restore(shop, &here, "backup.db").await;
    place(&shop, 3).await.unwrap();
    let lane = relay(&shop, &billing, |lane| lane.sent == 3).await;
    assert_eq!(lane.inbox_changes, 1, "billing is the same: the memory of it came back with the backup");
    eventually("billing notices", EVER, async || (met(&billing).await == Some(1)).then_some(())).await;
}
