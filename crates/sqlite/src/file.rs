//! Syncs a database file through a connection that has it open.
//!
//! The standard library cannot do it: it would have to open the file once more, and closing that gives up the locks
//! that SQLite holds on it.
#![allow(unsafe_code, reason = "SQLite hands an open file out as a C pointer")]

use std::ptr;

use rusqlite::{Connection, ffi};
use twobox_core::Result;

use crate::error::wrap;

/// Makes durable what checkpoints have written to the database file so far, by whichever connection.
pub(crate) fn sync(connection: &Connection) -> Result<()> {
    sync_main(connection).map_err(wrap("sync the database file"))
}

fn sync_main(connection: &Connection) -> rusqlite::Result<()> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the connection is open; this operation writes one pointer to where the last argument says.
    let asked = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast(),
        )
    };
    check(asked)?;
    // SAFETY: the file is open as long as the connection, which is borrowed, so nobody else uses it meanwhile; one that
    // is not open has no methods.
    let sync = unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }.and_then(|file| file.xSync);
    // SAFETY: as above. It is the call that a checkpoint makes when it has copied everything.
    sync.map_or(Ok(()), |sync| check(unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL) }))
}

fn check(code: i32) -> rusqlite::Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}
