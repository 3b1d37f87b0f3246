//! A node and its processes: they come up, they are cut, and the disk is all that is left of them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use twobox_core::{BoxError, Error, ErrorKind, Random as _, Source, Stamp};
use twobox_engine::{Receiver, Shutdown, ShutdownHandle, Sweeper};
use twobox_sqlite::{Drive, Durability, Sqlite};
use twobox_testkit::SeededRandom;
use twobox_testkit::disk::Disk;
use twobox_testkit::history::Event;

use super::clock::{ProcessClock, Wall};
use super::network::Network;
use super::stage::{SECOND, Stage, lock};
use super::tally::Kind;
use super::{handlers, relays, work};

/// Rows of authors and effects of handlers, beside the boxes in one file.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS orders (place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS effects (place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, of TEXT NOT NULL)",
];

/// The one thing that SQLite's own chance has chosen. It stands in every request, and what a changed bit makes of a
/// request depends on the bits.
const NAME_OUTBOX: &str = "UPDATE twobox_meta SET value = '0123456789abcdef' WHERE name = 'outbox_instance' AND value <> '0123456789abcdef'";

/// What the receiver has stored, and whether a worker had it.
const QUEUE: &str = "
    SELECT coalesce(i.message_id, 'nobody''s'), q.lease_owner IS NOT NULL
    FROM inbox_queue AS q LEFT JOIN inbox AS i ON i.row_id = q.item_id
    ORDER BY q.item_id";

/// A dead process is gone within this time, or something keeps it alive for ever.
const DYING: Duration = Duration::from_secs(60);

/// A task that ends when nobody holds it any more.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A machine: a disk, a clock, and a process most of the time.
pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) peer: Arc<str>,
    pub(super) disk: Arc<Disk>,
    pub(super) wall: Arc<Wall>,
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    /// Whether a second process relays from its outbox.
    pub(super) has_second_relay: bool,
    /// Whether a failed sync may drop pages.
    pub(super) may_drop_pages: bool,
    pub(super) running: Mutex<Option<Arc<Process>>>,
    /// Somebody wants its power cut.
    pub(super) cut_wanted: AtomicBool,
}

impl Node {
    /// The process, if there is one that lives.
    pub(super) fn process(&self) -> Option<Arc<Process>> {
        lock(&self.running).clone().filter(|process| process.is_alive())
    }
}

/// A process: the real store and the real engines.
pub(super) struct Process {
    pub(super) db: Sqlite,
    pub(super) clock: Arc<ProcessClock>,
    pub(super) stamp: Stamp,
    pub(super) receiver: Receiver<Sqlite>,
    /// Its store has stopped, or a part of it has ended: it has to be started again.
    pub(super) is_broken: AtomicBool,
    has_ended: AtomicBool,
    /// Closed when it ends. Whoever waits is woken in order, which a watch does not do.
    ends: Arc<Semaphore>,
    disk: Arc<Disk>,
    parts: Mutex<Vec<Task>>,
    _sweeper: ShutdownHandle,
    driver: Task,
    /// References to the clock that the store alone has.
    bare: usize,
}

