//! Draining a backlog: the relay against a status-column loop, same messages, same file.

use std::path::Path;

use crate::Result;
use crate::lab::{Lab, Slice, timed};
use crate::naive;
use crate::report::{Figure, Target, Unit, thousands};
use crate::sink::drain;
use crate::stats::{median, per_second};
use crate::store::{Store, check};

/// The relay's rate as a multiple of the loop's.
pub(crate) async fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let (mut relays, mut loops) = (Vec::new(), Vec::new());
    for round in 0..lab.plan.rounds {
        eprintln!("drain: round {} of {} ...", round + 1, lab.plan.rounds);
        let folder = lab.new_folder()?;
        prepare(&folder, lab.plan.drain).await?;
        // Whoever goes second finds a warmer cache; they take turns.
        if round % 2 == 0 {
            relays.push(by_relay(lab, &folder).await?);
            loops.push(by_status(lab, &folder).await?);
        } else {
            loops.push(by_status(lab, &folder).await?);
            relays.push(by_relay(lab, &folder).await?);
        }
        std::fs::remove_dir_all(folder)?;
    }
    Ok(figures(&relays, &loops))
}

fn figures(relays: &[Slice<f64>], loops: &[Slice<f64>]) -> Vec<Figure> {
    let rates = |slices: &[Slice<f64>]| slices.iter().map(|slice| slice.value).collect::<Vec<_>>();
    let ratio = |(relay, status): (&Slice<f64>, &Slice<f64>)| relay.value / status.value;
    let ratios: Vec<f64> = relays.iter().zip(loops).map(ratio).collect();
    let (relay, status) = (median(&rates(relays)), median(&rates(loops)));
    let against_raw: Vec<f64> = relays.iter().map(|slice| slice.value / slice.raw).collect();
    vec![
        Figure::new("drain, relay : status loop", median(&ratios), Unit::Times)
            .target(Target::AtLeast(5.0))
            .detail(format!("{} /s against {} /s", thousands(relay), thousands(status)))
            .samples(ratios)
            .raw(relays.iter().chain(loops).flat_map(|slice| slice.samples)),
        Figure::new("drain, relay", median(&against_raw), Unit::TimesRaw)
            .detail(format!("{} /s", thousands(relay)))
            .samples(against_raw)
            .raw(relays.iter().flat_map(|slice| slice.samples)),
    ]
}

/// Puts the same messages into both outboxes.
async fn prepare(folder: &Path, messages: u64) -> Result<()> {
    let store = Store::create(folder).await?;
    store.fill(messages).await?;
    naive::fill(&store.path())
}

async fn by_relay(lab: &mut Lab, folder: &Path) -> Result<Slice<f64>> {
    let (clock, messages) = (lab.clock, lab.plan.drain);
    let store = Store::open(folder).await?;
    let rate = async {
        let ((), time) = timed(&clock, drain(&store, messages)).await?;
        Ok(per_second(messages, time))
    };
    let slice = lab.slice(rate).await?;
    store.check_sent(messages).await?;
    let shown = store.count("SELECT count(*) FROM outbox_messages WHERE status = 'Sent'").await?;
    check("messages shown as sent", messages, shown)?;
    Ok(slice)
}

/// The loop has the file to itself: no writer, no watcher.
async fn by_status(lab: &mut Lab, folder: &Path) -> Result<Slice<f64>> {
    let (clock, messages) = (lab.clock, lab.plan.drain);
    let connection = naive::open(&folder.join("bench.db"))?;
    let rate = async {
        let ((), time) = timed(&clock, async { naive::drain(&connection) }).await?;
        Ok(per_second(messages, time))
    };
    let slice = lab.slice(rate).await?;
    naive::check_sent(&connection, messages)?;
    Ok(slice)
}
