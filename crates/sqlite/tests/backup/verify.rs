//! Every invariant is broken by hand once, and found.

use std::collections::BTreeSet;
use std::path::Path;

use twobox_core::ErrorKind;
use twobox_sqlite::{Check, Finding, Prefix, Sqlite, VerifyOptions, verify};

use crate::fixture::{Place, change};

/// One of everything, as it must be.
const SOUND: &str = "
INSERT INTO outbox_lanes (lane_id, source, destination, cursor, next_joined, registered_at, sent)
    VALUES (1, 'shop', 'billing', 5, 10, 0, 3);
INSERT INTO outbox_log (message_id, source, destination, endpoint, payload)
    VALUES ('a', 'shop', 'billing', 'Pay', '1'), ('b', 'shop', 'billing', 'Pay', '1'), ('c', 'shop', 'billing', 'Pay', '1'),
        ('d', 'shop', 'billing', 'Pay', '1'), ('e', 'shop', 'billing', 'Pay', '1'), ('f', 'shop', 'billing', 'Pay', '1');
INSERT INTO outbox_receipts (lane_id, last_seq, first_seq, sent_at, messages) VALUES (1, 3, 1, 5, 3);
INSERT INTO outbox_waiting (seq, lane_id, message_id, source, destination, endpoint, message_type, payload, content_type,
        ordering_key, created_at, expires_at, state, joined, holds_key, next_attempt_at)
    VALUES (4, 1, 'd', 'shop', 'billing', 'Pay', 'Signal', '1', 'application/json', 'k', 0, 9, 'Pending', 1, 1, 5),
        (5, 1, 'e', 'shop', 'billing', 'Pay', 'Signal', '1', 'application/json', 'k', 0, 9, 'Pending', 2, 1, NULL);
INSERT INTO inbox_peers (peer_id, consumer, source, newest_available, watermark) VALUES (1, 'billing', 'shop', 100, 50);
INSERT INTO inbox (row_id, peer_id, message_id, status, endpoint, message_type, available_at, received_at, processed_at, response)
    VALUES (1, 1, 'a', 'Done', 'Pay', 'Signal', 60, 60, 60, x'');
INSERT INTO inbox (row_id, peer_id, message_id, status, endpoint, message_type, available_at, received_at)
    VALUES (2, 1, 'b', 'Processing', 'Pay', 'Signal', 60, 60), (3, 1, 'c', 'Processing', 'Pay', 'Signal', 60, 60);
INSERT INTO inbox_queue (item_id, consumer, peer_id, destination, payload, content_type, ordering_key, created_at,
        expires_at, ready_at, joined)
    VALUES (2, 'billing', 1, 'billing', '1', 'application/json', 'k', 0, 9, 5, 1),
        (3, 'billing', 1, 'billing', '1', 'application/json', 'k', 0, 9, NULL, 2);
INSERT INTO inbox (row_id, peer_id, message_id, status, endpoint, message_type, available_at, received_at, handler,
        processed_at, error)
    VALUES (4, 1, 'd', 'Dead', 'Pay', 'Signal', 60, 60, '', 60, 'no');
INSERT INTO inbox_queue (item_id, consumer, peer_id, destination, payload, content_type, created_at, expires_at, state, reason)
    VALUES (4, 'billing', 1, 'billing', '1', 'application/json', 0, 9, 'Dead', 'rejected');
";

/// What breaks what.
const BREAKS: &[(Check, &str)] = &[
    (Check::Schema, "UPDATE twobox_meta SET value = 99 WHERE name = 'schema_version'"),
    (Check::Instances, "DELETE FROM twobox_meta WHERE name = 'outbox_instance'"),
    (Check::Instances, "UPDATE twobox_meta SET value = 7 WHERE name = 'inbox_instance'"),
    (Check::Cursor, "UPDATE outbox_lanes SET cursor = 7"),
    (Check::LogEnd, "UPDATE sqlite_sequence SET seq = 5"),
    (Check::WaitingLane, "UPDATE outbox_waiting SET lane_id = 9 WHERE seq = 4"),
    (Check::WaitingAhead, "UPDATE outbox_lanes SET cursor = 4"),
    (Check::WaitingLog, "UPDATE outbox_waiting SET message_id = 'x' WHERE seq = 4"),
    (Check::WaitingStuck, "UPDATE outbox_waiting SET holds_key = 0 WHERE seq = 5"),
    (Check::WaitingHeads, "UPDATE outbox_waiting SET next_attempt_at = NULL WHERE seq = 4"),
    (Check::WaitingHeads, "UPDATE outbox_waiting SET next_attempt_at = 5 WHERE seq = 5"),
    (Check::WaitingJoined, "UPDATE outbox_lanes SET next_joined = 2"),
    (Check::Receipts, "UPDATE outbox_receipts SET last_seq = 6"),
    (Check::Receipts, "UPDATE outbox_receipts SET lane_id = 9"),
    (Check::LaneCounters, "UPDATE outbox_lanes SET sent = 2"),
    (Check::LaneCounters, "UPDATE outbox_lanes SET failed = -1"),
    (Check::InboxPeer, "UPDATE inbox SET peer_id = 9 WHERE row_id = 1"),
    (Check::InboxDone, "UPDATE inbox SET response = NULL WHERE row_id = 1"),
    (Check::Watermark, "UPDATE inbox_peers SET watermark = 101"),
    (Check::PeerCounters, "UPDATE inbox_peers SET done = -1"),
    (Check::WorkRow, "DELETE FROM inbox WHERE row_id = 2"),
    (Check::WorkRow, "UPDATE inbox SET peer_id = 9 WHERE row_id = 2"),
    (Check::WorkDone, "UPDATE inbox SET status = 'Done', processed_at = 1, response = x'' WHERE row_id = 2"),
    (Check::WorkLost, "DELETE FROM inbox_queue WHERE item_id = 3"),
    (Check::WorkHeads, "UPDATE inbox_queue SET ready_at = NULL WHERE item_id = 2"),
    (Check::WorkHeads, "UPDATE inbox_queue SET ready_at = 5 WHERE item_id = 3"),
    (Check::WorkStuck, "UPDATE inbox_queue SET joined = NULL WHERE item_id = 3"),
    (Check::WorkConsumer, "UPDATE inbox_queue SET consumer = 'x' WHERE item_id = 2"),
    (Check::WorkListed, "UPDATE inbox SET handler = NULL WHERE row_id = 4"),
    (Check::WorkListed, "UPDATE inbox SET status = 'Processing' WHERE row_id = 4"),
];

