//! Backups: made, looked at, restored; and what a restored receiver needs.

use serde_json::json;
use twobox::Sqlite;

use crate::world::World;

/// Ten thousand more that were sent, by the tables alone: delivering them would take its time.
const MANY_SENT: [&str; 3] = [
    "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
        SELECT 'more-' || i, 'shop', 'billing', 'Order', '1' FROM n",
    "INSERT INTO outbox_receipts (lane_id, last_seq, first_seq, sent_at, messages)
        SELECT lane_id, (SELECT max(seq) FROM outbox_log), cursor + 1,
            CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER), 10000
        FROM outbox_lanes",
    "UPDATE outbox_lanes SET cursor = (SELECT max(seq) FROM outbox_log), sent = sent + 10000, passed = passed + 10000",
];

#[tokio::test(flavor = "multi_thread")]
async fn rf_18_a_database_in_use_is_backed_up_and_a_damaged_copy_is_noticed() {
    let world = World::new().await;
    let node = world.serve();
    let made = world.run(["backup", "copy.db", "--json"]).ended(0).json();
    assert!(made["path"].as_str().unwrap().ends_with("copy.db") && made["at"].is_string(), "{made:#}");
    world.run(["backup", "copy.db"]).ended(2);
    world.run(["backup"]).ended(2);
    assert_eq!(world.run(["verify", "copy.db", "--json"]).ended(0).json()["sound"], true);
    world.run(["verify", "--quick"]).ended(0);
    world.run(["verify", "no-such.db"]).ended(2);
    drop(node);
    let mut bytes = std::fs::read(world.path("copy.db")).unwrap();
    let half = bytes.len() / 2;
    bytes[4096..half].fill(7);
    std::fs::write(world.path("bad.db"), bytes).unwrap();
    let looked = world.run(["verify", "bad.db", "--json"]).ended(6).json();
    assert_eq!(looked["sound"], false);
    assert!(!looked["findings"].as_array().unwrap().is_empty(), "{looked:#}");
    assert!(world.run(["verify", "bad.db"]).ended(6).out.contains("! "));
    world.run(["restore", "bad.db", "--database", "new.db"]).ended(6);
    assert!(!world.path("new.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_18_a_backup_is_restored_after_a_question_and_what_was_there_is_kept() {
    let world = World::new().await;
    world.run(["backup", "copy.db"]).ended(0);
    world.run(["outbox", "purge", "--all", "--yes"]).ended(0);
    let node = world.serve();
    world.run(["restore", "copy.db", "--set-aside", "--yes"]).ended(5);
    drop(node);
    world.run(["restore", "copy.db"]).ended(2);
    world.run(["restore", "copy.db", "--set-aside"]).ended(5);
    world.run(["outbox", "dead"]).ended(4);
    let restored = world.run(["restore", "copy.db", "--set-aside", "--yes", "--json"]).ended(0).json();
    assert!(std::path::Path::new(restored["setAside"].as_str().unwrap()).exists(), "{restored:#}");
    assert!(restored["meaning"].as_str().unwrap().contains("resend"), "{restored:#}");
    world.run(["outbox", "dead"]).ended(0);
    let trail = world.run(["audit", "--action", "restore", "--json"]).ended(0).json();
    assert_eq!(
        (&trail["items"][0]["actor"], &trail["items"][0]["subject"]),
        (&"cli:ada".into(), &"copy.db".into())
    );
    // Where nothing is, nobody is asked.
    let other = world.run(["restore", "copy.db", "--database", "other.db"]).ended(0).out;
    assert!(other.contains("is again as it was at"), "{other}");
    world.run(["status", "--database", "other.db"]).ended(6);
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_18_what_a_restored_receiver_has_forgotten_is_sent_again() {
    let world = World::new().await;
    let resend = |more: &[&str]| world.run(["resend", "--since", "1 h"].iter().chain(more));
    let counted = resend(&["--dry-run", "--json"]).ended(0).json();
    assert_eq!(counted["matched"], json!({ "value": 3, "atLeast": false }));
    assert_eq!(counted["resent"], 0);
    resend(&["--destination", "nowhere", "--yes"]).ended(4);
    let refused = resend(&[]).ended(5);
    assert!(refused.err.contains("Send 3 messages again?"), "{refused:?}");
    world.run(["resend", "--since", "sometime"]).ended(2);
    assert_eq!(resend(&["--yes", "--json"]).ended(0).json()["resent"], 3);
    let trail = world.run(["audit", "--action", "outbox.resend", "--json"]).ended(0).json();
    assert_eq!(trail["items"][0]["result"]["resent"], 3);
    resend(&["--yes"]).ended(4);
}

/// Nobody takes ten thousand for all there are.
#[tokio::test(flavor = "multi_thread")]
async fn rf_18_a_resend_says_so_when_it_has_not_counted_to_the_end() {
    let world = World::new().await;
    let db = Sqlite::open(world.database()).await.unwrap();
    let sending = db.transaction::<_, twobox::Error, _>(|tx| {
        MANY_SENT.iter().try_for_each(|sql| tx.execute(sql, []).map(drop))
    });
    sending.await.unwrap();
    let resend = |more: &[&str]| world.run(["resend", "--since", "1 h"].iter().chain(more));
    assert_eq!(resend(&["--dry-run"]).ended(0).out, "at least 10,000 messages match\n");
    let counted = resend(&["--dry-run", "--json"]).ended(0).json();
    assert_eq!(counted["matched"], json!({ "value": 10_000, "atLeast": true }));
    let refused = resend(&[]).ended(5);
    assert!(refused.err.contains("Send at least 10,000 messages again?"), "{refused:?}");
}
