//! A receiver that costs nothing: it acknowledges everything and only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Link, Transport};
use twobox_core::system::SystemRandom;
use twobox_core::{Destination, Message, Response, Source};
use twobox_engine::{Relay, Shutdown, ShutdownHandle, SystemTimer};

use crate::Result;
use crate::store::{DESTINATION, SOURCE, Store};

/// Longer than any drain takes on a machine worth measuring.
const PATIENCE: Duration = Duration::from_secs(300);

/// See the [module](self).
#[derive(Debug)]
struct Sink {
    received: AtomicU64,
    wanted: u64,
    complete: Notify,
}

impl Transport for Sink {
    fn deliver(
        &self,
        _: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let count = batch.len() as u64;
        if self.received.fetch_add(count, Ordering::Relaxed) + count >= self.wanted {
            self.complete.notify_one();
        }
        let answers = vec![Answer::Done(Some(Response::empty())); batch.len()];
        Box::pin(async move { Ok(answers) })
    }
}

/// A relay that delivers into a sink.
#[derive(Debug)]
pub(crate) struct Draining {
    sink: Arc<Sink>,
    stop: ShutdownHandle,
    relay: JoinHandle<()>,
}

impl Draining {
    /// Starts delivering; `wanted` messages are expected.
    pub(crate) fn start(store: &Store, wanted: u64) -> Result<Self> {
        let sink = Arc::new(Sink { received: AtomicU64::new(0), wanted, complete: Notify::new() });
        let transport: Arc<dyn Transport> = Arc::clone(&sink) as Arc<dyn Transport>;
        let (timer, random) = (Arc::new(SystemTimer::default()), Arc::new(SystemRandom::default()));
        let relay = Relay::builder(store.db.clone(), Source::new(SOURCE)?, timer, random)
            .destination(Destination::new(DESTINATION)?, transport)?
            .build()?;
        let (stop, shutdown) = Shutdown::new();
        Ok(Self { sink, stop, relay: tokio::spawn(relay.run(shutdown)) })
    }

    /// Waits until everything has arrived.
    pub(crate) async fn complete(&self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.sink.complete.notified()).await.map_err(|_| {
            let received = self.sink.received.load(Ordering::Relaxed);
            format!("only {received} of {} messages arrived in {PATIENCE:?}", self.sink.wanted)
        })?;
        Ok(())
    }

    /// Lets the relay settle what was acknowledged and stop.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.request();
        self.relay.await?;
        Ok(())
    }
}

/// Delivers the `messages` that are waiting, and settles them.
pub(crate) async fn drain(store: &Store, messages: u64) -> Result<()> {
    let draining = Draining::start(store, messages)?;
    draining.complete().await?;
    draining.stop().await?;
    // What is settled is synced together, within a second; that belongs to it.
    Ok(store.db.transaction::<_, twobox::Error, _>(|_| Ok(())).await?)
}
