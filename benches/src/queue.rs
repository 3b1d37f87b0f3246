//! The inbox as a work queue: enqueueing, draining, picking up, resting, and what a long history costs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use twobox_core::ports::{Claim, Job, OwnerToken, Queue, QueueStore, Work};
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Clock, Consumer, Endpoint, Error, MessageId, Response};
use twobox_engine::worker::Handling;
use twobox_engine::{Shutdown, ShutdownHandle, SystemTimer, Worker};
use twobox_sqlite::{SqliteHandler, SqliteTx};

use crate::Result;
use crate::enqueue::{CALLERS, Enqueued, against_raw};
use crate::idle::processor_time;
use crate::lab::{Lab, Slice, timed};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::{median, per_second, percentile};
use crate::store::{INSERT_ORDER, Store, check};

/// The endpoint of the store's messages.
const TOPIC: &str = "orders.placed";
/// Messages per transaction when it is not enqueueing that is measured.
const BULK: u64 = 1_000;
/// The first slice finds a write-ahead log of its full size.
const WARM_UP: Duration = Duration::from_millis(500);
/// Messages of the loop that commits each of them.
const ONE_BY_ONE: u64 = 3_000;
/// Messages whose pick-up is timed, and the time between two of them.
const PICKED_UP: u64 = 400;
const PICK_UP_EVERY: Duration = Duration::from_millis(10);
/// After work, the last lazy sync and the safety nets come to rest.
const SETTLE: Duration = Duration::from_secs(6);

/// All figures about the queue.
pub(crate) async fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let mut figures = vec![enqueue(lab).await?];
    figures.extend(drain(lab).await?);
    figures.extend(pick_up(lab).await?);
    figures.push(history(lab).await?);
    Ok(figures)
}

fn queue() -> Result<Queue> {
    Ok(Queue::new(Consumer::new("bench")?))
}

async fn put(store: &Store, queue: &Queue) -> Result<MessageId, Error> {
    let work = Work { message: store.message()?, hash: None };
    store.db.enqueue_work(queue, &work).await?;
    Ok(work.message.id)
}

/// Queues messages in large transactions.
async fn fill(store: &Store, messages: u64) -> Result<()> {
    let (queue, mut left) = (queue()?, messages);
    while left > 0 {
        let (store, queue, bulk) = (store.clone(), queue.clone(), left.min(BULK));
        let db = store.db.clone();
        let work = move |tx: &mut SqliteTx<'_>| {
            (0..bulk).try_for_each(|_| {
                let work = Work { message: store.message()?, hash: None };
                store.db.enqueue_work_in(tx, &queue, &work).map(drop)
            })
        };
        db.transaction::<(), Error, _>(work).await?;
        left -= bulk;
    }
    Ok(())
}

/// One row of the user's per message.
fn handler() -> SqliteHandler {
    SqliteHandler::new(|tx, _| {
        tx.execute(INSERT_ORDER, ("somebody", 4_200))?;
        Ok(Response::empty())
    })
}

async fn enqueue(lab: &mut Lab) -> Result<Figure> {
    eprintln!("queue: {CALLERS} callers ...");
    let store = Store::create(&lab.new_folder()?).await?;
    let mut total = callers(&store, WARM_UP).await?.messages;
    let mut slices = Vec::new();
    for _ in 0..lab.plan.slices {
        let duration = lab.plan.slice;
        let slice = lab.slice(callers(&store, duration)).await?;
        total += slice.value.messages;
        slices.push(slice);
    }
    check("queued messages", total, store.count("SELECT count(*) FROM inbox_queue").await?)?;
    Ok(against_raw("queue, enqueue, 64 callers", Target::AtLeast(10.0), &slices))
}

async fn callers(store: &Store, duration: Duration) -> Result<Enqueued> {
    let clock = SystemClock::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        let (store, queue) = (store.clone(), queue()?);
        tasks.spawn(async move {
            let mut messages = 0_u64;
            while clock.monotonic() < duration {
                put(&store, &queue).await?;
                messages += 1;
            }
            Ok::<_, Error>(messages)
        });
    }
    let mut messages = 0;
    while let Some(outcome) = tasks.join_next().await {
        messages += outcome??;
    }
    Ok(Enqueued { messages, per_second: per_second(messages, clock.monotonic()) })
}

/// A worker that runs.
struct Working {
    handle: ShutdownHandle,
    task: tokio::task::JoinHandle<()>,
}

