//! How a database is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::message::PAYLOAD_BYTES_MAX;
use twobox_core::meters::Meters;
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Clock, Error, ErrorKind, Random, Result};

use crate::{Prefix, schema};

/// What survives what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Every acknowledged commit survives a power cut (`synchronous=FULL`). Group commit makes it cheap.
    #[default]
    Full,
    /// Acknowledged commits survive the death of the process, but a power cut may take the last ones
    /// (`synchronous=NORMAL`): a receiver then forgets effects whose senders believe them done, so **messages
    /// can be lost**. What is sent is still made durable first, so no message without its transaction is ever
    /// in the world.
    ProcessCrash,
}

/// Who runs the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// A thread of its own.
    #[default]
    Thread,
    /// Nobody: work queues until [`Sqlite::step`](crate::Sqlite::step) is called, and reads run on the
    /// caller's thread. For deterministic tests and simulation.
    Manual,
}

/// Options of a database; see [`Sqlite::builder`](crate::Sqlite::builder).
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) prefix: Prefix,
    pub(crate) durability: Durability,
    pub(crate) drive: Drive,
    pub(crate) vfs: Option<String>,
    pub(crate) busy_timeout: Duration,
    pub(crate) readers: usize,
    pub(crate) queue_max: usize,
    pub(crate) group_time: Duration,
    pub(crate) wal_pages_max: u32,
    pub(crate) check_bytes_max: u64,
    pub(crate) response_bytes_max: usize,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) meters: Arc<Meters>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: Prefix::default(),
            durability: Durability::Full,
            drive: Drive::Thread,
            vfs: None,
            busy_timeout: Duration::from_secs(5),
            readers: 2,
            queue_max: 4_096,
            group_time: Duration::from_millis(20),
            wal_pages_max: 16_000,
            check_bytes_max: 256 << 20,
            response_bytes_max: 64 << 10,
            ttl: Duration::from_secs(24 * 3600),
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(SystemRandom::default()),
            meters: Arc::default(),
        }
    }
}

impl Options {
    /// Refuses what could only fail later (S10).
    pub(crate) fn check(&self) -> Result<()> {
        if self.response_bytes_max <= PAYLOAD_BYTES_MAX {
            return Ok(());
        }
        // Senders leave out a larger one, and an answer that is too long for them is none: in the end a message that is
        // done would count as failed.
        let text = format!(
            "response_bytes_max ({}) is beyond the {PAYLOAD_BYTES_MAX} bytes that senders read: keep larger responses in \
             a table of your own and respond with a reference",
            self.response_bytes_max
        );
        Err(Error::new(ErrorKind::Misconfigured, text))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("prefix", &self.prefix)
            .field("durability", &self.durability)
            .field("drive", &self.drive)
            .field("vfs", &self.vfs)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Sqlite`](crate::Sqlite). Every setter's doc gives the default and the reason for it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct SqliteBuilder {
    pub(crate) options: Options,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.options.$name = $name;
            self
        }
    )*};
}

impl SqliteBuilder {
    setters! {
        /// Prefix of all table, index and view names. Default: none, so the views are called
        /// `outbox_messages` and `inbox_messages`. Several modules in one file each take their own.
        prefix: Prefix;
        /// What an acknowledgement survives. Default [`Durability::Full`].
        durability: Durability;
        /// Who runs the writer. Default [`Drive::Thread`].
        drive: Drive;
        /// How long to wait for another connection's write lock. Default 5 s (RF-16).
        busy_timeout: Duration;
        /// Threads that read. Default 2: one for the relay, one for people.
        readers: usize;
        /// Most transactions that may queue for the writer; further callers wait. Default 4096. Leases, settlements
        /// and barriers of relays, workers and the sweeper have as many places of their own.
        queue_max: usize;
        /// Time after which a group of transactions commits although more are queued. Default 20 ms: longer
        /// makes everyone wait, shorter wastes syncs (W7).
        group_time: Duration;
        /// Size of the write-ahead log, in pages, beyond which it is checkpointed and started again. Default
        /// 16 000 (64 MiB): a page that many commits have changed is copied home only once, so that is to be rare;
        /// and it is small enough to recover from in a moment.
        wal_pages_max: u32;
        /// Files up to this size are checked for damage when opened. Default 256 MiB, which takes a moment.
        check_bytes_max: u64;
        /// Largest response a handler may store. Default 64 KiB; keep larger ones in a table of your own and
        /// respond with a reference. At most 1 MiB: senders read no larger one.
        response_bytes_max: usize;
        /// Time to live of messages that do not say. Default 24 h (RF-06).
        ttl: Duration;
        /// Where time comes from. Default: the machine.
        clock: Arc<dyn Clock>;
        /// Where chance comes from. Default: the operating system.
        random: Arc<dyn Random>;
        /// Where it counts. Default: figures of its own, see [`Sqlite::meters`](crate::Sqlite::meters).
        meters: Arc<Meters>;
    }

    /// The migrations as SQL, for a migration tool of your own. No file is opened.
    #[must_use]
    pub fn migrations_sql(&self) -> String {
        schema::print(&self.options.prefix)
    }

    /// Name of the SQLite VFS to use. Default: the operating system's. With another one, the checks for a
    /// vanished file and the watching of the file from other processes are off, because the file may not be
    /// where its name says.
    pub fn vfs(mut self, name: impl Into<String>) -> Self {
        self.options.vfs = Some(name.into());
        self
    }
}
