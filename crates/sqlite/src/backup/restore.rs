//! Putting a backup in the place of a database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, Transaction, params};
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Clock, Error, ErrorKind, Random, Result, Timestamp, crash_point};

use super::files::{Partial, Taken, copy_durably, failed, sync_folder};
use super::verify::{VerifyOptions, fact, verify};
use super::{BACKUP_AT, INBOX_INSTANCE, OUTBOX_INSTANCE, prefixes};
use crate::connection::{Opener, set_journal_mode};
use crate::error::wrap;
use crate::options::Options;
use crate::sql::Sql;
use crate::wake::beside;
use crate::{Prefix, Sqlite, presence};

/// What is done about a database that is in the place already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is restored.
    #[default]
    Refuse,
    /// It is kept beside the restored one, under a name that says when it was replaced.
    SetAside,
}

/// How a backup is restored.
#[derive(Clone)]
pub struct RestoreOptions {
    /// What is done about a database that is there. Default: nothing is restored.
    pub existing: Existing,
    /// How thoroughly the backup is looked at first. Default: fully.
    pub verify: VerifyOptions,
    /// Name of a SQLite VFS that the database is written with. Default: SQLite's own.
    pub vfs: Option<String>,
    /// Where time comes from. Default: the machine.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from. Default: the operating system.
    pub random: Arc<dyn Random>,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            existing: Existing::default(),
            verify: VerifyOptions::default(),
            vfs: None,
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(SystemRandom::default()),
        }
    }
}

impl fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("existing", &self.existing)
            .field("verify", &self.verify)
            .field("vfs", &self.vfs)
            .finish_non_exhaustive()
    }
}

/// One time that boxes were restored from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restore {
    /// When.
    pub at: Timestamp,
    /// From which file.
    pub backup: String,
    /// When that backup was made.
    pub backup_at: Option<Timestamp>,
    /// Which outbox it was in the backup, and which it is since then.
    pub outbox: (Option<String>, String),
    /// Which inbox it was in the backup, and which it is since then.
    pub inbox: (Option<String>, String),
}

/// A database that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The database.
    pub path: PathBuf,
    /// When the backup was made.
    pub backup_at: Option<Timestamp>,
    /// The boxes in it, by their table prefix.
    pub boxes: Vec<(Prefix, Restore)>,
    /// Where the database is that was there before.
    pub set_aside: Option<PathBuf>,
}

impl Restored {
    /// What has become of messages, and what an operator does now, in words.
    #[must_use]
    pub fn meaning(&self) -> String {
        let then = self.backup_at.map_or_else(|| "the backup was made".into(), Timestamp::to_rfc3339);
        format!(
            "{path} is again as it was at {then}.\n\
             Outbox: messages enqueued since then are gone, with the rows of their transactions; receivers may have handled them. \
             What was sent since then is sent again and answered as a duplicate, as long as the receiver remembers it.\n\
             Inbox: what was handled since then is forgotten, with its effects in this file. \
             Its senders believe it done: run a resend of what was sent since {then} at each of them, before new messages flow if order matters. \
             Effects outside of this file happen again, and follow-ups are sent again under new ids.\n\
             Both boxes have a new instance, so that peers notice and warn.",
            path = self.path.display(),
        )
    }
}

