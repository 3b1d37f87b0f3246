//! Counting what is in the two databases, by plain SQL.

use std::path::Path;

use twobox::rusqlite::{Connection, OpenFlags, Row};

use crate::Result;

/// What the two databases say.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    pub(super) orders: u64,
    pub(super) enqueued: u64,
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) invoices: u64,
    /// Orders that have neither an invoice nor a dead letter.
    pub(super) lost: u64,
    /// Invoices beyond the first of an order.
    pub(super) doubled: u64,
    /// Invoices without an order.
    pub(super) phantoms: u64,
    /// Invoices over another amount than the order's.
    pub(super) wrong: u64,
}

/// How far the two have come, without counting everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) orders: u64,
    /// Messages whose fate is known to shop.
    pub(super) settled: u64,
    pub(super) invoices: u64,
}

/// A view on both databases that never writes.
pub(super) struct Auditor {
    connection: Connection,
}

impl Auditor {
    pub(super) fn new(shop: &Path, billing: &Path) -> Result<Self> {
        let connection = Connection::open_with_flags(shop, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        connection.execute("ATTACH DATABASE ?1 AS billing", [billing.to_string_lossy()])?;
        Ok(Self { connection })
    }

    pub(super) fn progress(&self) -> Result<Progress> {
        Ok(Progress {
            orders: self.number("SELECT coalesce(max(id), 0) FROM main.orders")?,
            settled: self
                .number("SELECT coalesce(sum(sent + failed + expired), 0) FROM main.outbox_lanes")?,
            invoices: self.number("SELECT coalesce(max(rowid), 0) FROM billing.invoices")?,
        })
    }

    pub(super) fn audit(&self) -> Result<Audit> {
        let statuses = "SELECT count(*) FROM main.outbox_messages WHERE status";
        Ok(Audit {
            orders: self.number("SELECT count(*) FROM main.orders")?,
            enqueued: self.number("SELECT count(*) FROM main.outbox_messages")?,
            delivered: self.number(&format!("{statuses} = 'Sent'"))?,
            dead: self.number(&format!("{statuses} IN ('Failed', 'Expired')"))?,
            invoices: self.number("SELECT count(*) FROM billing.invoices")?,
            lost: self.number(
                "SELECT count(*) FROM main.orders AS o
                 WHERE NOT EXISTS (SELECT 1 FROM billing.invoices AS i WHERE i.order_id = o.id)
                   AND NOT EXISTS (SELECT 1 FROM main.outbox_waiting AS w
                                   WHERE w.message_id = 'order-' || o.id AND w.state IN ('Failed', 'Expired'))",
            )?,
            doubled: self.number("SELECT count(*) - count(DISTINCT order_id) FROM billing.invoices")?,
            wrong: self.number(
                "SELECT count(*) FROM billing.invoices AS i JOIN main.orders AS o ON o.id = i.order_id
                 WHERE o.cents <> i.cents",
            )?,
            phantoms: self.number(
                "SELECT count(*) FROM billing.invoices AS i
                 WHERE NOT EXISTS (SELECT 1 FROM main.orders AS o WHERE o.id = i.order_id)",
            )?,
        })
    }

    fn number(&self, sql: &str) -> Result<u64> {
        let number: i64 = self.connection.query_row(sql, [], |row: &Row<'_>| row.get(0))?;
        Ok(u64::try_from(number)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of both databases is counted.
    const SHOP: &str = "
        CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER);
        CREATE TABLE outbox_messages (message_id TEXT, status TEXT);
        CREATE TABLE outbox_waiting (message_id TEXT, state TEXT);
        CREATE TABLE outbox_lanes (sent INTEGER, failed INTEGER, expired INTEGER);
        INSERT INTO orders VALUES (1, 100), (2, 200), (3, 300), (4, 400), (5, 500);
        INSERT INTO outbox_messages SELECT 'order-' || id, 'Sent' FROM orders;
        INSERT INTO outbox_lanes VALUES (5, 0, 0);";
    const BILLING: &str = "
        CREATE TABLE invoices (order_id INTEGER, cents INTEGER);
        INSERT INTO invoices VALUES (1, 100), (2, 200), (3, 300), (4, 400), (5, 500);";

    /// What is found after one of the two was changed: dead, lost, doubled, phantoms, wrong.
    fn found(shop: &str, billing: &str) -> [u64; 5] {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["shop.db", "billing.db"].map(|name| folder.path().join(name));
        Connection::open(&paths[0]).unwrap().execute_batch(&format!("{SHOP}{shop}")).unwrap();
        Connection::open(&paths[1]).unwrap().execute_batch(&format!("{BILLING}{billing}")).unwrap();
        let auditor = Auditor::new(&paths[0], &paths[1]).unwrap();
        assert_eq!(auditor.progress().unwrap().orders, 5);
        let audit = auditor.audit().unwrap();
        [audit.dead, audit.lost, audit.doubled, audit.phantoms, audit.wrong]
    }

    #[test]
    fn everything_that_is_not_as_it_should_be_is_counted() {
        assert_eq!(found("", ""), [0, 0, 0, 0, 0]);
        let (lost, doubled) =
            ("DELETE FROM invoices WHERE order_id = 2;", "INSERT INTO invoices VALUES (3, 300);");
        assert_eq!(found("", lost), [0, 1, 0, 0, 0]);
        assert_eq!(found("", doubled), [0, 0, 1, 0, 0]);
        assert_eq!(
            found("", &format!("{lost}{doubled}")),
            [0, 1, 1, 0, 0],
            "they do not make up for each other"
        );
        assert_eq!(found("", "INSERT INTO invoices VALUES (6, 600);"), [0, 0, 0, 1, 0]);
        assert_eq!(found("", "UPDATE invoices SET cents = 1 WHERE order_id = 4;"), [0, 0, 0, 0, 1]);
        let dead = "UPDATE outbox_messages SET status = 'Failed' WHERE message_id = 'order-2';
                    INSERT INTO outbox_waiting VALUES ('order-2', 'Failed');";
        assert_eq!(found(dead, lost), [1, 0, 0, 0, 0], "a dead letter is not lost");
    }
}
