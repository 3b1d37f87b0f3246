//! Dying at every crash point: after a restart each order has one message, and each message its effect once.
//!
//! What the points are and what a crash leaves there is listed in `docs/CRASH_POINTS.md`.
#![cfg(feature = "crash-points")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;
use twobox_sqlite::{VerifyOptions, verify};
use twobox_testkit::crash::{died, run_until};
use twobox_testkit::example;

const ORDERS: usize = 52;
/// How many kinds of orders there are.
const KINDS: usize = 26;

/// When a run passes a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    Once,
    /// At least three times.
    Often,
    /// Only in a run that follows one that died here.
    After(&'static str),
}
use Passes::{After, Often, Once};

macro_rules! crash_points {
    ($($test:ident: $point:literal, $passes:expr;)*) => {
        const POINTS: &[&str] = &[$($point),*];

        $(#[test]
        fn $test() {
            dies_and_recovers($point, $passes);
        })*
    };
}

crash_points! {
    backup_begun: "backup.begun", Once;
    backup_copied: "backup.copied", Once;
    backup_named: "backup.named", Once;
    backup_stamped: "backup.stamped", Once;
    backup_step: "backup.step", Often;
    backup_synced: "backup.synced", Once;
    checkpoint_copied: "checkpoint.copied", Once;
    checkpoint_restarted: "checkpoint.restarted", Once;
    claim_before_handler: "claim.before-handler", Often;
    claim_handled: "claim.handled", Often;
    claim_noted: "claim.noted", Often;
    dedup_claimed: "dedup.claimed", Often;
    dedup_noticed: "dedup.noticed", Often;
    dedup_processed: "dedup.processed", Often;
    dedup_released: "dedup.released", Once;
    enqueue_appended: "enqueue.appended", Often;
    enqueue_once_claimed: "enqueue.once-claimed", Once;
    http_authenticated: "http.authenticated", Often;
    http_before_answer: "http.before-answer", Often;
    inbox_before_commit: "inbox.before-commit", Often;
    inbox_claimed: "inbox.claimed", Often;
    inbox_claimed_ahead: "inbox.claimed-ahead", Once;
    inbox_duplicate: "inbox.duplicate", Once;
    inbox_handled: "inbox.handled", Often;
    inbox_reclaimed: "inbox.reclaimed", Once;
    inbox_rejected: "inbox.rejected", Often;
    inbox_response_stored: "inbox.response-stored", Often;
    lanes_discovered: "lanes.discovered", Once;
    lanes_freed: "lanes.freed", After("relay.before-send");
    lanes_taken: "lanes.taken", Once;
    migrate_after_version: "migrate.after-version", Once;
    migrate_before_version: "migrate.before-version", Once;
    migrate_committed: "migrate.committed", Once;
    migrate_tables_made: "migrate.tables-made", Once;
    open_checked: "open.checked", After("writer.after-commit");
    open_file_made: "open.file-made", Once;
    presence_made: "presence.made", Once;
    presence_shown: "presence.shown", Once;
    purge_before_wake: "purge.before-wake", Once;
    purge_removed: "purge.removed", Once;
    purge_waiting_removed: "purge.waiting-removed", Once;
    queue_before_commit: "queue.before-commit", Often;
    queue_before_handler: "queue.before-handler", Often;
    queue_buried: "queue.buried", Often;
    queue_claimed: "queue.claimed", Often;
    queue_finished: "queue.finished", Often;
    queue_handled: "queue.handled", Often;
    queue_inserted: "queue.inserted", Often;
    queue_key_headless: "queue.key-headless", Often;
    queue_purged: "queue.purged", Once;
    queue_reaped: "queue.reaped", After("queue.before-handler");
    queue_replayed: "queue.replayed", Often;
    queue_row_written: "queue.row-written", Often;
    queue_settled: "queue.settled", Often;
    queue_stored: "queue.stored", Often;
    receiver_handled: "receiver.handled", Often;
    receiver_in_flight: "receiver.in-flight", Often;
    receiver_prepared: "receiver.prepared", Once;
    recovery_brought_home: "recovery.brought-home", Once;
    recovery_closed: "recovery.closed", Once;
    recovery_reopened: "recovery.reopened", Once;
    relay_after_announced: "relay.after-announced", Once;
    relay_after_answer: "relay.after-answer", Often;
    relay_after_settle: "relay.after-settle", Often;
    relay_after_settle_waiting: "relay.after-settle-waiting", Often;
    relay_announced: "relay.announced", Once;
    relay_before_announce: "relay.before-announce", Often;
    relay_before_barrier: "relay.before-barrier", Often;
    relay_before_probe: "relay.before-probe", Once;
    relay_before_release: "relay.before-release", Once;
    relay_before_send: "relay.before-send", Often;
    relay_before_settle: "relay.before-settle", Often;
    relay_before_settle_waiting: "relay.before-settle-waiting", Often;
    relay_leased: "relay.leased", Once;
    relay_log_read: "relay.log-read", Often;
    relay_outage_shown: "relay.outage-shown", Once;
    relay_probe_answered: "relay.probe-answered", Once;
    relay_released: "relay.released", Once;
    relay_sending_shown: "relay.sending-shown", Once;
    replay_before_wake: "replay.before-wake", Often;
    replay_copied: "replay.copied", Once;
    replay_reopened: "replay.reopened", Once;
    resend_before_wake: "resend.before-wake", Often;
    resend_reopened: "resend.reopened", Often;
    restore_copied: "restore.copied", Once;
    restore_marked: "restore.marked", Once;
    restore_named: "restore.named", Once;
    restore_set_aside: "restore.set-aside", Once;
    restore_synced: "restore.synced", Once;
    restore_verified: "restore.verified", Once;
    settle_cursor_moved: "settle.cursor-moved", Often;
    settle_key_headless: "settle.key-headless", Often;
    settle_receipts_inserted: "settle.receipts-inserted", Often;
    settle_waiting_inserted: "settle.waiting-inserted", Often;
    settle_waiting_settled: "settle.waiting-settled", Often;
    sweep_before_commit: "sweep.before-commit", Often;
    sweep_committed: "sweep.committed", Often;
    sweep_keys_forgotten: "sweep.keys-forgotten", Often;
    sweep_log_trimmed: "sweep.log-trimmed", Often;
    sweep_purged: "sweep.purged", Often;
    sweep_trimmed: "sweep.trimmed", Often;
    sweep_waiting_trimmed: "sweep.waiting-trimmed", Often;
    sweep_watermark_raised: "sweep.watermark-raised", Often;
    waiting_joined: "waiting.joined", Once;
    worker_before_handle: "worker.before-handle", Often;
    worker_handled_outside: "worker.handled-outside", Often;
    writer_after_commit: "writer.after-commit", Often;
    writer_before_answers: "writer.before-answers", Often;
    writer_before_begin: "writer.before-begin", Often;
    writer_before_commit: "writer.before-commit", Often;
    writer_before_lazy_sync: "writer.before-lazy-sync", Once;
    writer_before_run_again: "writer.before-run-again", Once;
    writer_begun: "writer.begun", Often;
    writer_between_answers: "writer.between-answers", Often;
    writer_between_apart: "writer.between-apart", Often;
    writer_between_jobs: "writer.between-jobs", Often;
    writer_lazy_committed: "writer.lazy-committed", Often;
    writer_lazy_synced: "writer.lazy-synced", Once;
}

