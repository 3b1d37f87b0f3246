//! Running a workload once, on a recording disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use twobox_core::ports::LogStore as _;
use twobox_core::{BoxError, Error, ErrorKind};
use twobox_engine::Timer as _;
use twobox_sqlite::{Drive, Durability, Sqlite};
use twobox_testkit::disk::{Disk, Fault, Kind, Record};
use twobox_testkit::{SeededRandom, VirtualClock};

use super::style::Style;
use super::told::READY;
use super::{billing, claims, queue, shop};

/// Which half of the promise is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Enqueues in business transactions, relays, settles, sweeps.
    Shop,
    /// Handles messages in transactions with their inbox rows, answers duplicates, purges.
    Billing,
    /// Stores messages for later, and handles them in transactions with the end of their work.
    Queue,
    /// Claims messages, handles them outside of the database, and notes their end.
    Claims,
}

impl Side {
    /// All.
    pub const ALL: [Self; 4] = [Self::Shop, Self::Billing, Self::Queue, Self::Claims];

    fn name(self) -> &'static str {
        match self {
            Self::Shop => "shop",
            Self::Billing => "billing",
            Self::Queue => "queue",
            Self::Claims => "claims",
        }
    }

    /// Creates its own tables.
    fn tables(self) -> &'static [&'static str] {
        const ORDERS: &str = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)";
        const EFFECTS: &str = "CREATE TABLE IF NOT EXISTS effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)";
        match self {
            Self::Shop => &[ORDERS],
            Self::Billing => &[EFFECTS],
            Self::Queue => &[ORDERS, EFFECTS],
            Self::Claims => &[],
        }
    }

    /// The name of its database.
    pub(super) fn file(self) -> String {
        format!("{self}.db")
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Side {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|side| side.name() == text);
        known.ok_or_else(|| Error::invalid(format!("no such side: {text}")))
    }
}

/// What is run before the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Which side.
    pub side: Side,
    /// Decides what happens in which order.
    pub seed: u64,
    /// How many messages there are.
    pub messages: usize,
    /// How the store is opened. Anything but `Full` must be found to lose messages.
    pub durability: Durability,
    /// A call of the disk that fails on the way.
    pub fault: Option<Fault>,
    /// How many calls in a row fail with it.
    pub fault_times: u64,
    /// Whether the queue's handlers commit their effects apart from the end of their work, which must be found to
    /// double them.
    pub apart: bool,
}

/// What a run has left.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: Record,
    /// What went wrong while it ran; nothing, if the store keeps its promise.
    pub(super) trouble: Option<String>,
    /// How many calls of each kind there were.
    pub(super) calls: Vec<(Kind, u64)>,
}

impl Workload {
    /// A workload of the default durability without faults.
    #[must_use]
    pub fn new(side: Side, seed: u64) -> Self {
        Self {
            side,
            seed,
            messages: 24,
            durability: Durability::Full,
            fault: None,
            fault_times: 1,
            apart: false,
        }
    }

    /// Whether what was acknowledged must be there. With the weaker durability a fault may take it; that a cut may is what
    /// a workload without faults is to find out.
    pub(super) fn keeps_acknowledged(&self) -> bool {
        self.durability == Durability::Full || self.fault.is_none()
    }

    /// How often something is tried again that a fault may have caused to fail.
    pub(super) fn tries(&self) -> u64 {
        if self.fault.is_some() { 10 + self.fault_times } else { 1 }
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<Run, BoxError> {
        let folder = folder()?;
        let disk = Arc::new(Disk::new(self.seed));
        if let Some(fault) = self.fault {
            disk.fail_times(fault, self.fault_times);
        }
        let place = Place { path: folder.path().join(self.side.file()), disk: Some(Arc::clone(&disk)) };
        let worked: Result<(), BoxError> = runtime()?.block_on(async {
            let store = Store::open_patiently(&place, self).await?;
            disk.mark(READY);
            match self.side {
                Side::Shop => shop::work(&store, &disk, self).await,
                Side::Billing => billing::work(&store, &disk, self).await,
                Side::Queue => queue::work(&store, &disk, self).await,
                Side::Claims => claims::work(&store, &disk, self).await,
            }
        });
        Ok(Run {
            record: disk.record(),
            trouble: worked.err().map(|error| twobox_core::chain(&*error)),
            calls: Kind::ALL.map(|kind| (kind, disk.calls(kind))).into(),
        })
    }
}

/// In memory if there is such a place: what survives is decided by the record, not by the machine.
pub(crate) fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// A runtime on which time jumps to the next timer.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// Where a database is, and on which disk.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) disk: Option<Arc<Disk>>,
}

/// A store that is stepped by a task on the same thread.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) db: Sqlite,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) random: Arc<SeededRandom>,
    driver: Arc<Driver>,
}

/// The task that steps a store. It ends with the last handle.
struct Driver(tokio::task::JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    pub(super) async fn open(place: &Place, workload: &Workload) -> Result<Self, Error> {
        let clock = Arc::new(VirtualClock::start());
        let random = Arc::new(SeededRandom::new(workload.seed));
        let mut builder = Sqlite::builder()
            .clock(Arc::clone(&clock) as _)
            .random(Arc::clone(&random) as _)
            .durability(workload.durability)
            .wal_pages_max(Style::of(workload.seed).wal_pages_max)
            .drive(Drive::Manual);
        if let Some(disk) = &place.disk {
            builder = builder.vfs(disk.name());
        }
        let db = builder.open(&place.path).await?;
        let driver = tokio::spawn({
            let db = db.clone();
            async move { db.drive().await }
        });
        let mut store = Self { db, clock, random, driver: Arc::new(Driver(driver)) };
        match store.set_up(workload).await {
            Ok(()) => Ok(store),
            Err(error) => {
                // Whoever opens it again has to find it closed, as after the end of a process.
                if let Some(driver) = Arc::get_mut(&mut store.driver) {
                    driver.0.abort();
                    let _: Result<(), _> = (&mut driver.0).await;
                }
                Err(error)
            }
        }
    }

    async fn set_up(&self, workload: &Workload) -> Result<(), Error> {
        self.db.migrate().await?;
        let tables = workload.side.tables();
        let create = self.db.transaction::<_, Error, _>(move |tx| {
            tables.iter().try_for_each(|table| tx.execute(table, []).map(drop))
        });
        create.await?;
        // With the weaker durability, too, whoever sets up a database sees to it that it is there.
        match self.db.make_durable(0, &i64::MAX).await {
            Err(error) if error.kind() != ErrorKind::LeaseLost => Err(error),
            _ => Ok(()), // there is no lease, but it is durable
        }
    }

    /// Opens it again when a fault has kept it from opening, as whoever runs a service does.
    async fn open_patiently(place: &Place, workload: &Workload) -> Result<Self, Error> {
        let mut tries = workload.tries();
        loop {
            tries -= 1;
            match Self::open(place, workload).await {
                Err(_) if tries > 0 => {}
                opened => return opened,
            }
        }
    }

    /// One column of text.
    pub(super) async fn names<C: FromIterator<String>>(&self, sql: &'static str) -> Result<C, Error> {
        let rows = self.db.transaction::<_, Error, _>(move |tx| tx.query(sql, [], |row| row.get(0)));
        rows.await.map(C::from_iter)
    }

    /// Does something again until it works, if it is to be expected that it does not at first.
    pub(super) async fn patiently<T, F>(
        &self,
        workload: &Workload,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = workload.tries();
        loop {
            tries -= 1;
            match attempt().await {
                Err(_) if tries > 0 => self.clock.sleep(Duration::from_millis(300)).await,
                result => return result,
            }
        }
    }
}
