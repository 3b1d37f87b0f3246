//! Creating and upgrading the tables of a database file.

use clap::Args;
use serde_json::json;
use twobox::{ErrorKind, Sqlite};
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::AuditEntry;

use super::failure::Failure;
use super::file::{FileOptions, actor};
use super::output::print;
use super::text::visible;
use crate::Result;
use crate::exit::Exit;

/// Options of `twobox migrate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Prints the SQL instead, for a migration tool of your own. No file is opened.
    #[arg(long, conflicts_with = "create")]
    print: bool,
    /// Makes the file if there is none.
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    file: FileOptions,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit> {
    if arguments.print {
        let sql = Sqlite::builder().prefix(arguments.file.prefix()?).migrations_sql();
        print(&sql.trim_end())?;
        return Ok(Exit::Done);
    }
    let file = arguments.file.locate()?;
    let is_missing = !file.path().exists();
    let db = if arguments.create && is_missing {
        file.open_or_make().await?
    } else {
        file.open_unmigrated().await?
    };
    let shown = visible(&file.path().display().to_string());
    match db.outbox_stats(0).await {
        Err(error) if error.kind() == ErrorKind::Schema => {
            migrate(&db, &shown).await?;
            print(&format!("{shown} has the tables of this version now"))?;
        }
        looked => {
            looked.map_err(Failure::from)?;
            print(&format!("{shown} has the tables of this version already"))?;
        }
    }
    Ok(Exit::Done)
}

/// The trail is one of the tables, so the row about it can only be written with them.
async fn migrate(db: &Sqlite, subject: &str) -> std::result::Result<(), Failure> {
    db.migrate().await?;
    let entry = AuditEntry {
        actor: actor(),
        action: "migrate".into(),
        subject: subject.into(),
        detail: json!({ "version": env!("CARGO_PKG_VERSION") }),
    };
    Ok(twobox::audited(db, &entry, async { Ok(()) }, |()| json!({})).await?)
}
