//! Opening connections, always with the same settings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use twobox_core::{Error, ErrorKind, Result};

use crate::error::wrap;
use crate::options::{Durability, Options};
use crate::shared::FileIdentity;
use crate::writer::{checkpoint, close_without_checkpoint};

/// The oldest SQLite without the WAL-reset bug, which can corrupt a database.
pub(crate) const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Prepared statements kept per connection: ours and a good number of the user's.
const STATEMENTS_MAX: usize = 256;

/// Everything needed to open one more connection to the same file.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    pub(crate) path: PathBuf,
    vfs: Option<String>,
    busy_timeout: Duration,
    /// Which file it is, once it exists.
    identity: Arc<OnceLock<FileIdentity>>,
}

impl Opener {
    pub(crate) fn new(path: &Path, options: &Options) -> Result<Self> {
        check_version(rusqlite::version_number())?;
        // An absolute path, so that a process that changes its directory keeps talking about the same file.
        let path = resolve(path).map_err(|error| {
            Error::invalid(format!("no such path: {}", path.display())).with_source(error)
        })?;
        let (vfs, busy_timeout) = (options.vfs.clone(), options.busy_timeout);
        Ok(Self { path, vfs, busy_timeout, identity: Arc::default() })
    }

    /// Remembers which file this is. Called once the file exists.
    pub(crate) fn remember_file(&self) {
        if self.is_plain_file()
            && let Some(identity) = FileIdentity::of(&self.path)
        {
            self.identity.get_or_init(|| identity);
        }
    }

    /// Fails if the file was removed or replaced since it was remembered (S14).
    pub(crate) fn check_file(&self) -> Result<()> {
        match self.identity.get() {
            Some(identity) if FileIdentity::of(&self.path).as_ref() != Some(identity) => Err(Error::new(
                ErrorKind::Stopped,
                format!(
                    "{} was removed or replaced while open, so nothing more is acknowledged",
                    self.path.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// What files are opened with, if not with the machine's own means.
    pub(crate) fn vfs(&self) -> Option<&str> {
        self.vfs.as_deref()
    }

    /// Whether the file is where its name says, so that it can be watched.
    pub(crate) fn is_plain_file(&self) -> bool {
        self.vfs.is_none()
    }

    /// The one connection that writes.
    pub(crate) fn writer(&self, durability: Durability) -> Result<Connection> {
        let connection = self.open()?;
        let mode = set_journal_mode(&connection, "WAL").map_err(wrap("switch the database to WAL"))?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{} cannot use WAL (journal mode is {mode}): use a local file system",
                    self.path.display()
                ),
            ));
        }
        self.refuse_read_only(&connection)?;
        // Checkpoints run when the writer says so, not inside somebody's commit.
        connection.execute_batch("PRAGMA wal_autocheckpoint = 0").map_err(wrap("set up the writer"))?;
        set_synchronous(&connection, durability)?;
        Ok(connection)
    }

    /// Fails if SQLite could open the file for reading only, which it does without a word.
    fn refuse_read_only(&self, connection: &Connection) -> Result<()> {
        if !connection.is_readonly(rusqlite::MAIN_DB).map_err(wrap("open the writer"))? {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ReadOnly,
            format!(
                "{} cannot be written: check its permissions and those of its directory",
                self.path.display()
            ),
        ))
    }

    /// Brings what is in the write-ahead log into the database file, unless somebody else has it open, who knows better.
    ///
    /// Whoever wrote the log may have ended because a sync had failed. Then pages of it may never have reached the disk
    /// although everybody can read them, and what is appended to them would be lost with them (S14).
    ///
    /// A file of up to `check_bytes_max` bytes is checked for damage before anything is written to it.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt): the file is damaged. Others are those of the copy: a sync that has failed here
    /// would not fail again, so the log must not be appended to.
    pub(crate) fn write_log_again(&self, check_bytes_max: u64) -> Result<()> {
        let is_busy = |error: &Error| error.kind() == ErrorKind::Busy;
        match self.check_and_copy(check_bytes_max) {
            Err(error) if is_busy(&error) => {}
            copied => return copied,
        }
        // Whoever else is starting is about to do the same. It is waited for, and may have failed.
        self.wait_for_others()?;
        match self.check_and_copy(check_bytes_max) {
            Err(error) if is_busy(&error) => self.check_damage(check_bytes_max),
            copied => copied,
        }
    }

