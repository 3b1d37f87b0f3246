//! From one process to another: a backlog, a living load, a trickle, and what a hand-written loop makes of it.
//!
//! The benchmark itself measures nothing but the disk: it starts the processes that send and receive, tells
//! them what to do line by line, and counts in both databases what has come of it.

pub(crate) mod backup;
mod cold;
pub(crate) mod compare;
mod drain;
mod history;
mod latency;
mod live;
mod low_rate;
mod naive;
mod order;
mod pair;
mod process;
mod receiver;
mod sender;
mod syncs;

use std::time::Duration;

pub(crate) use self::naive::Wire;

use crate::Result;
use crate::arguments::{Arguments, Measurement, Part};
use crate::lab::{self, Lab};
use crate::report::{Figure, Report, Target, Unit};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of drain against the naive loop.
    rounds: usize,
    /// Messages of one drain.
    drain: u64,
    /// How long a slice of the naive loop takes.
    naive: Duration,
    /// Slices of the living load.
    live_slices: usize,
    /// How long callers enqueue in one of them.
    live: Duration,
    /// Slices of the trickle.
    low_slices: usize,
    /// How long one of them takes.
    low: Duration,
    /// How long a sample of cold syncs, or of echoes, takes.
    cold: Duration,
    /// Messages that history consists of.
    history: u64,
    /// Rounds of history.
    history_rounds: usize,
}

impl Plan {
    /// A few minutes.
    fn full() -> Self {
        Self {
            rounds: 7,
            drain: 200_000,
            naive: Duration::from_secs(2),
            live_slices: 7,
            live: Duration::from_secs(2),
            low_slices: 5,
            low: Duration::from_secs(2),
            cold: Duration::from_secs(1),
            history: 2_000_000,
            history_rounds: 5,
        }
    }

    /// About a minute.
    fn quick() -> Self {
        Self {
            rounds: 3,
            drain: 50_000,
            naive: Duration::from_secs(1),
            live_slices: 3,
            live: Duration::from_secs(1),
            low_slices: 3,
            low: Duration::from_secs(1),
            cold: Duration::from_millis(500),
            history: 100_000,
            history_rounds: 3,
        }
    }
}

/// The most memory any of the processes has had, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    sender: u64,
    receiver: u64,
}

impl Peaks {
    fn figures(self) -> [Figure; 2] {
        let figure = |name, bytes: u64| {
            Figure::new(name, bytes as f64 / f64::from(1 << 20), Unit::Mebibytes)
                .target(Target::Below(200.0))
                .detail("most of all processes of this kind, over the whole run".into())
        };
        [figure("memory, sender", self.sender), figure("memory, receiver", self.receiver)]
    }
}

/// Everything, one after the other.
pub(crate) async fn report(arguments: &Arguments) -> Result<Report> {
    let (plan, disk) = match arguments.quick {
        true => (Plan::quick(), lab::Plan::quick()),
        false => (Plan::full(), lab::Plan::full()),
    };
    let mut lab = Lab::new(arguments.dir.as_deref(), disk)?;
    let (mut report, mut peaks) = (Report::new(arguments.quick), Peaks::default());
    if arguments.wants(Measurement::Drain) {
        let drained = drain::measure(&mut lab, &plan, &mut peaks).await?;
        let counted = syncs::figure(&mut lab, &plan, &drained, arguments.count_syncs)?;
        report.extend(drain::figures(&drained));
        report.extend([counted]);
    }
    if arguments.wants(Measurement::Live) {
        report.extend(live::measure(&mut lab, &plan, &mut peaks).await?);
    }
    if arguments.wants(Measurement::LowRate) {
        report.extend(low_rate::measure(&mut lab, &plan, &mut peaks).await?);
    }
    if arguments.wants(Measurement::History) {
        report.extend([history::measure(&mut lab, &plan, &mut peaks).await?]);
    }
    report.extend(peaks.figures());
    report.raw(lab.raw_samples());
    Ok(report)
}

/// Does what one of the processes does, until its standard input ends.
pub(crate) fn play(part: &Part) -> Result<()> {
    process::end_with_parent()?;
    match part {
        Part::Receiver(folder) => receiver::play(folder),
        Part::Sender(folder, address) => sender::play(folder, *address),
        Part::NaiveReceiver(wire, folder) => naive::receiver::play(*wire, folder),
        Part::NaiveSender(wire, folder, address) => naive::sender::play(*wire, folder, *address),
    }
}
