//! What a relay is handed from memory is what stands in the log.

use std::time::Duration;

use twobox_core::name::{CorrelationId, OrderingKey};
use twobox_core::ports::LogStore;
use twobox_core::{Error, Headers, Message, MessageId, MessageType, NewMessage, Source, Stamp};
use twobox_sqlite::{Drive, Sqlite};

use crate::fixture::Place;
use crate::plain_sql::{read, read_for, take};

fn new(id: &str) -> NewMessage {
    NewMessage::json("billing", "Pay", &id).unwrap().id(MessageId::new(id).unwrap())
}

fn stamp(db: &Sqlite) -> Stamp {
    Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random())
}

async fn append(db: &Sqlite, id: &str) {
    let (message, log) = (stamp(db).message(&new(id)).unwrap(), db.clone());
    db.transaction::<_, Error, _>(move |tx| log.append(tx, &message)).await.unwrap();
}

fn ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

#[tokio::test]
async fn l7_messages_from_memory_equal_those_of_the_log() {
    let place = Place::new();
    let db = place.open().await;
    let mut headers = Headers::default();
    headers.insert("traceparent", "00-1").unwrap();
    let full = new("full")
        .message_type(MessageType::Command)
        .ordering_key(OrderingKey::new("küche").unwrap())
        .correlation_id(CorrelationId::new("c").unwrap())
        .headers(headers)
        .due(db.clock().now().plus(Duration::from_secs(60)))
        .ttl(Duration::from_secs(90));
    let messages: Vec<Message> =
        [new("plain"), full].iter().map(|message| stamp(&db).message(message).unwrap()).collect();
    let (log, appended) = (db.clone(), messages.clone());
    db.transaction::<_, Error, _>(move |tx| appended.iter().try_for_each(|message| log.append(tx, message)))
        .await
        .unwrap();
    assert_eq!(read(&db).await, messages, "from memory");
    drop(db);
    let reopened = place.open().await;
    assert_eq!(read(&reopened).await, messages, "from the database");
}

#[tokio::test]
async fn s1_what_was_undone_is_not_handed_over() {
    let place = Place::new();
    let db = place.open().await;
    let messages = ["kept", "undone"].map(|id| stamp(&db).message(&new(id)).unwrap());
    let log = db.clone();
    db.transaction::<_, Error, _>(move |tx| {
        log.append(tx, &messages[0])?;
        let undone: Result<(), Error> = tx.savepoint(|tx| {
            log.append(tx, &messages[1])?;
            Err(Error::invalid("changed my mind"))
        });
        assert!(undone.is_err());
        Ok(())
    })
    .await
    .unwrap();
    let (message, log) = (stamp(&db).message(&new("failed")).unwrap(), db.clone());
    let failed = db.transaction::<(), Error, _>(move |tx| {
        log.append(tx, &message)?;
        Err(Error::invalid("changed my mind"))
    });
    assert!(failed.await.is_err());
    append(&db, "last").await;
    assert_eq!(ids(&read(&db).await), ["kept", "last"]);
}

/// Nobody watches a database that is stepped, so nothing but the books themselves keeps an undone message from
/// standing for a row that somebody else has written in its place.
#[tokio::test]
async fn s1_what_was_undone_does_not_stand_for_somebody_elses_row() {
    let place = Place::new();
    let db = Sqlite::builder().drive(Drive::Manual).open(place.path()).await.unwrap();
    let driver = tokio::spawn({
        let db = db.clone();
        async move { db.drive().await }
    });
    db.migrate().await.unwrap();
    let messages = ["kept", "undone"].map(|id| stamp(&db).message(&new(id)).unwrap());
    let log = db.clone();
    db.transaction::<_, Error, _>(move |tx| {
        log.append(tx, &messages[0])?;
        let _: Result<(), Error> = tx.savepoint(|tx| {
            log.append(tx, &messages[1])?;
            Err(Error::invalid("changed my mind"))
        });
        Ok(())
    })
    .await
    .unwrap();
    place.foreign().execute(FOREIGN, ["foreign"]).unwrap();
    // A commit of ours that appends nothing learns where the log ends.
    db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE t (x)", [])).await.unwrap();
    assert_eq!(ids(&read(&db).await), ["kept", "foreign"]);
    driver.abort();
}

const FOREIGN: &str = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload)
    VALUES (?1, 'shop', 'billing', 'Pay', '{}')";

#[tokio::test]
async fn l7_what_others_write_in_between_is_not_passed_over() {
    let place = Place::new();
    let db = place.open().await;
    append(&db, "one").await;
    place.foreign().execute(FOREIGN, ["two"]).unwrap();
    append(&db, "three").await;
    assert_eq!(ids(&read(&db).await), ["one", "two", "three"]);
}

/// All of the log but its last row is in memory; whoever is told of that row finds it all the same.
#[tokio::test]
async fn l7_what_others_write_behind_it_is_found() {
    let place = Place::new();
    let db = place.open().await;
    append(&db, "one").await;
    append(&db, "two").await;
    let lanes = take(&db).await; // a commit of ours would learn where the log ends
    assert_eq!(ids(&read_for(&db, &lanes).await), ["one", "two"]);
    place.foreign().execute(FOREIGN, ["three"]).unwrap();
    twobox_testkit::eventually("the foreign row is found", Duration::from_secs(10), async || {
        (ids(&read_for(&db, &lanes).await) == ["one", "two", "three"]).then_some(())
    })
    .await;
}

/// A message in another file than its order would exist without it, or the other way round.
#[tokio::test]
async fn s1_a_message_cannot_be_enqueued_in_another_files_transaction() {
    let (here, there) = (Place::new(), Place::new());
    let (db, other) = (here.open().await, there.open().await);
    append(&other, "theirs").await;
    let (message, log) = (stamp(&other).message(&new("stray")).unwrap(), other.clone());
    let refused = db.transaction::<_, Error, _>(move |tx| log.append(tx, &message)).await.unwrap_err();
    assert_eq!(refused.kind(), twobox_core::ErrorKind::Invalid, "{refused}");
    assert!(read(&db).await.is_empty());
    assert_eq!(ids(&read(&other).await), ["theirs"]);
}

/// What was read before the database was reopened may not be there any more: it must not be sent.
#[tokio::test]
async fn l1_what_was_read_in_another_epoch_is_not_made_durable() {
    let place = Place::new();
    let db = place.open().await;
    append(&db, "m").await;
    let epoch = take(&db).await[0].epoch;
    db.make_durable(epoch, &1).await.unwrap();
    for place in [1, i64::MAX] {
        let refused = db.make_durable(epoch - 1, &place).await.unwrap_err();
        assert_eq!(refused.kind(), twobox_core::ErrorKind::LeaseLost);
    }
}
