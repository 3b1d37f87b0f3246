//! Running a workload once, on a recording disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use twobox_core::{BoxError, Error};
use twobox_sqlite::{Drive, Durability, Sqlite};
use twobox_testkit::disk::{Disk, Fault, Record};
use twobox_testkit::{SeededRandom, VirtualClock};

use super::{billing, shop};

/// Which half of the promise is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Enqueues in business transactions, relays, settles, sweeps.
    Shop,
    /// Handles messages in transactions with their inbox rows, answers duplicates, purges.
    Billing,
}

/// What is run before the cut.
#[derive(Clone, Copy, Debug)]
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
}

impl Workload {
    /// A workload of the default durability without faults.
    #[must_use]
    pub fn new(side: Side, seed: u64) -> Self {
        Self { side, seed, messages: 24, durability: Durability::Full, fault: None }
    }

    /// Runs it and returns what was done to the disk.
    ///
    /// # Errors
    /// If the store fails although nothing was made to fail.
    pub fn record(&self) -> Result<Record, BoxError> {
        let folder = folder()?;
        let disk = Arc::new(Disk::new(self.seed));
        let place = Place { path: folder.path().join(self.side.file()), disk: Some(Arc::clone(&disk)) };
        runtime()?.block_on(async {
            let store = Store::open(&place, self.seed, self.durability).await?;
            if let Some(fault) = self.fault {
                disk.fail(fault);
            }
            match self.side {
                Side::Shop => shop::work(&store, &disk, self).await,
                Side::Billing => billing::work(&store, &disk, self).await,
            }
        })?;
        Ok(disk.record())
    }
}

impl Side {
    /// The name of its database.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Shop => "shop.db",
            Self::Billing => "billing.db",
        }
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
pub(super) struct Store {
    pub(super) db: Sqlite,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) random: Arc<SeededRandom>,
    driver: tokio::task::JoinHandle<()>,
}

impl Store {
    pub(super) async fn open(place: &Place, seed: u64, durability: Durability) -> Result<Self, Error> {
        let (clock, random) = (Arc::new(VirtualClock::start()), Arc::new(SeededRandom::new(seed)));
        let mut builder = Sqlite::builder()
            .clock(Arc::clone(&clock) as _)
            .random(Arc::clone(&random) as _)
            .durability(durability)
            .drive(Drive::Manual);
        if let Some(disk) = &place.disk {
            builder = builder.vfs(disk.name());
        }
        let db = builder.open(&place.path).await?;
        let driver = tokio::spawn({
            let db = db.clone();
            async move { db.drive().await }
        });
        let store = Self { db, clock, random, driver };
        store.db.migrate().await?;
        Ok(store)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
