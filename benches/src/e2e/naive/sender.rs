//! The sending process of the naive loop. FROZEN, as all of it.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use twobox::rusqlite::{Connection, TransactionBehavior};

use super::super::order::{FIRST_NUMBER, Order, micros};
use super::super::process::{not_understood, serve};
use super::bare::Peer;
use super::library::Poster;
use super::{Wire, count, open};
use crate::Result;

const FILE: &str = "naive-shop.db";

const CREATE: &str = "
    CREATE TABLE outbox (
        id         TEXT PRIMARY KEY,
        payload    BLOB NOT NULL,
        status     TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        sent_at    INTEGER
    );
    CREATE INDEX outbox_due ON outbox (status, created_at);
";
const INSERT: &str = "INSERT INTO outbox (id, payload, status, created_at) VALUES (?1, ?2, 'pending', ?3)";
const CLAIM: &str = "
    UPDATE outbox SET status = 'sending'
    WHERE id = (SELECT id FROM outbox WHERE status = 'pending' ORDER BY created_at LIMIT 1)
    RETURNING id, payload";
const MARK: &str = "UPDATE outbox SET status = 'sent', sent_at = ?2 WHERE id = ?1";

/// Sends from `folder` to `address` until there are no more questions.
pub(crate) fn play(wire: Wire, folder: &Path, address: SocketAddr) -> Result<()> {
    let connection = open(folder.join(FILE))?;
    connection.execute_batch(CREATE)?;
    let way = match wire {
        Wire::Library => Way::Library(Box::new(Poster::new(address)?)),
        Wire::Bare => Way::Bare(Peer::new(TcpStream::connect(address)?)?),
    };
    let mut shop = Shop { connection, way, next: FIRST_NUMBER };
    serve(&json!({}), |words| match words {
        ["fill", backlog] => shop.fill(backlog.parse()?),
        ["run", millis] => shop.run(Duration::from_millis(millis.parse()?)),
        ["count"] => shop.count(),
        _ => not_understood(words),
    })
}

struct Shop {
    connection: Connection,
    way: Way,
    next: i64,
}

/// How messages get there.
enum Way {
    Library(Box<Poster>),
    Bare(Peer),
}

impl Way {
    fn post(&mut self, id: &str, payload: Vec<u8>) -> Result<()> {
        let status = match self {
            Self::Library(poster) => poster.post(id, payload)?.to_string(),
            Self::Bare(peer) => peer.post(id, &payload)?.first.trim_start_matches("HTTP/1.1 ").to_owned(),
        };
        if status.starts_with("200") {
            Ok(())
        } else {
            Err(format!("the naive receiver says {status}").into())
        }
    }
}

impl Shop {
    fn fill(&mut self, backlog: u64) -> Result<Value> {
        let pending = self.with_status("pending")?;
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for _ in pending..backlog {
            let number = self.next;
            self.next += 1;
            // As long as a UUID, and in the order of time.
            let id = format!("{number:08x}-0000-7000-8000-{number:012x}");
            let payload = serde_json::to_vec(&Order::new(number))?;
            tx.prepare_cached(INSERT)?.execute((id, payload, number))?;
        }
        tx.commit()?;
        Ok(json!({}))
    }

    fn run(&mut self, duration: Duration) -> Result<Value> {
        let (start, mut messages) = (micros(), 0);
        let until = start + u64::try_from(duration.as_micros())?;
        while micros() < until {
            let Some((id, payload)) = self.claim()? else { break };
            self.way.post(&id, payload)?;
            self.connection.prepare_cached(MARK)?.execute((id, i64::try_from(micros())?))?;
            messages += 1;
        }
        Ok(json!({ "messages": messages, "micros": micros() - start }))
    }

    fn claim(&self) -> Result<Option<(String, Vec<u8>)>> {
        let mut statement = self.connection.prepare_cached(CLAIM)?;
        let mut rows = statement.query([])?;
        let mut claimed = None;
        // The statement commits when there are no more rows.
        while let Some(row) = rows.next()? {
            claimed = Some((row.get(0)?, row.get(1)?));
        }
        Ok(claimed)
    }

    fn count(&self) -> Result<Value> {
        Ok(json!({ "sent": self.with_status("sent")?, "sending": self.with_status("sending")? }))
    }

    fn with_status(&self, status: &str) -> Result<u64> {
        count(&self.connection, &format!("SELECT count(*) FROM outbox WHERE status = '{status}'"))
    }
}
