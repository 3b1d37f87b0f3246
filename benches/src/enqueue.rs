//! Durable enqueueing: many callers through the writer, one caller through it, one caller on a connection of
//! its own.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use twobox_core::Clock;
use twobox_core::system::SystemClock;
use twobox_sqlite::rusqlite::{Connection, TransactionBehavior};

use crate::Result;
use crate::lab::{Lab, Slice};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::{median, per_second};
use crate::store::{INSERT_ORDER, Store, check};
use crate::syncs;

/// Callers that share commits.
pub(crate) const CALLERS: usize = 64;

/// Before the first slice the write-ahead log grows to its full size, which it does once in its life.
const WARM_UP: Duration = Duration::from_millis(500);

/// What was enqueued in a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enqueued {
    pub(crate) messages: u64,
    pub(crate) per_second: f64,
}

/// All figures about enqueueing.
pub(crate) async fn measure(lab: &mut Lab, count_syncs: bool) -> Result<Vec<Figure>> {
    let mut figures = shared(lab, count_syncs).await?;
    figures.push(alone(lab).await?);
    figures.push(own_connection(lab).await?);
    Ok(figures)
}

/// Enqueues for `duration` in a new database, and nothing else: what strace looks at.
pub(crate) async fn once(folder: &Path, duration: Duration) -> Result<u64> {
    let store = Store::create(folder).await?;
    if duration.is_zero() {
        return Ok(0);
    }
    Ok(callers(&store, CALLERS, duration).await?.messages)
}

/// Enqueues from `callers` tasks for `duration`, each waiting for its commit before the next.
pub(crate) async fn callers(store: &Store, callers: usize, duration: Duration) -> Result<Enqueued> {
    let clock = SystemClock::default();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut messages = 0_u64;
            while clock.monotonic() < duration {
                store.order().await?;
                messages += 1;
            }
            Ok::<_, twobox_core::Error>(messages)
        });
    }
    let mut messages = 0;
    while let Some(outcome) = tasks.join_next().await {
        messages += outcome??;
    }
    Ok(Enqueued { messages, per_second: per_second(messages, clock.monotonic()) })
}

/// Many callers.
async fn shared(lab: &mut Lab, count_syncs: bool) -> Result<Vec<Figure>> {
    eprintln!("enqueue: {CALLERS} callers ...");
    let store = Store::create(&lab.new_folder()?).await?;
    let mut total = callers(&store, CALLERS, WARM_UP).await?.messages;
    let (mut slices, mut per_commit) = (Vec::new(), Vec::new());
    for _ in 0..lab.plan.slices {
        let before = syncs::commits(&store.path())?;
        let duration = lab.plan.slice;
        let slice = lab.slice(callers(&store, CALLERS, duration)).await?;
        let commits = syncs::commits(&store.path())?.wrapping_sub(before);
        total += slice.value.messages;
        per_commit.push(syncs::per_sync(slice.value.messages, commits.into())?);
        slices.push(slice);
    }
    store.check_enqueued(total, total).await?;
    let speed = against_raw("enqueue, 64 callers", Target::AtLeast(10.0), &slices);
    Ok(vec![speed, counted(lab, per_commit, count_syncs)?])
}

/// Messages per sync: what the speed of many callers comes from.
fn counted(lab: &mut Lab, per_commit: Vec<f64>, count_syncs: bool) -> Result<Figure> {
    let commits = median(&per_commit);
    let figure = |value| {
        Figure::new("enqueue, 64 callers, counted", value, Unit::PerSync).target(Target::AtLeast(40.0))
    };
    if !count_syncs {
        let detail = "commits counted by SQLite; each is one sync, checkpoints aside";
        return Ok(figure(commits).detail(detail.into()).samples(per_commit));
    }
    let detail = format!("syncs counted by strace; {commits:.1} per commit untraced");
    Ok(figure(syncs::messages_per_sync(lab)?).detail(detail))
}

/// One caller through the writer.
async fn alone(lab: &mut Lab) -> Result<Figure> {
    eprintln!("enqueue: 1 caller through the writer ...");
    let store = Store::create(&lab.new_folder()?).await?;
    let mut total = callers(&store, CALLERS, WARM_UP).await?.messages;
    let mut slices = Vec::new();
    for _ in 0..lab.plan.slices {
        let duration = lab.plan.slice;
        let slice = lab.slice(callers(&store, 1, duration)).await?;
        total += slice.value.messages;
        slices.push(slice);
    }
    store.check_enqueued(total, total).await?;
    Ok(against_raw("enqueue, 1 caller, writer", Target::AtLeast(0.5), &slices))
}

/// One caller on a connection of its own, as an application with a driver of its own has.
async fn own_connection(lab: &mut Lab) -> Result<Figure> {
    eprintln!("enqueue: 1 caller on its own connection ...");
    let store = Store::create(&lab.new_folder()?).await?;
    let mut total = callers(&store, CALLERS, WARM_UP).await?.messages;
    let mut connection = Connection::open(store.path())?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    let mut slices = Vec::new();
    for _ in 0..lab.plan.slices {
        let (clock, duration) = (SystemClock::default(), lab.plan.slice);
        let slice = lab.slice(async { on_connection(&store, &mut connection, &clock, duration) }).await?;
        total += slice.value.messages;
        slices.push(slice);
    }
    store.check_enqueued(total, total).await?;
    Ok(against_raw("enqueue, 1 caller, own connection", Target::AtLeast(0.7), &slices))
}

/// Blocks the calling thread, which is what such an application does.
fn on_connection(
    store: &Store,
    connection: &mut Connection,
    clock: &SystemClock,
    duration: Duration,
) -> Result<Enqueued> {
    let (start, mut messages) = (clock.monotonic(), 0);
    while clock.monotonic() - start < duration {
        let message = store.message()?;
        let mut tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let rows = tx.prepare_cached(INSERT_ORDER)?.execute(("somebody", 4_200))?;
        check("rows inserted", 1, rows as u64)?;
        store.db.append(&mut tx, &message)?;
        tx.commit()?;
        messages += 1;
    }
    Ok(Enqueued { messages, per_second: per_second(messages, clock.monotonic() - start) })
}

pub(crate) fn against_raw(name: &'static str, target: Target, slices: &[Slice<Enqueued>]) -> Figure {
    let ratios: Vec<f64> = slices.iter().map(|slice| slice.value.per_second / slice.raw).collect();
    let rates: Vec<f64> = slices.iter().map(|slice| slice.value.per_second).collect();
    Figure::new(name, median(&ratios), Unit::TimesRaw)
        .target(target)
        .detail(format!("{} /s", thousands(median(&rates))))
        .samples(ratios)
        .raw(slices.iter().flat_map(|slice| slice.samples))
}
