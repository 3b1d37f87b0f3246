//! Copying a database that is in use.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use twobox_core::ErrorKind;
use twobox_sqlite::{BackupOptions, Sqlite, VerifyOptions, verify};
use twobox_testkit::eventually;

use crate::fixture::{Place, close, number, place};

const CALLERS: usize = 64;
const EVER: Duration = Duration::from_secs(60);

/// Callers that place orders until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    placed: Arc<AtomicI64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn on(db: &Sqlite) -> Self {
        let (stop, placed, next) = (Arc::default(), Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(1)));
        let caller = |_| {
            let (db, stop, placed, next) =
                (db.clone(), Arc::clone(&stop), Arc::clone(&placed), Arc::<AtomicI64>::clone(&next));
            tokio::spawn(async move {
                while !AtomicBool::load(&stop, Ordering::Relaxed) {
                    place(&db, next.fetch_add(1, Ordering::Relaxed)).await.unwrap();
                    placed.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let tasks = (0..CALLERS).map(caller).collect();
        Self { stop, placed, tasks }
    }

    fn placed(&self) -> i64 {
        self.placed.load(Ordering::Relaxed)
    }

    async fn reaches(&self, orders: i64) {
        eventually("orders", EVER, async || (self.placed() >= orders).then_some(())).await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

fn small_steps() -> BackupOptions {
    BackupOptions { step_pages: NonZeroU32::new(8).unwrap(), ..BackupOptions::default() }
}

/// Fault 55: 64 callers write; the copy opens, and holds every order with its message, as of one point in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_backup_under_full_load_is_one_point_in_time() {
    let place = Place::new();
    let db = place.open().await;
    let load = Load::on(&db);
    load.reaches(500).await;
    let (backup, told) = (place.file("backup.db"), Arc::new(Mutex::new(Vec::new())));
    let telling = Arc::clone(&told);
    let options = BackupOptions {
        progress: Some(Arc::new(move |progress| telling.lock().unwrap().push(progress))),
        ..small_steps()
    };
    let before = load.placed();
    let made = db.backup(&backup, &options).await.unwrap();
    let after = load.placed();
    load.end().await;

    let verified = verify(&backup, VerifyOptions::Full).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    assert_eq!(verified.backup_at, Some(made.at));
    assert_eq!(verified.bytes, made.bytes);
    let orders = number(&backup, "SELECT count(*) FROM orders");
    assert_eq!(number(&backup, "SELECT count(*) FROM outbox_log"), orders, "an order without its message");
    assert!(orders >= before, "{orders} of what was acknowledged before it began: {before}");
    assert!(after > before, "nothing was placed meanwhile");
    let told = told.lock().unwrap();
    assert!(
        told.len() > 2 && told.windows(2).all(|pair| pair[0].pages_done < pair[1].pages_done),
        "{told:?}"
    );
    assert!(told.iter().all(|progress| progress.pages == told[0].pages), "the copying has started again");
    assert_eq!(told.last().unwrap().pages_done, told[0].pages);
    // The write-ahead log starts again once the copying no longer holds it.
    let wal_pages = number(&place.database(), "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_eq!(wal_pages, 0, "somebody still reads");
}

#[tokio::test]
async fn rf_18_a_backup_never_replaces_a_file_and_never_shows_half_of_one() {
    let place = Place::new();
    let db = place.open().await;
    crate::fixture::place(&db, 1).await.unwrap();
    let backup = place.file("backup.db");
    std::fs::write(&backup, "somebody's").unwrap();
    let refused = db.backup(&backup, &BackupOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), "somebody's");
    let nowhere = place.file("missing").join("backup.db");
    assert_eq!(db.backup(nowhere, &BackupOptions::default()).await.unwrap_err().kind(), ErrorKind::Invalid);
    // What an attempt that died has left is no obstacle.
    std::fs::write(place.file("second.db.partial"), "half").unwrap();
    db.backup(place.file("second.db"), &BackupOptions::default()).await.unwrap();
    assert!(!place.files().iter().any(|name| name.contains("partial")), "{:?}", place.files());
    let unsound = verify(place.file("second.db"), VerifyOptions::Quick).unwrap().findings;
    assert!(unsound.is_empty(), "{unsound:?}");
}

/// Whoever no longer waits for a backup has none, and nothing of it is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_backup_that_is_given_up_leaves_nothing() {
    let place = Place::new();
    let db = place.open().await;
    for order in 0..50 {
        crate::fixture::place(&db, order).await.unwrap();
    }
    let (reached, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let options = BackupOptions {
        step_pages: NonZeroU32::MIN,
        rest: 100,
        progress: Some(Arc::new(move |_| reached.send(()).unwrap_or(()))),
        ..BackupOptions::default()
    };
    let path = place.file("backup.db");
    tokio::select! {
        made = db.backup(&path, &options) => panic!("{made:?}"),
        _ = begun.recv() => {}
    }
    let gone = async || place.files().iter().all(|name| name.starts_with("shop.db")).then_some(());
    eventually("the copy is removed", EVER, gone).await;
    db.backup(&path, &BackupOptions::default()).await.unwrap();
}

/// A write-ahead log that cannot start again must not fill the disk.
#[tokio::test]
async fn rf_18_a_backup_gives_up_rather_than_let_the_log_grow_without_bound() {
    let place = Place::new();
    let db = place.open().await;
    crate::fixture::place(&db, 1).await.unwrap();
    let options = BackupOptions { wal_bytes_max: 1, ..BackupOptions::default() };
    let given_up = db.backup(place.file("backup.db"), &options).await.unwrap_err();
    assert!(given_up.is_transient() && given_up.to_string().contains("wal_bytes_max"), "{given_up}");
    assert!(place.files().iter().all(|name| name.starts_with("shop.db")), "{:?}", place.files());
}

/// The file of a log stays as long as the log ever was; what counts is what is in it.
#[tokio::test]
async fn rf_18_a_log_that_was_long_once_does_not_disturb_a_backup() {
    let place = Place::new();
    let db = place.open().await;
    for order in 0..50 {
        crate::fixture::place(&db, order).await.unwrap();
    }
    let file = || std::fs::metadata(place.file("shop.db-wal")).unwrap().len();
    let long = file();
    let foreign = Connection::open(place.file("shop.db")).unwrap();
    foreign.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    crate::fixture::place(&db, 50).await.unwrap();
    let options = BackupOptions { wal_bytes_max: long / 2, ..BackupOptions::default() };
    let made = db.backup(place.file("backup.db"), &options).await.unwrap();
    assert_eq!(file(), long);
    assert!(made.wal_bytes > 0 && made.wal_bytes < long / 2, "{} of {long}", made.wal_bytes);
}

/// A backup must not keep the store from recovering, or from closing: it would be taken for another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s14_a_backup_ends_when_the_store_closes() {
    let place = Place::new();
    let db = place.open().await;
    for order in 0..50 {
        crate::fixture::place(&db, order).await.unwrap();
    }
    let (reached, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let options = BackupOptions {
        step_pages: NonZeroU32::MIN,
        rest: 20,
        progress: Some(Arc::new(move |_| reached.send(()).unwrap_or(()))),
        ..BackupOptions::default()
    };
    let backup = place.file("backup.db");
    let copying = Box::pin({
        let db = db.clone();
        async move { db.backup(backup, &options).await }
    });
    let mut copying = tokio::spawn(copying);
    begun.recv().await.unwrap();
    let second = db.backup(place.file("second.db"), &BackupOptions::default()).await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy, "one at a time: {second}");
    copying.abort();
    let _: Result<_, _> = (&mut copying).await;
    close(db).await;
}