impl Working {
    fn start(store: &Store, handler: SqliteHandler) -> Result<Self> {
        let timer = Arc::new(SystemTimer::default());
        let worker = Worker::builder(store.db.clone(), queue()?, timer, &SystemRandom::default())
            .topic(Endpoint::new(TOPIC)?, Handling::Transactional(handler))?
            .build()?;
        let (handle, shutdown) = Shutdown::new();
        Ok(Self { handle, task: tokio::spawn(worker.run(shutdown)) })
    }

    async fn stop(self) -> Result<()> {
        self.handle.request();
        Ok(self.task.await?)
    }
}

/// A worker handles everything that is queued; the last handler says so.
async fn work_off(store: &Store, messages: u64) -> Result<()> {
    let left = Arc::new(std::sync::atomic::AtomicU64::new(messages));
    let done = Arc::new(tokio::sync::Notify::new());
    let (count, tell, inner) = (Arc::clone(&left), Arc::clone(&done), handler());
    let counting = SqliteHandler::new(move |tx, message| {
        let response = inner.call(tx, message)?;
        if count.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 1 {
            tell.notify_one();
        }
        Ok(response)
    });
    let working = Working::start(store, counting)?;
    done.notified().await;
    // The last one has run, and commits with its group: a transaction of ours comes after it.
    let queued = || store.count("SELECT count(*) FROM inbox_queue");
    while queued().await? > 0 {
        tokio::task::yield_now().await;
    }
    working.stop().await
}

/// The worker, and a loop that claims one message, handles it and commits.
async fn drain(lab: &mut Lab) -> Result<Vec<Figure>> {
    let messages = lab.plan.drain / 2;
    let (mut workers, mut loops) = (Vec::new(), Vec::new());
    for round in 0..lab.plan.rounds {
        eprintln!("queue: drain, round {} of {} ...", round + 1, lab.plan.rounds);
        let (clock, folder) = (lab.clock, lab.new_folder()?);
        let store = Store::create(&folder).await?;
        for turn in 0..2 {
            // Whoever comes first finds an empty file: they take turns with that.
            if (round + turn) % 2 == 0 {
                workers.push(drained(lab, &store, messages).await?);
                continue;
            }
            fill(&store, ONE_BY_ONE).await?;
            let rate = async {
                let ((), time) = timed(&clock, one_by_one(&store)).await?;
                Ok(per_second(ONE_BY_ONE, time))
            };
            loops.push(lab.slice(rate).await?);
        }
        check_done(&store, messages + ONE_BY_ONE).await?;
        drop(store);
        std::fs::remove_dir_all(folder)?;
    }
    Ok(drain_figures(&workers, &loops))
}

/// Fails unless so many messages were handled, each once.
async fn check_done(store: &Store, messages: u64) -> Result<()> {
    check("rows of the user", messages, store.count("SELECT count(*) FROM orders").await?)?;
    let done = store.count("SELECT count(*) FROM inbox WHERE status = 'Done'").await?;
    check("messages done", messages, done)?;
    check("messages in the queue", 0, store.count("SELECT count(*) FROM inbox_queue").await?)
}

fn drain_figures(workers: &[Slice<f64>], loops: &[Slice<f64>]) -> Vec<Figure> {
    let rates = |slices: &[Slice<f64>]| slices.iter().map(|slice| slice.value).collect::<Vec<_>>();
    let against_raw: Vec<f64> = workers.iter().map(|slice| slice.value / slice.raw).collect();
    let ratios: Vec<f64> =
        workers.iter().zip(loops).map(|(worker, single)| worker.value / single.value).collect();
    let (worker, single) = (median(&rates(workers)), median(&rates(loops)));
    vec![
        Figure::new("queue, drain", median(&against_raw), Unit::TimesRaw)
            .target(Target::AtLeast(5.0))
            .detail(format!("{} /s", thousands(worker)))
            .samples(against_raw)
            .raw(workers.iter().flat_map(|slice| slice.samples)),
        Figure::new("queue, drain : one per transaction", median(&ratios), Unit::Times)
            .target(Target::AtLeast(8.0))
            .detail(format!("{} /s against {} /s", thousands(worker), thousands(single)))
            .samples(ratios)
            .raw(workers.iter().chain(loops).flat_map(|slice| slice.samples)),
    ]
}

async fn one_by_one(store: &Store) -> Result<()> {
    let (queue, owner) = (queue()?, OwnerToken::mint(&SystemRandom::default()));
    let claim = Claim::new(owner, Duration::from_secs(30), 1)?;
    loop {
        let Some(claimed) = store.db.claim(&queue, &claim).await?.pop() else { return Ok(()) };
        let job = Job { lease: claimed.lease, message: claimed.message, handler: handler() };
        store.db.handle(&queue, owner, vec![job]).await?;
    }
}

