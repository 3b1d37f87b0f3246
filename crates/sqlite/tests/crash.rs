//! Dying at every crash point: after a restart each order has one message, and each message its effect once.
#![cfg(feature = "crash-points")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;
use twobox_testkit::crash::{died, run_until};
use twobox_testkit::example;

const ORDERS: usize = 12;

/// How often a run passes a point at the least.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    Once,
    Often,
}
use Passes::{Often, Once};

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
    writer_before_commit: "writer.before-commit", Often;
    writer_after_commit: "writer.after-commit", Often;
    inbox_claimed: "inbox.claimed", Often;
    inbox_handled: "inbox.handled", Often;
    inbox_before_commit: "inbox.before-commit", Often;
    settle_cursor_moved: "settle.cursor-moved", Often;
    settle_waiting_inserted: "settle.waiting-inserted", Often;
    settle_waiting_settled: "settle.waiting-settled", Once;
    relay_before_send: "relay.before-send", Often;
    relay_after_answer: "relay.after-answer", Often;
    relay_before_settle: "relay.before-settle", Often;
    relay_after_settle: "relay.after-settle", Often;
    relay_before_release: "relay.before-release", Once;
    relay_announced: "relay.announced", Once;
    lanes_taken: "lanes.taken", Once;
    migrate_before_version: "migrate.before-version", Once;
    migrate_after_version: "migrate.after-version", Once;
    sweep_trimmed: "sweep.trimmed", Often;
    sweep_purged: "sweep.purged", Often;
}

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
}

/// Dies at the first passage with both boxes in one file, at the third with two files.
fn dies_and_recovers(point: &str, passes: Passes) {
    for (nth, one_file) in [(1, true), (3, false)] {
        let files = Files::new(one_file);
        let status = run_until(&example("crash_child"), &files.arguments(), point, nth).unwrap();
        if nth == 1 || passes == Often {
            assert!(
                died(status),
                "{point}:{nth} was not passed ({status}); is the child built with crash points?"
            );
        } else {
            assert!(died(status) || status.success(), "{point}:{nth}: {status}");
        }
        let again = Command::new(example("crash_child"))
            .args(files.arguments())
            .env_remove(twobox_core::crash::VARIABLE)
            .status()
            .unwrap();
        assert!(again.success(), "after {point}:{nth} the next run ended with {again}");
        check(&files, &format!("{point}:{nth}"));
    }
}

/// How often each message id occurs.
fn count(path: &Path, sql: &str) -> BTreeMap<String, usize> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let mut ids = BTreeMap::new();
    for id in statement.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        *ids.entry(id.unwrap()).or_default() += 1;
    }
    ids
}

/// Each of these exactly once.
fn once<'a>(ids: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, usize> {
    ids.into_iter().map(|id| (id.clone(), 1)).collect()
}

fn check(files: &Files, after: &str) {
    let orders = count(&files.shop, "SELECT message_id FROM orders");
    let doomed = count(&files.shop, "SELECT message_id FROM orders WHERE kind = 'doomed'");
    assert_eq!((orders.len(), doomed.len()), (ORDERS, ORDERS / 4), "{after}: orders");
    assert_eq!(orders, once(orders.keys()), "{after}: orders share a message");
    let messages = count(&files.shop, "SELECT message_id FROM ledger");
    assert_eq!(messages, orders, "{after}: every order has one message");

    let effects = count(&files.billing, "SELECT message_id FROM effects");
    let expected = once(orders.keys().filter(|id| !doomed.contains_key(*id)));
    assert_eq!(effects, expected, "{after}: every message has its effect once");

    let dead = count(&files.shop, "SELECT message_id FROM outbox_waiting WHERE state = 'Failed'");
    assert_eq!(dead, doomed, "{after}: only what cannot work has died");
    let told: BTreeSet<String> = count(&files.shop, "SELECT message_id FROM callbacks").into_keys().collect();
    assert_eq!(told, doomed.into_keys().collect(), "{after}: every death was told");
    let open =
        count(&files.shop, "SELECT message_id FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed')");
    assert_eq!(open, BTreeMap::new(), "{after}: nothing is left to do");
    for path in [&files.shop, &files.billing] {
        let verdict = count(path, "PRAGMA integrity_check");
        assert_eq!(verdict, once([&"ok".to_owned()]), "{after}: {}", path.display());
    }
}

#[test]
fn without_a_crash_everything_is_delivered() {
    let files = Files::new(false);
    let status = Command::new(example("crash_child")).args(files.arguments()).status().unwrap();
    assert!(status.success(), "{status}");
    check(&files, "no crash");
}

#[test]
fn every_crash_point_in_the_sources_has_its_test() {
    let mut found = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut open: Vec<PathBuf> =
        std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let points = text.split("crash_point!(\"").skip(1);
            found.extend(points.filter_map(|rest| rest.split('"').next().map(str::to_owned)));
        }
    }
    assert_eq!(found, POINTS.iter().map(|point| (*point).to_owned()).collect());
}
