//! Enqueueing under a service's name.

use std::sync::Arc;

use twobox_core::Stamp;

use crate::{Enqueue, Insert, MessageId, NewMessage, Once, OnceKey, Result, Sqlite};

/// Enqueues messages of one service. Cheap to clone; move a clone into a closure.
#[derive(Clone, Debug)]
pub struct Outbox {
    db: Sqlite,
    stamp: Arc<Stamp>,
}

impl Outbox {
    pub(super) fn new(db: Sqlite, stamp: Stamp) -> Self {
        Self { db, stamp: Arc::new(stamp) }
    }

    /// Enqueues a message in the caller's transaction: a [`SqliteTx`](crate::SqliteTx), or a `rusqlite`
    /// transaction of your own on the same file. The message exists exactly when the transaction commits.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the message exceeds a limit, or `tx` is a connection to another
    /// file or is not in a transaction; otherwise the statement's error.
    pub fn enqueue(&self, tx: &mut impl Enqueue, message: &NewMessage) -> Result<MessageId> {
        let message = Arc::new(self.stamp.message(message)?);
        self.db.append_shared(tx, &message)?;
        Ok(message.id.clone())
    }

    /// Enqueues a message unless one was enqueued under `key` before: for callers that may repeat themselves.
    /// Keys are remembered for the once retention of the sweeper, 7 days by default.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_once(&self, tx: &mut impl Enqueue, key: &OnceKey, message: &NewMessage) -> Result<Once> {
        self.db.append_once(tx, key, &self.stamp.message(message)?)
    }

    /// The statement that enqueues a message, for drivers this library does not know.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the message exceeds a limit.
    pub fn insert(&self, message: &NewMessage) -> Result<(MessageId, Insert)> {
        let message = self.stamp.message(message)?;
        Ok((message.id.clone(), self.db.insert(&message)))
    }
}