/// Puts the backup in the place of the database `to`, under new instances of both boxes, so that peers can tell.
///
/// The backup is verified first and left as it is. The database appears in its place as a whole, or not at all.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt): the backup is not sound; the text says why. [`Invalid`](ErrorKind::Invalid):
/// there is a database at `to`, and it is not to be set aside. [`Busy`](ErrorKind::Busy): somebody uses it. Others:
/// a file cannot be read or written.
pub fn restore(backup: impl AsRef<Path>, to: impl AsRef<Path>, options: &RestoreOptions) -> Result<Restored> {
    let backup = backup.as_ref();
    check_backup(backup, options.verify)?;
    let opener = Opener::new(to.as_ref(), &Options { vfs: options.vfs.clone(), ..Options::default() })?;
    let to = opener.path.clone();
    if backup.canonicalize().is_ok_and(|backup| backup == to) {
        return Err(Error::invalid("the backup is the database itself: restore it to another place"));
    }
    let found = Found::at(&to);
    found.check(&to, options.existing)?;
    crash_point!("restore.verified");

    let partial = Partial::new(&to, &*options.random)?;
    std::fs::copy(backup, &partial.at).map_err(|error| failed("copy a backup to", &partial.at, error))?;
    crash_point!("restore.copied");
    let at = options.clock.now();
    let boxes = mark(&partial.at, &opener, backup, at, &*options.random)?;
    crash_point!("restore.marked");
    let set_aside = found.set_aside(&opener, at)?;
    partial.finish(found.taken(), || crash_point!("restore.synced"), || crash_point!("restore.named"))?;
    let (store, from) = (to.display().to_string(), backup.display().to_string());
    tracing::warn!(store, backup = from, "restored from a backup");
    let backup_at = boxes.iter().find_map(|(_, restore)| restore.backup_at);
    Ok(Restored { path: to, backup_at, boxes, set_aside })
}

fn check_backup(backup: &Path, options: VerifyOptions) -> Result<()> {
    let verified = verify(backup, options)?;
    let unclean = ["-wal", "-journal"].iter().map(|suffix| beside(backup, suffix));
    if let Some(beside) =
        unclean.into_iter().find(|path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0))
    {
        let text = format!(
            "{} is a database that was not closed, not a backup ({} is beside it): open and close it, or make a backup of it",
            backup.display(),
            beside.display()
        );
        return Err(Error::invalid(text));
    }
    let Some(first) = verified.findings.first() else { return Ok(()) };
    let text = format!("{} is not sound, so nothing was restored: {first}", backup.display());
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// What is in the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A database, or what is left of one.
    Something,
}

impl Found {
    fn at(to: &Path) -> Self {
        let there = [to.into(), beside(to, "-wal"), beside(to, "-journal")]
            .iter()
            .any(|path: &PathBuf| path.exists());
        if there { Self::Something } else { Self::Nothing }
    }

    fn check(self, to: &Path, existing: Existing) -> Result<()> {
        if self == Self::Nothing {
            return Ok(());
        }
        if existing == Existing::Refuse {
            return Err(exists(to));
        }
        if crate::database::is_open_here(to) || presence::is_anybody_here(to) {
            return Err(in_use(to));
        }
        Ok(())
    }

    /// What is done about a database that is there when the new one takes its place. One that came meanwhile was not
    /// set aside.
    fn taken(self) -> Taken {
        match self {
            Self::Nothing => Taken::Refuse(exists),
            Self::Something => Taken::Replace,
        }
    }

    /// Keeps what is there under another name. Until the new file takes its place, the old one stays in it.
    fn set_aside(self, opener: &Opener, at: Timestamp) -> Result<Option<PathBuf>> {
        let to = opener.path.as_path();
        if self == Self::Nothing {
            return Ok(None);
        }
        let aside = beside(to, &format!(".before-{}", at.to_rfc3339().replace(['-', ':'], "")));
        if aside.exists() {
            return Err(Error::invalid(format!("{} exists: move it away", aside.display())));
        }
        close_well(opener)?;
        if to.exists() && std::fs::hard_link(to, &aside).is_err() {
            // Not every file system has links. The copy is soon all that is left of it, also after a power cut.
            copy_durably(to, &aside).map_err(|error| failed("set a database aside as", &aside, error))?;
        }
        crash_point!("restore.set-aside");
        // What belongs to a database that could not be closed well goes with it: beside the new one it would be taken
        // for its own.
        for suffix in ["-wal", "-journal"] {
            let (from, kept) = (beside(to, suffix), beside(&aside, suffix));
            match std::fs::rename(&from, &kept) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed("set aside", &from, error));
                }
                _ => {}
            }
        }
        sync_folder(to).map_err(|error| failed("sync the folder of", to, error))?;
        Ok(Some(aside))
    }
}

