//! A backlog: Twobox against the naive loop, in turns.

use super::naive::{Naive, Wire};
use super::pair::{Drained, Pair};
use super::{Peaks, Plan};
use crate::Result;
use crate::lab::{Lab, Slice};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::median;

/// One slice of each.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) twobox: Slice<Drained>,
    naive: Slice<f64>,
    /// The same on bare sockets.
    bare: Slice<f64>,
}

pub(crate) async fn measure(lab: &mut Lab, plan: &Plan, peaks: &mut Peaks) -> Result<Vec<Round>> {
    let (mut naive, mut bare) = (Naive::start(lab, Wire::Library)?, Naive::start(lab, Wire::Bare)?);
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        eprintln!("drain: round {} of {} ...", round + 1, plan.rounds);
        // They take turns in going first.
        let (twobox, naive) = if round % 2 == 0 {
            let twobox = by_twobox(lab, plan, peaks).await?;
            (twobox, by_hand(lab, plan, &mut naive).await?)
        } else {
            let naive = by_hand(lab, plan, &mut naive).await?;
            (by_twobox(lab, plan, peaks).await?, naive)
        };
        let bare = by_hand(lab, plan, &mut bare).await?;
        rounds.push(Round { twobox, naive, bare });
    }
    naive.remove()?;
    bare.remove()?;
    Ok(rounds)
}

async fn by_twobox(lab: &mut Lab, plan: &Plan, peaks: &mut Peaks) -> Result<Slice<Drained>> {
    let mut pair = Pair::start(lab)?;
    pair.fill(plan.drain)?;
    let slice = lab.slice(async { pair.drain_backlog(plan.drain) }).await?;
    pair.check()?;
    pair.remove(peaks)?;
    Ok(slice)
}

async fn by_hand(lab: &mut Lab, plan: &Plan, naive: &mut Naive) -> Result<Slice<f64>> {
    naive.fill()?;
    let slice = lab.slice(async { naive.run(plan.naive) }).await?;
    naive.check()?;
    Ok(slice)
}

pub(crate) fn figures(rounds: &[Round]) -> [Figure; 5] {
    let each = |of: &dyn Fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let twobox = thousands(median(&each(&|round| round.twobox.value.per_second)));
    let naive = thousands(median(&each(&|round| round.naive.value)));
    let against_naive = each(&|round| round.twobox.value.per_second / round.naive.value);
    let against_raw = each(&|round| round.twobox.value.per_second / round.twobox.raw);
    let naive_raw = each(&|round| round.naive.value / round.naive.raw);
    let bare_raw = each(&|round| round.bare.value / round.bare.raw);
    let bare = thousands(median(&each(&|round| round.bare.value)));
    let of_twobox = || rounds.iter().flat_map(|round| round.twobox.samples);
    let of_naive = || rounds.iter().flat_map(|round| round.naive.samples);
    let of_bare = || rounds.iter().flat_map(|round| round.bare.samples);
    let against_bare = each(&|round| round.twobox.value.per_second / round.bare.value);
    [
        Figure::new("naive loop", median(&naive_raw), Unit::TimesRaw)
            .detail(format!("{naive} /s"))
            .samples(naive_raw)
            .raw(of_naive()),
        Figure::new("naive loop, bare sockets", median(&bare_raw), Unit::TimesRaw)
            .detail(format!("{bare} /s"))
            .samples(bare_raw)
            .raw(of_bare()),
        Figure::new("drain : naive loop", median(&against_naive), Unit::Times)
            .target(Target::AtLeast(60.0))
            .detail(format!("{twobox} /s against {naive} /s"))
            .samples(against_naive)
            .raw(of_twobox().chain(of_naive())),
        Figure::new("drain : naive loop, bare sockets", median(&against_bare), Unit::Times)
            .detail(format!("{twobox} /s against {bare} /s"))
            .samples(against_bare)
            .raw(of_twobox().chain(of_bare())),
        Figure::new("drain", median(&against_raw), Unit::TimesRaw)
            .target(Target::AtLeast(9.0))
            .detail(format!("{twobox} /s"))
            .samples(against_raw)
            .raw(of_twobox()),
    ]
}
