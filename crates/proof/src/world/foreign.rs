//! Enqueueing through a connection that is not the store's: what it commits is visible at once and durable later, and
//! the relay must not send it before it is (W6).

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use twobox_core::{BoxError, Error, Message};

use super::authors::INSERT_ROW;
use super::process::{Node, Process};

/// Writes the author's row and the message. Returns whether it may be committed.
pub(super) fn enqueue(node: &Node, process: &Process, message: &Result<Message, Error>) -> bool {
    let Ok(message) = message else { return false };
    // Whatever fails, fails before the commit or leaves it open.
    let mut begun = false;
    let _: Result<(), BoxError> = write(node, process, message, &mut begun);
    begun
}

fn write(node: &Node, process: &Process, message: &Message, begun: &mut bool) -> Result<(), BoxError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags_and_vfs(&node.path, flags, node.disk.name())?;
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0")?;
    let mut tx = Transaction::new(&mut connection, TransactionBehavior::Immediate)?;
    tx.execute(INSERT_ROW, [message.id.as_str()])?;
    process.db.append(&mut tx, message)?;
    *begun = true;
    tx.commit()?;
    Ok(())
}
