//! A disk whose power can be cut, for SQLite.
//!
//! [`Disk`] registers a SQLite VFS that passes everything on to the machine's own and keeps a record: every write,
//! truncation, sync and deletion of a database and its write-ahead log, in order. From any place in the record
//! [`Image`]s can be made: what a process kill leaves, what a power cut leaves if nothing unsynced was written, if
//! some of it was, or if some sectors of it were. An image is put back as files, and the real store opens it.
//!
//! Whoever renames or syncs files without SQLite says so by [`Disk::did`]; nothing of that is seen.
//!
//! Reads, writes, truncations and syncs can be made to fail, also as a kernel does it that drops the pages of a failed
//! sync, or keeps them without ever writing them, and reports success the next time.

mod fault;
mod ffi;
mod image;
mod record;
mod state;

pub use self::fault::{Fault, Kind};
pub use self::ffi::keep_log;
pub use self::image::{Cut, Image, Walk, fingerprint};
pub use self::record::{Mark, Record};
pub use self::state::{Deed, Disk, write_over};
