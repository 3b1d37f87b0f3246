//! When the file or the lock is in somebody else's hands (S14).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use twobox_core::ports::{LaneStore, LogStore};
use twobox_core::{Error, ErrorKind};
use twobox_sqlite::Sqlite;

use crate::fixture::{Place, message, say, skip, words};

async fn word(db: &Sqlite, word: &'static str) -> Result<(), Error> {
    db.transaction(move |tx| say(tx, word)).await
}

#[tokio::test]
async fn s14_a_lock_held_too_long_gives_busy_and_loses_nothing() {
    let place = Place::new();
    let db = place.open_with(Sqlite::builder().busy_timeout(Duration::from_millis(50))).await;
    word(&db, "before").await.unwrap();
    let foreign = place.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO words VALUES ('foreign')").unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let refused = db.transaction::<(), Error, _>(move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        say(tx, "refused")
    });
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(db.make_durable(1, &1).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    foreign.execute_batch("COMMIT").unwrap();
    word(&db, "after").await.unwrap();
    assert_eq!(words(&place), ["after", "before", "foreign"]);
}

#[tokio::test]
async fn s14_a_lock_released_in_time_is_waited_for() {
    let place = Place::new();
    let db = place.open().await;
    let foreign = place.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO words VALUES ('foreign')").unwrap();
    let waiting = tokio::spawn(async move { word(&db, "patient").await });
    tokio::task::yield_now().await; // it is queued by now
    foreign.execute_batch("COMMIT").unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(words(&place), ["foreign", "patient"]);
}

