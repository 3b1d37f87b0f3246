//! The `twobox` program.

mod admin;
mod api;
mod cli;
mod config;
mod demo;
mod exit;
mod logging;
mod manual;
mod node;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use twobox::ErrorKind;

use self::exit::Exit;

/// Every message is allocated by one thread and freed by another, which the system's allocator is slow at.
#[cfg(all(feature = "jemalloc", not(target_env = "msvc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What goes wrong here is for people to read.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Reliable messaging: a transactional outbox, an idempotent inbox, no broker needed.
#[derive(Debug, Parser)]
#[command(name = "twobox", version, after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a node: relays its outbox, receives for its service, and hands what arrives to your own program.
    ///
    /// SIGTERM and SIGINT stop it gracefully, SIGHUP makes it read keys and tokens again.
    Serve(config::Options),
    /// Checks or shows the configuration of a node.
    #[command(subcommand)]
    Config(config::Command),
    #[command(flatten)]
    Operate(cli::Command),
    /// Kills two services again and again while messages flow between them, then counts what was lost and what
    /// happened twice.
    Demo(demo::Arguments),
    /// One of the two services of the demonstration.
    #[command(hide = true)]
    DemoShop(demo::ShopArguments),
    /// The other one.
    #[command(hide = true)]
    DemoBilling(demo::BillingArguments),
    /// Prints what completes this program's commands in a shell.
    Completions(manual::CompletionsArguments),
    /// Prints the manual page, or writes the pages of all commands into a folder.
    Man(manual::ManArguments),
}

fn main() -> ExitCode {
    // What a panic says may quote a payload (S17).
    twobox::withhold_panic_messages();
    let Arguments { command } = Arguments::parse();
    let ended =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(run(command)));
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twobox: {}", twobox_core::chain(&*error));
            exit_of(&*error).into()
        }
    }
}

/// What scripts can tell a failure by.
fn exit_of(error: &(dyn std::error::Error + 'static)) -> Exit {
    let misconfigured = |error: &twobox::Error| error.kind() == ErrorKind::Misconfigured;
    match error.downcast_ref::<cli::Failure>() {
        Some(failure) => failure.exit,
        None if error.is::<config::Faults>() => Exit::Misconfigured,
        None if error.downcast_ref().is_some_and(misconfigured) => Exit::Misconfigured,
        None => Exit::Failed,
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(options) => return serve::run(&options).await,
        Command::Config(command) => config::run(&command)?,
        Command::Operate(command) => return Ok(cli::run(&command).await?.into()),
        Command::Demo(arguments) => return demo::run(arguments).await,
        Command::DemoShop(arguments) => demo::shop(arguments).await?,
        Command::DemoBilling(arguments) => demo::billing(arguments).await?,
        Command::Completions(arguments) => manual::completions(&arguments)?,
        Command::Man(arguments) => manual::man(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
