//! A database to measure: an outbox beside a user's table, and a count of what must be in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use twobox_core::ports::LaneStore;
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Error, Message, NewMessage, Source, Stamp};
use twobox_sqlite::{Sqlite, SqliteTx};

use crate::Result;

pub(crate) const SOURCE: &str = "bench";
pub(crate) const DESTINATION: &str = "sink";

/// Messages per transaction when it is not enqueueing that is measured.
const BULK: u64 = 1_000;

const CREATE_ORDERS: &str =
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, total INTEGER NOT NULL)";
pub(crate) const INSERT_ORDER: &str = "INSERT INTO orders (customer, total) VALUES (?1, ?2)";

/// An open database. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) db: Sqlite,
    stamp: Arc<Stamp>,
    template: Arc<NewMessage>,
}

impl Store {
    /// A new database in `folder`.
    pub(crate) async fn create(folder: &Path) -> Result<Self> {
        let store = Self::open(folder).await?;
        store.db.migrate().await?;
        store.db.transaction(|tx| tx.execute(CREATE_ORDERS, []).map(drop)).await?;
        Ok(store)
    }

    /// The database that is in `folder`.
    pub(crate) async fn open(folder: &Path) -> Result<Self> {
        let db = Sqlite::open(folder.join("bench.db")).await?;
        let (clock, random) = (Arc::new(SystemClock::default()), Arc::new(SystemRandom::default()));
        let stamp = Arc::new(Stamp::new(Source::new(SOURCE)?, clock, random));
        Ok(Self { db, stamp, template: Arc::new(template()?) })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.db.path().to_path_buf()
    }

    pub(crate) fn message(&self) -> Result<Message, Error> {
        self.stamp.message(&self.template)
    }

    /// A business transaction as users write it: a row of theirs and a message, durable together.
    pub(crate) async fn order(&self) -> Result<(), Error> {
        let (store, message) = (self.clone(), self.message()?);
        let work = move |tx: &mut SqliteTx<'_>| {
            tx.execute(INSERT_ORDER, ("somebody", 4_200))?;
            store.db.append(tx, &message)
        };
        self.db.transaction(work).await
    }

    /// Appends messages in large transactions.
    pub(crate) async fn fill(&self, messages: u64) -> Result<()> {
        let mut left = messages;
        while left > 0 {
            let (store, bulk) = (self.clone(), left.min(BULK));
            let work = move |tx: &mut SqliteTx<'_>| {
                (0..bulk).try_for_each(|_| store.db.append(tx, &store.message()?))
            };
            self.db.transaction::<(), Error, _>(work).await?;
            left -= bulk;
        }
        Ok(())
    }

    /// A number that a query without parameters finds.
    pub(crate) async fn count(&self, query: &'static str) -> Result<u64> {
        let count: Option<i64> =
            self.db.transaction(move |tx| tx.query_optional(query, [], |row| row.get(0))).await?;
        Ok(u64::try_from(count.unwrap_or_default())?)
    }

    /// Fails unless the log and the user's table hold what was acknowledged.
    pub(crate) async fn check_enqueued(&self, messages: u64, orders: u64) -> Result<()> {
        check("messages in the log", messages, self.count("SELECT count(*) FROM outbox_log").await?)?;
        check("rows of the user", orders, self.count("SELECT count(*) FROM orders").await?)
    }

    /// Fails unless exactly this many messages were sent and none went another way.
    pub(crate) async fn check_sent(&self, messages: u64) -> Result<()> {
        let lanes = self.db.lanes().await?;
        let sum = |count: fn(&twobox_core::ports::LaneStatus) -> u64| lanes.iter().map(count).sum();
        check("messages sent", messages, sum(|lane| lane.sent))?;
        check("messages failed", 0, sum(|lane| lane.failed))?;
        check("messages expired", 0, sum(|lane| lane.expired))
    }
}

/// Lost or invented messages make every figure worthless.
pub(crate) fn check(what: &str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, found {found}").into())
}

/// A message with 256 bytes of JSON.
fn template() -> Result<NewMessage> {
    let body = |note: &str| serde_json::json!({ "customer": "somebody", "total": 4200, "note": note });
    let bare = body("").to_string().len();
    Ok(NewMessage::json(DESTINATION, "orders.placed", &body(&"x".repeat(256 - bare)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_has_256_bytes() {
        assert_eq!(template().unwrap().payload.len(), 256);
    }
}
