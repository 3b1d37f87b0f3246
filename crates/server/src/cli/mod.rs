//! Commands for operators: on a running node, or directly on a database file.

mod audit;
mod backup;
mod bench;
mod bulk;
mod confirm;
mod failure;
mod file;
mod inbox;
mod keys;
mod lanes;
mod letters;
mod list;
mod migrate;
mod outbox;
mod output;
mod place;
mod progress;
mod status;
mod text;

use clap::{Args, Subcommand};

pub(crate) use self::failure::Failure;
pub(crate) use self::output::print;
pub(crate) use self::text::thousands;

use self::place::{Place, PlaceOptions};
use crate::Result;
use crate::exit::Exit;

/// What operators can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows how a node is: both boxes in numbers, and what needs somebody.
    Status(Common),
    /// Messages that go out: lists, inspects, replays and purges them.
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// Messages that came in: lists, inspects, replays and purges them.
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// Shows the destinations that messages go to, or pauses and resumes one.
    Lanes(lanes::Arguments),
    /// Ordering keys that wait for somebody.
    #[command(subcommand)]
    Keys(keys::Command),
    /// Shows what operators did, newest first.
    Audit(audit::Arguments),
    /// Creates or upgrades the tables in a database file, or prints the SQL for it.
    Migrate(migrate::Arguments),
    #[command(flatten)]
    Backups(backup::Command),
    /// Measures how fast messages can be enqueued durably on this machine's disk.
    Bench(bench::Arguments),
}

/// Where a command acts and how it prints.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    place: PlaceOptions,
    /// Prints JSON, with the types of the API where there are any.
    #[arg(long)]
    json: bool,
}

impl Common {
    async fn open(&self) -> Result<Place> {
        self.place.open().await
    }
}

/// Does what an operator asks for.
pub(crate) async fn run(command: &Command) -> Result<Exit> {
    match command {
        Command::Status(common) => status::run(common).await,
        Command::Outbox(command) => outbox::run(command).await,
        Command::Inbox(command) => inbox::run(command).await,
        Command::Lanes(arguments) => lanes::run(arguments).await,
        Command::Keys(command) => keys::run(command).await,
        Command::Audit(arguments) => audit::run(arguments).await,
        Command::Migrate(arguments) => migrate::run(arguments).await,
        Command::Backups(command) => backup::run(command).await,
        Command::Bench(arguments) => bench::run(arguments).await,
    }
}

/// What a list that may be empty comes to.
fn found(anything: bool) -> Exit {
    if anything {
        return Exit::Done;
    }
    eprintln!("nothing matches");
    Exit::NotFound
}
