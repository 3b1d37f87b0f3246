//! The world, seed by seed, on as many threads as asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use twobox_core::BoxError;

use super::options::Options;
use super::{Report, Time};
use crate::world::{self, Kind, Tally, Violation};

/// What all threads have seen together.
#[derive(Default)]
struct Seen {
    seeds: u64,
    tally: Tally,
    violations: Vec<Violation>,
}

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    let mut options = Options::read(arguments)?;
    if let Some(seed) = options.take("--seed")? {
        options.end()?;
        let outcome = world::run(seed, &world::Options::default())?;
        eprintln!("{}", outcome.history);
        return Ok(report(1, &outcome.tally).violations(outcome.violations));
    }
    let time = Time::new(options.seconds()?);
    let next = AtomicU64::new(options.take("--first")?.unwrap_or(0));
    let threads: usize = options.take("--threads")?.unwrap_or(1);
    options.end()?;
    let seen = Mutex::new(Seen::default());
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads.max(1)).map(|_| scope.spawn(|| live(&time, &next, &seen))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "the world panicked")?)
    })?;
    let Seen { seeds, tally, violations } = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(seeds, &tally).violations(violations))
}

fn live(time: &Time, next: &AtomicU64, seen: &Mutex<Seen>) -> Result<(), String> {
    while !time.is_up() {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let outcome =
            world::run(seed, &world::Options::default()).map_err(|error| twobox_core::chain(&*error))?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.seeds += 1;
        seen.tally.add(&outcome.tally);
        seen.violations.extend(outcome.violations);
        if seen.seeds.is_multiple_of(10) {
            time.tell(&format!("{} seeds, {} power cuts", seen.seeds, seen.tally.cuts()));
        }
    }
    Ok(())
}

fn report(seeds: u64, tally: &Tally) -> Report {
    let report = Report::default().figure("seeds", seeds).figure("power cuts", tally.cuts());
    Kind::ALL.into_iter().fold(report, |report, kind| report.figure(kind.name(), tally.of(kind)))
}
