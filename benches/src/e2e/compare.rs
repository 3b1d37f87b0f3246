//! Backlogs, the living load and the trickle of this program against those of another build of it, in turns.
//!
//! A machine that is shared changes its speed from minute to minute by more than most changes of the code do. Two
//! builds that are measured by turns, a third of a second each, meet the same machine.

use std::path::Path;
use std::time::Duration;

use super::Peaks;
use super::cold;
use super::latency::Latency;
use super::order::micros;
use super::pair::Pair;
use crate::Result;
use crate::arguments::{Arguments, Measurement};
use crate::enqueue::CALLERS;
use crate::lab::{self, Lab};
use crate::report::{Figure, Report, Unit, thousands};
use crate::stats::{Quartiles, median, per_second};

/// Long enough for a hundred groups, short enough that the machine is the same in both turns.
const SLICE: Duration = Duration::from_millis(300);
/// Messages of a trickle in one turn.
const TRICKLE: u64 = 30;
/// Messages of a backlog in one turn: about as long as a slice.
const BACKLOG: u64 = 20_000;
const ROUNDS: usize = 60;
const ROUNDS_QUICK: usize = 10;

/// What a build is to do in each of its turns.
#[derive(Clone, Copy)]
struct Load {
    /// What is done once.
    begin: fn(&mut Pair) -> Result<()>,
    /// What is done before each turn, and not measured.
    prepare: fn(&mut Pair) -> Result<()>,
    run: fn(&mut Pair) -> Result<Done>,
}

/// A backlog that was enqueued before.
const DRAIN: Load = Load { begin: |_| Ok(()), prepare: |pair| pair.fill(BACKLOG), run: drain };
/// Callers that wait for their commits.
const LIVE: Load = Load { begin: Pair::start_relay, prepare: |_| Ok(()), run: live };
/// One message every so often.
const LOW_RATE: Load = Load { begin: Pair::start_relay, prepare: |_| Ok(()), run: trickle };

/// What it did in all.
struct Done {
    messages: u64,
    per_second: f64,
    /// Of a backlog nobody waits for a message.
    latency: Option<Latency>,
}

impl Done {
    fn latency(&self, of: fn(Latency) -> f64) -> f64 {
        self.latency.map_or(f64::NAN, of)
    }
}

/// What a build did in one of its turns.
struct Turn {
    done: Done,
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
    if arguments.wants(Measurement::Drain) {
        let turns = measure(&mut lab, other, rounds, DRAIN)?;
        report.extend([
            figure("drain : other", "/s", &turns, |turn| turn.done.per_second),
            figure("drain, processor time per message : other", "us", &turns, |turn| turn.processor),
        ]);
    }
    if arguments.wants(Measurement::Live) {
        let turns = measure(&mut lab, other, rounds, LIVE)?;
        report.extend([
            figure("live, 64 callers : other", "/s", &turns, |turn| turn.done.per_second),
            figure("live, processor time per message : other", "us", &turns, |turn| turn.processor),
            figure("live, p50 handled : other", "us", &turns, |turn| turn.done.latency(|of| of.p50)),
            figure("live, p99 handled : other", "us", &turns, |turn| turn.done.latency(|of| of.p99)),
            figure("live, longest handled : other", "us", &turns, |turn| turn.done.latency(|of| of.longest)),
        ]);
    }
    if arguments.wants(Measurement::LowRate) {
        let turns = measure(&mut lab, other, rounds, LOW_RATE)?;
        report.extend([
            figure("low rate, processor time per message : other", "us", &turns, |turn| turn.processor),
            figure("low rate, p50 handled : other", "us", &turns, |turn| turn.done.latency(|of| of.p50)),
        ]);
    }
    Ok(report)
}

fn drain(pair: &mut Pair) -> Result<Done> {
    let took = pair.drain()?;
    Ok(Done { messages: BACKLOG, per_second: per_second(BACKLOG, took), latency: None })
}

fn live(pair: &mut Pair) -> Result<Done> {
    let (lived, messages) = pair.live_counted(CALLERS, SLICE)?;
    Ok(Done { messages, per_second: lived.per_second, latency: Some(lived.latency) })
}

fn trickle(pair: &mut Pair) -> Result<Done> {
    let start = micros();
    let latency = pair.trickle(cold::EVERY, TRICKLE)?;
    let took = Duration::from_micros(micros() - start);
    Ok(Done { messages: TRICKLE, per_second: per_second(TRICKLE, took), latency: Some(latency) })
}

/// Turns of this build and of the other one, round by round.
fn measure(lab: &mut Lab, other: &Path, rounds: usize, load: Load) -> Result<Vec<[Turn; 2]>> {
    let mut pairs = [Pair::start(lab)?, Pair::of(lab, other)?];
    for pair in &mut pairs {
        (load.begin)(pair)?;
        turn(pair, load)?; // not counted: what is done for the first time takes longer
    }
    let mut turns = Vec::new();
    for round in 0..rounds {
        eprint!("\rcompare: round {} of {rounds} ...", round + 1);
        let [this, other] = &mut pairs;
        // They take turns in going first.
        turns.push(if round % 2 == 0 {
            let first = turn(this, load)?;
            [first, turn(other, load)?]
        } else {
            let first = turn(other, load)?;
            [turn(this, load)?, first]
        });
    }
    eprintln!();
    for mut pair in pairs {
        pair.check()?;
        pair.remove(&mut Peaks::default())?;
    }
    Ok(turns)
}

fn turn(pair: &mut Pair, load: Load) -> Result<Turn> {
    (load.prepare)(pair)?;
    let before = pair.processor_time()?;
    let done = (load.run)(pair)?;
    let took = pair.processor_time()?.saturating_sub(before);
    let processor = took.as_secs_f64() * 1e6 / done.messages.max(1) as f64;
    Ok(Turn { done, processor })
}

fn figure(name: &'static str, unit: &str, turns: &[[Turn; 2]], of: fn(&Turn) -> f64) -> Figure {
    let each = |which: usize| turns.iter().map(|round| of(&round[which])).collect::<Vec<f64>>();
    let (this, other) = (each(0), each(1));
    let ratios: Vec<f64> = this.iter().zip(&other).map(|(this, other)| this / other).collect();
    let Quartiles { q1, median: middle, q3 } = Quartiles::of(&ratios);
    let [this, other] = [&this, &other].map(|values| thousands(median(values)));
    let detail = format!("{this} {unit} against {other} {unit}; quartiles {q1:.2} and {q3:.2}");
    Figure::new(name, middle, Unit::Times).detail(detail).samples(ratios)
}
