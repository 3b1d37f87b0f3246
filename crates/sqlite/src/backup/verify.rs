//! Looking whether a database is as it must be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use twobox_core::{Error, ErrorKind, Result, Timestamp};

use super::findings::{Check, Finding, RESTORE, RULES, Rule};
use super::{BACKUP_AT, INBOX_INSTANCE, OUTBOX_INSTANCE, prefixes};
use crate::error::{kind, wrap};
use crate::sql::Sql;
use crate::{Prefix, schema};

/// One kind of finding is counted up to this.
const COUNT_MAX: usize = 1_000;
/// Places that a finding names.
const EXAMPLES_MAX: usize = 3;
/// How long a lock of somebody else is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How thoroughly a database is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyOptions {
    /// Everything: pages, and that indexes agree with their tables. Reads the whole file.
    #[default]
    Full,
    /// As above, without comparing indexes with tables: several times as fast.
    Quick,
}

/// What was found out about a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it was made, if it is a backup.
    pub backup_at: Option<Timestamp>,
    /// Table prefixes of the boxes in it, with the version of their schema.
    pub boxes: Vec<(Prefix, i64)>,
    /// What is wrong. Empty: all is as it must be.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Opens a backup, or a database that may be in use, without writing to it, and looks whether SQLite's own check
/// passes, the version of the schema is known, and every invariant of both boxes holds.
///
/// Takes as long as reading the whole file. A database in use goes on meanwhile; its write-ahead log grows until
/// this is through.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid): there is no such file. [`Unavailable`](ErrorKind::Unavailable) and others: it
/// cannot be read. What is wrong with it is no error but a [`Finding`].
pub fn verify(path: impl AsRef<Path>, options: VerifyOptions) -> Result<Verified> {
    let path = path.as_ref();
    let file = std::fs::metadata(path).map_err(|error| super::files::failed("find", path, error))?;
    let mut verified = Verified {
        path: path.into(),
        bytes: file.len(),
        backup_at: None,
        boxes: Vec::new(),
        findings: Vec::new(),
    };
    let looked = open(path).and_then(|connection| look(&connection, options, &mut verified));
    match looked {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            verified.findings.push(damaged(vec![error.chain()], 1));
            Ok(verified)
        }
        looked => looked.map(|()| verified),
    }
}

fn open(path: &Path) -> Result<Connection> {
    let attempted = format!("open {}", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(wrap(&attempted))?;
    connection.busy_timeout(PATIENCE).map_err(wrap(&attempted))?;
    Ok(connection)
}

fn look(connection: &Connection, options: VerifyOptions, verified: &mut Verified) -> Result<()> {
    // One transaction, so that everything is of the same point in time.
    connection.execute_batch("BEGIN").map_err(wrap("begin to verify"))?;
    check_pages(connection, options, &mut verified.findings)?;
    let prefixes = prefixes(connection)?;
    if prefixes.is_empty() {
        verified.findings.push(finding(
            Check::Schema,
            &Prefix::default(),
            "there are no boxes in it".into(),
            "this is no database of ours, or it was never migrated: look for the right file",
        ));
    }
    for prefix in prefixes {
        let sql = Sql::new(&prefix);
        let version = schema::version(connection, &prefix, &sql)?;
        verified.boxes.push((prefix.clone(), version));
        if let Err(error) = schema::check(version, &prefix) {
            let remedy = "use the version of this library that it belongs to, or migrate it";
            verified.findings.push(finding(Check::Schema, &prefix, error.to_string(), remedy));
            continue;
        }
        verified.backup_at = fact::<i64>(connection, &sql, BACKUP_AT)?.map(Timestamp::from_micros);
        check_instances(connection, &sql, &prefix, &mut verified.findings)?;
        for rule in RULES {
            verified.findings.extend(check_rule(connection, &sql, &prefix, rule)?);
        }
    }
    Ok(())
}

/// A small fact.
pub(super) fn fact<T: rusqlite::types::FromSql>(
    connection: &Connection,
    sql: &Sql,
    name: &str,
) -> Result<Option<T>> {
    let mut statement = connection.prepare(&sql.meta_get).map_err(wrap("read a small fact"))?;
    statement.query_row([name], |row| row.get(0)).optional().map_err(wrap("read a small fact"))
}

fn check_pages(connection: &Connection, options: VerifyOptions, findings: &mut Vec<Finding>) -> Result<()> {
    let pragma = match options {
        VerifyOptions::Full => "integrity_check",
        VerifyOptions::Quick => "quick_check",
    };
    let failed = || wrap("check the pages of the file");
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}({COUNT_MAX})")).map_err(failed())?;
    let said = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed())?;
    let mut said = said.collect::<rusqlite::Result<Vec<_>>>().map_err(failed())?;
    if said != ["ok"] {
        let count = said.len();
        said.truncate(EXAMPLES_MAX);
        findings.push(damaged(said, count));
    }
    Ok(())
}

fn damaged(examples: Vec<String>, count: usize) -> Finding {
    Finding {
        check: Check::Pages,
        prefix: String::new(),
        what: "the file is damaged".into(),
        remedy: "stop the service, keep the file, and restore a backup; look at the disk before you trust it again",
        count: u64::try_from(count).unwrap_or(u64::MAX),
        examples,
    }
}

fn finding(check: Check, prefix: &Prefix, what: String, remedy: &'static str) -> Finding {
    Finding { check, prefix: prefix.as_str().into(), what, remedy, count: 1, examples: Vec::new() }
}

fn check_instances(
    connection: &Connection,
    sql: &Sql,
    prefix: &Prefix,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for name in [OUTBOX_INSTANCE, INBOX_INSTANCE] {
        let known = match fact::<String>(connection, sql, name) {
            Ok(value) => value.is_some_and(|value| !value.is_empty()),
            Err(error) if error.kind() == ErrorKind::Undecodable => false,
            Err(error) => return Err(error),
        };
        if !known {
            findings.push(finding(Check::Instances, prefix, format!("{name} is missing"), RESTORE));
        }
    }
    Ok(())
}

fn check_rule(connection: &Connection, sql: &Sql, prefix: &Prefix, rule: &Rule) -> Result<Option<Finding>> {
    let places = places(connection, (rule.sql)(sql), prefix).map_err(|error| {
        let attempted = format!("look whether {}", rule.what);
        Error::new(kind(&error), format!("cannot {attempted}")).with_source(error)
    })?;
    if places.is_empty() {
        return Ok(None);
    }
    let mut found = finding(rule.check, prefix, rule.what.into(), rule.remedy);
    found.count = u64::try_from(places.len()).unwrap_or(u64::MAX);
    found.examples = places.into_iter().take(EXAMPLES_MAX).collect();
    Ok(Some(found))
}

fn places(connection: &Connection, sql: &str, prefix: &Prefix) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let log = format!("{}outbox_log", prefix.as_str());
    let mut rows =
        if statement.parameter_count() > 0 { statement.query([log])? } else { statement.query([])? };
    let mut places = Vec::new();
    while let Some(row) = rows.next()? {
        places.push(crate::row::lossy(row, 0)?.unwrap_or_default());
        if places.len() >= COUNT_MAX {
            break;
        }
    }
    Ok(places)
}
