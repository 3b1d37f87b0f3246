//! A database file that a command acts on directly. It is never made, and never migrated, by accident.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use twobox::{ErrorKind, Prefix, Sqlite, Twobox};
use twobox_core::ports::OpsStore as _;

use super::failure::Failure;
use super::text::visible;
use crate::admin::Direct;
use crate::config::{Config, Options};
use crate::exit::Exit;
use crate::node::Node;

/// Every SQLite file begins with this.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// What a service is called whose boxes are empty, so that nothing in them says whose they are.
const UNNAMED: &str = "unnamed";

/// Which file, as a whole.
#[derive(Clone, Debug, Args)]
pub(crate) struct WholeFile {
    /// The configuration of the node. Default: $TWOBOX_CONFIG, or twobox.toml in the working directory if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database file. Default: that of the configuration.
    #[arg(long, value_name = "FILE")]
    database: Option<String>,
}

/// Which file, and which boxes in it.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileOptions {
    #[command(flatten)]
    whole: WholeFile,
    /// The prefix of the tables in it.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

/// A file that is to be opened.
#[derive(Debug)]
pub(super) struct TheFile {
    pub(super) config: Config,
    prefix: Prefix,
}

impl WholeFile {
    /// Where it is.
    pub(super) fn path(&self) -> crate::Result<PathBuf> {
        Ok(self.load()?.node.database.into())
    }

    /// The configuration that names it. Only what the command line does not say is looked up.
    fn load(&self) -> crate::Result<Config> {
        match (&self.config, &self.database) {
            (None, Some(database)) => {
                let mut config = Config::default();
                config.node.database.clone_from(database);
                Ok(config)
            }
            (config, database) => Ok(Options::of(config.clone(), database.clone()).load_unchecked()?.config),
        }
    }
}

impl FileOptions {
    /// The file that is meant.
    pub(super) fn locate(&self) -> crate::Result<TheFile> {
        Ok(TheFile { config: self.whole.load()?, prefix: self.prefix()? })
    }

    /// The API, on the file.
    pub(super) async fn direct(&self, name: Option<&str>) -> crate::Result<Direct> {
        let file = self.locate()?;
        let db = file.open().await?;
        Ok(Direct::new(file.node(&db, name).await?, &actor()))
    }

    /// The prefix of the tables.
    pub(super) fn prefix(&self) -> Result<Prefix, Failure> {
        Ok(Prefix::new(&self.prefix)?)
    }
}

impl TheFile {
    pub(super) fn path(&self) -> &Path {
        Path::new(&self.config.node.database)
    }

    /// Opens a file that has boxes of this version.
    pub(super) async fn open(&self) -> Result<Sqlite, Failure> {
        let db = self.open_unmigrated().await?;
        match db.outbox_stats(0).await {
            Err(error) if error.kind() == ErrorKind::Schema => Err(Failure::usage(format!(
                "{}: see `twobox migrate --help`, and --prefix if its tables have one",
                visible(&error.chain())
            ))),
            looked => Ok(looked.map(|_| db)?),
        }
    }

    /// Opens a file whether or not it has boxes.
    pub(super) async fn open_unmigrated(&self) -> Result<Sqlite, Failure> {
        check(self.path())?;
        self.open_or_make().await
    }

    /// Opens a file, or makes one.
    pub(super) async fn open_or_make(&self) -> Result<Sqlite, Failure> {
        let builder = Sqlite::builder()
            .prefix(self.prefix.clone())
            .durability(self.config.node.durability)
            .ttl(self.config.outbox.ttl)
            // A running node has looked; whoever wants to know asks `twobox verify`.
            .check_bytes_max(0);
        Ok(builder.open(self.path()).await?)
    }

    async fn node(&self, db: &Sqlite, name: Option<&str>) -> Result<Node, Failure> {
        let config = &self.config;
        let name = match name.or(Some(config.node.name.as_str()).filter(|name| !name.is_empty())) {
            Some(name) => name.to_owned(),
            None => only_name(db).await?,
        };
        let service = Twobox::builder(&name, db)
            .relay(config.relay_options())
            .retry(config.handler_retry())
            .payload_bytes_max(config.outbox.payload_max.0)
            .build()?;
        Ok(Node::new(config, &name, db, &service)?)
    }
}

/// Refuses what is not there, and what is no database: opening it would make one of it.
fn check(path: &Path) -> Result<(), Failure> {
    let shown = visible(&path.display().to_string());
    let mut begins = [0; MAGIC.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut begins)) {
        Ok(()) if begins == MAGIC => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::usage(format!(
            "there is no file {shown}: name the database with --database, or a running node with --node"
        ))),
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            Err(Failure::new(Exit::Failed, format!("cannot read {shown}: {error}")))
        }
        _ => Err(Failure::usage(format!("{shown} is no SQLite database"))),
    }
}

/// The service whose boxes these are, if there is only one.
async fn only_name(db: &Sqlite) -> Result<String, Failure> {
    let (outbox, inbox) = (db.outbox_stats(0).await?, db.inbox_stats().await?);
    let sources = outbox.lanes.iter().map(|stats| stats.lane.source.to_string());
    let consumers = inbox.peers.iter().map(|peer| peer.consumer.to_string());
    let names: BTreeSet<String> = sources.chain(consumers).collect();
    let mut names = names.into_iter();
    match (names.next(), names.next()) {
        (None, _) => Ok(UNNAMED.into()),
        (Some(name), None) => Ok(name),
        (Some(first), Some(second)) => {
            let all: Vec<String> =
                [first, second].into_iter().chain(names).map(|name| visible(&name)).collect();
            let all = all.join(", ");
            Err(Failure::usage(format!(
                "the file has boxes of several services: name one with --name ({all})"
            )))
        }
    }
}

/// Who acts, for the audit trail.
pub(super) fn actor() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|variable| std::env::var(variable).ok());
    let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "unknown".into());
    format!("cli:{user}")
}
