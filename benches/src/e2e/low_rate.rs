//! A trickle: how long one message takes when there is nothing else to do.

use super::cold::{self, Cold, Echo};
use super::latency::Latency;
use super::pair::Pair;
use super::{Peaks, Plan};
use crate::Result;
use crate::lab::Lab;
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::median;

/// A slice and the samples directly before and after.
struct Turn {
    latency: Latency,
    cold: [Cold; 2],
}

impl Turn {
    fn floor(&self) -> f64 {
        (self.cold[0].floor() + self.cold[1].floor()) / 2.0
    }
}

pub(crate) async fn measure(lab: &mut Lab, plan: &Plan, peaks: &mut Peaks) -> Result<[Figure; 3]> {
    eprintln!("low rate: a message every {:?} ...", cold::EVERY);
    let mut echo = Echo::start()?;
    let mut pair = Pair::start(lab)?;
    pair.start_relay()?;
    let messages = u64::try_from(plan.low.as_millis() / cold::EVERY.as_millis())?;
    let mut turns = Vec::new();
    for _ in 0..plan.low_slices {
        let before = cold::sample(lab, &mut echo, plan.cold)?;
        let latency = pair.trickle(cold::EVERY, messages)?;
        let after = cold::sample(lab, &mut echo, plan.cold)?;
        turns.push(Turn { latency, cold: [before, after] });
        pair.check()?;
    }
    pair.remove(peaks)?;
    Ok(figures(&turns))
}

/// The trickle, behind what it is compared with.
fn figures(turns: &[Turn]) -> [Figure; 3] {
    let colds: Vec<Cold> = turns.iter().flat_map(|turn| turn.cold).collect();
    let cold = |name, of: fn(&Cold) -> f64| {
        let samples: Vec<f64> = colds.iter().map(of).collect();
        Figure::new(name, median(&samples), Unit::Micros)
            .detail("p50, one every 10 ms".into())
            .samples(samples.clone())
            .raw(samples.into_iter())
    };
    let ratios: Vec<f64> = turns.iter().map(|turn| turn.latency.p50 / turn.floor()).collect();
    let middle = |of: fn(&Turn) -> f64| thousands(median(&turns.iter().map(of).collect::<Vec<f64>>()));
    let (p50, p99) = (middle(|turn| turn.latency.p50), middle(|turn| turn.latency.p99));
    let latency = Figure::new("low rate, p50 handled : cold sync + hop", median(&ratios), Unit::Times)
        .target(Target::AtMost(2.2))
        .detail(format!("{p50} us against {} us; p99 {p99} us", middle(Turn::floor)))
        .samples(ratios)
        .raw(colds.iter().map(Cold::floor));
    [cold("raw, cold fdatasync", |c| c.sync), cold("raw, echo", |c| c.echo), latency]
}
