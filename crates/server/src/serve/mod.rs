//! `twobox serve`: a node without any code of its user's.
//!
//! It relays what any program puts into its outbox, receives for its service, and hands what arrives to the user's own
//! program by HTTP: stored and acknowledged first, then handed over until it is done or dead (external mode).

mod hand_over;
mod notify;
mod operators;
mod reload;
mod running;
mod schedule;
mod target;

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use twobox_core::one_line;

pub(crate) use self::target::{Target, escape};

use self::running::Running;
use crate::config::Options;
use crate::exit::Exit;
use crate::{Result, logging};

/// Runs a node until it is told to stop.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let (loaded, secrets) = options.load()?;
    logging::start(&loaded.config.log);
    // From here on signals are not lost, however long opening the database takes.
    let mut signals = Signals::new()?;
    let mut running = Running::start(loaded.config, secrets).await?;
    // Whoever started it may not listen, or have no room to write down what it says.
    if let Err(error) = writeln!(stdout(), "ready {running}").and_then(|()| stdout().flush()) {
        tracing::warn!(error = one_line(&error), "cannot say that the node is ready");
    }
    notify::tell("READY=1");
    loop {
        match signals.next().await {
            Asked::Stop => break,
            Asked::Reload => {
                notify::tell("RELOADING=1");
                running.reload(options);
                notify::tell("READY=1");
            }
        }
    }
    tracing::info!("stopping: finishing what is in flight");
    notify::tell("STOPPING=1");
    tokio::select! {
        finished = running.stop() => {
            if !finished {
                tracing::warn!("stopped before everything was finished: node.stop_timeout is over");
                end(Exit::Unfinished);
            }
        }
        () = signals.stop() => {
            tracing::warn!("stopped before everything was finished: asked a second time");
            end(Exit::Unfinished);
        }
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Ends at once, without waiting for threads that may be stuck.
fn end(exit: Exit) -> ! {
    std::process::exit(exit.code().into())
}

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Completes when asked to stop.
    async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}
