//! The VFS itself: C function pointers around the machine's own VFS.
//!
//! This is the only unsafe code of the workspace. What it relies on: SQLite calls a file's methods only between a
//! successful open and its close, never two at a time for one file, with pointers that hold for the call; a file's
//! memory is `szOsFile` bytes, of which the first part is ours and the rest belongs to the VFS below.
#![allow(unsafe_code, reason = "SQLite calls a VFS through C function pointers")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use rusqlite::ffi::{
    SQLITE_IOERR, SQLITE_IOERR_DELETE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_TRUNCATE,
    SQLITE_IOERR_WRITE, SQLITE_OK, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL,
    sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
    sqlite3_vfs_unregister,
};

use super::fault::{Fault, Kind};
use super::image::{Cut, Image};
use super::record::{Mark, Name, Op, Record};
use crate::SeededRandom;

/// A disk whose power can be cut; see the [module](super).
pub struct Disk {
    name: String,
    vfs: *mut sqlite3_vfs,
    state: Arc<Mutex<State>>,
}

// SAFETY: the pointer is only used to unregister the VFS, which SQLite guards by a lock of its own.
unsafe impl Send for Disk {}
// SAFETY: as above; everything else is behind a mutex.
unsafe impl Sync for Disk {}

#[derive(Default)]
struct State {
    record: Record,
    fault: Option<Fault>,
    struck: u64,
    is_off: bool,
    /// So many more writes and syncs reach the disk.
    off_after: Option<u64>,
    chance: u64,
}

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
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// A disk of its own, over the machine's. `seed` makes SQLite's own chance repeatable.
    ///
    /// # Panics
    /// If SQLite has no VFS, which it always has on systems with files.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("twobox-disk-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let state = Arc::new(Mutex::new(State { chance: seed, ..State::default() }));
        // SAFETY: a null name asks for the default VFS, which lives as long as the process.
        let below = unsafe { sqlite3_vfs_find(ptr::null()) };
        assert!(!below.is_null(), "SQLite has a default VFS");
        let shim = Box::into_raw(Box::new(Shim { below, state: Arc::clone(&state) }));
        let c_name = CString::new(name.as_str()).expect("no zero byte in the name").into_raw();
        // SAFETY: `below` is the default VFS; reading its sizes is what shims do.
        let vfs = Box::into_raw(Box::new(unsafe { vfs(below, shim, c_name) }));
        // SAFETY: the VFS, its name and the shim are leaked, so they outlive every connection.
        let registered = unsafe { sqlite3_vfs_register(vfs, 0) };
        assert_eq!(registered, SQLITE_OK, "the VFS is registered");
        Self { name, vfs, state }
    }

    /// The name of the VFS, to open databases with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes something between two steps.
    pub fn mark(&self, text: impl Into<String>) {
        lock(&self.state).record.ops.push(Op::Mark(Mark(text.into())));
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> usize {
        lock(&self.state).record.len()
    }

    /// What was done so far.
    #[must_use]
    pub fn record(&self) -> Record {
        lock(&self.state).record.clone()
    }

    /// Lets a call fail.
    pub fn fail(&self, fault: Fault) {
        let mut state = lock(&self.state);
        state.fault = Some(fault);
        state.struck = 0;
    }

    /// How many calls have failed since [`fail`](Self::fail).
    #[must_use]
    pub fn struck(&self) -> u64 {
        lock(&self.state).struck
    }

    /// Cuts the power: nothing reaches the disk any more. Whoever still has files open gets errors.
    pub fn power_off(&self) {
        lock(&self.state).is_off = true;
    }

    /// Cuts the power once so many more writes and syncs have reached the disk: in the middle of a commit, say.
    pub fn power_off_after(&self, steps: u64) {
        lock(&self.state).off_after = Some(steps);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        lock(&self.state).is_off
    }

    /// What is on the disk if the power was cut now.
    #[must_use]
    pub fn image(&self, cut: Cut, random: &SeededRandom) -> Image {
        let state = lock(&self.state);
        state.record.image(state.record.len(), cut, random)
    }

    /// Puts the image back and switches the power on. Nobody may have files open.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn power_on(&self, image: &Image) -> io::Result<()> {
        let mut state = lock(&self.state);
        let known: Vec<Name> = state.record.files().map(str::to_owned).collect();
        for name in &known {
            remove(Path::new(name))?;
            remove(Path::new(&format!("{name}-shm")))?;
        }
        let mut base = BTreeMap::new();
        for (name, bytes) in image.files() {
            std::fs::write(name, bytes)?;
            base.insert(name.to_owned(), bytes.to_vec());
        }
        state.record = Record { base, ops: Vec::new() };
        state.is_off = false;
        state.off_after = None;
        state.fault = None;
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: it was registered by `new`. It is not freed, because a connection may still use it.
        unsafe { sqlite3_vfs_unregister(self.vfs) };
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("name", &self.name).field("steps", &self.steps()).finish_non_exhaustive()
    }
}

