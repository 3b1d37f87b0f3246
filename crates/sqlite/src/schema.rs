//! Versioned, explicit migrations (GP-1).

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::{Error, ErrorKind, Result, crash_point};

use crate::Prefix;
use crate::error::wrap;
use crate::sql::{MIGRATIONS, Sql};

const VERSION: &str = "schema_version";

/// The version this library works with.
pub(crate) fn version_wanted() -> i64 {
    i64::try_from(MIGRATIONS.len()).expect("few migrations")
}

/// The SQL that brings an empty database to the current version, for the user's own migration tool.
pub(crate) fn print(prefix: &Prefix) -> String {
    let mut text = String::new();
    for (at, (name, sql)) in MIGRATIONS.iter().enumerate() {
        text.push_str(&format!("-- {name}\n{}\n{}\n", prefix.apply(sql), stamp(prefix, at)));
    }
    text
}

fn stamp(prefix: &Prefix, at: usize) -> String {
    prefix.apply(&format!(
        "INSERT INTO /*p*/twobox_meta (name, value) VALUES ('{VERSION}', {}) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value;\n",
        at + 1
    ))
}

/// The version a database has; zero if it has no tables of ours.
pub(crate) fn version(connection: &Connection, prefix: &Prefix, sql: &Sql) -> Result<i64> {
    let table = format!("{}twobox_meta", prefix.as_str());
    let exists = connection
        .query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1", [&table], |_| Ok(()))
        .optional()
        .map_err(wrap("look for the schema"))?;
    if exists.is_none() {
        return Ok(0);
    }
    connection
        .prepare_cached(&sql.meta_get)
        .and_then(|mut statement| statement.query_row([VERSION], |row| row.get(0)).optional())
        .map(Option::unwrap_or_default)
        .map_err(wrap("read the schema version"))
}

/// Refuses a database that this library must not touch.
pub(crate) fn check(found: i64, prefix: &Prefix) -> Result<()> {
    let wanted = version_wanted();
    let remedy = match found.cmp(&wanted) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less => "call migrate() or run the printed migrations",
        std::cmp::Ordering::Greater => "a newer version of this library has migrated it; use that one",
    };
    Err(Error::new(
        ErrorKind::Schema,
        format!("schema with prefix {:?} has version {found}, not {wanted}: {remedy}", prefix.as_str()),
    ))
}

/// Runs what is missing inside the open transaction.
pub(crate) fn migrate(connection: &Connection, prefix: &Prefix, sql: &Sql) -> Result<()> {
    let found = version(connection, prefix, sql)?;
    if found > version_wanted() {
        return check(found, prefix);
    }
    let done = usize::try_from(found).unwrap_or(0);
    for (at, (name, migration)) in MIGRATIONS.iter().enumerate().skip(done) {
        crash_point!("migrate.before-version");
        let attempted =
            format!("migrate to {name}; is a table or view of that name already there? set a prefix");
        connection.execute_batch(&prefix.apply(migration)).map_err(wrap(&attempted))?;
        crash_point!("migrate.tables-made");
        connection
            .prepare(&sql.meta_put)
            .and_then(|mut statement| {
                statement.execute(params![VERSION, i64::try_from(at + 1).unwrap_or(i64::MAX)])
            })
            .map_err(wrap(&attempted))?;
        crash_point!("migrate.after-version");
    }
    Ok(())
}
