//! The living load of this program against that of another build of it, in turns.
//!
//! A machine that is shared changes its speed from minute to minute by more than most changes of the code do. Two
//! builds that are measured by turns, a third of a second each, meet the same machine.

use std::path::Path;
use std::time::Duration;

use super::Peaks;
use super::pair::{Lived, Pair};
use crate::Result;
use crate::arguments::Arguments;
use crate::enqueue::CALLERS;
use crate::lab::{self, Lab};
use crate::report::{Figure, Report, Unit, thousands};
use crate::stats::{Quartiles, median};

/// Long enough for a hundred groups, short enough that the machine is the same in both turns.
const SLICE: Duration = Duration::from_millis(300);
const ROUNDS: usize = 60;
const ROUNDS_QUICK: usize = 10;

/// What a build did in one of its turns.
#[derive(Clone, Copy, Debug)]
struct Turn {
    lived: Lived,
    /// Processor time of both processes, in microseconds per message.
    processor: f64,
}

pub(crate) fn report(other: &Path, arguments: &Arguments) -> Result<Report> {
    let (rounds, disk) = match arguments.quick {
        true => (ROUNDS_QUICK, lab::Plan::quick()),
        false => (ROUNDS, lab::Plan::full()),
    };
    let mut lab = Lab::new(arguments.dir.as_deref(), disk)?;
    let mut report = Report::new(arguments.quick);
    report.extend(figures(&measure(&mut lab, other, rounds)?));
    Ok(report)
}

/// Turns of this build and of the other one, round by round.
fn measure(lab: &mut Lab, other: &Path, rounds: usize) -> Result<Vec<[Turn; 2]>> {
    let mut pairs = [Pair::start(lab)?, Pair::of(lab, other)?];
    for pair in &mut pairs {
        pair.start_relay()?;
        turn(pair)?; // not counted: what is done for the first time takes longer
    }
    let mut turns = Vec::new();
    for round in 0..rounds {
        eprint!("\rcompare: round {} of {rounds} ...", round + 1);
        let [this, other] = &mut pairs;
        // They take turns in going first.
        turns.push(if round % 2 == 0 {
            let first = turn(this)?;
            [first, turn(other)?]
        } else {
            let first = turn(other)?;
            [turn(this)?, first]
        });
    }
    eprintln!();
    for mut pair in pairs {
        pair.check()?;
        pair.remove(&mut Peaks::default())?;
    }
    Ok(turns)
}

fn turn(pair: &mut Pair) -> Result<Turn> {
    let before = pair.processor_time()?;
    let (lived, messages) = pair.live_counted(CALLERS, SLICE)?;
    let took = pair.processor_time()?.saturating_sub(before);
    Ok(Turn { lived, processor: took.as_secs_f64() * 1e6 / messages.max(1) as f64 })
}

fn figures(turns: &[[Turn; 2]]) -> [Figure; 4] {
    let figure = |name, unit: &str, of: fn(&Turn) -> f64| {
        let each = |which: usize| turns.iter().map(|round| of(&round[which])).collect::<Vec<f64>>();
        let (this, other) = (each(0), each(1));
        let ratios: Vec<f64> = this.iter().zip(&other).map(|(this, other)| this / other).collect();
        let Quartiles { q1, median: middle, q3 } = Quartiles::of(&ratios);
        let [this, other] = [&this, &other].map(|values| thousands(median(values)));
        let detail = format!("{this} {unit} against {other} {unit}; quartiles {q1:.2} and {q3:.2}");
        Figure::new(name, middle, Unit::Times).detail(detail).samples(ratios)
    };
    [
        figure("live, 64 callers : other", "/s", |turn| turn.lived.per_second),
        figure("processor time per message : other", "us", |turn| turn.processor),
        figure("p50 handled : other", "us", |turn| turn.lived.latency.p50),
        figure("p99 handled : other", "us", |turn| turn.lived.latency.p99),
    ]
}
