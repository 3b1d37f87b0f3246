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
