//! The VFS itself: C function pointers around the machine's own VFS.
//!
//! What its unsafe code relies on: SQLite calls a file's methods only between a successful open and its close, never
//! two at a time for one file, with pointers that hold for the call; a file's memory is `szOsFile` bytes, of which the
//! first part is ours and the rest belongs to the VFS below.
#![allow(unsafe_code, reason = "SQLite calls a VFS through C function pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::ffi::{
    SQLITE_CANTOPEN, SQLITE_FCNTL_PERSIST_WAL, SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_DELETE,
    SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_OK,
    SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_file_control,
    sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
    sqlite3_vfs_unregister,
};

use super::fault::{Call, Kind};
use super::image::Cut;
use super::record::{Name, Op};
use super::state::{State, lock};
use crate::SeededRandom;

/// A VFS that SQLite knows as long as this lives.
pub(super) struct Registered {
    name: String,
    vfs: *mut sqlite3_vfs,
}

// SAFETY: the pointer is only used to unregister the VFS, which SQLite guards by a lock of its own.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// What the VFS knows of itself.
struct Shim {
    below: *mut sqlite3_vfs,
    state: Arc<Mutex<State>>,
}

/// The part of a file's memory that is ours.
#[repr(C)]
struct Ours {
    base: sqlite3_file,
    file: *mut Tracked,
}

struct Tracked {
    state: Arc<Mutex<State>>,
    /// `None`: a temporary file, whose fate interests nobody.
    name: Option<Name>,
    /// Failed syncs of the file that whoever has opened it here has heard of.
    heard: AtomicU64,
}

impl Registered {
    /// A VFS over the machine's own that asks and tells `state`.
    pub(super) fn new(state: &Arc<Mutex<State>>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("twobox-disk-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // SAFETY: a null name asks for the default VFS, which lives as long as the process.
        let below = unsafe { sqlite3_vfs_find(ptr::null()) };
        assert!(!below.is_null(), "SQLite has a default VFS");
        let shim = Box::into_raw(Box::new(Shim { below, state: Arc::clone(state) }));
        let c_name = CString::new(name.as_str()).expect("no zero byte in the name").into_raw();
        // SAFETY: `below` is the default VFS; reading its sizes is what shims do.
        let vfs = Box::into_raw(Box::new(unsafe { vfs(below, shim, c_name) }));
        // SAFETY: the VFS, its name and the shim are leaked, so they outlive every connection.
        let registered = unsafe { sqlite3_vfs_register(vfs, 0) };
        assert_eq!(registered, SQLITE_OK, "the VFS is registered");
        Self { name, vfs }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered by `new`. It is not freed, because a connection may still use it.
        unsafe { sqlite3_vfs_unregister(self.vfs) };
    }
}

/// Lets the last connection that closes a database copy its write-ahead log into it without removing the log: a file that
/// is written again and again is cheaper than a new one each time.
pub fn keep_log(connection: &rusqlite::Connection) {
    let mut keep: c_int = 1;
    // SAFETY: the handle is open as long as the connection is borrowed, and the call reads and writes one integer.
    unsafe {
        sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            SQLITE_FCNTL_PERSIST_WAL,
            (&raw mut keep).cast(),
        );
    }
}

/// # Safety
/// `below` is a registered VFS.
unsafe fn vfs(below: *mut sqlite3_vfs, shim: *mut Shim, name: *const c_char) -> sqlite3_vfs {
    // SAFETY: by contract.
    let (size, path_max) = unsafe { ((*below).szOsFile, (*below).mxPathname) };
    let ours = c_int::try_from(size_of::<Ours>()).expect("a few bytes");
    sqlite3_vfs {
        iVersion: 2,
        szOsFile: size + ours,
        mxPathname: path_max,
        pNext: ptr::null_mut(),
        zName: name,
        pAppData: shim.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

/// # Safety
/// `vfs` is one of ours.
unsafe fn shim<'a>(vfs: *mut sqlite3_vfs) -> &'a Shim {
    // SAFETY: `pAppData` of our VFS is a leaked shim.
    unsafe { &*(*vfs).pAppData.cast::<Shim>() }
}

/// The file of the VFS below, in the same memory behind ours.
///
/// # Safety
/// `file` is the memory SQLite gave to `open`.
unsafe fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: there are `szOsFile` bytes, ours first.
    unsafe { file.cast::<u8>().add(size_of::<Ours>()).cast() }
}

/// # Safety
/// `file` was opened by `open`.
unsafe fn tracked<'a>(file: *mut sqlite3_file) -> &'a Tracked {
    // SAFETY: `open` has put it there.
    unsafe { &*(*file.cast::<Ours>()).file }
}

/// Calls a method of the file below.
macro_rules! below {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = real($file);
        match (*(*real).pMethods).$method {
            Some(method) => method(real $(, $argument)*),
            None => SQLITE_IOERR,
        }
    }};
}

