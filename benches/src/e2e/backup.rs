//! A living load between two processes while the sender's file is backed up, as a part of the rate without.

use super::Peaks;
use super::pair::{Lived, Pair, Saved};
use crate::Result;
use crate::arguments::Arguments;
use crate::enqueue::CALLERS;
use crate::lab::{self, Lab, Slice};
use crate::report::{Figure, Report, Target, Unit, thousands};
use crate::stats::median;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes of the sender's file.
    bytes: u64,
    /// Messages that are sent between two looks at its size.
    fill: u64,
    rounds: usize,
}

impl Plan {
    fn full() -> Self {
        Self { bytes: 1 << 30, fill: 200_000, rounds: 5 }
    }

    fn quick() -> Self {
        Self { bytes: 32 << 20, fill: 20_000, rounds: 3 }
    }
}

/// The same load with and without a backup.
struct Round {
    with: Slice<Saved>,
    without: Slice<Lived>,
}

pub(crate) async fn report(arguments: &Arguments) -> Result<Report> {
    let (plan, disk) = match arguments.quick {
        true => (Plan::quick(), lab::Plan::quick()),
        false => (Plan::full(), lab::Plan::full()),
    };
    let mut lab = Lab::new(arguments.dir.as_deref(), disk)?;
    let mut report = Report::new(arguments.quick);
    report.extend([measure(&mut lab, plan).await?]);
    report.raw(lab.raw_samples());
    Ok(report)
}

async fn measure(lab: &mut Lab, plan: Plan) -> Result<Figure> {
    eprintln!("backup: filling {} MiB ...", plan.bytes >> 20);
    let mut pair = Pair::start(lab)?;
    while pair.sender_bytes()? < plan.bytes {
        pair.fill(plan.fill)?;
        pair.drain()?;
    }
    pair.check()?;
    pair.start_relay()?;
    // Nobody knows yet how long a backup takes here; slices without one are to be as long.
    let mut took = pair.live_during_backup(CALLERS)?.took;
    pair.check_backup()?;
    pair.check()?;
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        eprintln!("backup: round {} of {} ...", round + 1, plan.rounds);
        // They take turns in going first.
        let (with, without) = if round % 2 == 0 {
            let without = lab.slice(async { pair.live(CALLERS, took) }).await?;
            (lab.slice(async { pair.live_during_backup(CALLERS) }).await?, without)
        } else {
            let with = lab.slice(async { pair.live_during_backup(CALLERS) }).await?;
            (with, lab.slice(async { pair.live(CALLERS, took) }).await?)
        };
        pair.check_backup()?;
        pair.check()?;
        took = with.value.took;
        rounds.push(Round { with, without });
    }
    pair.remove(&mut Peaks::default())?;
    Ok(figure(&rounds))
}

fn figure(rounds: &[Round]) -> Figure {
    let each = |of: &dyn Fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let (with, without) =
        (each(&|round| round.with.value.lived.per_second), each(&|round| round.without.value.per_second));
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let mebibytes =
        |of: fn(&Saved) -> u64| rounds.iter().map(|round| of(&round.with.value)).max().unwrap_or(0) >> 20;
    let detail = format!(
        "{} /s with, {} /s without; up to {} MiB copied in {:.1} s; log up to {} MiB",
        thousands(median(&with)),
        thousands(median(&without)),
        mebibytes(|saved| saved.bytes),
        median(&each(&|round| round.with.value.took.as_secs_f64())),
        mebibytes(|saved| saved.wal_bytes),
    );
    Figure::new("live, 64 callers, during a backup : without", median(&ratios), Unit::Times)
        .target(Target::AtLeast(0.75))
        .detail(detail)
        .samples(ratios)
        .raw(rounds.iter().flat_map(|round| round.with.samples.into_iter().chain(round.without.samples)))
}
