//! Many workloads, and one case again.

use twobox_core::BoxError;
use twobox_sqlite::Durability;

use super::case::{Case, Violation};
use super::copies::{Syncs, check_copies};
use super::faults::{Sample, check_faults};
use super::images::{Checker, Tally};
use super::workload::{Side, Workload};

/// Variants of random cuts.
const VARIANTS: u64 = 4;

/// Per seed and kind about this many calls fail, spread over the run.
const FAULTS_PER_KIND: u64 = 8;

/// Backups and restores of every so many seeds: there are fewer ways to go wrong, and each takes longer to look at.
const COPIES_EVERY: u64 = 4;

/// Checks workloads of all sides for every seed, without faults and with some, and now and then a backup and a restore,
/// until the seeds are used up or `stop` says so. Returns what is wrong, with the command that shows it again. `on_progress` is told after every workload. Several campaigns may run at the same time on different threads.
///
/// # Errors
/// If the machine fails.
pub fn campaign(
    seeds: impl IntoIterator<Item = u64>,
    stop: &dyn Fn() -> bool,
    on_progress: &mut dyn FnMut(&Tally),
) -> Result<(Tally, Vec<String>), BoxError> {
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    let mut note = |(found, wrong): (Tally, Vec<String>)| {
        tally.add(found);
        violations.extend(wrong);
        on_progress(&tally);
    };
    let texts =
        |(tally, wrong): (Tally, Vec<Violation>)| (tally, wrong.iter().map(ToString::to_string).collect());
    for seed in seeds {
        for workload in Side::ALL.map(|side| Workload::new(side, seed)) {
            if stop() {
                return Ok((tally, violations));
            }
            let run = workload.run()?;
            let mut checker = Checker::new(workload, &run)?;
            checker.check_steps(0..=run.record.len(), VARIANTS, stop);
            note(texts(checker.finish()));
            // What the weaker durability promises holds after a fault as well.
            let weaker = seed % 2 == 1;
            let durability = if weaker { Durability::ProcessCrash } else { Durability::Full };
            let workload = Workload { durability, ..workload };
            for (kind, calls) in &run.calls {
                let every = (calls / FAULTS_PER_KIND).max(1);
                let sample = Sample { every, steps: 40, variants: 1, recovering: false };
                note(texts(check_faults(&workload, &[*kind], sample, stop)?));
            }
        }
        if seed.is_multiple_of(COPIES_EVERY) {
            note(check_copies(seed, Syncs::Right, stop)?);
        }
    }
    Ok((tally, violations))
}

/// Runs one case again.
///
/// # Errors
/// If the machine fails.
pub fn replay(case: &Case) -> Result<Vec<Violation>, BoxError> {
    let run = case.workload.run()?;
    let mut checker = Checker::new(case.workload, &run)?;
    checker.check_case(case);
    Ok(checker.finish().1)
}
