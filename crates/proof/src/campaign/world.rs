//! The world, seed by seed.

use twobox_core::BoxError;

use super::options::Options;
use super::{Report, Time};
use crate::world::{self, Kind, Tally};

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    let mut options = Options::read(arguments)?;
    if let Some(seed) = options.take("--seed")? {
        options.end()?;
        let outcome = world::run(seed, &world::Options::default())?;
        eprintln!("{}", outcome.history);
        return Ok(report(1, &outcome.tally).violations(outcome.violations));
    }
    let (given, seeds_max) = options.extent()?;
    let time = Time::new(given);
    let first: u64 = options.take("--first")?.unwrap_or(0);
    let step: usize = options.take("--every")?.unwrap_or(1);
    options.end()?;
    let (mut seeds, mut tally, mut violations) = (0, Tally::default(), Vec::new());
    for seed in (first..).step_by(step).take(seeds_max).take_while(|_| !time.is_up()) {
        let outcome = world::run(seed, &world::Options::default())?;
        seeds += 1;
        tally.add(&outcome.tally);
        violations.extend(outcome.violations);
        time.tell(&format!("{seeds} seeds, {} power cuts", tally.power_cuts()));
    }
    Ok(report(seeds, &tally).violations(violations))
}

fn report(seeds: u64, tally: &Tally) -> Report {
    let report = Report::default().figure("seeds", seeds).figure("power cuts", tally.power_cuts());
    Kind::ALL.into_iter().fold(report, |report, kind| report.figure(kind.name(), tally.of(kind)))
}
