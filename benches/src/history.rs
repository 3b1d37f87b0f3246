//! Whether a long history of sent messages slows anything down.
//!
//! Two databases are measured in turns: one with the history, one made anew every round. Each round enqueues
//! with many callers, tops the backlog up to a fixed size, and drains it.

use std::path::PathBuf;

use crate::Result;
use crate::enqueue::{CALLERS, callers};
use crate::lab::{Lab, Slice, timed};
use crate::report::{Figure, Target, Unit, thousands};
use crate::sink::drain;
use crate::stats::{median, per_second};
use crate::store::Store;

/// The new database is used for this many messages first, so that both write-ahead logs have their full size.
const WARM_UP: u64 = 40_000;

/// A database and how many messages it has sent.
struct Aged {
    folder: PathBuf,
    store: Store,
    sent: u64,
}

/// One database in one round.
struct Turn {
    enqueue: Slice<f64>,
    drain: Slice<f64>,
}

/// The rates with history as a part of those without.
pub(crate) async fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    eprintln!("history: {} messages ...", lab.plan.history);
    let history = lab.plan.history;
    let mut old = Aged::new(lab, history).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..lab.plan.rounds {
        eprintln!("history: round {} of {} ...", round + 1, lab.plan.rounds);
        let mut new = Aged::new(lab, WARM_UP).await?;
        if round % 2 == 0 {
            without.push(new.turn(lab).await?);
            with.push(old.turn(lab).await?);
        } else {
            with.push(old.turn(lab).await?);
            without.push(new.turn(lab).await?);
        }
        new.remove()?;
    }
    Ok(vec![
        figure("history, enqueue, 64 callers", &with, &without, |turn| &turn.enqueue),
        figure("history, drain", &with, &without, |turn| &turn.drain),
    ])
}

impl Aged {
    /// A database that has sent `messages`.
    async fn new(lab: &mut Lab, messages: u64) -> Result<Self> {
        let folder = lab.new_folder()?;
        let store = Store::create(&folder).await?;
        store.fill(messages).await?;
        drain(&store, messages).await?;
        store.check_sent(messages).await?;
        Ok(Self { folder, store, sent: messages })
    }

    /// Makes room on the disk.
    fn remove(self) -> Result<()> {
        drop(self.store);
        Ok(std::fs::remove_dir_all(self.folder)?)
    }

    async fn turn(&mut self, lab: &mut Lab) -> Result<Turn> {
        let (clock, store) = (lab.clock, self.store.clone());
        let duration = lab.plan.slice;
        let enqueued = lab.slice(callers(&store, CALLERS, duration)).await?;
        let backlog = lab.plan.drain.max(enqueued.value.messages);
        store.fill(backlog - enqueued.value.messages).await?;
        let rate = async {
            let ((), time) = timed(&clock, drain(&store, backlog)).await?;
            Ok(per_second(backlog, time))
        };
        let drained = lab.slice(rate).await?;
        self.sent += backlog;
        store.check_sent(self.sent).await?;
        Ok(Turn { enqueue: enqueued.map(|enqueued| enqueued.per_second), drain: drained })
    }
}

fn figure(
    name: &'static str,
    with: &[Turn],
    without: &[Turn],
    which: impl Fn(&Turn) -> &Slice<f64>,
) -> Figure {
    let rates = |turns: &[Turn]| turns.iter().map(|turn| which(turn).value).collect::<Vec<_>>();
    let ratio = |(with, without): (&Turn, &Turn)| which(with).value / which(without).value;
    let ratios: Vec<f64> = with.iter().zip(without).map(ratio).collect();
    let (old, new) = (median(&rates(with)), median(&rates(without)));
    Figure::new(name, median(&ratios), Unit::Times)
        .target(Target::AtLeast(0.9))
        .detail(format!("{} /s with, {} /s without", thousands(old), thousands(new)))
        .samples(ratios)
        .raw(with.iter().chain(without).flat_map(|turn| which(turn).samples))
}