/// Points at which somebody has a claim, so that whoever comes next finds it unfinished.
const HOLDING_A_CLAIM: [&str; 2] = ["claim.before-handler", "claim.handled"];

/// The two databases of a shop and its billing.
struct Files {
    _directory: TempDir,
    shop: PathBuf,
    billing: PathBuf,
}

impl Files {
    fn new(one: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shop = directory.path().join("shop.db");
        let billing = if one { shop.clone() } else { directory.path().join("billing.db") };
        Self { _directory: directory, shop, billing }
    }

    fn arguments(&self) -> [&str; 2] {
        [self.shop.to_str().unwrap(), self.billing.to_str().unwrap()]
    }

    /// The messages about which something was done outside of the database, in order.
    fn outside(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.billing.with_extension("outside")).unwrap();
        text.lines().map(Into::into).collect()
    }

    fn die(&self, point: &str, nth: u32) {
        let status = run_until(&example("crash_child"), &self.arguments(), point, nth).unwrap();
        assert!(
            died(status),
            "{point}:{nth} was not passed ({status}); is the child built with crash points?"
        );
    }

    fn restart(&self, after: &str) {
        let mut child = Command::new(example("crash_child"));
        let status = child.args(self.arguments()).env_remove(twobox_core::crash::VARIABLE).status().unwrap();
        assert!(status.success(), "after {after} the next run ended with {status}");
    }
}

/// Dies at the first passage with two files; if there are more, also at the third with both boxes in one.
fn dies_and_recovers(point: &str, passes: Passes) {
    std::thread::scope(|scope| {
        let third = (passes == Often).then(|| scope.spawn(|| dies_at(point, 3, passes, true)));
        dies_at(point, 1, passes, false);
        if let Some(third) = third {
            third.join().unwrap();
        }
    });
}

