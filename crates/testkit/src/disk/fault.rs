//! Calls that fail.

use std::fmt;
use std::str::FromStr;

use twobox_core::Error;

/// Which calls, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes; nothing of them is written.
    Write,
    /// Writes, because the disk is full: the first half of them is written.
    Full,
    /// Truncations.
    Truncate,
    /// Syncs; nothing else happens.
    Sync,
    /// Syncs, as a kernel does it that drops the pages it could not write: what was written since the last good sync
    /// is gone, and the next sync reports success.
    SyncDroppingPages,
    /// Syncs, as a kernel does it that keeps the pages it could not write and calls them clean: they are read as if
    /// nothing had happened, the next sync reports success, and a power cut takes them.
    SyncKeepingPages,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Full,
        Self::Truncate,
        Self::Sync,
        Self::SyncDroppingPages,
        Self::SyncKeepingPages,
    ];

    /// The calls it is about.
    pub(super) fn call(self) -> Call {
        match self {
            Self::Read => Call::Read,
            Self::Write | Self::Full => Call::Write,
            Self::Truncate => Call::Truncate,
            Self::Sync | Self::SyncDroppingPages | Self::SyncKeepingPages => Call::Sync,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Full => "full",
            Self::Truncate => "truncate",
            Self::Sync => "sync",
            Self::SyncDroppingPages => "sync-dropping-pages",
            Self::SyncKeepingPages => "sync-keeping-pages",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| Error::invalid(format!("no such fault: {text}")))
    }
}

/// What SQLite calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Read,
    Write,
    Truncate,
    Sync,
}

/// Lets one call fail: the `nth` of its kind from now on, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls are counted.
    pub kind: Kind,
    /// Which of them fails.
    pub nth: u64,
}