    fn check_and_copy(&self, check_bytes_max: u64) -> Result<()> {
        let alone = self.alone()?;
        if self.is_checked(check_bytes_max) {
            check_damage(&alone, &self.path)?;
        }
        checkpoint(&alone, "TRUNCATE").map(drop)
    }

    /// Reads a little, which nobody can while another connection has the file for itself.
    fn wait_for_others(&self) -> Result<()> {
        let connection = self.open()?;
        let read =
            connection.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(wrap("open the database"));
        close_without_checkpoint(connection);
        read
    }

    /// A connection that cannot write.
    pub(crate) fn reader(&self) -> Result<Connection> {
        let connection = self.open()?;
        connection.execute_batch("PRAGMA query_only = ON").map_err(wrap("set up a reader"))?;
        Ok(connection)
    }

    /// A connection that has the file for itself: nobody else has it open, and nobody can use it while this lives.
    ///
    /// Found out before anything of a write-ahead log is believed. While another process has it open, SQLite takes
    /// its word for what is in the log; when nobody has, the log is read as after a crash, checksums and all.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy): somebody else has it open. [`ReadOnly`](ErrorKind::ReadOnly): it cannot be written.
    /// Nothing was written.
    pub(crate) fn alone(&self) -> Result<Connection> {
        let connection = self.connect()?;
        // Such a connection cannot have it alone: SQLite could not lock a file that it has opened for reading.
        self.refuse_read_only(&connection)?;
        let failed = || wrap("have the database alone");
        connection.busy_timeout(Duration::ZERO).map_err(failed())?;
        // Whatever comes next may fail, and what is left of a damaged database is left as it is.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed())?;
        // Before anything is read: a log that is first met in this mode is not shared.
        connection
            .query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))
            .and_then(|()| connection.execute_batch("BEGIN EXCLUSIVE; COMMIT"))
            .map_err(failed())?;
        set_synchronous(&connection, Durability::Full)?;
        set_up(&connection, &self.path)?;
        Ok(connection)
    }

    fn open(&self) -> Result<Connection> {
        let connection = self.connect()?;
        let ready = connection
            .busy_timeout(self.busy_timeout)
            .map_err(wrap("open the database"))
            .and_then(|()| set_up(&connection, &self.path));
        match ready {
            Ok(()) => Ok(connection),
            // What is left of a damaged database is left as it is.
            Err(error) => {
                close_without_checkpoint(connection);
                Err(error)
            }
        }
    }

    /// Opens the file that was remembered, and makes no new one where that has been (S14).
    fn connect(&self) -> Result<Connection> {
        self.check_file()?;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, self.identity.get().is_none());
        let attempted = format!("open {}", self.path.display());
        let connection = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str()),
            None => Connection::open_with_flags(&self.path, flags),
        }
        .map_err(wrap(&attempted))?;
        // Once more, because it may have been another one by the time it was opened; and before anything is read, because
        // the logs of both lie at the same place.
        match self.check_file() {
            Ok(()) => Ok(connection),
            Err(error) => {
                close_without_checkpoint(connection);
                Err(error)
            }
        }
    }
}

fn set_up(connection: &Connection, path: &Path) -> Result<()> {
    let attempted = format!("open {}", path.display());
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise SQLite plans a statement anew whenever another value is bound to its LIMIT.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(wrap(&attempted))?;
    connection
        .execute_batch(
            "PRAGMA cache_size = -8000; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; \
             PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;",
        )
        .map_err(wrap(&attempted))
}

/// The file itself, whatever link leads to it: its log, its doorbell and the signs of life of its owners lie beside it.
fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    if let Ok(resolved) = path.canonicalize() {
        return Ok(resolved);
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(folder)), Some(name)) => Ok(folder.join(name)),
        _ => Ok(absolute),
    }
}

