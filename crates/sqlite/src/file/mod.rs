//! Makes a database file durable through a connection that has it open.
//!
//! The standard library cannot do it: it would have to open the file once more, and closing that gives up the locks
//! that SQLite holds on it.
#![allow(unsafe_code, reason = "SQLite hands an open file out as a C pointer")]

use std::ffi::c_int;
use std::ptr;

use rusqlite::{Connection, ffi};
use twobox_core::Result;

use crate::error::wrap;

#[cfg(target_os = "linux")]
mod write_back;

#[cfg(target_os = "linux")]
pub(crate) use write_back::write_back;

/// Elsewhere the sync that follows writes everything at once.
#[cfg(not(target_os = "linux"))]
pub(crate) fn write_back(_: &Connection, _: &std::path::Path, _: impl Fn() -> bool) -> Result<()> {
    Ok(())
}

/// Makes durable what checkpoints have written to the database file so far, by whichever connection.
pub(crate) fn sync(connection: &Connection) -> Result<()> {
    sync_main(connection).map_err(wrap("sync the database file"))
}

fn sync_main(connection: &Connection) -> rusqlite::Result<()> {
    let file = opened(connection)?;
    // SAFETY: the file is open as long as the connection, which is borrowed, so nobody else uses it meanwhile; one that
    // is not open has no methods.
    let sync = unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) }.and_then(|file| file.xSync);
    // SAFETY: as above. It is the call that a checkpoint makes when it has copied everything.
    sync.map_or(Ok(()), |sync| check(unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL) }))
}

/// The database file as SQLite has opened it.
fn opened(connection: &Connection) -> rusqlite::Result<*mut ffi::sqlite3_file> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the argument is one pointer, which is what this operation writes.
    unsafe { control(connection, ffi::SQLITE_FCNTL_FILE_POINTER, &raw mut file) }?;
    Ok(file)
}

/// # Safety
/// The argument is what SQLite documents for the operation.
unsafe fn control<T>(connection: &Connection, operation: c_int, argument: *mut T) -> rusqlite::Result<()> {
    // SAFETY: the connection is open as long as it is borrowed; the rest is the caller's.
    check(unsafe {
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), operation, argument.cast())
    })
}

fn check(code: i32) -> rusqlite::Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}
