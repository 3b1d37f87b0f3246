//! Migrations are explicit (GP-1): what happens before them, after them, and to those of a later version.

use rusqlite::Connection;
use twobox_core::ports::{Enqueued, LogStore, Queue, QueueStore, Work};
use twobox_core::{Consumer, Error, ErrorKind, MessageId};
use twobox_sqlite::{Prefix, Sqlite};

use crate::fixture::{Place, message, number, status};

async fn append(db: &Sqlite, id: &'static str) -> Result<(), Error> {
    let inside = db.clone();
    db.transaction(move |tx| inside.append(tx, &message(&inside, id))).await
}

fn names_migrate(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Schema, "{error:?}");
    assert!(error.to_string().contains("migrate()"), "{error}");
}

#[tokio::test]
async fn gp_1_a_database_without_tables_says_how_to_get_them() {
    let place = Place::new();
    let db = Sqlite::open(place.path()).await.unwrap();
    names_migrate(&append(&db, "m").await.unwrap_err());
    names_migrate(&db.message_status(&MessageId::new("m").unwrap()).await.unwrap_err());
    names_migrate(&db.make_durable(1, &1).await.unwrap_err());
    db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE mine (id)", [])).await.unwrap();
    db.migrate().await.unwrap();
    append(&db, "m").await.unwrap();
    assert!(status(&db, "m").await.is_some());
}

#[tokio::test]
async fn gp_1_a_table_of_the_same_name_is_left_alone() {
    let place = Place::new();
    place
        .foreign()
        .execute_batch("CREATE TABLE outbox_log (mine); INSERT INTO outbox_log VALUES (7)")
        .unwrap();
    let db = Sqlite::open(place.path()).await.unwrap();
    let error = db.migrate().await.unwrap_err();
    assert!(error.to_string().contains("set a prefix"), "{error}");
    assert_eq!(number(&place.path(), "SELECT mine FROM outbox_log"), 7);
    assert_eq!(number(&place.path(), "SELECT count(*) FROM sqlite_schema"), 1, "nothing was half done");
    drop(db);
    let db = Sqlite::builder().prefix(Prefix::new("my_").unwrap()).open(place.path()).await.unwrap();
    db.migrate().await.unwrap();
    append(&db, "m").await.unwrap();
}

#[tokio::test]
async fn gp_1_a_newer_schema_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    let newer = "UPDATE twobox_meta SET value = value + 1 WHERE name = 'schema_version'";
    assert_eq!(place.foreign().execute(newer, []).unwrap(), 1);
    let error = Sqlite::open(place.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("newer version"), "{error}");
    // Boxes of another prefix have a version of their own.
    Sqlite::builder().prefix(Prefix::new("my_").unwrap()).open(place.path()).await.unwrap();
}

#[tokio::test]
async fn gp_1_migrating_again_changes_nothing() {
    let place = Place::new();
    let db = place.open().await;
    append(&db, "m").await.unwrap();
    let before = schema(&place.foreign());
    for _ in 0..2 {
        db.migrate().await.unwrap();
    }
    assert_eq!(schema(&place.foreign()), before);
    assert!(status(&db, "m").await.is_some());
}

#[tokio::test]
async fn gp_1_printed_migrations_make_the_same_database() {
    for prefix in ["", "my_"] {
        let builder = || Sqlite::builder().prefix(Prefix::new(prefix).unwrap());
        let (place, by_hand) = (Place::new(), Place::new());
        let db = builder().open(place.path()).await.unwrap();
        db.migrate().await.unwrap();
        by_hand.foreign().execute_batch(&db.migrations_sql()).unwrap();
        assert_eq!(schema(&by_hand.foreign()), schema(&place.foreign()));

        let db = builder().open(by_hand.path()).await.unwrap();
        append(&db, "m").await.unwrap();
        assert!(status(&db, "m").await.is_some());
        db.migrate().await.unwrap();
        assert_eq!(schema(&by_hand.foreign()), schema(&place.foreign()));
        assert!(status(&db, "m").await.is_some());
    }
}

#[tokio::test]
async fn gp_1_printed_migrations_may_run_while_the_database_is_open() {
    let place = Place::new();
    let builder = Sqlite::builder().drive(twobox_sqlite::Drive::Manual);
    let db = builder.open(place.path()).await.unwrap();
    let driver = tokio::spawn({
        let db = db.clone();
        async move { db.drive().await }
    });
    place.foreign().execute_batch(&db.migrations_sql()).unwrap();
    append(&db, "m").await.unwrap();
    let changed = tokio::time::timeout(std::time::Duration::from_secs(5), db.changed(0)).await;
    assert!(changed.is_ok(), "nobody was told of the message");
    driver.abort();
}

/// Everything in the schema, and the version.
fn schema(connection: &Connection) -> (Vec<String>, Vec<i64>) {
    let mut statement = connection
        .prepare("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
        .unwrap();
    let parts = statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
    let mut versions = Vec::new();
    for table in ["twobox_meta", "my_twobox_meta"] {
        let sql = format!("SELECT value FROM {table} WHERE name = 'schema_version'");
        versions.extend(connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).ok());
    }
    (parts, versions)
}

/// IBX-114, IBX-115, IBX-116: the queue's tables are made when asked for, not before, and once.
#[tokio::test]
async fn ibx_114_ibx_115_ibx_116_the_queue_is_migrated_when_asked_for() {
    let place = Place::new();
    let db = Sqlite::open(place.path()).await.unwrap();
    let queue = Queue::new(Consumer::new("billing").unwrap());
    let work = Work { message: message(&db, "m"), hash: None };
    names_migrate(&db.enqueue_work(&queue, &work).await.unwrap_err());
    names_migrate(&db.next_work(&queue.consumer).await.unwrap_err());
    assert_eq!(number(&place.path(), "SELECT count(*) FROM sqlite_schema"), 0, "nothing was made unasked");
    for expected in [Enqueued::New, Enqueued::Updated] {
        db.migrate().await.unwrap();
        assert_eq!(db.enqueue_work(&queue, &work).await.unwrap(), expected);
    }
}
