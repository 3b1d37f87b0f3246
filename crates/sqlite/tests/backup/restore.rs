//! Putting a backup in the place of a database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use twobox_core::{Clock, ErrorKind, Timestamp};
use twobox_sqlite::{BackupOptions, Existing, RestoreOptions, VerifyOptions, restore, verify};

use crate::fixture::{Place, change, close, number, open, place, text};

const OUTBOX: &str = "SELECT value FROM twobox_meta WHERE name = 'outbox_instance'";
const INBOX: &str = "SELECT value FROM twobox_meta WHERE name = 'inbox_instance'";
const COUNT: &str = "SELECT count(*) FROM orders";

fn set_aside() -> RestoreOptions {
    RestoreOptions { existing: Existing::SetAside, ..RestoreOptions::default() }
}

/// Does something when the time is asked for: once in a restore, when the backup is copied and nothing else is done yet.
struct Meanwhile<F>(F);

impl<F: Fn() + Send + Sync + 'static> Clock for Meanwhile<F> {
    fn now(&self) -> Timestamp {
        (self.0)();
        Timestamp::default()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

fn meanwhile(doing: impl Fn() + Send + Sync + 'static) -> RestoreOptions {
    RestoreOptions { clock: Arc::new(Meanwhile(doing)), ..RestoreOptions::default() }
}

/// A database with one order, its backup, and a second order that only the database has.
async fn backed_up() -> Place {
    let folder = Place::new();
    let db = folder.open().await;
    place(&db, 1).await.unwrap();
    db.backup(folder.file("backup.db"), &BackupOptions::default()).await.unwrap();
    place(&db, 2).await.unwrap();
    close(db).await;
    folder
}

fn instances(path: &Path) -> [String; 2] {
    [text(path, OUTBOX), text(path, INBOX)]
}

#[tokio::test]
async fn rf_18_a_restored_database_is_as_old_as_its_backup_and_has_new_instances() {
    let folder = backed_up().await;
    let (backup, to) = (folder.file("backup.db"), folder.file("restored.db"));
    let bytes = std::fs::read(&backup).unwrap();
    let restored = restore(&backup, &to, &RestoreOptions::default()).unwrap();
    assert_eq!(std::fs::read(&backup).unwrap(), bytes, "the backup can be restored again");
    assert_eq!(restored.set_aside, None);
    assert_eq!(number(&to, COUNT), 1);
    let (before, after) = (instances(&backup), instances(&to));
    assert!(before[0] != after[0] && before[1] != after[1], "others could not tell");
    assert!(verify(&to, VerifyOptions::Full).unwrap().is_sound());
    for word in ["Outbox", "Inbox", "resend", "instance"] {
        assert!(restored.meaning().contains(word), "{}", restored.meaning());
    }

    let db = open(&to).await;
    let [history] = &db.restores(10).await.unwrap()[..] else { panic!("one restore") };
    assert_eq!(history.outbox, (Some(before[0].clone()), after[0].clone()));
    assert_eq!(history.inbox, (Some(before[1].clone()), after[1].clone()));
    assert_eq!((history.backup_at, history.backup_at.is_some()), (restored.backup_at, true));
    assert_eq!(history.backup, backup.display().to_string());
    // Twice restored, the history has both.
    db.backup(folder.file("later.db"), &BackupOptions::default()).await.unwrap();
    let again =
        restore(folder.file("later.db"), folder.file("again.db"), &RestoreOptions::default()).unwrap();
    let db = open(&again.path).await;
    assert_eq!(db.restores(10).await.unwrap().len(), 2);
    place(&db, 9).await.unwrap();
}

#[tokio::test]
async fn rf_18_a_database_that_exists_is_not_replaced_unless_it_is_told_to_be_set_aside() {
    let folder = backed_up().await;
    let (backup, to) = (folder.file("backup.db"), folder.database());
    let refused = restore(&backup, &to, &RestoreOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert_eq!(number(&to, COUNT), 2);
    let restored = restore(&backup, &to, &set_aside()).unwrap();
    assert_eq!(number(&to, COUNT), 1);
    let aside = restored.set_aside.unwrap();
    assert_eq!(number(&aside, COUNT), 2, "what was there is kept, with what was only in its log");
    assert!(verify(&aside, VerifyOptions::Full).unwrap().is_sound());
    let itself = restore(&backup, &backup, &set_aside()).unwrap_err();
    assert_eq!(itself.kind(), ErrorKind::Invalid, "{itself}");
}

#[tokio::test]
async fn rf_18_a_database_in_use_is_not_replaced() {
    let folder = backed_up().await;
    let (backup, to) = (folder.file("backup.db"), folder.database());
    let db = open(&to).await;
    let refused = restore(&backup, &to, &set_aside()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    place(&db, 3).await.unwrap();
    close(db).await;
    // Somebody who is not ours counts as well.
    let foreign = Connection::open(&to).unwrap();
    foreign.pragma_update(None, "journal_mode", "WAL").unwrap();
    foreign.query_row(COUNT, [], |_| Ok(())).unwrap();
    let refused = restore(&backup, &to, &set_aside()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(refused.to_string().contains("stop every process"), "{refused}");
    drop(foreign);
    assert_eq!(number(&to, COUNT), 3, "it stayed as it was");
    assert!(!folder.files().iter().any(|name| name.contains("partial")), "{:?}", folder.files());
    restore(&backup, &to, &set_aside()).unwrap();
}

#[tokio::test]
async fn rf_18_a_database_that_comes_while_a_backup_is_restored_is_not_replaced() {
    let folder = backed_up().await;
    let (backup, to) = (folder.file("backup.db"), folder.file("restored.db"));
    let theirs = to.clone();
    let options = meanwhile(move || std::fs::write(&theirs, "somebody's").unwrap());
    let refused = restore(&backup, &to, &options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("restored.db exists"), "{refused}");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "somebody's");
    assert!(!folder.files().iter().any(|name| name.contains("partial")), "{:?}", folder.files());
}

/// Somebody tidies up. An empty database would be restored, and nobody would be told.
#[tokio::test]
async fn rf_18_a_copy_that_was_removed_is_not_restored() {
    let folder = Arc::new(backed_up().await);
    let (backup, to) = (folder.file("backup.db"), folder.file("restored.db"));
    let tidied = Arc::clone(&folder);
    let options = meanwhile(move || {
        let files = tidied.files().into_iter().filter(|name| name.contains("partial"));
        files.for_each(|name| std::fs::remove_file(tidied.file(&name)).unwrap());
    });
    restore(&backup, &to, &options).unwrap_err();
    assert!(!to.exists());
}

/// The database is damaged, which is why there is a backup. It is kept, with its log: beside the new one, the log would
/// be taken for its own.
#[tokio::test]
async fn rf_18_rf_15_a_damaged_database_is_set_aside_with_its_log() {
    let folder = backed_up().await;
    let to = folder.database();
    let log = folder.file("shop.db-wal");
    std::fs::write(&to, vec![7; 20_000]).unwrap();
    std::fs::write(&log, "a log").unwrap();
    let restored = restore(folder.file("backup.db"), &to, &set_aside()).unwrap();
    assert_eq!(number(&to, COUNT), 1);
    let aside = restored.set_aside.unwrap();
    assert_eq!(std::fs::read(&aside).unwrap(), vec![7; 20_000]);
    assert_eq!(std::fs::read_to_string(format!("{}-wal", aside.display())).unwrap(), "a log");
    // Also when nothing but the log is left.
    let lost = folder.file("lost.db");
    std::fs::write(folder.file("lost.db-wal"), "a log").unwrap();
    let refused = restore(folder.file("backup.db"), &lost, &RestoreOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    restore(folder.file("backup.db"), &lost, &set_aside()).unwrap();
    assert_eq!(number(&lost, COUNT), 1);
}

#[tokio::test]
async fn rf_18_a_backup_that_is_not_sound_is_not_restored() {
    let folder = backed_up().await;
    let (backup, to) = (folder.file("backup.db"), folder.file("restored.db"));
    change(
        &backup,
        "UPDATE outbox_lanes SET cursor = 99; INSERT INTO outbox_lanes (source, destination, registered_at, cursor) VALUES ('a', 'b', 0, 99)",
    );
    let refused = restore(&backup, &to, &RestoreOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(refused.to_string().contains("cursor"), "{refused}");
    assert!(!to.exists());
    std::fs::write(&backup, "no database").unwrap();
    assert_eq!(restore(&backup, &to, &RestoreOptions::default()).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The copy of a database in use, made with `cp`, lacks what is in its log.
#[tokio::test]
async fn rf_18_what_was_copied_with_its_log_is_no_backup() {
    let folder = backed_up().await;
    let (fake, to) = (folder.file("fake.db"), folder.file("restored.db"));
    std::fs::copy(folder.file("backup.db"), &fake).unwrap();
    std::fs::write(folder.file("fake.db-wal"), "a log").unwrap();
    let refused = restore(&fake, &to, &RestoreOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(!to.exists());
}
