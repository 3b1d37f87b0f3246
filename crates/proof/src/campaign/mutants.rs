//! Planted bugs: each has a harness that must find it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use twobox_core::BoxError;
use twobox_core::mutant::{Mutant, arm};

use super::{Report, progress};

/// Seeds a harness has to find a bug.
const SEEDS_MAX: u64 = 200;

/// Who hunts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harness {
    World,
    Fuzz,
    Schedules,
    /// A test by name: `cargo xtask mutants` runs it.
    Suite,
}

impl Harness {
    fn of(mutant: Mutant) -> Self {
        match mutant {
            Mutant::ConcatenatedSignature | Mutant::SourceFromHeader => Self::Fuzz,
            Mutant::WakeUpLost => Self::Schedules,
            Mutant::ClaimedAheadKept
            | Mutant::ClaimNotMade
            | Mutant::ConflictIsDuplicate
            | Mutant::FailureForgotten
            | Mutant::FirstSpeaksForAll
            | Mutant::FullLaneStopsReader
            | Mutant::HalfBodiesStay
            | Mutant::LaneKeptAfterReopen
            | Mutant::NewcomersFirst
            | Mutant::NoChangeIsSync
            | Mutant::NoFence
            | Mutant::OtherFileAccepted
            | Mutant::ParkedByClock
            | Mutant::PauseIgnored
            | Mutant::PayloadShown
            | Mutant::PoisonHidesRest
            | Mutant::ProbeNotKept
            | Mutant::PurgeByNewest
            | Mutant::QueueCrashUncharged
            | Mutant::QueueDoneRunsAgain
            | Mutant::QueueEffectApart
            | Mutant::QueueKeyIgnored
            | Mutant::QueueNoFence
            | Mutant::QueueUnstored
            | Mutant::RefusalsStay
            | Mutant::RestartAfterFailedSync
            | Mutant::SlowHoldsCallers
            | Mutant::StopUnbounded
            | Mutant::SwallowedErrorCommits
            | Mutant::WatermarkFromClock
            | Mutant::WholeBatchCharged
            | Mutant::WindowUnchecked => Self::Suite,
            _ => Self::World,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Fuzz => "fuzz",
            Self::Schedules => "schedules",
            Self::Suite => "suite",
        }
    }

    /// Whether this build has it: schedules need a build of their own.
    fn is_here(self) -> bool {
        let wants_schedules = self == Self::Schedules;
        self != Self::Suite && wants_schedules == cfg!(feature = "shuttle")
    }

    /// What it finds with this seed. A harness that breaks has found nothing.
    fn hunt(self, seed: u64) -> Result<Option<String>, BoxError> {
        catch_unwind(AssertUnwindSafe(|| self.run(seed)))
            .map_err(|_| format!("{} panicked itself, with seed {seed}", self.name()))?
    }

    /// Without a bug it finds nothing, so that what it finds with one is that one. What it needs is made by then, too.
    fn check(self) -> Result<(), BoxError> {
        match self.hunt(0)? {
            None => Ok(()),
            Some(found) => Err(format!("{} finds something without a bug: {found}", self.name()).into()),
        }
    }

    #[cfg(not(feature = "shuttle"))]
    fn run(self, seed: u64) -> Result<Option<String>, BoxError> {
        use crate::{fuzz, world};
        match self {
            Self::World => {
                let outcome = world::run(seed, &world::Options::default())?;
                Ok(outcome.violations.first().map(|violation| violation.finding.to_string()))
            }
            Self::Fuzz => {
                let tally = fuzz::mutate_run(&fuzz::SIGNATURE, seed, EXECUTIONS)?;
                Ok(tally.findings.first().map(|finding| finding.text.clone()))
            }
            Self::Schedules | Self::Suite => Err(format!("{} hunts elsewhere", self.name()).into()),
        }
    }

    #[cfg(feature = "shuttle")]
    fn run(self, seed: u64) -> Result<Option<String>, BoxError> {
        use crate::schedules::{self, Structure};
        let each = Structure::ALL.into_iter().map(|structure| schedules::run(structure, SCHEDULES, seed));
        Ok(each.filter_map(Result::err).next().map(|violation| violation.text))
    }
}

/// Executions of a fuzz target per seed.
#[cfg(not(feature = "shuttle"))]
const EXECUTIONS: u64 = 2_000;
/// Schedules of a structure per seed.
#[cfg(feature = "shuttle")]
const SCHEDULES: u64 = 500;

pub(super) fn run(names: &[String]) -> Result<Report, BoxError> {
    let mut mutants: Vec<Mutant> = Mutant::ALL.to_vec();
    let mut report = Report::default();
    if names.is_empty() {
        report.planted = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
    } else {
        let named = |name: &String| Mutant::named(name).ok_or_else(|| format!("there is no mutant {name:?}"));
        mutants = names.iter().map(named).collect::<Result<_, _>>()?;
    }
    mutants.retain(|mutant| Harness::of(*mutant).is_here());
    // Some bugs are found by a panic of a schedule; nobody wants to see it.
    std::panic::set_hook(Box::new(|_| {}));
    arm(None);
    for harness in [Harness::World, Harness::Fuzz, Harness::Schedules] {
        if mutants.iter().any(|mutant| Harness::of(*mutant) == harness) {
            harness.check()?;
        }
    }
    for (at, mutant) in mutants.iter().enumerate() {
        progress(at as f64 / mutants.len() as f64, mutant.name());
        report.mutants.push(hunt(*mutant)?);
    }
    Ok(report)
}

fn hunt(mutant: Mutant) -> Result<Value, BoxError> {
    let harness = Harness::of(mutant);
    arm(Some(mutant));
    let mut found = None;
    let mut seeds = 0;
    while found.is_none() && seeds < SEEDS_MAX {
        found = harness.hunt(seeds)?;
        seeds += 1;
    }
    arm(None);
    Ok(json!({
        "name": mutant.name(), "rule": mutant.rule(), "says": mutant.says(), "harness": harness.name(), "seeds": seeds,
        "found": found,
    }))
}
