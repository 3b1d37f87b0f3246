//! The receiving process: a service as its user writes it, with a stop-watch where the answers come out.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use twobox::ports::{BoxFuture, Listen, Receive};
use twobox::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox::{Answer, Destination, HttpServer, Message, Running, Source, Sqlite, Twobox};

use super::latency::{self, Times};
use super::order::{BILLING, COUNT_ORDERS, CREATE_ORDERS, INSERT_ORDER, Order, SHOP, micros};
use super::process::{not_understood, serve};
use crate::{Result, runtime};

/// The file in the receiver's folder.
pub(crate) const FILE: &str = "billing.db";

/// The key both sides have.
pub(crate) fn keyring() -> Result<Keyring> {
    Ok(Keyring::new([Key::new(KeyId::new("bench-1")?, SecretKey::new(&[7; 32])?)])?)
}

/// Receives in `folder` until there are no more questions.
pub(crate) fn play(folder: &Path) -> Result<()> {
    let runtime = runtime()?;
    let stopwatch = Arc::new(Stopwatch::default());
    let billing = runtime.block_on(Billing::start(folder, &stopwatch))?;
    let address = json!({ "address": billing.address });
    serve(&address, |words| match words {
        ["time"] => {
            stopwatch.running.store(true, Ordering::Relaxed);
            Ok(json!({}))
        }
        ["times", path] => {
            latency::write(Path::new(path), &stopwatch.stop())?;
            Ok(json!({}))
        }
        ["count"] => runtime.block_on(billing.count()),
        _ => not_understood(words),
    })?;
    runtime.block_on(billing.running.shutdown());
    Ok(())
}

struct Billing {
    db: Sqlite,
    address: String,
    running: Running,
}

impl Billing {
    async fn start(folder: &Path, stopwatch: &Arc<Stopwatch>) -> Result<Self> {
        let db = Sqlite::open(folder.join(FILE)).await?;
        db.migrate().await?;
        db.transaction(|tx| tx.execute(CREATE_ORDERS, []).map(drop)).await?;
        let mut keyrings = Keyrings::new();
        keyrings.insert(&Source::new(SHOP)?, keyring()?)?;
        let server = HttpServer::signed("127.0.0.1:0", keyrings).await?;
        let address = server.local_addr().to_string();
        let service = Twobox::builder(BILLING, &db)
            .handle(|tx, order: Order, _| {
                tx.execute(INSERT_ORDER, (order.number, &order.customer, order.total))?;
                Ok(())
            })
            .listen(Timed { server, stopwatch: Arc::clone(stopwatch) })
            .build()?;
        Ok(Self { db, address, running: service.start() })
    }

    /// What must be there at the end, by SQL.
    async fn count(&self) -> Result<Value> {
        let inbox = count(&self.db, "SELECT count(*) FROM inbox WHERE status = 'Done'").await?;
        Ok(json!({ "inbox": inbox, "orders": count(&self.db, COUNT_ORDERS).await? }))
    }
}

/// A number that a query finds.
pub(crate) async fn count(db: &Sqlite, query: &'static str) -> Result<u64> {
    let count: Option<i64> = db.transaction(move |tx| tx.query_optional(query, [], |row| row.get(0))).await?;
    Ok(u64::try_from(count.unwrap_or_default())?)
}

/// When messages were done, while it runs.
#[derive(Debug, Default)]
struct Stopwatch {
    running: AtomicBool,
    times: Mutex<Times>,
}

impl Stopwatch {
    fn note(&self, numbers: &[Option<u64>], answers: &[Answer]) {
        let now = micros();
        let done = numbers.iter().zip(answers).filter(|(_, answer)| matches!(answer, Answer::Done(_)));
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.extend(done.filter_map(|(number, _)| number.map(|number| (number, now))));
    }

    fn stop(&self) -> Times {
        self.running.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A server whose receiver is timed.
struct Timed {
    server: HttpServer,
    stopwatch: Arc<Stopwatch>,
}

impl Listen for Timed {
    fn serve(
        &self,
        name: Destination,
        receiver: Arc<dyn Receive>,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()> {
        let timed = TimedReceiver { receiver, stopwatch: Arc::clone(&self.stopwatch) };
        self.server.serve(name, Arc::new(timed), shutdown)
    }

    fn check(&self) -> twobox::Result<()> {
        self.server.check()
    }
}

/// Looks at the clock when the receiver's commit is durable, which is when it answers.
struct TimedReceiver {
    receiver: Arc<dyn Receive>,
    stopwatch: Arc<Stopwatch>,
}

impl Receive for TimedReceiver {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, twobox::Result<Vec<Answer>>> {
        if !self.stopwatch.running.load(Ordering::Relaxed) {
            return self.receiver.receive(messages, budget);
        }
        let numbers: Vec<_> =
            messages.iter().map(|message| Order::number_in(message.payload.as_bytes())).collect();
        let (receiving, stopwatch) = (self.receiver.receive(messages, budget), Arc::clone(&self.stopwatch));
        Box::pin(async move {
            let answers = receiving.await?;
            stopwatch.note(&numbers, &answers);
            Ok(answers)
        })
    }
}
