//! The sending process: a service as its user writes it, and callers that keep it busy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use twobox::ports::{BoxFuture, LaneStore};
use twobox::{
    Answer, BackupMade, BackupOptions, DeliveryError, Http, LaneStatus, Link, Message, Outbox, Running,
    Signal, Sqlite, Transport, Twobox,
};

use super::latency::{self, Times};
use super::order::{BILLING, COUNT_ORDERS, CREATE_ORDERS, FIRST_NUMBER, INSERT_ORDER, Order, SHOP, micros};
use super::process::{not_understood, serve};
use super::receiver::{count, keyring};
use crate::{Result, runtime};

/// The file in the sender's folder.
pub(crate) const FILE: &str = "shop.db";

/// Messages per transaction when it is not enqueueing that is measured.
const BULK: i64 = 1_000;
/// How often a wait looks whether it is over.
const LOOK: Duration = Duration::from_millis(1);
/// Longer than any wait takes on a machine worth measuring.
const PATIENCE: u64 = 180_000_000;

/// Sends from `folder` to `address` until there are no more questions.
pub(crate) fn play(folder: &Path, address: SocketAddr) -> Result<()> {
    let runtime = runtime()?;
    let mut shop = runtime.block_on(Shop::open(folder, address))?;
    serve(&json!({}), |words| runtime.block_on(answer(&mut shop, words)))?;
    runtime.block_on(shop.stop());
    Ok(())
}

async fn answer(shop: &mut Shop, words: &[&str]) -> Result<Value> {
    match words {
        ["fill", messages] => shop.fill(messages.parse()?).await,
        ["drain", total] => shop.drain(total.parse()?).await,
        ["start"] => {
            shop.start();
            Ok(json!({}))
        }
        ["live", callers, millis, total, path] => {
            let duration = Duration::from_millis(millis.parse()?);
            let load = async {
                tokio::time::sleep(duration).await;
                Ok(())
            };
            let ((), answer) = shop.live(callers.parse()?, load, total.parse()?, Path::new(path)).await?;
            Ok(answer)
        }
        ["backup", callers, to, total, path] => {
            let load = shop.back_up(Path::new(to));
            let ((made, took), mut answer) =
                shop.live(callers.parse()?, load, total.parse()?, Path::new(path)).await?;
            answer["backup_micros"] = json!(took);
            answer["bytes"] = json!(made.bytes);
            answer["wal_bytes"] = json!(made.wal_bytes);
            Ok(answer)
        }
        ["trickle", every, messages, total, path] => {
            let every = Duration::from_millis(every.parse()?);
            shop.trickle(every, messages.parse()?, total.parse()?, Path::new(path)).await
        }
        ["count"] => shop.count().await,
        _ => not_understood(words),
    }
}

struct Shop {
    db: Sqlite,
    service: Twobox,
    running: Option<Running>,
    caller: Caller,
    answered: Arc<AtomicU64>,
}

impl Shop {
    async fn open(folder: &Path, address: SocketAddr) -> Result<Self> {
        let db = Sqlite::open(folder.join(FILE)).await?;
        db.migrate().await?;
        db.transaction(|tx| tx.execute(CREATE_ORDERS, []).map(drop)).await?;
        let answered = Arc::new(AtomicU64::new(0));
        let http = Http::signed(&format!("http://{address}"), keyring()?)?;
        let transport = Counting { http, answered: Arc::clone(&answered) };
        let service = Twobox::builder(SHOP, &db).destination(BILLING, transport).build()?;
        let next = Arc::new(AtomicI64::new(FIRST_NUMBER));
        let caller = Caller { db: db.clone(), outbox: service.outbox(), next };
        Ok(Self { db, service, running: None, caller, answered })
    }

    /// Appends a backlog in large transactions, without rows of the user.
    async fn fill(&self, messages: i64) -> Result<Value> {
        let mut left = messages;
        while left > 0 {
            let (caller, bulk) = (self.caller.clone(), left.min(BULK));
            self.db
                .transaction::<(), twobox::Error, _>(move |tx| {
                    (0..bulk)
                        .try_for_each(|_| caller.outbox.enqueue(tx, &caller.order().to(BILLING)?).map(drop))
                })
                .await?;
            left -= bulk;
        }
        Ok(json!({}))
    }

    fn start(&mut self) {
        self.running = Some(self.service.start());
    }

