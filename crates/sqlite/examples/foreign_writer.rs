//! A program that knows nothing of Twobox: it enqueues with a plain INSERT whenever a line arrives on its standard
//! input. The line is the message's id; the answer is the same line, after the commit.
//!
//! `foreign_writer DATABASE`

use std::error::Error;
use std::io::{BufRead, Write};

use rusqlite::Connection;

const INSERT: &str = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload) \
                      VALUES (?1, 'shop', 'billing', 'Pay', '{}')";

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: foreign_writer DATABASE")?;
    let connection = Connection::open(path)?;
    for id in std::io::stdin().lock().lines() {
        let id = id?;
        connection.execute(INSERT, [&id])?;
        writeln!(std::io::stdout(), "{id}")?;
    }
    Ok(())
}
