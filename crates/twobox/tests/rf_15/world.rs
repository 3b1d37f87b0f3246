//! A shop and its billing: their files, their processes, the network between them, and what SQL says about both.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use twobox::rusqlite::types::ValueRef;
use twobox::rusqlite::{Connection, OpenFlags, Row};
use twobox_testkit::eventually;

use crate::gate::Gate;
use crate::network::Network;
use crate::process::{EVER, Process, text};

/// How long shop waits for an answer.
const TIMEOUT_MILLIS: u64 = 10_000;
/// How long it waits if that is what the scenario is about.
const HASTY_TIMEOUT_MILLIS: u64 = 1_000;
/// How long a message is worth delivering, unless that is what the scenario is about.
const TTL_MILLIS: u64 = 24 * 3_600_000;

/// A database file.
pub(crate) struct Database(pub(crate) PathBuf);

impl Database {
    /// The rows of a query, their columns separated by spaces.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        // Read-only: otherwise closing the last connection would tidy up what a crash has left.
        let connection = Connection::open_with_flags(&self.0, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        connection.busy_timeout(EVER).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok(line(row))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Waits until a query has these rows.
    pub(crate) async fn becomes(&self, limit: Duration, sql: &str, rows: &[&str]) {
        let what = format!("{sql} gives {rows:?}");
        eventually(&what, limit, async || (self.rows(sql) == rows).then_some(())).await;
    }

    /// Waits until a query has a row that contains this text.
    pub(crate) async fn shows(&self, sql: &str, part: &str) {
        let any = async || self.rows(sql).iter().any(|row| row.contains(part)).then_some(());
        eventually(&format!("{sql} shows {part}"), EVER, any).await;
    }
}

fn line(row: &Row<'_>) -> String {
    let column = |at: usize| match row.get_ref(at).unwrap() {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
    };
    (0..row.as_ref().column_count()).map(column).collect::<Vec<String>>().join(" ")
}

/// Everything a scenario needs.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) network: Network,
    pub(crate) shop: Database,
    pub(crate) billing: Database,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| Database(folder.path().join(name));
        Self { network: Network::new(), shop: file("shop.db"), billing: file("billing.db"), folder }
    }

    /// Starts shop. Its relay waits for a word.
    pub(crate) async fn start_shop(&self) -> Shop {
        Shop::ready(self.spawn_shop()).await
    }

    /// Starts a shop that does not wait long for an answer.
    pub(crate) async fn start_hasty_shop(&self) -> Shop {
        Shop::ready(self.spawn_shop_with(HASTY_TIMEOUT_MILLIS, None)).await
    }

    /// Starts a shop that dies at a crash point.
    #[cfg(feature = "crash-points")]
    pub(crate) async fn start_dying_shop(&self, point: &str) -> Shop {
        Shop::ready(self.spawn_shop_with(TIMEOUT_MILLIS, Some(point))).await
    }

    /// Starts shop without expecting anything of it.
    pub(crate) fn spawn_shop(&self) -> Process {
        self.spawn_shop_with(TIMEOUT_MILLIS, None)
    }

    fn spawn_shop_with(&self, timeout_millis: u64, crash: Option<&str>) -> Process {
        let (url, timeout) = (format!("http://{}", self.network.address), timeout_millis.to_string());
        Process::start("rf_15_shop", &[text(&self.shop.0), &url, &timeout], crash)
    }

    /// Starts billing; the network leads to it.
    pub(crate) async fn start_billing(&self) -> Process {
        self.reached(self.spawn_billing()).await
    }

    /// Starts a billing whose handlers wait at a gate.
    pub(crate) async fn start_gated_billing(&self, gate: &Gate) -> Process {
        self.reached(self.spawn_billing_with(Some(gate), None)).await
    }

    /// Starts a billing that dies at a crash point.
    #[cfg(feature = "crash-points")]
    pub(crate) async fn start_dying_billing(&self, point: &str) -> Process {
        self.reached(self.spawn_billing_with(None, Some(point))).await
    }

    /// Starts billing without expecting anything of it.
    pub(crate) fn spawn_billing(&self) -> Process {
        self.spawn_billing_with(None, None)
    }

    fn spawn_billing_with(&self, gate: Option<&Gate>, crash: Option<&str>) -> Process {
        let events = self.events_path();
        let mut arguments = vec![text(&self.billing.0), text(&events)];
        arguments.extend(gate.map(|gate| gate.address.as_str()));
        Process::start("rf_15_billing", &arguments, crash)
    }

    async fn reached(&self, mut billing: Process) -> Process {
        let address = billing.says().await.expect("billing did not start");
        self.network.lead_to(address.parse().expect(&address));
        billing
    }

    /// What billing's handlers and answers were, in order, over all its processes.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.events_path()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How often a handler has run for an order.
    pub(crate) fn runs(&self, order: i64) -> usize {
        self.events().iter().filter(|event| **event == format!("{order} running")).count()
    }

    fn events_path(&self) -> PathBuf {
        self.folder.path().join("events")
    }
}

/// A running shop.
pub(crate) struct Shop(pub(crate) Process);

impl Shop {
    async fn ready(mut shop: Process) -> Self {
        shop.must_say("ready").await;
        Self(shop)
    }

    /// Lets it send.
    pub(crate) async fn relay(mut self) -> Self {
        self.0.tell("relay").await;
        self
    }

    /// Places an order.
    pub(crate) async fn place(&mut self, order: i64) {
        self.place_all(order, order, TTL_MILLIS).await;
    }

    /// Places an order whose message is worth delivering for this long.
    pub(crate) async fn place_for(&mut self, order: i64, ttl_millis: u64) {
        self.place_all(order, order, ttl_millis).await;
    }

    /// Places orders in one transaction.
    pub(crate) async fn place_many(&mut self, first: i64, last: i64) {
        self.place_all(first, last, TTL_MILLIS).await;
    }

    /// Tries to place an order. Returns what shop says to that.
    pub(crate) async fn try_to_place(&mut self, order: i64) -> String {
        self.ask(order, order, TTL_MILLIS).await;
        self.0.says().await.expect("shop has ended")
    }

    /// Begins to place an order: it and its message are written, and not committed.
    #[cfg(feature = "crash-points")]
    pub(crate) async fn write(&mut self, order: i64) {
        self.ask(order, order, TTL_MILLIS).await;
        self.0.must_say("written").await;
    }

    async fn place_all(&mut self, first: i64, last: i64, ttl_millis: u64) {
        self.ask(first, last, ttl_millis).await;
        self.0.must_say("written").await;
        self.0.must_say("placed").await;
    }

    async fn ask(&mut self, first: i64, last: i64, ttl_millis: u64) {
        self.0.tell(&format!("place {first} {last} {ttl_millis}")).await;
    }
}
