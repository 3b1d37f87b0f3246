//! A living load: callers enqueue durably while it is delivered.

use super::latency::Latency;
use super::pair::{Lived, Pair};
use super::{Peaks, Plan};
use crate::Result;
use crate::enqueue::CALLERS;
use crate::lab::{Lab, Slice};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::{Quartiles, median};

pub(crate) async fn measure(lab: &mut Lab, plan: &Plan, peaks: &mut Peaks) -> Result<[Figure; 2]> {
    eprintln!("live: {CALLERS} callers ...");
    let mut pair = Pair::start(lab)?;
    pair.start_relay()?;
    let mut slices = Vec::new();
    for _ in 0..plan.live_slices {
        slices.push(lab.slice(async { pair.live(CALLERS, plan.live) }).await?);
        pair.check()?;
    }
    pair.remove(peaks)?;
    Ok(figures(&slices))
}

fn figures(slices: &[Slice<Lived>]) -> [Figure; 2] {
    let each = |of: &dyn Fn(&Slice<Lived>) -> f64| slices.iter().map(of).collect::<Vec<f64>>();
    let middle = |of: &dyn Fn(&Slice<Lived>) -> f64| thousands(median(&each(of)));
    let rates = each(&|slice| slice.value.per_second / slice.raw);
    let tails = each(&|slice| slice.value.latency.p99 / slice.sync_p99());
    let rate = middle(&|slice| slice.value.per_second);
    let latency = |of: fn(Latency) -> f64| middle(&|slice| of(slice.value.latency));
    let [p50, p99, longest] = [latency(|of| of.p50), latency(|of| of.p99), latency(|of| of.longest)];
    let syncs = Quartiles::of(&slices.iter().flat_map(|slice| slice.sync_p99s).collect::<Vec<_>>());
    let sync = format!("{} us ({} to {})", thousands(syncs.median), thousands(syncs.q1), thousands(syncs.q3));
    let raw = || slices.iter().flat_map(|slice| slice.samples);
    [
        Figure::new("live, 64 callers", median(&rates), Unit::TimesRaw)
            .target(Target::AtLeast(5.0))
            .detail(format!("{rate} /s"))
            .samples(rates)
            .raw(raw()),
        Figure::new("live, p99 handled : p99 sync", median(&tails), Unit::Times)
            .target(Target::AtMost(20.0))
            .detail(format!("{p99} us against {sync}; p50 {p50} us, longest {longest} us"))
            .samples(tails)
            .raw(raw()),
    ]
}
