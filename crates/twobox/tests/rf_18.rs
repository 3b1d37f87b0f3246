//! RF-18: both files are backed up while 64 callers write, the process is killed, one file or both are restored, and
//! what was sent since the backup is sent again. What is lost and what is doubled then is what docs/BACKUP.md says.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use twobox::rusqlite::{Connection, OpenFlags};
use twobox::{Existing, RestoreOptions, VerifyOptions, restore, verify};
use twobox_testkit::{eventually, example};

const EVER: Duration = Duration::from_secs(120);
/// So many orders are acknowledged after the backup before the process is killed.
const AFTER: usize = 400;

type Orders = BTreeSet<i64>;

/// A shop and its billing that were killed some time after they were backed up.
struct Killed {
    folder: TempDir,
    since: String,
}

impl Killed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut pair = spawn(&folder, &["load"]);
        let mut lines = BufReader::new(pair.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let since = line.strip_prefix("backed up ").unwrap_or_else(|| panic!("{line}")).to_owned();
        let killed = Self { folder, since };
        let before = killed.acknowledged().len();
        let enough = async || (killed.acknowledged().len() >= before + AFTER).then_some(());
        eventually("orders after the backup", EVER, enough).await;
        pair.kill().unwrap(); // SIGKILL
        pair.wait().unwrap();
        killed
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn acknowledged(&self) -> Orders {
        let text = std::fs::read_to_string(self.file("acknowledged")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn column(&self, file: &str, sql: &str) -> Vec<i64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(self.file(file), flags).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn orders(&self, file: &str) -> Orders {
        self.column(file, "SELECT id FROM orders").into_iter().collect()
    }

    /// The invoices, none of which may be there twice.
    fn invoices(&self, file: &str) -> Orders {
        let all = self.column(file, "SELECT order_id FROM invoices");
        let orders: Orders = all.iter().copied().collect();
        assert_eq!(all.len(), orders.len(), "an order was invoiced twice");
        orders
    }

    fn restore(&self, name: &str) {
        let options = RestoreOptions { existing: Existing::SetAside, ..RestoreOptions::default() };
        restore(self.file(&format!("{name}.backup")), self.file(&format!("{name}.db")), &options).unwrap();
    }

    /// Lets everything be delivered. Returns how often each side has noticed that a box of the other has changed.
    fn finish(&self, since: Option<&str>) -> (String, String) {
        let mut arguments = vec!["finish"];
        arguments.extend(since);
        let output = spawn(&self.folder, &arguments).wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        let last = said.lines().last().unwrap();
        let (inboxes, outboxes) =
            last.strip_prefix("finished, inbox changes ").unwrap().split_once(", outbox changes ").unwrap();
        for file in ["shop.db", "billing.db"] {
            let found = verify(self.file(file), VerifyOptions::Full).unwrap().findings;
            assert!(found.is_empty(), "{file}: {found:?}");
        }
        let dead = self.column("shop.db", "SELECT count(*) FROM outbox_waiting WHERE reason IS NOT NULL");
        assert_eq!(dead, [0], "nothing was refused");
        (inboxes.into(), outboxes.into())
    }
}

fn spawn(folder: &TempDir, arguments: &[&str]) -> Child {
    let mut command = Command::new(example("rf_18_pair"));
    command.arg(folder.path()).args(arguments).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The inbox forgets what it handled since the backup, with its effects. Its sender believes all of it done; a resend
/// closes the gap, and nothing is doubled.
#[tokio::test]
async fn rf_18_a_restored_inbox_and_a_resend_lose_and_double_nothing() {
    let pair = Killed::new().await;
    pair.restore("billing");
    let (orders, acknowledged) = (pair.orders("shop.db"), pair.acknowledged());
    assert!(orders.is_superset(&acknowledged), "an acknowledged order is lost");
    let noticed = pair.finish(None);
    assert_eq!(noticed, ("1".into(), "0".into()), "shop notices that the inbox is another one");
    let missing: Orders = orders.difference(&pair.invoices("billing.db")).copied().collect();
    assert!(!missing.is_empty(), "the backup was as new as the file");
    let old = pair.invoices("billing.backup");
    assert!(missing.is_disjoint(&old), "only what was handled since the backup is missing");

    pair.finish(Some(&pair.since));
    assert_eq!(pair.invoices("billing.db"), orders, "every order has its invoice, once");
}

/// The outbox loses what was enqueued since the backup, with its rows, and sends again what was sent since then. Billing
/// has handled some of what shop has forgotten, and nothing twice.
#[tokio::test]
async fn rf_18_a_restored_outbox_loses_what_is_newer_and_doubles_nothing() {
    let pair = Killed::new().await;
    let newest = pair.orders("shop.db");
    pair.restore("shop");
    let orders = pair.orders("shop.db");
    assert_eq!(orders, pair.orders("shop.backup"));
    assert!(orders.len() < newest.len(), "the backup was as new as the file");
    let noticed = pair.finish(None);
    assert_eq!(noticed, ("0".into(), "1".into()), "billing notices that the outbox is another one");
    let invoices = pair.invoices("billing.db");
    assert!(invoices.is_superset(&orders), "an order of the backup has no invoice");
    assert!(newest.is_superset(&invoices), "an invoice for nothing");
}

/// Both are as old as their backups. What the older one of them, the shop, still has is delivered once.
#[tokio::test]
async fn rf_18_both_restored_and_a_resend_lose_nothing_that_the_shop_still_has() {
    let pair = Killed::new().await;
    pair.restore("shop");
    pair.restore("billing");
    let noticed = pair.finish(Some(&pair.since));
    assert_eq!(noticed, ("1".into(), "1".into()), "each notices that the other is another one");
    let (orders, invoices) = (pair.orders("shop.db"), pair.invoices("billing.db"));
    assert_eq!(orders, pair.orders("shop.backup"));
    assert!(invoices.is_superset(&orders), "an order has no invoice");
    let extra: Orders = invoices.difference(&orders).copied().collect();
    assert!(pair.invoices("billing.backup").is_superset(&extra), "only billing's own backup has more");
}
