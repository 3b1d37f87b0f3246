//! The `twobox` program.

#[expect(dead_code, reason = "the parts that use it come next")]
mod config;
mod demo;
#[expect(dead_code, reason = "the parts that use it come next")]
mod node;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What goes wrong here is for people to read.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Reliable messaging: a transactional outbox, an idempotent inbox, no broker needed.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kills two services again and again while messages flow between them, then counts what was lost and what
    /// happened twice.
    Demo(demo::Arguments),
    /// One of the two services of the demonstration.
    #[command(hide = true)]
    DemoShop(demo::ShopArguments),
    /// The other one.
    #[command(hide = true)]
    DemoBilling(demo::BillingArguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let ended =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(run(command)));
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twobox: {}", twobox_core::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::DemoShop(arguments) => demo::shop(arguments).await.map(|()| ExitCode::SUCCESS),
        Command::DemoBilling(arguments) => demo::billing(arguments).await.map(|()| ExitCode::SUCCESS),
    }
}
