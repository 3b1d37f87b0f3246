//! The shipped program, killed until time is up.

use std::path::PathBuf;

use twobox_core::BoxError;

use super::options::Options;
use super::{Report, Time};
use crate::kills::{self, Tally};

/// Kills of one run; after it everything is healed, drained and counted.
const KILLS_PER_RUN: u32 = 400;

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    let mut options = Options::read(arguments)?;
    let time = Time::new(options.seconds()?);
    let program: Option<PathBuf> = options.take("--program")?;
    let pairs = options.take("--pairs")?.unwrap_or(PAIRS);
    let mut seed: u64 = options.take("--first")?.unwrap_or(0);
    options.end()?;
    let program = program.map_or_else(kills::twobox, Ok)?;
    let mut tally = Tally::default();
    while !time.is_up() {
        let run = kills::Options { pairs, ..kills::Options::new(program.clone(), seed, KILLS_PER_RUN) };
        tally.add(kills::run(&run)?);
        seed += 1;
        time.tell(&format!("{} kills, {} in flight", tally.kills, tally.in_flight));
    }
    Ok(Report::default()
        .figure("kills", tally.kills)
        .figure("kills with a request in flight", tally.in_flight)
        .figure("connections cut", tally.cuts)
        .figure("answers lost", tally.answers_lost)
        .figure("orders", tally.orders)
        .figure("duplicates suppressed", tally.duplicates)
        .figure("lost", tally.lost)
        .figure("doubled", tally.doubled)
        .violations(tally.violations))
}

/// Pairs of services side by side: most of a kill is waiting. Three of them kept one processor of two busy.
const PAIRS: u32 = 5;
