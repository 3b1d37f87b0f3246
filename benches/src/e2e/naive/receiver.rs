//! The receiving process of the naive loop. FROZEN, as all of it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::json;
use twobox::rusqlite::{Connection, TransactionBehavior};

use super::super::order::{COUNT_ORDERS, CREATE_ORDERS, INSERT_ORDER, Order, micros};
use super::super::process::{not_understood, serve};
use super::bare::Peer;
use super::{Wire, count, library, open};
use crate::Result;

const FILE: &str = "naive-billing.db";
const CREATE_INBOX: &str = "CREATE TABLE inbox (id TEXT PRIMARY KEY, received_at INTEGER NOT NULL)";
const INSERT_INBOX: &str = "INSERT INTO inbox (id, received_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

/// Receives in `folder` until there are no more questions.
pub(crate) fn play(wire: Wire, folder: &Path) -> Result<()> {
    let path = folder.join(FILE);
    let connection = open(path.clone())?;
    connection.execute_batch(&format!("{CREATE_INBOX}; {CREATE_ORDERS};"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = json!({ "address": listener.local_addr()?.to_string() });
    std::thread::spawn(move || match wire {
        Wire::Bare => accept(&listener, &path),
        Wire::Library => {
            let mut connection = open(path).expect("it was opened a moment ago");
            let ended = library::accept(listener, move |key, body| handle(&mut connection, key, body));
            eprintln!("naive receiver: {ended:?}");
        }
    });
    serve(&address, |words| match words {
        ["count"] => Ok(json!({
            "inbox": count(&connection, "SELECT count(*) FROM inbox")?,
            "orders": count(&connection, COUNT_ORDERS)?,
        })),
        _ => not_understood(words),
    })
}

/// A thread and a database connection for every connection; there is only one.
fn accept(listener: &TcpListener, path: &Path) {
    for stream in listener.incoming() {
        let path = path.to_path_buf();
        std::thread::spawn(move || {
            let talked = stream.map_err(Into::into).and_then(|stream| talk(stream, path));
            if let Err(error) = talked {
                eprintln!("naive receiver: {error}");
            }
        });
    }
}

fn talk(stream: TcpStream, path: PathBuf) -> Result<()> {
    let (mut peer, mut connection) = (Peer::new(stream)?, open(path)?);
    while let Some(request) = peer.read()? {
        let status = match handle(&mut connection, &request.key, &request.body) {
            Ok(()) => "200 OK",
            Err(error) => {
                eprintln!("naive receiver: {error}");
                "500 Internal Server Error"
            }
        };
        peer.answer(status)?;
    }
    Ok(())
}

/// The effect, unless it is known: durable together with the knowledge.
fn handle(connection: &mut Connection, key: &str, body: &[u8]) -> Result<()> {
    let order: Order = serde_json::from_slice(body)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let now = i64::try_from(micros())?;
    if tx.prepare_cached(INSERT_INBOX)?.execute((key, now))? == 1 {
        tx.prepare_cached(INSERT_ORDER)?.execute((order.number, &order.customer, order.total))?;
    }
    Ok(tx.commit()?)
}