/// Switches the journal mode; returns the one that is in force.
///
/// The statement is run to its end: its commit comes after its row, and a commit whose sync has failed must not go
/// unnoticed. The file would be without its header, and the next connection would delete the write-ahead log.
pub(crate) fn set_journal_mode(connection: &Connection, mode: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare(&format!("PRAGMA journal_mode = {mode}"))?;
    let mut rows = statement.query([])?;
    let in_force = rows.next()?.map(|row| row.get(0)).transpose()?;
    while rows.next()?.is_some() {}
    Ok(in_force.unwrap_or_default())
}

pub(crate) fn set_synchronous(connection: &Connection, durability: Durability) -> Result<()> {
    let pragma = match durability {
        Durability::Full => "PRAGMA synchronous = FULL",
        Durability::ProcessCrash => "PRAGMA synchronous = NORMAL",
    };
    connection.execute_batch(pragma).map_err(wrap("set the durability"))
}

fn check_version(version: i32) -> Result<()> {
    if version >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Misconfigured,
        format!(
            "SQLite {} can corrupt a database in WAL mode: link 3.51.3 or later (the bundled one is)",
            rusqlite::version()
        ),
    ))
}

impl Opener {
    /// Whether a file of this size is checked for damage.
    fn is_checked(&self, bytes_max: u64) -> bool {
        let bytes = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        (1..=bytes_max).contains(&bytes)
    }

    /// Refuses a damaged file that somebody else has open.
    fn check_damage(&self, bytes_max: u64) -> Result<()> {
        if !self.is_checked(bytes_max) {
            return Ok(());
        }
        let connection = self.open()?;
        let verdict = check_damage(&connection, &self.path);
        close_without_checkpoint(connection);
        verdict
    }
}