impl Process {
    /// Whether what it does still counts. A process whose power is gone may not know it yet.
    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst) && !self.disk.is_off()
    }

    /// Whether a part has ended that never should.
    pub(super) fn is_incomplete(&self) -> bool {
        lock(&self.parts).iter().any(Task::is_over)
    }

    /// If its store has stopped for good, as an error says, it has to be started again.
    pub(super) fn note_stopped(&self, error: &Error) {
        if error.kind() == ErrorKind::Stopped {
            self.is_broken.store(true, Ordering::SeqCst);
        }
    }

    /// Opens the store, which recovers, and starts the engines.
    pub(super) async fn start(
        stage: &Arc<Stage>,
        node: &Arc<Node>,
        network: &Arc<Network>,
    ) -> Result<Arc<Self>, Error> {
        let clock = Arc::new(ProcessClock::start(&node.wall));
        let random = Arc::new(SeededRandom::new(stage.chance()));
        let db = open(node, &clock, &random).await?;
        let bare = Arc::strong_count(&clock);
        let driver = drive(&db);
        db.migrate().await?;
        // Whoever swept last may do so for a minute, which is longer than most processes live. Often the minute is over.
        let (found, leased) = prepare(&db, stage.up_to(2) == 0).await?;
        if node.disk.is_off() {
            return Err(Error::new(ErrorKind::Unavailable, "the power is off"));
        }
        stage.note(&node.name, found);
        (0..leased).for_each(|_| stage.count(Kind::WorkLeft));
        let ends = Arc::new(Semaphore::new(0));
        let receiver = handlers::receiver(stage, node, &db, &clock, &ends)?;
        let mut parts = vec![relays::relay(stage, node, network, &db, &clock, &random)?];
        parts.push(work::worker(stage, node, &db, &clock, &random, &ends)?);
        if node.has_second_relay {
            parts.push(relays::second(stage, node, network));
        }
        let (sweeper, shutdown) = Shutdown::new();
        let sweeping = Sweeper::new(db.clone(), Arc::clone(&clock) as _).plan(stage.plan.sweep.clone());
        parts.push(Task::spawn(sweeping.interval(SECOND).run(shutdown)));
        let stamp = Stamp::new(Source::new(&*node.name)?, Arc::clone(&clock) as _, random).ttl(3600 * SECOND);
        Ok(Arc::new(Self {
            db,
            clock,
            stamp,
            receiver,
            is_broken: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            ends,
            disk: Arc::clone(&node.disk),
            parts: Mutex::new(parts),
            _sweeper: sweeper,
            driver,
            bare,
        }))
    }

    /// Lets everything of a process end whose power is off.
    ///
    /// Whoever waits for the store is told that it failed, by the store itself: nobody hears it any more.
    pub(super) async fn end(self: Arc<Self>) -> Result<(), BoxError> {
        self.has_ended.store(true, Ordering::SeqCst);
        self.ends.close();
        lock(&self.parts).clear();
        let mut shared = Some(self);
        let process =
            dying(|| Arc::try_unwrap(shared.take()?).map_err(|still| shared = Some(still)).ok()).await?;
        let Self { db, clock, stamp, receiver, driver, bare, .. } = process;
        drop((stamp, receiver));
        dying(|| (Arc::strong_count(&clock) <= bare).then_some(())).await?;
        driver.0.abort();
        dying(|| driver.is_over().then_some(())).await?;
        drop(db);
        dying(|| (Arc::strong_count(&clock) == 1).then_some(())).await
    }
}

/// Waits until something is gone.
async fn dying<T>(mut gone: impl FnMut() -> Option<T>) -> Result<T, BoxError> {
    let deadline = tokio::time::Instant::now() + DYING;
    loop {
        if let Some(value) = gone() {
            return Ok(value);
        }
        if tokio::time::Instant::now() > deadline {
            return Err("a process does not end: something holds on to it".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Opens the store of a node for one more process.
pub(super) async fn open(
    node: &Node,
    clock: &Arc<ProcessClock>,
    random: &Arc<SeededRandom>,
) -> Result<Sqlite, Error> {
    // Looking for damage takes as long as recovering. Some starts do; and the files are verified at the end.
    let check_bytes_max = if random.next_u64().is_multiple_of(8) { u64::MAX } else { 0 };
    Sqlite::builder()
        .check_bytes_max(check_bytes_max)
        .clock(Arc::clone(clock) as _)
        .random(Arc::clone(random) as _)
        .durability(node.durability)
        .vfs(node.disk.name())
        .drive(Drive::Manual)
        .open(&node.path)
        .await
}

/// Steps the store whenever something is queued.
pub(super) fn drive(db: &Sqlite) -> Task {
    let db = db.clone();
    Task::spawn(async move { db.drive().await })
}

/// Creates what is missing, and returns the messages that are there, and how many of them a worker had in hand.
async fn prepare(db: &Sqlite, sweeps: bool) -> Result<(Event, usize), Error> {
    db.transaction::<_, Error, _>(move |tx| {
        if sweeps {
            tx.execute("DELETE FROM twobox_meta WHERE name = 'sweeper'", [])?;
        }
        TABLES.iter().chain([&NAME_OUTBOX]).try_for_each(|sql| tx.execute(sql, []).map(drop))?;
        let effects = tx.query("SELECT id FROM effects ORDER BY place", [], |row| row.get(0))?;
        let queue = tx.query(QUEUE, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let leased = queue.iter().filter(|(_, is_leased)| *is_leased).count();
        let queued = queue.into_iter().map(|(id, _)| id).collect();
        Ok((Event::Recovered { effects, queued }, leased))
    })
    .await
}