#[tokio::test]
async fn s14_what_is_no_place_for_a_database_is_a_typed_error() {
    let place = Place::new();
    let no_directory = place.file("missing").join("boxes.db");
    for path in [no_directory, place.file(""), PathBuf::from("/proc/version")] {
        let kind = Sqlite::open(&path).await.expect_err("it opened").kind();
        let known = [ErrorKind::ReadOnly, ErrorKind::Unavailable, ErrorKind::Corrupt];
        assert!(known.contains(&kind), "{}: {kind:?}", path.display());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn s14_a_file_that_cannot_be_written_is_a_typed_error() {
    use std::os::unix::fs::PermissionsExt;
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for (file_mode, directory_mode) in [(0o444, 0o755), (0o444, 0o555), (0o644, 0o555)] {
        let (place, copy) = (Place::new(), Place::new());
        let db = place.open().await;
        place.foreign().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        copy_file(&place.path(), &copy.path(), "");
        drop(db);
        let path = copy.path();
        let directory = path.parent().unwrap();
        allow(&path, file_mode);
        allow(directory, directory_mode);
        let bound = std::fs::File::create(directory.join("new")).is_err()
            || std::fs::File::options().append(true).open(&path).is_err();
        let opened = Sqlite::open(&path).await;
        allow(directory, 0o755);
        if !bound {
            return as_nobody("trouble::s14_a_file_that_cannot_be_written_is_a_typed_error");
        }
        let kind = opened.expect_err("it opened").kind();
        assert!([ErrorKind::ReadOnly, ErrorKind::Unavailable].contains(&kind), "{kind:?}");
    }
}

/// Permissions do not bind root, so root runs the test again as somebody whom they do.
#[cfg(unix)]
fn as_nobody(test: &str) {
    let run = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .status();
    match run.map(|status| status.code()) {
        Err(_) | Ok(None | Some(126 | 127)) => {
            skip("permissions do not bind root, who cannot be nobody here");
        }
        Ok(code) => assert_eq!(code, Some(0), "run as nobody, {test} failed"),
    }
}

/// Every file of the database that holds something, with its bytes.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let name = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let files = ["", "-wal", "-journal"].map(name).into_iter();
    let read = files.filter_map(|file| std::fs::read(&file).ok().map(|bytes| (file, bytes)));
    read.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

async fn is_refused_and_unchanged(path: &Path) {
    let before = contents(path);
    for _ in 0..2 {
        let error = Sqlite::open(path).await.expect_err("it opened");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains("nothing was changed"), "{error}");
        let after = contents(path);
        let sizes = |files: &[(PathBuf, Vec<u8>)]| -> Vec<(PathBuf, usize)> {
            files.iter().map(|(path, bytes)| (path.clone(), bytes.len())).collect()
        };
        assert_eq!(sizes(&after), sizes(&before), "files came, went, or changed their size");
        assert!(after == before, "bytes have changed");
    }
}

#[tokio::test]
async fn s14_a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let garbage: Vec<u8> = (0..20_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(place.path(), garbage).unwrap();
    is_refused_and_unchanged(&place.path()).await;
}

/// A database with some pages.
async fn fill(place: &Place) -> Sqlite {
    let db = place.open().await;
    db.transaction::<_, Error, _>(|tx| {
        (0..500).try_for_each(|n| say(tx, &format!("{n:03} {}", "filler ".repeat(20))))
    })
    .await
    .unwrap();
    db
}

/// Overwrites the beginning of every page in the second half.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let half = bytes.len() / 2 / 4096 * 4096;
    assert!(half > 4096, "the database is too small");
    bytes[half..].chunks_mut(4096).for_each(|page| page[..16].iter_mut().for_each(|byte| *byte = !*byte));
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn s14_a_damaged_database_is_refused_and_left_as_it_is() {
    let copy = damaged_copy(false).await;
    is_refused_and_unchanged(&copy.path()).await;
}

#[tokio::test]
async fn s14_so_is_one_whose_process_died_before_its_log_was_copied() {
    let copy = damaged_copy(true).await;
    is_refused_and_unchanged(&copy.path()).await;
}

async fn damaged_copy(with_log: bool) -> Place {
    let (place, copy) = (Place::new(), Place::new());
    let db = fill(&place).await;
    place.foreign().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    word(&db, "only in the log").await.unwrap();
    copy_file(&place.path(), &copy.path(), "");
    if with_log {
        copy_file(&place.path(), &copy.path(), "-wal");
    }
    damage(&copy.path());
    copy
}

/// Copies a file of a database that is in use, as a process that dies leaves it. Another process has to do that:
/// closing the file in this one would drop the locks that SQLite has on it.
fn copy_file(from: &Path, to: &Path, suffix: &str) {
    let name = |path: &Path| format!("{}{suffix}", path.display());
    let copied = std::process::Command::new("cp").args([name(from), name(to)]).status().unwrap();
    assert!(copied.success());
}

async fn is_stopped(db: &Sqlite) {
    for _ in 0..3 {
        let error = word(db, "lost").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
    }
    let inside = db.clone();
    let enqueue = db.transaction::<_, Error, _>(move |tx| inside.append(tx, &message(&inside, "m")));
    assert_eq!(enqueue.await.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(db.make_durable(1, &i64::MAX).await.unwrap_err().kind(), ErrorKind::Stopped);
}

#[cfg(unix)]
#[tokio::test]
async fn s14_nothing_is_acknowledged_once_the_file_has_vanished() {
    let place = Place::new();
    let db = place.open().await;
    word(&db, "before").await.unwrap();
    std::fs::remove_file(place.path()).unwrap();
    is_stopped(&db).await;
    drop(db);
    let db = place.open().await;
    word(&db, "anew").await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn s14_nothing_is_acknowledged_once_the_file_is_another_one() {
    let (place, other) = (Place::new(), Place::new());
    drop(other.open().await);
    let db = place.open().await;
    word(&db, "before").await.unwrap();
    std::fs::rename(other.path(), place.path()).unwrap();
    is_stopped(&db).await;
    // Also when it comes back: what was written meanwhile is lost.
    std::fs::remove_file(place.path()).unwrap();
    is_stopped(&db).await;
}

#[cfg(unix)]
#[tokio::test]
async fn s14_reading_makes_no_new_file_and_looks_into_no_other_one() {
    let (place, other) = (Place::new(), Place::new());
    drop(other.open().await);
    let db = place.open().await;
    word(&db, "before").await.unwrap();
    // The connection that reads is opened when it is first needed.
    std::fs::rename(place.path(), place.path().with_extension("away")).unwrap();
    assert_eq!(db.lanes().await.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(!place.path().exists());
    std::fs::rename(other.path(), place.path()).unwrap();
    assert_eq!(db.lanes().await.unwrap_err().kind(), ErrorKind::Stopped);
    std::fs::rename(place.path().with_extension("away"), place.path()).unwrap();
    assert_eq!(db.lanes().await.unwrap(), []);
}

/// The caller is gone when its closure runs, and every other handle as well: the closure drops the last one, on the
/// writer's own thread, in the middle of a group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s20_the_last_handle_may_be_dropped_by_a_closure() {
    let place = Place::new();
    let db = place.open().await;
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let caller = tokio::spawn(async move {
        let inside = db.clone();
        db.transaction(move |tx| {
            begun.send(()).unwrap();
            let _: Result<(), _> = gate.recv();
            inside.append(tx, &message(&inside, "m")).map(drop)
        })
        .await
    });
    has_begun.recv().await.unwrap();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    open.send(()).unwrap();
    twobox_testkit::eventually("the file is closed", Duration::from_secs(30), async || {
        let mode =
            place.foreign().query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
        mode.is_ok_and(|mode| mode == "delete").then_some(())
    })
    .await;
    assert_eq!(crate::fixture::number(&place.path(), "SELECT count(*) FROM outbox_log"), 1);
}

/// Tells on which thread it is dropped.
struct Telltale(std::sync::mpsc::Sender<Option<String>>);

impl Drop for Telltale {
    fn drop(&mut self) {
        let _: Result<(), _> = self.0.send(std::thread::current().name().map(str::to_owned));
    }
}

#[tokio::test]
async fn what_a_closure_holds_is_dropped_by_its_caller_and_not_by_the_writer() {
    let place = Place::new();
    let db = place.open().await;
    let (tell, told) = std::sync::mpsc::channel();
    for fails in [false, true] {
        let telltale = Telltale(tell.clone());
        let outcome = db.transaction(move |tx| {
            let _held = &telltale;
            if fails { Err(Error::invalid("no")) } else { say(tx, "word") }
        });
        assert_eq!(outcome.await.is_err(), fails);
        let here = std::thread::current().name().map(str::to_owned);
        assert_eq!(told.try_recv(), Ok(here), "it is dropped by the time the caller knows");
    }
}

/// Pages are damaged under a running service: it stops with a clear error, and the file stays as it is (fault 20).
#[tokio::test]
async fn s14_rf_18_a_page_that_is_damaged_while_running_stops_the_writer() {
    let place = Place::new();
    drop(fill(&place).await);
    let db = place.open().await;
    damage_in_place(&place.path());
    let damaged = contents(&place.path());
    let error = word(&db, "001 again").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&place.path().display().to_string()), "{error}");
    let error = word(&db, "another").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
    drop(db);
    assert!(contents(&place.path()) == damaged, "the damaged file was changed");
}

/// Damages a file that others have open, without closing it under them: that would drop their locks.
fn damage_in_place(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes.chunks_mut(4096).skip(1).for_each(|page| page[..16].iter_mut().for_each(|byte| *byte = !*byte));
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    std::mem::forget(file);
}