/// Calls a method of the VFS below.
macro_rules! under {
    ($vfs:expr, $method:ident, $default:expr $(, $argument:expr)*) => {{
        let below = shim($vfs).below;
        match (*below).$method {
            Some(method) => method(below $(, $argument)*),
            None => $default,
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's contract for xOpen: `file` has `szOsFile` bytes, `name` holds until the file is closed.
    unsafe {
        let ours = file.cast::<Ours>();
        (*ours).base.pMethods = ptr::null();
        if lock(&shim(vfs).state).is_off {
            return SQLITE_CANTOPEN;
        }
        let opened = under!(vfs, xOpen, SQLITE_IOERR, name, real(file), flags, out_flags);
        if opened != SQLITE_OK {
            return opened;
        }
        let interesting = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0;
        let name =
            (interesting && !name.is_null()).then(|| Name::from(&*CStr::from_ptr(name).to_string_lossy()));
        let state = Arc::clone(&shim(vfs).state);
        let heard = AtomicU64::new(name.as_ref().map_or(0, |name| lock(&state).failed_syncs(name)));
        (*ours).file = Box::into_raw(Box::new(Tracked { state, name, heard }));
        (*ours).base.pMethods = &raw const METHODS;
        SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite's contract for xDelete.
    unsafe {
        let text = Name::from(&*CStr::from_ptr(name).to_string_lossy());
        let mut state = lock(&shim(vfs).state);
        if state.is_off {
            return SQLITE_IOERR_DELETE;
        }
        if state.record.files().any(|known| *known == text) {
            state.record.ops.push(Op::Delete { file: text, synced: sync_directory != 0 });
        }
        drop(state);
        under!(vfs, xDelete, SQLITE_IOERR, name, sync_directory)
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { under!(vfs, xAccess, SQLITE_IOERR, name, flags, out) }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { under!(vfs, xFullPathname, SQLITE_IOERR, name, size, out) }
}

/// Not for much: SQLite draws most of its chance, the salts of the write-ahead log for instance, from the default VFS.
unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, size: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `out` has `size` bytes.
    unsafe {
        let mut state = lock(&shim(vfs).state);
        let size = usize::try_from(size).unwrap_or(0);
        let random = SeededRandom::new(state.chance);
        for at in 0..size {
            let byte = twobox_core::Random::next_u64(&random).to_le_bytes()[0];
            out.add(at).cast::<u8>().write(byte);
        }
        state.chance = twobox_core::Random::next_u64(&random);
        c_int::try_from(size).unwrap_or(0)
    }
}

/// Nobody else uses the disk, so waiting changes nothing.
unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

unsafe extern "C" fn current_time(_: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` points to a double.
    unsafe { out.write(JULIAN_DAY) };
    SQLITE_OK
}

unsafe extern "C" fn current_time_int64(_: *mut sqlite3_vfs, out: *mut sqlite3_int64) -> c_int {
    // SAFETY: `out` points to an integer.
    unsafe { out.write(JULIAN_MILLIS) };
    SQLITE_OK
}

/// Some moment in 2026; the store has a clock of its own.
const JULIAN_DAY: f64 = 2_461_000.0;
const JULIAN_MILLIS: sqlite3_int64 = 2_461_000 * 86_400_000;

unsafe extern "C" fn last_error(vfs: *mut sqlite3_vfs, size: c_int, out: *mut c_char) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { under!(vfs, xGetLastError, 0, size, out) }
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2, // no memory-mapped reads: they would pass us by
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock_file),
    xUnlock: Some(unlock_file),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the last call for this file; what `open` leaked is taken back once.
    unsafe {
        drop(Box::from_raw((*file.cast::<Ours>()).file));
        below!(file, xClose)
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: passed on as it came.
    unsafe {
        let tracked = tracked(file);
        let failed = tracked.name.as_ref().and_then(|name| lock(&tracked.state).fails(Call::Read, name));
        if failed.is_some() {
            return SQLITE_IOERR_READ;
        }
        below!(file, xRead, out, size, offset)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: `data` has `size` bytes.
    unsafe {
        let tracked = tracked(file);
        if let Some(name) = &tracked.name {
            let mut state = lock(&tracked.state);
            let failed = state.fails(Call::Write, name);
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(size).unwrap_or(0));
            let at = u64::try_from(offset).unwrap_or(0);
            let mut written = |bytes: &[u8]| {
                state.record.ops.push(Op::Write { file: name.clone(), offset: at, data: bytes.to_vec() });
            };
            match failed {
                Some(Kind::Full) => {
                    written(&bytes[..bytes.len() / 2]);
                    below!(file, xWrite, data, size / 2, offset);
                    return SQLITE_FULL;
                }
                Some(_) => return SQLITE_IOERR_WRITE,
                None => written(bytes),
            }
        }
        below!(file, xWrite, data, size, offset)
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: passed on as it came.
    unsafe {
        let tracked = tracked(file);
        if let Some(name) = &tracked.name {
            let mut state = lock(&tracked.state);
            if state.fails(Call::Truncate, name).is_some() {
                return SQLITE_IOERR_TRUNCATE;
            }
            let length = u64::try_from(size).unwrap_or(0);
            state.record.ops.push(Op::Truncate { file: name.clone(), length });
        }
        below!(file, xTruncate, size)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: passed on as it came; the dropped pages are put back through the same file.
    unsafe {
        let tracked = tracked(file);
        let Some(name) = &tracked.name else { return below!(file, xSync, flags) };
        let mut state = lock(&tracked.state);
        if let Some(kind) = state.fails(Call::Sync, name) {
            if kind == Kind::SyncDroppingPages {
                drop_pages(file, name, &state);
            }
            tracked.heard.store(state.failed_syncs(name), Ordering::Relaxed);
            return SQLITE_IOERR_FSYNC;
        }
        // As Linux does it: whoever has the file open when a sync of it fails, in whatever process, hears of it once.
        if tracked.heard.swap(state.failed_syncs(name), Ordering::Relaxed) < state.failed_syncs(name) {
            return SQLITE_IOERR_FSYNC;
        }
        // The machine's own disk needs no sync: what survives is decided here.
        state.record.ops.push(Op::Sync { file: name.clone() });
        SQLITE_OK
    }
}

/// The kernel forgets what it could not write: what is read is as at the last good sync. The record knows already.
///
/// # Safety
/// As for `sync`.
unsafe fn drop_pages(file: *mut sqlite3_file, name: &Name, state: &State) {
    const PART: usize = 64 << 10;
    let image = state.record.image(state.record.len(), Cut::Kill, &SeededRandom::new(0));
    let bytes =
        image.files().find(|(of, _)| **of == **name).map(|(_, bytes)| bytes.to_vec()).unwrap_or_default();
    let length = |bytes: usize| sqlite3_int64::try_from(bytes).unwrap_or(0);
    // SAFETY: the bytes live until the calls return.
    unsafe {
        below!(file, xTruncate, length(bytes.len()));
        // SQLite's own VFS writes no more than 128 KiB at once.
        for (number, part) in bytes.chunks(PART).enumerate() {
            let size = c_int::try_from(part.len()).unwrap_or(0);
            below!(file, xWrite, part.as_ptr().cast(), size, length(number * PART));
        }
    }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut sqlite3_int64) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xFileSize, out) }
}

unsafe extern "C" fn lock_file(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xLock, level) }
}

unsafe extern "C" fn unlock_file(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xUnlock, level) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xCheckReservedLock, out) }
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xFileControl, op, argument) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xSectorSize) }
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xDeviceCharacteristics) }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xShmMap, page, size, extend, out) }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xShmLock, offset, count, flags) }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: passed on as it came.
    unsafe {
        let real = real(file);
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { below!(file, xShmUnmap, delete) }
}
