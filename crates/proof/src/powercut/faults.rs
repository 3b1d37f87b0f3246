//! One call of the disk fails, then the power is cut.

use twobox_core::BoxError;
use twobox_testkit::disk::{Fault, Kind};

use super::case::Violation;
use super::images::{Checker, Tally};
use super::style::Chance;
use super::told::READY;
use super::workload::{Run, Workload};

/// Which of the many cases are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Every so many calls of a kind, one fails; 1 lets each of them fail in turn.
    pub every: u64,
    /// At how many steps from the fault on the power is cut; also at the end.
    pub steps: usize,
    /// How many variants there are of each random cut.
    pub variants: u64,
    /// Whether the power is also cut while the store still recovers from [`Kind::SyncKeepingPages`]. SQLite then copies a
    /// write-ahead log into the database that it can read and that is not on the disk: a power cut meanwhile leaves the
    /// one half copied and the other as it was, which is a damaged file.
    pub recovering: bool,
}

/// How many calls of each kind a workload makes, the opening of the store included.
///
/// # Errors
/// If the machine fails.
pub fn fault_calls(workload: &Workload) -> Result<Vec<(Kind, u64)>, BoxError> {
    Ok(Workload { fault: None, ..*workload }.run()?.calls)
}

/// Runs a workload again and again, each time with another call of `kinds` failing, once or thrice in a row. The run must
/// come to its end and every message to its destination; and whenever the power is cut after the fault, what was
/// acknowledged must be there.
///
/// # Errors
/// If the machine fails.
pub fn check_faults(
    workload: &Workload,
    kinds: &[Kind],
    sample: Sample,
    stop: &dyn Fn() -> bool,
) -> Result<(Tally, Vec<Violation>), BoxError> {
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    for (kind, calls) in fault_calls(workload)? {
        // Not the same ones for every seed.
        let chance = Chance::of(workload.seed, calls);
        let first = chance.below(sample.every.clamp(1, calls.max(1)));
        let wanted = (first..calls).step_by(usize::try_from(sample.every.max(1))?);
        for nth in wanted.filter(|_| kinds.contains(&kind)) {
            if stop() {
                return Ok((tally, violations));
            }
            let fault_times = if chance.one_in(3) { 3 } else { 1 };
            let faulty = Workload { fault: Some(Fault { kind, nth }), fault_times, ..*workload };
            let (found, wrong) = check_fault(&faulty, sample, stop)?;
            tally.add(found);
            violations.extend(wrong);
        }
    }
    Ok((tally, violations))
}

/// Runs a workload with its fault, and checks the images after it.
///
/// # Errors
/// If the machine fails.
pub fn check_fault(
    workload: &Workload,
    sample: Sample,
    stop: &dyn Fn() -> bool,
) -> Result<(Tally, Vec<Violation>), BoxError> {
    let run = workload.run()?;
    let mut checker = Checker::new(*workload, &run)?;
    if let Some(first) = first_step(workload, &run, sample) {
        let end = run.record.len();
        let until = first.saturating_add(sample.steps).min(end);
        checker.check_steps((first..until).chain([end]), sample.variants, stop);
    }
    Ok(checker.finish())
}

/// Where to begin: when the call failed, or when the store has recovered from it.
///
/// Not before the database was set up. SQLite may leave something that is none when calls fail while it creates a file
/// and the power is cut on top of that; nothing is lost with it.
fn first_step(workload: &Workload, run: &Run, sample: Sample) -> Option<usize> {
    let (failed, ready) = (run.record.failed()?, run.record.marked(READY)?);
    match workload.fault {
        Some(Fault { kind: Kind::SyncKeepingPages, .. }) if failed > ready && !sample.recovering => {
            // It has recovered once everything is in the database and the write-ahead log is gone for good.
            run.record.gone("-wal", failed)
        }
        _ => Some(failed.max(ready)),
    }
}
