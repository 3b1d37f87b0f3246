//! What happens when a sync has failed: nothing that was written can be trusted until it was read back (S14).

use rusqlite::Connection;
use twobox_core::{Error, ErrorKind, Result};

use super::core::{Core, Open};
use crate::error::wrap;

impl Core {
    /// Makes sure that there is a trustworthy connection.
    pub(super) fn ready(&mut self) -> Result<()> {
        if let Some(reason) = &self.stopped {
            return Err(Error::new(
                ErrorKind::Stopped,
                format!("{reason}; stopped until it is opened again"),
            ));
        }
        if self.shared.take_doubt() {
            self.open = None;
        }
        if self.open.is_none() { self.recover() } else { Ok(()) }
    }

    /// Throws the connection away: the kernel may have dropped pages and will claim success next time.
    pub(super) fn doubt(&mut self, error: &Error) {
        tracing::error!(error = %error.chain(), "a commit failed; reopening the database before anything is acknowledged");
        self.open = None;
    }

    /// Closes every connection, reopens, and brings everything in the write-ahead log into the database file
    /// before anything is acknowledged again.
    fn recover(&mut self) -> Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        let _closed = shared.readers.close_all();
        shared.check_file().inspect_err(|error| self.stopped = Some(error.to_string()))?;
        let open = Open::new(&shared)?;
        match open.guard.unguarded(|| checkpoint(&open.connection, "TRUNCATE"))? {
            Checkpoint { busy: true, .. } => {
                let reason = "a sync failed while another process holds the database open, so what is durable is \
                              unknown; stop all processes that use it, then start them again";
                self.stopped = Some(reason.into());
                Err(Error::new(ErrorKind::Stopped, reason))
            }
            Checkpoint { busy: false, .. } => {
                shared.next_epoch();
                tracing::warn!("the database was reopened after a failed commit");
                self.open = Some(open);
                Ok(())
            }
        }
    }
}

/// What a checkpoint says.
pub(crate) struct Checkpoint {
    pub(crate) busy: bool,
    /// Pages in the write-ahead log.
    pub(crate) pages: i64,
}

/// Runs a checkpoint of the given mode.
pub(crate) fn checkpoint(connection: &Connection, mode: &str) -> Result<Checkpoint> {
    connection
        .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            Ok(Checkpoint { busy: row.get::<_, i64>(0)? != 0, pages: row.get(1)? })
        })
        .map_err(wrap("checkpoint"))
}