impl State {
    /// Whether this call is to fail, because the power is off or because it was asked for.
    fn fails(&mut self, kind: Kind) -> bool {
        if kind != Kind::Read && !self.is_off {
            self.is_off = self.off_after == Some(0);
            self.off_after = self.off_after.and_then(|steps| steps.checked_sub(1));
        }
        let strikes = self.fault.as_mut().is_some_and(|fault| fault.strikes(kind));
        self.struck += u64::from(strikes);
        strikes || (self.is_off && kind != Kind::Read)
    }

    fn drops_pages(&self) -> bool {
        !self.is_off && self.fault.is_some_and(|fault| fault.kind == Kind::SyncDroppingPages)
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
        let opened = under!(vfs, xOpen, SQLITE_IOERR, name, real(file), flags, out_flags);
        if opened != SQLITE_OK {
            return opened;
        }
        let interesting = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0;
        let name =
            (interesting && !name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        (*ours).file = Box::into_raw(Box::new(Tracked { state: Arc::clone(&shim(vfs).state), name }));
        (*ours).base.pMethods = &raw const METHODS;
        SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite's contract for xDelete.
    unsafe {
        let text = CStr::from_ptr(name).to_string_lossy().into_owned();
        let mut state = lock(&shim(vfs).state);
        if state.is_off {
            return SQLITE_IOERR_DELETE;
        }
        if state.record.files().any(|known| known == text) {
            state.record.ops.push(Op::Delete { file: text });
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

/// Salts of the write-ahead log come from here: the same seed writes the same bytes.
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
        if tracked.name.is_some() && lock(&tracked.state).fails(Kind::Read) {
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
            if state.fails(Kind::Write) {
                return SQLITE_IOERR_WRITE;
            }
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(size).unwrap_or(0));
            let offset = u64::try_from(offset).unwrap_or(0);
            state.record.ops.push(Op::Write { file: name.clone(), offset, data: bytes.to_vec() });
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
            if state.fails(Kind::Write) {
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
        if state.fails(Kind::Sync) {
            if state.drops_pages() {
                drop_pages(file, name, &mut state);
            }
            return SQLITE_IOERR_FSYNC;
        }
        // The machine's own disk needs no sync: what survives is decided here.
        state.record.ops.push(Op::Sync { file: name.clone() });
        SQLITE_OK
    }
}

/// The kernel forgets what it could not write: the file is as at its last good sync, and clean.
///
/// # Safety
/// As for `sync`.
unsafe fn drop_pages(file: *mut sqlite3_file, name: &Name, state: &mut State) {
    let image = state.record.image(state.record.len(), Cut::Lost, &SeededRandom::new(0));
    let bytes = image.files().find(|(of, _)| of == name).map(|(_, bytes)| bytes.to_vec()).unwrap_or_default();
    let length = sqlite3_int64::try_from(bytes.len()).unwrap_or(0);
    // SAFETY: the bytes live until the calls return.
    unsafe {
        below!(file, xTruncate, length);
        below!(file, xWrite, bytes.as_ptr().cast(), c_int::try_from(bytes.len()).unwrap_or(0), 0);
    }
    state.record.forget_unsynced(name);
    state.fault = None;
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
