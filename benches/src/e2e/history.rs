//! Whether a long history on both sides, sent messages here and inbox rows there, slows a drain down.

use super::pair::{Drained, Pair};
use super::{Peaks, Plan};
use crate::Result;
use crate::lab::{Lab, Slice};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::median;

pub(crate) async fn measure(lab: &mut Lab, plan: &Plan, peaks: &mut Peaks) -> Result<Figure> {
    eprintln!("history: {} messages ...", plan.history);
    let mut old = Pair::start(lab)?;
    old.fill(plan.history)?;
    old.drain()?;
    old.check()?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..plan.history_rounds {
        eprintln!("history: round {} of {} ...", round + 1, plan.history_rounds);
        let mut new = Pair::start(lab)?;
        if round % 2 == 0 {
            without.push(turn(lab, plan, &mut new).await?);
            with.push(turn(lab, plan, &mut old).await?);
        } else {
            with.push(turn(lab, plan, &mut old).await?);
            without.push(turn(lab, plan, &mut new).await?);
        }
        new.remove(peaks)?;
    }
    old.remove(peaks)?;
    Ok(figure(&with, &without))
}

async fn turn(lab: &mut Lab, plan: &Plan, pair: &mut Pair) -> Result<Slice<Drained>> {
    pair.fill(plan.drain)?;
    let slice = lab.slice(async { pair.drain_backlog(plan.drain) }).await?;
    pair.check()?;
    Ok(slice)
}

fn figure(with: &[Slice<Drained>], without: &[Slice<Drained>]) -> Figure {
    let rates = |slices: &[Slice<Drained>]| slices.iter().map(|s| s.value.per_second).collect::<Vec<f64>>();
    let (old, new) = (rates(with), rates(without));
    let ratios: Vec<f64> = old.iter().zip(&new).map(|(old, new)| old / new).collect();
    Figure::new("history, drain", median(&ratios), Unit::Times)
        .target(Target::AtLeast(0.9))
        .detail(format!("{} /s with, {} /s without", thousands(median(&old)), thousands(median(&new))))
        .samples(ratios)
        .raw(with.iter().chain(without).flat_map(|slice| slice.samples))
}
