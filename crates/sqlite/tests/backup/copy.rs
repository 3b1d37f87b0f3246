//! Copying a database that is in use.

use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use rusqlite::Connection;
use tokio::task::JoinHandle;
use twobox_core::{ErrorKind, Result};
use twobox_sqlite::{BackupMade, BackupOptions, BackupProgress, Sqlite, VerifyOptions, verify};
use twobox_testkit::eventually;

use crate::fixture::{Place, close, number, open, place};

const CALLERS: usize = 64;
const EVER: Duration = Duration::from_secs(60);

/// Callers that place orders until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    placed: Arc<AtomicI64>,
    tasks: Vec<JoinHandle<()>>,
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

/// A backup that stands still after its first step, until it is let go.
struct Held {
    copying: JoinHandle<Result<BackupMade>>,
    hold: mpsc::Sender<()>,
}

impl Held {
    async fn new(db: &Sqlite, to: &Path) -> Self {
        let (reached, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let (hold, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let wait = move |_: BackupProgress| {
            reached.send(()).unwrap_or(());
            // Nothing is ever sent: it waits for as long as somebody could.
            held.lock().unwrap().recv().unwrap_or(());
        };
        let options = BackupOptions { progress: Some(Arc::new(wait)), ..small_steps() };
        let (db, to) = (db.clone(), to.to_owned());
        let copying = tokio::spawn(async move { db.backup(to, &options).await });
        begun.recv().await.unwrap();
        Self { copying, hold }
    }

    async fn let_go(self) -> Result<BackupMade> {
        drop(self.hold);
        self.copying.await.unwrap()
    }
}

/// The files in the making.
fn partials(place: &Place) -> Vec<String> {
    place.files().into_iter().filter(|name| name.contains("partial")).collect()
}

/// The orders in a backup, which must be whole.
fn orders_in(backup: &Path) -> i64 {
    let verified = verify(backup, VerifyOptions::Full).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    number(backup, "SELECT count(*) FROM orders")
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
    // What an attempt that died has left is no obstacle, and is removed when it is old.
    let left = place.file("second.db.00000000000000a1.partial");
    std::fs::write(&left, "half").unwrap();
    File::options().write(true).open(&left).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    db.backup(place.file("second.db"), &BackupOptions::default()).await.unwrap();
    assert_eq!(partials(&place), [""; 0]);
    let unsound = verify(place.file("second.db"), VerifyOptions::Quick).unwrap().findings;
    assert!(unsound.is_empty(), "{unsound:?}");
}

/// The second finds the first at work, and leaves alone what that one is making.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_second_backup_to_the_same_path_does_not_harm_the_first() {
    let folder = Place::new();
    let db = folder.open().await;
    place(&db, 1).await.unwrap();
    let path = folder.file("backup.db");
    let first = Held::new(&db, &path).await;
    let second = db.backup(&path, &BackupOptions::default()).await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy, "{second}");
    let made = first.let_go().await.unwrap();
    assert_eq!(orders_in(&path), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), made.bytes);
    assert_eq!(partials(&folder), [""; 0]);
}

/// Two databases know as little of each other as two processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_what_another_attempt_is_making_is_not_removed() {
    let folder = Place::new();
    let (db, other) = (folder.open().await, open(&folder.file("other.db")).await);
    place(&db, 1).await.unwrap();
    let path = folder.file("backup.db");
    let slow = Held::new(&db, &path).await;
    let making = partials(&folder);
    assert_eq!(making.len(), 1, "{making:?}");
    other.backup(&path, &BackupOptions::default()).await.unwrap();
    assert_eq!(orders_in(&path), 0);
    assert_eq!(partials(&folder), making, "somebody is writing it");
    std::fs::rename(&path, folder.file("other.backup.db")).unwrap();
    slow.let_go().await.unwrap();
    assert_eq!(orders_in(&path), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_file_that_comes_while_a_backup_is_made_is_not_replaced() {
    let folder = Place::new();
    let (db, other) = (folder.open().await, open(&folder.file("other.db")).await);
    place(&db, 1).await.unwrap();
    let path = folder.file("backup.db");
    let slow = Held::new(&db, &path).await;
    other.backup(&path, &BackupOptions::default()).await.unwrap();
    let refused = slow.let_go().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let text = refused.to_string();
    assert!(text.contains("backup.db exists") && text.contains("another name"), "{text}");
    assert_eq!(orders_in(&path), 0, "it is the other's");
    assert_eq!(partials(&folder), [""; 0]);
}

/// Somebody tidies up while it is copied. An empty file in the place of the copy would pass for a backup until it is
/// needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_copy_that_was_removed_is_no_backup() {
    let folder = Place::new();
    let db = folder.open().await;
    place(&db, 1).await.unwrap();
    let path = folder.file("backup.db");
    let copying = Held::new(&db, &path).await;
    partials(&folder).iter().for_each(|name| std::fs::remove_file(folder.file(name)).unwrap());
    copying.let_go().await.unwrap_err();
    assert!(!path.exists());
    assert_eq!(partials(&folder), [""; 0]);
}

/// Whoever no longer waits for a backup has none, and nothing of it is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rf_18_a_backup_that_is_given_up_leaves_nothing() {
    let place = Place::new();
    let db = place.open().await;
    for order in 0..50 {
        crate::fixture::place(&db, order).await.unwrap();
    }
    let path = place.file("backup.db");
    let copying = Held::new(&db, &path).await;
    copying.copying.abort();
    copying.copying.await.unwrap_err();
    drop(copying.hold);
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
    let copying = Held::new(&db, &place.file("backup.db")).await;
    let second = db.backup(place.file("second.db"), &BackupOptions::default()).await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy, "one at a time: {second}");
    copying.copying.abort();
    copying.copying.await.unwrap_err();
    drop(copying.hold);
    close(db).await;
}