fn dies_at(point: &str, nth: u32, passes: Passes, one_file: bool) {
    let (files, after) = (Files::new(one_file), format!("{point}:{nth}"));
    if let After(first) = passes {
        files.die(first, 3);
    }
    files.die(point, nth);
    files.restart(&after);
    check(&files, &after);
    let unfinished = texts(&files.billing, "SELECT message_id FROM unfinished");
    let holding = HOLDING_A_CLAIM.contains(&point);
    assert!(!(holding && unfinished.is_empty()), "{after}: a claim that was left behind is visible");
}

/// The first column of every row, as text.
fn texts(path: &Path, sql: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

/// How often each text occurs.
fn count(path: &Path, sql: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for text in texts(path, sql) {
        *counts.entry(text).or_default() += 1;
    }
    counts
}

/// Each of these exactly once.
fn once(texts: impl IntoIterator<Item = impl Into<String>>) -> BTreeMap<String, usize> {
    texts.into_iter().map(|text| (text.into(), 1)).collect()
}

fn check(files: &Files, after: &str) {
    check_messages(&files.shop, after);
    check_effects(files, after);
    check_outside(files, after);
    check_desk(files, after);
    check_queue(files, after);
    check_backups(files, after);
    for path in [&files.shop, &files.billing] {
        let verdict = texts(path, "PRAGMA integrity_check");
        assert_eq!(verdict, ["ok"], "{after}: {}", path.display());
    }
}

/// Every order has one message, which is through or dead; what was replayed under a new id has one more.
fn check_messages(shop: &Path, after: &str) {
    let orders = count(shop, "SELECT message_id FROM orders");
    assert_eq!(orders.len(), ORDERS, "{after}: orders share a message or are missing");
    let renewed = texts(shop, "SELECT message_id FROM orders WHERE kind = 'renew'");
    let copies = "SELECT message_id FROM ledger WHERE message_id NOT IN (SELECT message_id FROM orders)";
    let copies = count(shop, copies);
    assert_eq!(copies.len(), renewed.len(), "{after}: a dead letter was not copied once");
    let mut expected = orders;
    expected.extend(copies);
    assert_eq!(
        count(shop, "SELECT message_id FROM ledger"),
        expected,
        "{after}: every order has one message"
    );

    let open = texts(shop, "SELECT message_id FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed')");
    assert!(open.is_empty(), "{after}: {open:?} are left to do");
    let doomed = count(shop, "SELECT message_id FROM orders WHERE kind = 'doomed'");
    assert_eq!(doomed.len(), ORDERS / KINDS, "{after}");
    let dead = "SELECT message_id FROM outbox_waiting WHERE state = 'Failed' AND replayed_as IS NULL";
    assert_eq!(count(shop, dead), doomed, "{after}: only what cannot work has died");
    let void = texts(shop, "SELECT message_id FROM orders WHERE kind = 'void'");
    assert_eq!(void.len(), ORDERS / KINDS, "{after}");
    let shown = texts(shop, "SELECT message_id FROM outbox_messages");
    assert!(void.iter().all(|id| !shown.contains(id)), "{after}: what was purged is still shown");
    let orphans = "SELECT error FROM outbox_attempts WHERE seq NOT IN (SELECT seq FROM outbox_waiting)";
    assert_eq!(texts(shop, orphans), [""; 0], "{after}: attempts outlive their message");
    let told: BTreeSet<String> = texts(shop, "SELECT message_id FROM callbacks").into_iter().collect();
    assert!(doomed.keys().all(|id| told.contains(id)), "{after}: every death was told");
}

/// Every order and plan that can work in the database has had its effect, once, and in the order of its key.
fn check_effects(files: &Files, after: &str) {
    let workable = "SELECT CAST(id AS TEXT) FROM orders
        WHERE kind NOT LIKE '%doomed' AND kind <> 'void' AND kind NOT LIKE 'called%' AND kind NOT LIKE 'claimed%'";
    let mut workable = texts(&files.shop, workable);
    let plans = texts(&files.billing, "SELECT CAST(id AS TEXT) FROM plans ORDER BY id");
    workable.extend(plans.iter().cloned());
    let effects = texts(&files.billing, "SELECT CAST(order_id AS TEXT) FROM effects ORDER BY rowid");
    let counted = count(&files.billing, "SELECT CAST(order_id AS TEXT) FROM effects");
    assert_eq!(counted, once(&workable), "{after}: every message has its effect once");
    let place = |order: &String| effects.iter().position(|effect| effect == order);
    let followers =
        "SELECT a.id || ' ' || b.id FROM orders AS a JOIN orders AS b USING (ordering_key) WHERE a.id < b.id";
    for pair in texts(&files.shop, followers) {
        let (first, second) = pair.split_once(' ').unwrap();
        assert!(place(&first.into()) < place(&second.into()), "{after}: {second} has overtaken {first}");
    }
    assert!(plans.is_sorted_by_key(place), "{after}: a plan has overtaken another");
}

/// What is called outside of the database happens at least once; what is claimed first, exactly once, because somebody
/// looked before a claim was given back.
fn check_outside(files: &Files, after: &str) {
    let done = files.outside();
    let times = |id: &String| done.iter().filter(|line| *line == id).count();
    for id in texts(&files.shop, "SELECT message_id FROM orders WHERE kind LIKE 'called%'") {
        assert!(times(&id) >= 1, "{after}: {id} was not called");
    }
    for id in texts(&files.shop, "SELECT message_id FROM orders WHERE kind LIKE 'claimed%'") {
        assert_eq!(times(&id), 1, "{after}: {id} was claimed");
    }
}

/// What is settled by hand happens at least once and in the order of its key; what was removed, never.
fn check_desk(files: &Files, after: &str) {
    let done = files.outside();
    let first = |slip: &str| done.iter().position(|line| line == slip);
    for slip in ["at once", "plain", "again", "mended", "behind mended", "behind removed"] {
        assert!(first(slip).is_some(), "{after}: {slip} was lost");
    }
    assert!(first("mended") < first("behind mended"), "{after}: a slip has overtaken another");
    assert_eq!(first("removed"), None, "{after}");
}

/// Nothing is left in the queue but what cannot work, and nothing in the inbox that is neither done nor dead.
fn check_queue(files: &Files, after: &str) {
    let doomed = texts(&files.shop, "SELECT message_id FROM orders WHERE kind = 'queued doomed'");
    let left = count(
        &files.billing,
        "SELECT coalesce(message_id, 'nobody''s') || ' ' || coalesce(reason, 'open')
            FROM inbox_queue LEFT JOIN inbox ON row_id = item_id",
    );
    let dead = doomed.iter().map(|id| format!("{id} rejected"));
    assert_eq!(left, once(dead), "{after}: only what cannot work is left in the queue");
    let open = texts(&files.billing, "SELECT message_id FROM inbox WHERE status NOT IN ('Done', 'Dead')");
    assert_eq!(open, [""; 0], "{after}: left to do");
    let removed = texts(&files.billing, "SELECT status FROM inbox WHERE message_id = 'removed'");
    assert_eq!(removed, ["Dead"], "{after}: what was removed is still recognised");
}

/// Both files keep every invariant, so do their backups and what was restored from them, and nothing is there by half.
fn check_backups(files: &Files, after: &str) {
    const INSTANCE: &str = "SELECT value FROM twobox_meta WHERE name = 'inbox_instance'";
    for path in [&files.shop, &files.billing] {
        let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
        let (backup, restored) = (beside(".backup"), beside(".restored"));
        for path in [path, &backup, &restored] {
            let verified = verify(path, VerifyOptions::Full).unwrap();
            assert!(verified.is_sound(), "{after}: {}: {:?}", path.display(), verified.findings);
        }
        assert_ne!(
            texts(&backup, INSTANCE),
            texts(&restored, INSTANCE),
            "{after}: nobody could tell them apart"
        );
    }
    // What the one that died was making is left for an hour, under a name of its own; nobody else leaves anything.
    let names =
        std::fs::read_dir(files.shop.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let left = names.filter(|name| name.to_string_lossy().ends_with(".partial")).count();
    assert!(left <= usize::from(after != "no crash"), "{after}: {left} files in the making were left");
}

#[test]
fn without_a_crash_everything_is_delivered() {
    let files = Files::new(false);
    files.restart("no crash");
    check(&files, "no crash");
}

/// The points in the sources, each with its file.
fn points_in_sources() -> BTreeMap<String, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut open: Vec<PathBuf> =
        std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut found = BTreeMap::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let file = path.strip_prefix(crates).unwrap().to_string_lossy().replace("/src/", "/");
            for point in text.split("crash_point!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let other = found.insert(point.to_owned(), file.clone());
                assert_eq!(other, None, "{point} is in two places, so nobody knows where it dies");
            }
        }
    }
    found
}

#[test]
fn every_crash_point_in_the_sources_has_its_test() {
    let tested: BTreeSet<&str> = POINTS.iter().copied().collect();
    let sources = points_in_sources();
    assert_eq!(sources.keys().map(String::as_str).collect::<BTreeSet<_>>(), tested);
}

#[test]
fn every_crash_point_is_described_where_it_is() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CRASH_POINTS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut described = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> =
            row.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect();
        let [point, file, leaves, recovery] = cells.as_slice() else { panic!("not four cells: {row}") };
        assert!(!leaves.is_empty() && !recovery.is_empty(), "{point} is not described");
        assert_eq!(described.insert((*point).to_owned(), (*file).to_owned()), None, "{point} is there twice");
    }
    assert_eq!(described, points_in_sources());
}