fn check_damage(connection: &Connection, path: &Path) -> Result<()> {
    let attempted = format!("check {}", path.display());
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(wrap(&attempted))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("{} is damaged ({verdict}): nothing was changed, restore a backup", path.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s14_an_sqlite_with_the_wal_reset_bug_is_refused() {
        assert_eq!(check_version(3_051_002).unwrap_err().kind(), ErrorKind::Misconfigured);
        check_version(SQLITE_VERSION_MIN).unwrap();
        check_version(rusqlite::version_number()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn s14_no_connection_makes_a_file_where_one_was_or_opens_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("shop.db"), folder.path().join("away.db"));
        let options = Options::default();
        let opener = Opener::new(&path, &options).unwrap();
        drop(opener.writer(Durability::Full).unwrap());
        opener.remember_file();
        let opens: [fn(&Opener) -> Result<Connection>; 3] =
            [|opener| opener.writer(Durability::Full), Opener::reader, Opener::alone];
        let all_are_refused = || {
            opens
                .iter()
                .all(|open| open(&opener).err().is_some_and(|error| error.kind() == ErrorKind::Stopped))
        };
        std::fs::rename(&path, &away).unwrap();
        assert!(all_are_refused() && !path.exists());
        std::fs::copy(&away, &path).unwrap();
        assert!(all_are_refused(), "it looks the same");
        std::fs::rename(&away, &path).unwrap();
        opens.iter().for_each(|open| drop(open(&opener).unwrap()));
    }

    fn pragma(connection: &Connection, name: &str) -> String {
        let value = connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0));
        match value.unwrap() {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rf_16_connections_are_set_up_as_asked_but_durable() {
        let directory = tempfile::tempdir().unwrap();
        let opener = Opener::new(&directory.path().join("a.db"), &Options::default()).unwrap();
        let writer = opener.writer(Durability::default()).unwrap();
        let wanted = [
            ("journal_mode", "wal"),
            ("synchronous", "2"), // FULL: NORMAL would lose acknowledged work at a power cut
            ("busy_timeout", "5000"),
            ("cache_size", "-8000"),
            ("foreign_keys", "1"),
            ("temp_store", "2"),
            ("wal_autocheckpoint", "0"),
        ];
        for (name, value) in wanted {
            assert_eq!(pragma(&writer, name), value, "{name}");
        }
        let relaxed = opener.writer(Durability::ProcessCrash).unwrap();
        assert_eq!(pragma(&relaxed, "synchronous"), "1");
        let reader = opener.reader().unwrap();
        assert!(reader.execute_batch("CREATE TABLE t (x)").is_err(), "readers cannot write");
    }

    #[tokio::test]
    async fn any_patience_can_be_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let patient = crate::Sqlite::builder().busy_timeout(Duration::MAX);
        patient.open(folder.path().join("a.db")).await.unwrap();
    }

    /// A file that a killed process has left, with a row in its log.
    #[cfg(not(feature = "shuttle"))]
    fn left_by_a_kill(path: &Path, vfs: &str, durability: Durability) -> Opener {
        let options = Options { vfs: Some(vfs.into()), ..Options::default() };
        let opener = Opener::new(path, &options).expect("a path");
        let killed = opener.writer(durability).expect("opens");
        killed.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").expect("commits");
        close_without_checkpoint(killed);
        opener
    }

    /// The kernel would say that all is well when it is asked again, and whoever appends to such a log loses it with it.
    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn s14_a_sync_that_fails_while_the_log_is_copied_at_the_start_is_not_overlooked() {
        use twobox_testkit::disk::{Disk, Fault, Kind};
        let folder = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::new(1), folder.path().join("shop.db"));
        let opener = left_by_a_kill(&path, disk.name(), Durability::ProcessCrash);
        disk.fail(Fault { kind: Kind::Sync, nth: 0 });
        assert_eq!(opener.write_log_again(0).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(disk.struck(), 1);
        let other = opener.reader().unwrap();
        let pages = |connection: &Connection| checkpoint(connection, "NOOP").unwrap().pages;
        assert!(pages(&other) > 0);
        opener.write_log_again(0).unwrap(); // somebody else has it open, who knows better
        assert!(pages(&other) > 0);
        close_without_checkpoint(other);
        opener.write_log_again(0).unwrap();
        assert!(pages(&opener.reader().unwrap()) <= 0);
    }

    /// A log that cannot be copied is read, and appended to only when it was copied after all.
    #[cfg(not(feature = "shuttle"))]
    #[tokio::test]
    async fn s14_rf_18_a_start_without_room_can_read_and_goes_on_when_there_is_some() {
        use twobox_testkit::disk::{Disk, Fault, Kind};
        let folder = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::new(1), folder.path().join("shop.db"));
        left_by_a_kill(&path, disk.name(), Durability::Full);
        disk.fail_times(Fault { kind: Kind::Full, nth: 0 }, u64::MAX);
        let db = crate::Sqlite::builder().vfs(disk.name()).open(&path).await.unwrap();
        let rows = "SELECT count(*) FROM t";
        let count = async || {
            let count = |connection: &Connection| connection.query_row(rows, [], |row| row.get::<_, i64>(0));
            db.read(move |connection, _| count(connection).map_err(wrap("count"))).await.unwrap()
        };
        assert_eq!(count().await, 1);
        let insert = async || {
            let insert = |tx: &mut crate::SqliteTx<'_>| tx.execute("INSERT INTO t VALUES (2)", []);
            db.transaction::<_, Error, _>(insert).await
        };
        assert_eq!(insert().await.unwrap_err().kind(), ErrorKind::Full);
        disk.fail_times(Fault { kind: Kind::Full, nth: u64::MAX }, 0);
        insert().await.unwrap();
        assert_eq!(count().await, 2);
    }

    /// Signs of life lie beside the file: whoever looked for them beside a link would take live owners for dead (S5).
    #[test]
    fn s5_a_link_leads_to_the_file_itself() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("shop.db"), "").unwrap();
        let (file, linked) = (folder.path().join("link.db"), folder.path().join("linked"));
        std::os::unix::fs::symlink(real.join("shop.db"), &file).unwrap();
        std::os::unix::fs::symlink(&real, &linked).unwrap();
        assert_eq!(resolve(&file).unwrap(), real.join("shop.db"));
        assert_eq!(resolve(&linked.join("new.db")).unwrap(), real.join("new.db"), "also before it exists");
    }
}
