//! What the writer counts (RF-21).

use std::sync::Arc;

use twobox_core::Error;
use twobox_core::meters::{Meters, Trouble};
use twobox_sqlite::Sqlite;

use crate::fixture::{Place, say};

#[tokio::test]
async fn rf_21_commits_and_their_members_are_counted() {
    let (place, meters) = (Place::new(), Arc::new(Meters::default()));
    let db = place.open_with(Sqlite::builder().meters(Arc::clone(&meters))).await;
    assert!(Arc::ptr_eq(&db.meters(), &meters));
    let other = Sqlite::open(place.path()).await.unwrap();
    assert!(Arc::ptr_eq(&other.meters(), &meters), "one file, one set of figures");
    let before = (meters.store.group.sum().0, meters.store.synced.steps().1);
    for word in ["one", "two"] {
        db.transaction::<_, Error, _>(move |tx| say(tx, word)).await.unwrap();
    }
    let after = (meters.store.group.sum().0, meters.store.synced.steps().1);
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2));
    assert_eq!(meters.store.groups_again.get(), 0);
    assert_eq!(meters.store.trouble.get(Trouble::Disk), 0);
}

#[tokio::test]
async fn rf_21_a_file_that_vanishes_is_shown_as_a_stop() {
    let place = Place::new();
    let db = place.open().await;
    assert_eq!(db.meters().store.stopped.get(), 0);
    std::fs::remove_file(place.path()).unwrap();
    db.transaction::<_, Error, _>(|tx| say(tx, "lost")).await.unwrap_err();
    assert_eq!(db.meters().store.stopped.get(), 1);
}

#[tokio::test]
async fn rf_21_a_group_that_ran_again_is_counted() {
    let place = Place::new();
    let db = place.open().await;
    // Both queue before the writer gets to either, or each is alone: then it is tried again.
    while db.meters().store.groups_again.get() == 0 {
        let (first, second) = (db.clone(), db.clone());
        let good = first.transaction::<_, Error, _>(|tx| tx.execute("DELETE FROM words", []));
        let bad = second.transaction::<_, Error, _>(|tx| tx.execute("INSERT INTO words VALUES (NULL)", []));
        let (good, bad) = tokio::join!(good, bad);
        assert!(good.is_ok() && bad.is_err());
    }
}