fn exists(to: &Path) -> Error {
    let to = to.display();
    Error::invalid(format!("{to} exists: ask for it to be set aside, or restore to another place"))
}

fn in_use(to: &Path) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{} is in use: stop every process that has it open first", to.display()),
    )
}

/// Brings the write-ahead log of a database home, so that it is one file. One that is damaged is left as it is.
fn close_well(opener: &Opener) -> Result<()> {
    if !opener.path.exists() {
        return Ok(());
    }
    let closed = opener
        .alone()
        .and_then(|connection| set_journal_mode(&connection, "DELETE").map_err(wrap("close the database")));
    match closed {
        Err(error) if error.kind() == ErrorKind::Busy => Err(in_use(&opener.path)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
        closed => closed.map(drop),
    }
}

/// Makes the boxes in a copy others than they were in the backup.
fn mark(
    copy: &Path,
    opener: &Opener,
    backup: &Path,
    at: Timestamp,
    random: &dyn Random,
) -> Result<Vec<(Prefix, Restore)>> {
    let failed = || wrap("mark the restored database");
    let mut connection = super::copy::open(copy, opener.vfs())?;
    let prefixes = prefixes(&connection)?;
    let tx = connection.transaction().map_err(failed())?;
    let mut boxes = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        let restore = renew(&tx, &Sql::new(&prefix), backup, at, random)?;
        boxes.push((prefix, restore));
    }
    tx.commit().map_err(failed())?;
    connection.close().map_err(|(_, error)| failed()(error))?;
    Ok(boxes)
}

fn renew(
    tx: &Transaction<'_>,
    sql: &Sql,
    backup: &Path,
    at: Timestamp,
    random: &dyn Random,
) -> Result<Restore> {
    let failed = || wrap("mark the restored database");
    let fresh = || format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
    let restore = Restore {
        at,
        backup: backup.display().to_string(),
        backup_at: fact::<i64>(tx, sql, BACKUP_AT)?.map(Timestamp::from_micros),
        outbox: (fact(tx, sql, OUTBOX_INSTANCE)?, fresh()),
        inbox: (fact(tx, sql, INBOX_INSTANCE)?, fresh()),
    };
    for (name, instance) in [(OUTBOX_INSTANCE, &restore.outbox.1), (INBOX_INSTANCE, &restore.inbox.1)] {
        tx.execute(&sql.meta_put, params![name, instance]).map_err(failed())?;
    }
    tx.execute(&sql.meta_delete, [BACKUP_AT]).map_err(failed())?;
    let values = params![
        at.as_micros(),
        restore.backup,
        restore.backup_at.map(Timestamp::as_micros),
        restore.outbox.0,
        restore.inbox.0,
        restore.outbox.1,
        restore.inbox.1,
    ];
    tx.execute(&sql.insert_restore, values).map_err(failed())?;
    Ok(restore)
}

impl Sqlite {
    /// The last times these boxes were restored from a backup, newest first.
    ///
    /// # Errors
    /// The database's own.
    pub async fn restores(&self, limit: usize) -> Result<Vec<Restore>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |connection, sql| list(connection, sql, limit).map_err(wrap("list restores"))).await
    }
}

fn list(connection: &Connection, sql: &Sql, limit: i64) -> rusqlite::Result<Vec<Restore>> {
    let mut statement = connection.prepare_cached(&sql.restores)?;
    let rows = statement.query_map([limit], |row| {
        Ok(Restore {
            at: Timestamp::from_micros(row.get(0)?),
            backup: row.get(1)?,
            backup_at: row.get::<_, Option<i64>>(2)?.map(Timestamp::from_micros),
            outbox: (row.get(3)?, row.get(5)?),
            inbox: (row.get(4)?, row.get(6)?),
        })
    })?;
    rows.collect()
}
