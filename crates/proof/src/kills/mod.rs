//! Real kills: the shipped program, its two services over signed HTTP, and SIGKILL again and again.
//!
//! `twobox demo` does the work: it kills one of the two as soon as a request is in flight, or shortly after, starts it
//! again at once, cuts connections and loses answers in between, then heals everything, lets the rest arrive, and
//! counts both databases by SQL. Here several of them run side by side, because most of a kill is waiting.

mod program;
mod tally;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use twobox_core::BoxError;

pub use self::program::twobox;
pub use self::tally::Tally;

/// Orders per kill: so many that they do not run out before the last kill, however slow the machine is.
const ORDERS_PER_KILL: u64 = 30;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `twobox`; see [`twobox`].
    pub program: PathBuf,
    /// Decides who is killed after which request, and which connections are cut.
    pub seed: u64,
    /// Kills altogether.
    pub kills: u32,
    /// Pairs of services that run side by side.
    pub pairs: u32,
}

impl Options {
    /// So many kills of one pair.
    #[must_use]
    pub fn new(program: PathBuf, seed: u64, kills: u32) -> Self {
        Self { program, seed, kills, pairs: 1 }
    }

    /// The command that repeats the run of one pair.
    fn arguments(&self, pair: u32) -> Vec<String> {
        let pairs = self.pairs.max(1);
        let kills = self.kills / pairs + u32::from(pair < self.kills % pairs);
        [
            ("kills", u64::from(kills)),
            ("messages", (u64::from(kills) * ORDERS_PER_KILL).max(1)),
            ("seed", self.seed.wrapping_mul(u64::from(pairs)).wrapping_add(u64::from(pair))),
            ("pause-max-ms", 0),
        ]
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
    }
}

/// Kills as often as asked and counts. What was lost or doubled is in the tally.
///
/// # Errors
/// If the program cannot be started or says nothing that can be understood.
pub fn run(options: &Options) -> Result<Tally, BoxError> {
    let running: Vec<_> = (0..options.pairs.max(1))
        .map(|pair| {
            let (program, arguments) = (options.program.clone(), options.arguments(pair));
            thread::spawn(move || demonstrate(&program, &arguments))
        })
        .collect();
    // All of them first: whoever returned at the first error would leave the others running.
    let ended: Vec<_> = running.into_iter().map(thread::JoinHandle::join).collect();
    let mut tally = Tally::default();
    for pair in ended {
        tally.add(pair.map_err(|_| "a thread of the harness panicked")??);
    }
    Ok(tally)
}

fn demonstrate(program: &Path, arguments: &[String]) -> Result<Tally, BoxError> {
    let mut command = Command::new(program);
    command.arg("demo").arg("--json").args(arguments).stdin(Stdio::null());
    let cannot = |error| format!("cannot start {}: {error}", program.display());
    let Output { status, stdout, stderr } = command.output().map_err(cannot)?;
    let replay = format!("twobox demo {}", arguments.join(" "));
    Tally::read(&stdout, &replay).map_err(|error| {
        format!("{replay} ended with {status}: {error}\n{}", String::from_utf8_lossy(&stderr)).into()
    })
}
