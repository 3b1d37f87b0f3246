//! Enqueueing joins the caller's transaction, whoever runs it (S1, RF-01, L8).

use rusqlite::{Connection, TransactionBehavior, params_from_iter};
use twobox_core::name::OnceKey;
use twobox_core::{Error, ErrorKind, Result};
use twobox_sqlite::{Once, Sqlite};

use crate::fixture::{Place, message, number, say, status, words};

#[tokio::test]
async fn rf_01_a_message_exists_exactly_when_the_callers_rows_do() {
    let place = Place::new();
    let db = place.open().await;
    let mut connection = place.foreign();

    let mut tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tx.execute("INSERT INTO words VALUES ('kept')", []).unwrap();
    db.append(&mut tx, &message(&db, "kept")).unwrap();
    tx.commit().unwrap();

    let mut tx = connection.transaction().unwrap();
    db.append(&mut tx, &message(&db, "undone")).unwrap();
    tx.rollback().unwrap();

    let mut tx = connection.transaction().unwrap();
    db.append(&mut tx, &message(&db, "outer")).unwrap();
    let mut savepoint = tx.savepoint().unwrap();
    db.append(&mut savepoint, &message(&db, "inner")).unwrap();
    savepoint.rollback().unwrap();
    drop(savepoint);
    tx.commit().unwrap();

    connection.execute_batch("BEGIN").unwrap();
    db.append(&mut connection, &message(&db, "by hand")).unwrap();
    connection.execute_batch("COMMIT").unwrap();

    assert_eq!(status(&db, "kept").await.unwrap().0, "Pending");
    assert_eq!(status(&db, "undone").await, None);
    assert_eq!(status(&db, "outer").await.unwrap().0, "Pending");
    assert_eq!(status(&db, "inner").await, None);
    assert_eq!(status(&db, "by hand").await.unwrap().0, "Pending");
    assert_eq!(words(&place), ["kept"]);
}

#[tokio::test]
async fn rf_01_the_writers_own_transaction_keeps_message_and_rows_together() {
    let place = Place::new();
    let db = place.open().await;
    let inside = db.clone();
    let undone: Result<()> = db
        .transaction(move |tx| {
            say(tx, "undone")?;
            inside.append(tx, &message(&inside, "undone"))?;
            say(tx, "undone")
        })
        .await;
    assert_eq!(undone.unwrap_err().kind(), ErrorKind::Statement);
    assert_eq!(status(&db, "undone").await, None);
    assert!(words(&place).is_empty());
}

#[tokio::test]
async fn s1_a_connection_without_a_transaction_is_refused() {
    let place = Place::new();
    let db = place.open().await;
    let error = db.append(&mut place.foreign(), &message(&db, "m")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("not in a transaction"), "{error}");
    let key = OnceKey::new("k").unwrap();
    let error = db.append_once(&mut place.foreign(), &key, &message(&db, "m")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(status(&db, "m").await, None);
    assert_eq!(number(&place.path(), "SELECT count(*) FROM outbox_once"), 0);
}

#[tokio::test]
async fn s1_rf_17_a_connection_to_another_file_is_refused() {
    let (place, other) = (Place::new(), Place::new());
    let (db, _other_db) = (place.open().await, other.open().await);
    // One that has the same tables, one that has none, one that is no file, one that only attaches ours.
    let attaching = Connection::open_in_memory().unwrap();
    attaching.execute("ATTACH ?1 AS ours", [place.path().to_str()]).unwrap();
    let bare = Connection::open(place.file("bare.db")).unwrap();
    for mut connection in [other.foreign(), bare, Connection::open_in_memory().unwrap(), attaching] {
        let mut tx = connection.transaction().unwrap();
        let error = db.append(&mut tx, &message(&db, "m")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("another file"), "{error}");
        tx.commit().unwrap();
    }
    assert_eq!(number(&other.path(), "SELECT count(*) FROM outbox_log"), 0);
    assert_eq!(status(&db, "m").await, None);
}

#[cfg(unix)]
#[tokio::test]
async fn s1_the_same_file_under_another_name_is_accepted() {
    let place = Place::new();
    let db = place.open().await;
    let link = place.file("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let mut connection = Connection::open(link).unwrap();
    let mut tx = connection.transaction().unwrap();
    db.append(&mut tx, &message(&db, "m")).unwrap();
    tx.commit().unwrap();
    assert!(status(&db, "m").await.is_some());
}

#[tokio::test]
async fn rf_01_the_plain_statement_works_through_any_driver() {
    let place = Place::new();
    let db = place.open().await;
    let insert = db.insert(&message(&db, "plain"));
    let mut connection = place.foreign();
    let tx = connection.transaction().unwrap();
    tx.execute(&insert.sql, params_from_iter(&insert.params)).unwrap();
    assert_eq!(status(&db, "plain").await, None, "not before the commit");
    tx.commit().unwrap();
    assert_eq!(status(&db, "plain").await.unwrap().0, "Pending");
    assert!(!format!("{insert:?}").contains("plain"), "values are not shown (S17)");
}

async fn once(db: &Sqlite, key: &'static str, id: &'static str) -> Once {
    let inside = db.clone();
    db.transaction::<_, Error, _>(move |tx| {
        inside.append_once(tx, &OnceKey::new(key)?, &message(&inside, id))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn l8_a_second_call_under_the_same_key_enqueues_nothing() {
    let place = Place::new();
    let db = place.open().await;
    let first = once(&db, "order 7", "first").await;
    assert!(matches!(&first, Once::Enqueued(id) if id.as_str() == "first"), "{first:?}");
    let second = once(&db, "order 7", "second").await;
    assert!(matches!(&second, Once::Already(id) if id.as_str() == "first"), "{second:?}");
    assert_eq!(second.id(), first.id());
    assert!(matches!(once(&db, "order 8", "third").await, Once::Enqueued(_)));

    // Through the caller's own connection as well, where a rollback frees the key.
    let mut connection = place.foreign();
    let key = OnceKey::new("order 9").unwrap();
    let mut tx = connection.transaction().unwrap();
    assert!(matches!(db.append_once(&mut tx, &key, &message(&db, "undone")).unwrap(), Once::Enqueued(_)));
    tx.rollback().unwrap();
    let mut tx = connection.transaction().unwrap();
    assert!(matches!(db.append_once(&mut tx, &key, &message(&db, "fourth")).unwrap(), Once::Enqueued(_)));
    assert!(matches!(db.append_once(&mut tx, &key, &message(&db, "fifth")).unwrap(), Once::Already(_)));
    tx.commit().unwrap();
    assert_eq!(number(&place.path(), "SELECT count(*) FROM outbox_log"), 3);
}
