//! Designs that are known to be wrong, on the same disk and under the same cuts: a harness that finds nothing wrong with
//! them would be worth nothing. The store refuses to be used in these ways, so they are written down in plain SQL.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use twobox_core::BoxError;
use twobox_testkit::disk::Disk;

use super::images::{chance, cuts};
use super::recover::{self, put, recover};
use super::told::{DONE, Told, mark};
use super::workload::folder;

/// A design that loses or doubles something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Orders in one file, their messages in another, both in one transaction: each file commits for itself.
    AttachedFiles,
    /// Orders in one file, their messages in another, in one transaction after the other.
    TwoDatabases,
    /// The effect is committed first, then the row that says so.
    DedupLast,
    /// The row that says that there is an effect is committed first, then the effect.
    DedupFirst,
    /// As it should be: one file, one transaction. Nothing may be found.
    Right,
}

impl Control {
    /// Those in which something must be found.
    pub const WRONG: [Self; 4] = [Self::AttachedFiles, Self::TwoDatabases, Self::DedupLast, Self::DedupFirst];

    /// The statements for one message, transaction by transaction. An order is an effect, and a message is what says that
    /// there is one.
    fn transactions(self) -> &'static [&'static [&'static str]] {
        const EFFECT: &str = "INSERT INTO main.effects VALUES (?1)";
        const ROW: &str = "INSERT INTO main.rows VALUES (?1)";
        const ELSEWHERE: &str = "INSERT INTO other.rows VALUES (?1)";
        match self {
            Self::AttachedFiles => &[&[EFFECT, ELSEWHERE]],
            Self::TwoDatabases => &[&[EFFECT], &[ELSEWHERE]],
            Self::DedupLast => &[&[EFFECT], &[ROW]],
            Self::DedupFirst => &[&[ROW], &[EFFECT]],
            Self::Right => &[&[ROW, EFFECT]],
        }
    }

    fn row_table(self) -> &'static str {
        match self {
            Self::AttachedFiles | Self::TwoDatabases => "other.rows",
            Self::DedupLast | Self::DedupFirst | Self::Right => "main.rows",
        }
    }
}

/// Runs a design and checks every image of it. Returns how many there are and what is wrong with them.
///
/// # Errors
/// If the machine fails.
pub fn check_control(control: Control, seed: u64) -> Result<(u64, Vec<String>), BoxError> {
    let disk = Arc::new(Disk::new(seed));
    let work = folder()?;
    run(control, &disk, work.path())?;
    let (record, folder) = (disk.record(), folder()?);
    let (mut walk, mut told) = (record.walk(), Told::new(true));
    let (mut seen, mut wrong) = (HashSet::new(), Vec::new());
    for step in 0..=record.len() {
        walk.go_to(step);
        told.hear(&record, step);
        for (cut, variant) in cuts(2) {
            let image = walk.image(cut, &chance(seed, step, variant));
            if seen.insert((image.fingerprint(), told.acknowledged())) {
                put(&image, folder.path())?;
                let found = check(control, folder.path(), &told).err();
                wrong.extend(
                    found.map(|text| format!("{control:?} step {step} {cut} variant {variant}: {text}")),
                );
            }
        }
    }
    Ok((u64::try_from(seen.len())?, wrong))
}

const MESSAGES: usize = 6;
const FILES: [&str; 2] = ["main.db", "other.db"];

fn run(control: Control, disk: &Disk, folder: &Path) -> rusqlite::Result<()> {
    let connection = open(folder, Some(disk.name()))?;
    for n in 0..MESSAGES {
        let id = format!("m{n}");
        for statements in control.transactions() {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            statements.iter().try_for_each(|sql| connection.execute(sql, [&id]).map(drop))?;
            connection.execute_batch("COMMIT")?;
        }
        disk.mark(mark(DONE, &id));
    }
    Ok(())
}

fn open(folder: &Path, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    let [main, other] = FILES.map(|name| folder.join(name));
    let flags = OpenFlags::default();
    let connection = match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(main, flags, vfs)?,
        None => Connection::open_with_flags(main, flags)?,
    };
    connection.execute("ATTACH ?1 AS other", [other.to_string_lossy()])?;
    for schema in ["main", "other"] {
        connection.query_row(&format!("PRAGMA {schema}.journal_mode = WAL"), [], |_| Ok(()))?;
        connection.execute_batch(&format!(
            "PRAGMA {schema}.synchronous = FULL;
             CREATE TABLE IF NOT EXISTS {schema}.effects (id TEXT);
             CREATE TABLE IF NOT EXISTS {schema}.rows (id TEXT);"
        ))?;
    }
    Ok(connection)
}

/// Everything comes again: what has a row is a duplicate, the rest is done now. Then there must be one effect of each.
fn check(control: Control, folder: &Path, told: &Told) -> Result<(), String> {
    for name in FILES {
        recover(&folder.join(name))?;
        recover::check(&folder.join(name))?;
    }
    let text = |error: rusqlite::Error| error.to_string();
    let connection = open(folder, None).map_err(text)?;
    let read = |table: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(&format!("SELECT id FROM {table}"))?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let rows: BTreeSet<String> = read(control.row_table()).map_err(text)?.into_iter().collect();
    let mut effects = read("main.effects").map_err(text)?;
    if let Some(id) = told.missing(DONE, &effects.iter().cloned().collect()) {
        return Err(format!("{id} was acknowledged and is lost"));
    }
    effects.extend((0..MESSAGES).map(|n| format!("m{n}")).filter(|id| !rows.contains(id)));
    match (0..MESSAGES).map(|n| format!("m{n}")).find(|id| effects.iter().filter(|of| *of == id).count() != 1)
    {
        Some(id) => Err(format!("{id} has another number of effects than one")),
        None => Ok(()),
    }
}
