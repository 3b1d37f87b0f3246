//! Has the system write a file to the disk, a little at a time.
//!
//! A checkpoint leaves tens of megabytes in the system's memory. A sync hands all of them to the disk at once, and every
//! commit waits behind them: for ten to twenty milliseconds where it takes a tenth of one otherwise. Written piece by
//! piece, each when the disk has taken the one before, they let commits pass between them, and the sync finds little to
//! do.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io;
use std::path::Path;
use std::ptr;

use rusqlite::{Connection, ffi};
use twobox_core::{Error, ErrorKind, Result};

use super::{control, opened};
use crate::shared::FileIdentity;

/// Bytes written at a time: as many as a commit of a full group, so that it waits for one of its kind at most.
const PIECE: u64 = 256 << 10;
/// Pieces of a file. Each costs a call, also where there is nothing to write; files beyond 4 GiB have larger ones.
const PIECES_MAX: u64 = 16_384;

/// Writes to the disk what checkpoints have copied into the database file at `path`, for as long as `goes_on`, without
/// making it durable: that takes a sync. Does nothing for a file that SQLite has not opened by the system's own means,
/// and where the system cannot do it.
///
/// # Errors
/// Pages could not be written. A later sync may not say so again.
pub(crate) fn write_back(connection: &Connection, path: &Path, goes_on: impl Fn() -> bool) -> Result<()> {
    let Some(descriptor) = descriptor(connection, path).filter(|descriptor| can_write_back(*descriptor))
    else {
        return Ok(());
    };
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let piece = PIECE.max(bytes.div_ceil(PIECES_MAX));
    let mut pieces = (0..bytes.div_ceil(piece)).take_while(|_| goes_on());
    pieces.try_for_each(|nth| sync_file_range(descriptor, nth * piece, piece, WRITE)).map_err(|error| {
        let attempted = format!("cannot write {} back to the disk", path.display());
        Error::new(ErrorKind::Unavailable, attempted).with_source(error)
    })
}

/// The descriptor by which a connection has the file at `path` open.
///
/// It must be this one. Errors of writing back are told once for each time that a file was opened, and those of another
/// connection are for that connection: it would sync without hearing of them.
fn descriptor(connection: &Connection, path: &Path) -> Option<c_int> {
    let (file, mut vfs) = (opened(connection).ok()?, ptr::null_mut::<ffi::sqlite3_vfs>());
    // SAFETY: the argument is one pointer, which is what this operation writes.
    unsafe { control(connection, ffi::SQLITE_FCNTL_VFS_POINTER, &raw mut vfs) }.ok()?;
    if vfs.is_null() {
        return None;
    }
    // SAFETY: a VFS is registered, and so valid, as long as a connection uses it; its name is text that ends with zero.
    // Only these two are read, because the list that it is part of may change meanwhile.
    let (name, size) = unsafe { (CStr::from_ptr((*vfs).zName), (*vfs).szOsFile) };
    let has_descriptor = usize::try_from(size).is_ok_and(|size| size >= size_of::<UnixFile>());
    if file.is_null() || !name.to_bytes().starts_with(b"unix") || !has_descriptor {
        return None;
    }
    // SAFETY: it is open, because the connection is, and SQLite has set aside `szOsFile` bytes for it and zeroed them.
    let file = unsafe { file.cast::<UnixFile>().read() };
    // Should SQLite ever lay its files out otherwise, one of these is wrong, unless chance makes the number that of
    // another connection; a test looks whose it is.
    let opened = Path::new("/proc/self/fd").join(file.descriptor.to_string());
    let is_it = ptr::eq(file.vfs, vfs) && FileIdentity::of(&opened)? == FileIdentity::of(path)?;
    is_it.then_some(file.descriptor)
}

/// How a file of SQLite's own VFS for Unix begins. It is not a part of its interface; it has begun so for many years.
#[repr(C)]
struct UnixFile {
    _methods: *const c_void,
    vfs: *mut ffi::sqlite3_vfs,
    _inode: *const c_void,
    descriptor: c_int,
}

/// Waits until the disk has taken what is to be written.
const WRITE: c_uint =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Whether the system, a sandbox and the file let us. Found out by asking for nothing, which fails for no other reason:
/// of the errors that the disk has had, any may have any number.
fn can_write_back(descriptor: c_int) -> bool {
    sync_file_range(descriptor, 0, 0, 0).is_ok()
}

fn sync_file_range(descriptor: c_int, from: u64, bytes: u64, how: c_uint) -> io::Result<()> {
    let (from, bytes) = (number(from)?, number(bytes)?);
    // SAFETY: it takes numbers, and says so if one of them is not right.
    match unsafe { libc::sync_file_range(descriptor, from, bytes, how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As wide as the system has it.
fn number<T: TryFrom<u64>>(bytes: u64) -> io::Result<T> {
    T::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsRawFd;

    use rusqlite::OpenFlags;
    use twobox_testkit::disk::Disk;

    use super::*;

    #[test]
    fn the_descriptor_is_that_of_the_connections_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("shop.db"), folder.path().join("other.db"));
        let open = |path: &Path| Connection::open(path).unwrap();
        let (connection, second, _neighbour) = (open(&path), open(&path), open(&other));
        let found = descriptor(&connection, &path).expect("this SQLite lays its files out as we think");
        let opened = std::fs::read_link(format!("/proc/self/fd/{found}")).unwrap();
        assert_eq!(opened, path.canonicalize().unwrap());
        assert_ne!(descriptor(&second, &path), Some(found), "it is the connection's own");
        assert_eq!(descriptor(&connection, &other), None, "it is the descriptor of another file");
    }

    #[test]
    fn a_file_that_is_not_the_systems_own_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::new(1), folder.path().join("shop.db"));
        let connection =
            Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), disk.name()).unwrap();
        assert_eq!(descriptor(&connection, &path), None);
        let nowhere = Connection::open_in_memory().unwrap();
        assert_eq!(descriptor(&nowhere, &path), None);
        [connection, nowhere].iter().for_each(|connection| write_back(connection, &path, || true).unwrap());
    }

    #[test]
    fn what_cannot_be_written_back_is_found_out_beforehand() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!can_write_back(reader.as_raw_fd()));
        assert!(!can_write_back(-1));
        assert!(can_write_back(tempfile::tempfile().unwrap().as_raw_fd()));
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let connection = Connection::open(&path).unwrap();
        let fill = "CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(2000000))";
        connection.execute_batch(fill).unwrap();
        let asked = Cell::new(0);
        let goes_on = || asked.replace(asked.get() + 1) < 3;
        write_back(&connection, &path, goes_on).unwrap();
        assert_eq!(asked.get(), 4, "before each of eight pieces");
    }
}
