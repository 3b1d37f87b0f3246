//! The documented plain INSERT, for any language: its defaults and its limits (RF-01, docs/SQL.md).

use std::process::Command;
use std::time::Duration;

use twobox_core::ports::{LaneLease, LaneStore, LogStore, ReadLog, TakeLanes};
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Destination, Message, MessageType, Source};
use twobox_sqlite::Sqlite;

use crate::fixture::{Place, number, skip};

const PLAIN: &str =
    "INSERT INTO outbox_log (source, destination, endpoint, payload) VALUES ('shop','billing','Pay','{}')";

/// The messages as a relay of the shop reads them.
pub(crate) async fn read(db: &Sqlite) -> Vec<Message> {
    read_for(db, &take(db).await).await
}

/// The lanes of the shop.
pub(crate) async fn take(db: &Sqlite) -> Vec<LaneLease<i64>> {
    let take = TakeLanes {
        owner: "test".into(),
        source: Source::new("shop").unwrap(),
        destinations: vec![Destination::new("billing").unwrap()],
        everywhere: false,
        lease: Duration::from_secs(60),
        retries_max: 5,
        route_grace: Duration::from_secs(600),
    };
    db.take_lanes(&take).await.unwrap()
}

/// What there is for these lanes.
pub(crate) async fn read_for(db: &Sqlite, lanes: &[LaneLease<i64>]) -> Vec<Message> {
    let read = ReadLog { after: 0, until: None, lanes: lanes.to_vec(), scan_max: 100, bytes_max: 1 << 20 };
    let chunk = db.read_log(read).await.unwrap();
    chunk.entries.into_iter().map(|entry| entry.message.unwrap().as_ref().clone()).collect()
}

/// A UUIDv7 of the moment the message was created, and that moment is now.
fn check_defaults(message: &Message) {
    let id = message.id.as_str();
    let groups: Vec<&str> = id.split('-').collect();
    assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
    assert!(groups.iter().all(|group| group.bytes().all(|c| b"0123456789abcdef".contains(&c))), "{id}");
    assert!(groups[2].starts_with('7'), "{id} has another version");
    assert!(groups[3].starts_with(['8', '9', 'a', 'b']), "{id} has another variant");
    let millis = u64::from_str_radix(&[groups[0], groups[1]].concat(), 16).unwrap();
    assert!(millis.abs_diff(message.created.as_millis()) <= 1, "{id} is not of {:?}", message.created);
    let now = SystemClock::default().now();
    let off = now.since(message.created).max(message.created.since(now));
    assert!(off < Duration::from_secs(60), "created {off:?} away from now");

    assert_eq!(message.message_type, MessageType::Signal);
    assert_eq!(message.content_type, "application/json");
    assert_eq!(message.payload.as_bytes(), b"{}");
    assert_eq!(message.available, message.created);
    assert_eq!(message.expires, message.created.plus(Duration::from_secs(24 * 3600)));
    assert_eq!((message.ordering_key.clone(), message.correlation_id.clone()), (None, None));
    assert!(message.headers.is_empty());
}

#[tokio::test]
async fn rf_01_the_documented_insert_works_with_all_defaults() {
    let place = Place::new();
    let db = place.open().await;
    let connection = place.foreign();
    for _ in 0..100 {
        connection.execute(PLAIN, []).unwrap();
    }
    let messages = read(&db).await;
    assert_eq!(messages.len(), 100);
    messages.iter().for_each(check_defaults);
    let ids: std::collections::BTreeSet<_> = messages.iter().map(|message| &message.id).collect();
    assert_eq!(ids.len(), 100, "ids are unique");
}

#[tokio::test]
async fn rf_01_the_documented_insert_works_from_python() {
    const SCRIPT: &str = "
import sqlite3, sys
if sqlite3.sqlite_version_info < (3, 37, 0):
    sys.exit(77)
connection = sqlite3.connect(sys.argv[1])
with connection:
    connection.execute(sys.argv[2])
connection.close()
";
    let place = Place::new();
    let db = place.open().await;
    let status = Command::new("python3").args(["-c", SCRIPT]).arg(place.path()).arg(PLAIN).status();
    match status.map(|status| status.code()) {
        Err(error) => return skip(&format!("no python3: {error}")),
        Ok(Some(77)) => return skip("the SQLite of python3 has no strict tables"),
        Ok(code) => assert_eq!(code, Some(0)),
    }
    let messages = read(&db).await;
    assert_eq!(messages.len(), 1);
    check_defaults(&messages[0]);
}

#[tokio::test]
async fn s19_the_schema_refuses_names_that_are_empty_or_too_long() {
    let place = Place::new();
    let _db = place.open().await;
    let connection = place.foreign();
    let long = "x".repeat(256);
    let bad = ["", long.as_str()];
    let good = ["x", "Grüße, Welt!", "a b", "[*]", "\u{a0}", &"é".repeat(255)];
    for column in ["source", "destination", "endpoint"] {
        let sql = PLAIN.replace(
            match column {
                "source" => "'shop'",
                "destination" => "'billing'",
                _ => "'Pay'",
            },
            "?1",
        );
        for name in bad {
            assert!(connection.execute(&sql, [name]).is_err(), "{column} {name:?} was accepted");
        }
        for name in good {
            connection.execute(&sql, [name]).unwrap_or_else(|error| panic!("{column} {name:?}: {error}"));
        }
    }
    assert_eq!(number(&place.path(), "SELECT count(*) FROM outbox_log"), 18);
}

#[tokio::test]
async fn s19_the_schema_refuses_ids_types_and_payloads_that_are_none() {
    let place = Place::new();
    let _db = place.open().await;
    let connection = place.foreign();
    let refused = |columns: &str, value: &str| {
        let sql = format!(
            "INSERT INTO outbox_log (source, destination, endpoint, {columns}) VALUES ('s', 'd', 'e', {value})"
        );
        assert!(connection.execute(&sql, []).is_err(), "{sql}");
    };
    refused("payload, message_id", "'{}', ''");
    refused("payload, message_id", &format!("'{{}}', '{}'", "x".repeat(256)));
    refused("payload, message_type", "'{}', 'signal'");
    refused("payload", "NULL");
    refused("payload", "1");
    refused("payload", "1.5");
    refused("payload, created_at", "'{}', 'yesterday'");
    assert_eq!(number(&place.path(), "SELECT count(*) FROM outbox_log"), 0);
}