    async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await;
        }
    }

    /// From the start of the relay until `total` messages are sent, those sent earlier included.
    async fn drain(&mut self, total: u64) -> Result<Value> {
        let start = micros();
        self.start();
        self.until_sent(total).await?;
        let took = micros() - start;
        self.stop().await;
        Ok(json!({ "micros": took }))
    }

    /// Waits until `total` messages are answered and counted as sent.
    async fn until_sent(&self, total: u64) -> Result<()> {
        let start = micros();
        loop {
            // The lanes are in the database: nobody asks for them before it can be over.
            if self.answered.load(Ordering::Relaxed) >= total && sum(&self.db.lanes().await?, sent) >= total {
                return Ok(());
            }
            if micros() - start > PATIENCE {
                let lanes = self.db.lanes().await?;
                return Err(format!("{total} messages are not sent after all this time: {lanes:?}").into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Backs its file up. Returns what was made, and in how many microseconds.
    async fn back_up(&self, to: &Path) -> Result<(BackupMade, u64)> {
        let start = micros();
        let made = self.db.backup(to, &BackupOptions::default()).await?;
        Ok((made, micros() - start))
    }

    /// Callers that place one order after the other, each durable before the next, for as long as `meanwhile` takes;
    /// `before` messages were enqueued earlier.
    async fn live<T>(
        &self,
        callers: usize,
        meanwhile: impl Future<Output = Result<T>>,
        before: u64,
        path: &Path,
    ) -> Result<(T, Value)> {
        let start = micros();
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (caller, over) = (self.caller.clone(), Arc::clone(&over));
            tasks.spawn(async move {
                let mut times = Times::new();
                while !over.load(Ordering::Relaxed) {
                    times.push(caller.place().await?);
                }
                Ok::<_, twobox::Error>(times)
            });
        }
        let done = meanwhile.await;
        over.store(true, Ordering::Relaxed);
        let mut times = Times::new();
        while let Some(ended) = tasks.join_next().await {
            times.append(&mut ended??);
        }
        self.until_sent(before + times.len() as u64).await?;
        let took = micros() - start;
        latency::write(path, &times)?;
        Ok((done?, json!({ "messages": times.len(), "micros": took })))
    }

    /// One order at a time, every so often.
    async fn trickle(&self, every: Duration, messages: u64, before: u64, path: &Path) -> Result<Value> {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut times = Times::new();
        for _ in 0..messages {
            ticks.tick().await;
            times.push(self.caller.place().await?);
        }
        self.until_sent(before + messages).await?;
        latency::write(path, &times)?;
        Ok(json!({ "messages": times.len() }))
    }

    /// What must be there at the end, by SQL.
    async fn count(&self) -> Result<Value> {
        let lanes = self.db.lanes().await?;
        Ok(json!({
            "log": count(&self.db, "SELECT count(*) FROM outbox_log").await?,
            "orders": count(&self.db, COUNT_ORDERS).await?,
            "sent": sum(&lanes, sent),
            "failed": sum(&lanes, |lane| lane.failed + lane.expired),
        }))
    }
}

fn sum(lanes: &[LaneStatus], of: fn(&LaneStatus) -> u64) -> u64 {
    lanes.iter().map(of).sum()
}

fn sent(lane: &LaneStatus) -> u64 {
    lane.sent
}

/// Places orders.
#[derive(Clone)]
struct Caller {
    db: Sqlite,
    outbox: Outbox,
    next: Arc<AtomicI64>,
}

impl Caller {
    fn order(&self) -> Order {
        Order::new(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A business transaction as users write it: a row of theirs and a message, durable together. Returns its
    /// number and when it was committed.
    async fn place(&self) -> Result<(u64, u64), twobox::Error> {
        let (order, outbox) = (self.order(), self.outbox.clone());
        let (message, number) = (order.to(BILLING)?, u64::try_from(order.number).unwrap_or_default());
        self.db
            .transaction::<_, twobox::Error, _>(move |tx| {
                tx.execute(INSERT_ORDER, (order.number, &order.customer, order.total))?;
                outbox.enqueue(tx, &message)
            })
            .await?;
        Ok((number, micros()))
    }
}

/// Counts what the receiver has acknowledged.
struct Counting {
    http: Http,
    answered: Arc<AtomicU64>,
}

impl Transport for Counting {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (delivering, answered) = (self.http.deliver(link, batch, timeout), Arc::clone(&self.answered));
        Box::pin(async move {
            let answers = delivering.await?;
            let good = |answer: &&Answer| matches!(answer, Answer::Done(_) | Answer::Duplicate(_));
            answered.fetch_add(answers.iter().filter(good).count() as u64, Ordering::Relaxed);
            Ok(answers)
        })
    }
}
