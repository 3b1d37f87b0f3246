//! The demonstration: two processes, *shop* and *billing*, each with a database of its own, are killed again and
//! again while requests are in flight; then both databases are counted.

mod audit;
mod billing;
mod chance;
mod child;
mod order;
mod plan;
mod proxy;
mod report;
mod shop;
mod stage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tempfile::TempDir;

pub(crate) use self::billing::{BillingArguments, run as billing};
pub(crate) use self::shop::{ShopArguments, run as shop};
use self::stage::Stage;
use crate::{Exit, Result};

/// Options of `twobox demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// Orders that shop places, each with one message to billing.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// How often one of the two is killed with SIGKILL.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=10_000))]
    kills: u32,
    /// Decides who is killed when, and which connections are cut. Default: a new one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Most milliseconds between two faults. With 0, whoever is next is killed as soon as a request is in flight.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(..=60_000))]
    pause_max_ms: u64,
    /// Keeps the two databases and says where they are, as it does in any case if something was lost or doubled.
    #[arg(long)]
    keep: bool,
    /// Prints the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the demonstration. The exit code says whether anything was lost or doubled.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut folder = Folder::new(arguments.keep)?;
    let seed = arguments.seed.unwrap_or_else(chance::fresh_seed);
    let stage = Stage::new(folder.path(), &arguments, seed).await?;
    let result = tokio::select! {
        // First: a terminal interrupts the services as well, and that must not look like their own doing.
        biased;
        // Both services end with the stage, and a folder that is not kept goes with this function.
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            let kept = folder.kept().map(|path| format!("; the databases are in {}", path.display()));
            eprintln!("twobox: interrupted, nothing was counted{}", kept.unwrap_or_default());
            return Ok(Exit::Unfinished.into());
        }
        result = stage.play() => result?,
    };
    if !result.is_whole() {
        // A seed repeats what is done to the services, but not when: this is all the evidence there is.
        folder = folder.keep();
    }
    if arguments.json {
        println!("{:#}", report::json(&result, folder.kept()));
    } else {
        print!("{}", report::table(&result, folder.kept()));
    }
    Ok(if result.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where the databases are.
enum Folder {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn new(keep: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("twobox-demo-").tempdir()?;
        let folder = Self::Temporary(folder);
        Ok(if keep { folder.keep() } else { folder })
    }

    fn keep(self) -> Self {
        match self {
            Self::Temporary(folder) => Self::Kept(folder.keep()),
            Self::Kept(path) => Self::Kept(path),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    fn kept(&self) -> Option<&Path> {
        match self {
            Self::Kept(path) => Some(path),
            Self::Temporary(_) => None,
        }
    }
}