async fn sound(prefix: &str) -> Place {
    let place = Place::new();
    let prefix = Prefix::new(prefix).unwrap();
    let db = Sqlite::builder().prefix(prefix).open(place.database()).await.unwrap();
    db.migrate().await.unwrap();
    drop(db);
    place
}

fn findings(path: &Path) -> Vec<Finding> {
    verify(path, VerifyOptions::Full).unwrap().findings
}

fn checks(path: &Path) -> BTreeSet<Check> {
    findings(path).into_iter().map(|finding| finding.check).collect()
}

#[tokio::test]
async fn rf_18_every_broken_invariant_is_found_with_its_remedy() {
    let place = sound("").await;
    change(&place.database(), SOUND);
    assert_eq!(findings(&place.database()), [], "nothing is wrong yet");
    let copy = place.file("copy.db");
    for (check, sql) in BREAKS {
        std::fs::copy(place.database(), &copy).unwrap();
        change(&copy, sql);
        let found = findings(&copy);
        let finding = found.iter().find(|finding| finding.check == *check);
        let finding = finding.unwrap_or_else(|| panic!("{check:?} was not found after {sql}: {found:?}"));
        assert!(finding.count >= 1 && !finding.remedy.is_empty() && !finding.what.is_empty());
        std::fs::remove_file(&copy).unwrap();
    }
}

#[tokio::test]
async fn rf_18_boxes_under_any_prefix_are_looked_at() {
    let place = sound("mod_").await;
    change(&place.database(), "UPDATE mod_twobox_meta SET value = '' WHERE name = 'inbox_instance'");
    let found = findings(&place.database());
    assert_eq!((found[0].check, found[0].prefix.as_str()), (Check::Instances, "mod_"), "{found:?}");
    assert_eq!(verify(place.database(), VerifyOptions::Quick).unwrap().boxes.len(), 1);
}

/// Whatever is damaged is told, nothing is changed, and what is no database of ours is no backup.
#[tokio::test]
async fn rf_18_s14_a_damaged_file_is_a_finding_and_stays_as_it_is() {
    let place = sound("").await;
    change(&place.database(), SOUND);
    let mut bytes = std::fs::read(place.database()).unwrap();
    let pages = bytes.len() / 4096;
    bytes[pages / 2 * 4096..].chunks_mut(4096).for_each(|page| page[..16].fill(0xff));
    std::fs::write(place.database(), &bytes).unwrap();
    assert!(checks(&place.database()).contains(&Check::Pages));
    assert_eq!(std::fs::read(place.database()).unwrap(), bytes);
    std::fs::write(place.file("garbage.db"), vec![7; 20_000]).unwrap();
    assert_eq!(checks(&place.file("garbage.db")), BTreeSet::from([Check::Pages]));
    std::fs::write(place.file("empty.db"), "").unwrap();
    assert_eq!(checks(&place.file("empty.db")), BTreeSet::from([Check::Schema]));
    let missing = verify(place.file("missing.db"), VerifyOptions::Full).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
}

/// A database in use can be looked at: reading takes nothing from whoever writes.
#[tokio::test]
async fn rf_18_a_database_in_use_is_verified_as_well() {
    let place = Place::new();
    let db = place.open().await;
    crate::fixture::place(&db, 1).await.unwrap();
    let verified = verify(place.database(), VerifyOptions::Full).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    assert_eq!(verified.backup_at, None, "it is no backup");
    crate::fixture::place(&db, 2).await.unwrap();
}
