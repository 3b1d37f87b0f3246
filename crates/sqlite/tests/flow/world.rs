//! A database, a relay and the clock they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{LaneStatus, LaneStore, Transport};
use twobox_core::{Clock, Destination, Message, MessageId, NewMessage, Source, Stamp, Timestamp};
use twobox_engine::relay::{DeadLetterCallback, RelayBuilder, RelayOptions};
use twobox_engine::{Relay, Shutdown, ShutdownHandle, Timer};
use twobox_sqlite::{Drive, Sqlite};
use twobox_testkit::{SeededRandom, VirtualClock, eventually};

/// Long enough for anything that is going to happen.
pub(crate) const EVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// One database with its clock.
pub(crate) struct World {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) db: Sqlite,
    pub(crate) random: Arc<SeededRandom>,
    stamp: Stamp,
    _directory: TempDir,
    driver: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_seed(1).await
    }

    pub(crate) async fn with_seed(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::start());
        let random = Arc::new(SeededRandom::new(seed));
        let directory = tempfile::tempdir().unwrap();
        let builder = Sqlite::builder().clock(Arc::clone(&clock) as _).random(Arc::clone(&random) as _);
        let db = builder.drive(Drive::Manual).open(directory.path().join("boxes.db")).await.unwrap();
        let driver = tokio::spawn({
            let db = db.clone();
            async move { db.drive().await }
        });
        db.migrate().await.unwrap();
        let stamp =
            Stamp::new(Source::new("shop").unwrap(), Arc::clone(&clock) as _, Arc::clone(&random) as _);
        Self { clock, db, random, stamp, _directory: directory, driver }
    }

    /// The writer does nothing more.
    pub(crate) fn stall_writer(&self) {
        self.driver.abort();
    }

    pub(crate) fn message(&self, id: &str, destination: &str) -> NewMessage {
        NewMessage::json(destination, "Pay", &id).unwrap().id(MessageId::new(id).unwrap())
    }

    pub(crate) fn stamped(&self, new: &NewMessage) -> Message {
        self.stamp.message(new).unwrap()
    }

    pub(crate) async fn enqueue(&self, messages: Vec<NewMessage>) {
        let messages: Vec<Message> = messages.iter().map(|new| self.stamped(new)).collect();
        let db = self.db.clone();
        let append =
            self.db.transaction(move |tx| messages.iter().try_for_each(|message| db.append(tx, message)));
        append.await.unwrap();
    }

    /// Enqueues `count` messages called `prefix0`, `prefix1`, … for billing.
    pub(crate) async fn enqueue_many(&self, prefix: &str, count: usize) -> Vec<String> {
        let ids: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
        self.enqueue(ids.iter().map(|id| self.message(id, "billing")).collect()).await;
        ids
    }

    pub(crate) fn relay(&self, transports: &[(&str, Arc<dyn Transport>)], options: RelayOptions) -> Running {
        self.relay_with(transports, options, None)
    }

    pub(crate) fn relay_by_default(
        &self,
        transports: &[(&str, Arc<dyn Transport>)],
        default: Arc<dyn Transport>,
    ) -> Running {
        start(self.builder(transports, RelayOptions::default()).default_transport(default))
    }

    pub(crate) fn relay_with(
        &self,
        transports: &[(&str, Arc<dyn Transport>)],
        options: RelayOptions,
        callback: Option<DeadLetterCallback<i64>>,
    ) -> Running {
        let mut relay = self.builder(transports, options);
        if let Some(callback) = callback {
            relay = relay.on_dead_letter(callback);
        }
        start(relay)
    }

    fn builder(
        &self,
        transports: &[(&str, Arc<dyn Transport>)],
        options: RelayOptions,
    ) -> RelayBuilder<Sqlite> {
        let source = Source::new("shop").unwrap();
        let mut relay = Relay::builder(
            self.db.clone(),
            source,
            Arc::clone(&self.clock) as _,
            Arc::clone(&self.random) as _,
        )
        .options(options);
        for (destination, transport) in transports {
            relay = relay.destination(Destination::new(destination).unwrap(), Arc::clone(transport)).unwrap();
        }
        relay
    }

    pub(crate) async fn status(&self, id: &str) -> Option<(String, u32)> {
        let found = self.db.message_status(&MessageId::new(id).unwrap()).await.unwrap();
        found.map(|found| (found.status, found.attempts))
    }

    pub(crate) async fn is(&self, id: &str, status: &str) -> bool {
        self.status(id).await.is_some_and(|(found, _)| found == status)
    }

    /// Waits until the message has this status.
    pub(crate) async fn until(&self, id: &str, status: &str) {
        let what = format!("{id} becomes {status}");
        eventually(&what, EVER, async || self.is(id, status).await.then_some(())).await;
    }

    pub(crate) async fn lane(&self, destination: &str) -> LaneStatus {
        self.find_lane(destination).await.expect("the lane exists")
    }

    async fn find_lane(&self, destination: &str) -> Option<LaneStatus> {
        let lanes = self.db.lanes().await.unwrap();
        lanes.into_iter().find(|lane| lane.destination.as_str() == destination)
    }

    /// Waits until this many messages of billing were sent.
    pub(crate) async fn until_sent(&self, count: u64) {
        let what = format!("{count} messages are sent");
        eventually(&what, EVER, async || self.find_lane("billing").await.filter(|lane| lane.sent >= count))
            .await;
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    pub(crate) async fn query<T: Send + 'static>(
        &self,
        sql: &'static str,
        read: impl Fn(&twobox_sqlite::Row<'_>) -> twobox_core::Result<T> + Send + Sync + 'static,
    ) -> Vec<T> {
        self.db.transaction::<_, twobox_core::Error, _>(move |tx| tx.query(sql, [], &read)).await.unwrap()
    }
}

/// Counts how often somebody looks at the clock, as every turn of a loop does.
#[derive(Debug)]
pub(crate) struct Counting {
    clock: Arc<VirtualClock>,
    looks: AtomicUsize,
}

impl Counting {
    pub(crate) fn new(world: &World) -> Arc<Self> {
        Arc::new(Self { clock: Arc::clone(&world.clock), looks: AtomicUsize::new(0) })
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }
}

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.clock.monotonic()
    }
}

impl Timer for Counting {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

/// A running relay.
pub(crate) struct Running {
    pub(crate) handle: ShutdownHandle,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.handle.request();
        self.handle.request(); // stopping twice is fine (S20)
        self.task.await.unwrap();
    }

    /// As if the process had died: nothing is settled, nothing is given back.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

fn start(relay: RelayBuilder<Sqlite>) -> Running {
    let (handle, shutdown) = Shutdown::new();
    let task = tokio::spawn(relay.build().unwrap().run(shutdown));
    Running { handle, task }
}

/// Names of a series.
pub(crate) fn series(prefix: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{prefix}{n}")).collect()
}
