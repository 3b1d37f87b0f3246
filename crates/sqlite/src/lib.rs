//! The Twobox store on SQLite: outbox log, inbox, and a writer with group commit.
//!
//! [`Sqlite`] is a cheap handle. However often a file is opened in a process, there is one writer for it (W4);
//! transactions of many callers share a commit, and with it one sync of the disk.
//!
//! Both boxes live in the file that holds your own tables (S1): that is what makes a message exist exactly when
//! your rows do.

mod backup;
mod connection;
mod database;
mod enqueue;
mod error;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub mod exposed;
mod file;
mod guard;
mod inbox;
mod instances;
mod kept;
mod ops;
mod options;
mod outbox;
mod pace;
mod presence;
mod queue;
mod reader;
mod recent;
mod row;
mod schema;
mod shared;
mod sql;
#[cfg(test)]
mod sql_tests;
mod sweep;
mod sync;
mod tx;
mod wake;
mod writer;

pub use rusqlite;

pub use crate::backup::{
    BackupFolder, BackupMade, BackupOptions, BackupProgress, Check, Existing, Finding, Restore,
    RestoreOptions, Restored, Verified, VerifyOptions, restore, verify,
};
pub use crate::database::Sqlite;
pub use crate::enqueue::{Enqueue, Insert, Once};
pub use crate::inbox::SqliteHandler;
pub use crate::options::{Drive, Durability, SqliteBuilder};
pub use crate::outbox::MessageStatus;
pub use crate::sql::Prefix;
pub use crate::tx::{Row, SqliteTx};
pub use twobox_core::ports::ops::AttemptRecord;
