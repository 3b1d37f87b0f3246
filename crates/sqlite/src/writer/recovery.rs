//! What happens when a sync has failed: nothing that was written can be trusted until it was read back (S14).

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use twobox_core::{Error, ErrorKind, Result, crash_point, mutant, one_line};

use super::core::{Core, Open};
use crate::connection::set_journal_mode;
use crate::error::{is_unwritable, wrap};
use crate::shared::Shared;

impl Core {
    /// Makes sure that there is a trustworthy connection.
    pub(super) fn ready(&mut self) -> Result<()> {
        if let Some(reason) = &self.stopped {
            return Err(Error::new(
                ErrorKind::Stopped,
                format!("{reason}; stopped until it is opened again"),
            ));
        }
        if let Some(error) = self.shared.take_doubt() {
            self.doubt(&error);
        }
        if self.open.is_some() {
            return Ok(());
        }
        self.recover().inspect_err(|error| {
            // Recovering syncs as well, and after a sync that failed nothing that is read can be vouched for.
            if !is_unwritable(error) {
                self.shared.set_unwritable(false);
            }
        })
    }

    /// Throws the connection away: the kernel may have dropped pages and will claim success next time.
    pub(super) fn doubt(&mut self, error: &Error) {
        self.meters().doubts.one();
        tracing::error!(
            error = one_line(error),
            "a commit failed; reopening the database before anything is acknowledged"
        );
        self.shared.forget_recent();
        self.shared.set_unwritable(is_unwritable(error));
        if mutant!(GoOnAfterFailedSync) {
            return;
        }
        if let Some(open) = self.open.take() {
            close_without_checkpoint(open.connection);
        }
    }

    /// What is damaged is of no use to anybody, and every write could make it worse: nothing more is acknowledged.
    pub(super) fn stop_if_damaged(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Corrupt && self.stopped.is_none() {
            let reason = format!(
                "{} is damaged, so nothing more is acknowledged: stop the service, verify the file and restore a backup",
                self.shared.opener.path.display()
            );
            let store = self.shared.opener.path.display().to_string();
            tracing::error!(
                store,
                error = one_line(error),
                "the database is damaged; nothing more is acknowledged"
            );
            self.meters().stopped.set(1);
            self.stopped = Some(reason);
        }
    }

    /// An error that says which file, if it is about the file or its disk.
    pub(super) fn named(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Corrupt => {
                let (path, text) = (self.shared.opener.path.display().to_string(), error.chain());
                let text = if text.contains(&path) { text } else { format!("{path}: {text}") };
                Error::new(error.kind(), text)
            }
            _ => error,
        }
    }

    /// Closes every connection, reopens, and brings everything in the write-ahead log into the database file
    /// before anything is acknowledged again.
    fn recover(&mut self) -> Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        let _closed = shared.readers.close_all();
        crash_point!("recovery.closed");
        shared.check_file().inspect_err(|error| self.stop(error.to_string()))?;
        match bring_home(&shared) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                let reason = "a sync failed while another process holds the database open, so what is durable is \
                              unknown; stop all processes that use it, then start them again";
                self.stop(reason.into());
                Err(Error::new(ErrorKind::Stopped, reason))
            }
            Err(error) => Err(error),
            Ok(()) => {
                crash_point!("recovery.brought-home");
                self.open = Some(Open::again(&shared)?);
                crash_point!("recovery.reopened");
                shared.next_epoch();
                self.meters().reopened.one();
                tracing::warn!("the database was reopened after a failed commit");
                Ok(())
            }
        }
    }
}

/// Closing the last connection would copy the write-ahead log into the database, checksums unread; but pages of
/// it may be gone. The next connection to open it reads it as after a crash.
pub(crate) fn close_without_checkpoint(connection: Connection) {
    let _: rusqlite::Result<bool> =
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    drop(connection);
}

/// Recovers the write-ahead log, copies it into the database file and truncates it, once it is known that no other
/// process has the file open: if one had, what it remembers of the log would be copied instead of what is there.
fn bring_home(shared: &Shared) -> Result<()> {
    // However durable commits are to be: leaving WAL mode is a transaction with a rollback journal, and one that is not
    // synced before it is relied on can damage the file at a power cut.
    let connection = shared.opener.alone()?;
    if checkpoint(&connection, "TRUNCATE")?.busy {
        return Err(Error::new(ErrorKind::Busy, "the database is in use"));
    }
    let mode = set_journal_mode(&connection, "DELETE").map_err(wrap("recover"))?;
    if mode.eq_ignore_ascii_case("delete") {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Busy, "the database is in use"))
    }
}

/// What a checkpoint says.
pub(crate) struct Checkpoint {
    pub(crate) busy: bool,
    /// Pages in the write-ahead log, and how many of them are in the database file.
    pub(crate) pages: i64,
    pub(crate) copied: i64,
}

/// Runs a checkpoint of the given mode.
pub(crate) fn checkpoint(connection: &Connection, mode: &str) -> Result<Checkpoint> {
    connection
        .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            Ok(Checkpoint { busy: row.get::<_, i64>(0)? != 0, pages: row.get(1)?, copied: row.get(2)? })
        })
        .map_err(wrap("checkpoint"))
}