/// From the end of the enqueueing transaction to the start of the handler, at a low rate; then what resting costs.
async fn pick_up(lab: &mut Lab) -> Result<Vec<Figure>> {
    eprintln!("queue: pick-up ...");
    let store = Store::create(&lab.new_folder()?).await?;
    let clock = lab.clock;
    let begun: Arc<Mutex<HashMap<MessageId, Duration>>> = Arc::default();
    let (note, inner) = (Arc::clone(&begun), handler());
    let noting = SqliteHandler::new(move |tx, message| {
        let now = clock.monotonic();
        note.lock().unwrap_or_else(PoisonError::into_inner).entry(message.id.clone()).or_insert(now);
        inner.call(tx, message)
    });
    let working = Working::start(&store, noting)?;
    let (queue, mut committed) = (queue()?, Vec::new());
    for _ in 0..PICKED_UP {
        tokio::time::sleep(PICK_UP_EVERY).await;
        let id = put(&store, &queue).await?;
        committed.push((id, clock.monotonic()));
    }
    tokio::time::sleep(SETTLE).await;
    let before = processor_time();
    tokio::time::sleep(lab.plan.idle).await;
    let used = processor_time().saturating_sub(before);
    working.stop().await?;
    check_done(&store, PICKED_UP).await?;
    let begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    // A handler may start before its message's author has got to look at the clock.
    let took =
        |(id, at): &(MessageId, Duration)| Some(begun.get(id)?.saturating_sub(*at).as_secs_f64() * 1e6);
    let micros: Vec<f64> = committed.iter().filter_map(took).collect();
    check("messages picked up", PICKED_UP, micros.len() as u64)?;
    let percent = 100.0 * used.as_secs_f64() / lab.plan.idle.as_secs_f64();
    Ok(vec![
        Figure::new("queue, pick-up, p50", percentile(&micros, 50), Unit::Micros)
            .target(Target::AtMost(1_000.0))
            .detail(format!("100 /s; p99 {} us", thousands(percentile(&micros, 99)))),
        Figure::new("queue, idle, processor", percent, Unit::Percent)
            .target(Target::Below(1.0))
            .detail(format!("{used:.1?} in {:.1?}", lab.plan.idle)),
    ])
}

/// Draining with many done messages kept, as a part of draining without.
async fn history(lab: &mut Lab) -> Result<Figure> {
    let (kept, messages) = (lab.plan.history / 2, lab.plan.drain / 4);
    eprintln!("queue: history of {kept} messages ...");
    let old = aged(lab, kept).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..lab.plan.rounds {
        eprintln!("queue: history, round {} of {} ...", round + 1, lab.plan.rounds);
        let new = aged(lab, BULK).await?;
        if round % 2 == 0 {
            without.push(drained(lab, &new.0, messages).await?);
            with.push(drained(lab, &old.0, messages).await?);
        } else {
            with.push(drained(lab, &old.0, messages).await?);
            without.push(drained(lab, &new.0, messages).await?);
        }
        check_done(&new.0, BULK + messages).await?;
        drop(new.0);
        std::fs::remove_dir_all(new.1)?;
    }
    check_done(&old.0, kept + messages * with.len() as u64).await?;
    let rates = |slices: &[Slice<f64>]| slices.iter().map(|slice| slice.value).collect::<Vec<_>>();
    let ratios: Vec<f64> =
        with.iter().zip(&without).map(|(with, without)| with.value / without.value).collect();
    let (old, new) = (median(&rates(&with)), median(&rates(&without)));
    Ok(Figure::new("queue, history, drain", median(&ratios), Unit::Times)
        .target(Target::AtLeast(0.9))
        .detail(format!("{} /s with, {} /s without", thousands(old), thousands(new)))
        .samples(ratios)
        .raw(with.iter().chain(&without).flat_map(|slice| slice.samples)))
}

/// A database that has done `messages`.
async fn aged(lab: &mut Lab, messages: u64) -> Result<(Store, PathBuf)> {
    let folder = lab.new_folder()?;
    let store = Store::create(&folder).await?;
    fill(&store, messages).await?;
    work_off(&store, messages).await?;
    Ok((store, folder))
}

/// A worker handles so many messages, which were queued before.
async fn drained(lab: &mut Lab, store: &Store, messages: u64) -> Result<Slice<f64>> {
    let clock = lab.clock;
    fill(store, messages).await?;
    let rate = async {
        let ((), time) = timed(&clock, work_off(store, messages)).await?;
        Ok(per_second(messages, time))
    };
    lab.slice(rate).await
}
