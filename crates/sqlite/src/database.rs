//! The handle: opening, transactions, reading.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, LazyLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;
use twobox_core::meters::Meters;
use twobox_core::{Clock, Error, ErrorKind, Random, Result, Source, crash_point, mutant};

use crate::connection::Opener;
use crate::guard::Inside;
use crate::options::{Drive, Options, SqliteBuilder};
use crate::presence::{self, Presence};
use crate::reader::Readers;
use crate::shared::{BoxState, FileIdentity, Shared, touch};
use crate::sync::Mutex;
use crate::wake::Watcher;
use crate::writer::{Checkpointer, Class, ClosureJob, Core, Job, Late, Open, Queue, Queued, WriterThread};
use crate::{SqliteTx, schema};

/// As many milliseconds as SQLite can count: 24 days.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// A SQLite database with an outbox and an inbox. Cheap to clone.
///
/// When the last handle to a file is dropped, what is queued is finished and the file is closed; that can take
/// as long as one transaction.
#[derive(Clone)]
pub struct Sqlite {
    database: Arc<Database>,
    pub(crate) state: Arc<BoxState>,
    pub(crate) options: Arc<Options>,
}

/// One open file. Threads end when it is dropped.
struct Database {
    shared: Arc<Shared>,
    core: Arc<Mutex<Core>>,
    queue: Arc<Queue>,
    checkpointer: Option<Arc<Checkpointer>>,
    sweeper_id: String,
    presence: Mutex<Option<Presence>>,
    watcher: Option<Watcher>,
    thread: Option<WriterThread>,
}

/// The files that are open in this process: a second writer for one of them would be a second lock holder.
static OPEN: LazyLock<std::sync::Mutex<HashMap<FileIdentity, Weak<Database>>>> =
    LazyLock::new(Default::default);

impl SqliteBuilder {
    /// Opens the file, creating it if it does not exist. Creates no tables: see [`Sqlite::migrate`].
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt), [`ReadOnly`](ErrorKind::ReadOnly) or
    /// [`Unavailable`](ErrorKind::Unavailable) if it cannot be used,
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the linked SQLite is too old, an option is beyond its limit or the
    /// file is open in this process with another durability, [`Schema`](ErrorKind::Schema) if a newer version has migrated it.
    #[expect(
        clippy::unused_async,
        reason = "opening is one blocking moment today; callers must not depend on it"
    )]
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Sqlite> {
        let mut options = self.options;
        options.check()?;
        options.busy_timeout = options.busy_timeout.min(BUSY_TIMEOUT_MAX);
        let database = Database::open(path.as_ref(), &options)?;
        // One file, one clock: the writer's. Monotonic times of two clocks cannot be compared.
        options.clock = Arc::clone(&database.shared.options.clock);
        options.random = Arc::clone(&database.shared.options.random);
        options.meters = Arc::clone(&database.shared.options.meters);
        let options = Arc::new(options);
        let state = database.shared.box_state(&options.prefix);
        let found = database
            .shared
            .readers
            .with_checkpointer(|connection| schema::version(connection, &options.prefix, &state.sql))?;
        if found > schema::version_wanted() {
            schema::check(found, &options.prefix)?;
        }
        if found == schema::version_wanted() {
            state.set_migrated();
        }
        Ok(Sqlite { database, state, options })
    }
}

/// Whether this process has the file open.
pub(crate) fn is_open_here(path: &Path) -> bool {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = FileIdentity::of(path).and_then(|identity| open.get(&identity)?.upgrade());
    drop(open); // the last handle to a file must not be dropped with the list locked
    known.is_some()
}

impl Database {
    fn open(path: &Path, options: &Options) -> Result<Arc<Self>> {
        let opener = Opener::new(path, options)?;
        if !opener.is_plain_file() {
            return Self::start(&opener, options);
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, database| database.strong_count() > 0);
        let known = FileIdentity::of(&opener.path).and_then(|identity| open.get(&identity)?.upgrade());
        if let Some(database) = known {
            return database.agree(options);
        }
        let database = Self::start(&opener, options)?;
        if let Some(identity) = FileIdentity::of(&database.shared.opener.path) {
            open.insert(identity, Arc::downgrade(&database));
        }
        Ok(database)
    }

    fn agree(self: Arc<Self>, options: &Options) -> Result<Arc<Self>> {
        let (here, there) = (options.durability, self.shared.options.durability);
        if here == there && options.drive == self.shared.options.drive {
            return Ok(self);
        }
        Err(Error::new(
            ErrorKind::Misconfigured,
            format!(
                "the file is open in this process with durability {there:?}, not {here:?}, or is driven otherwise: use the same everywhere"
            ),
        ))
    }

    fn start(opener: &Opener, options: &Options) -> Result<Arc<Self>> {
        let readers = Readers::new(opener.clone(), options.readers, options.drive)?;
        let mut shared = Shared::new(opener.clone(), options.clone(), readers);
        let doubt = match opener.write_log_again(options.check_bytes_max) {
            // Without room the log cannot be copied. It can be read; before anything is written, it is tried again.
            Err(error) if error.kind() == ErrorKind::Full => Some(error),
            copied => copied.map(|()| None)?,
        };
        crash_point!("open.checked");
        let open = Open::new(opener.writer(options.durability)?, options)?; // creates the file
        crash_point!("open.file-made");
        shared.remember_file();
        let shared = Arc::new(shared);
        if let Some(error) = doubt {
            // Not as one of room: nobody has vouched for what is in the log, so nothing may be told from it.
            shared.raise_doubt(Error::new(ErrorKind::Unavailable, error.chain()));
        }
        let core = Arc::new(Mutex::new(Core::new(Arc::clone(&shared), open)));
        let queue = Arc::new(Queue::new(options.queue_max));
        let (mut checkpointer, mut thread, mut watcher) = (None, None, None);
        if options.drive == Drive::Thread {
            let running = Checkpointer::spawn(Arc::clone(&shared))?;
            let started = WriterThread::spawn(Arc::clone(&core), Arc::clone(&queue), Arc::clone(&running));
            thread = Some(started.inspect_err(|_| running.close())?);
            checkpointer = Some(running);
            watcher = opener.is_plain_file().then(|| Watcher::spawn(&shared, &core)).flatten();
        }
        let sweeper_id = format!("{:016x}", options.random.next_u64());
        Ok(Arc::new(Self {
            shared,
            core,
            queue,
            checkpointer,
            sweeper_id,
            presence: Mutex::default(),
            watcher,
            thread,
        }))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.checkpointer.iter().for_each(|checkpointer| checkpointer.close());
        // The writer finishes what is queued; then every connection goes, so that the file is closed when we are. Its own
        // is the last: it copies the log, unless there are doubts about that.
        drop((self.thread.take(), self.watcher.take()));
        // A closure that holds the last handle is dropped on the writer's own thread, in the middle of a step: then the
        // connection is closed when that thread ends.
        self.shared.readers.shut_down();
        self.checkpointer.iter().for_each(|checkpointer| checkpointer.join());
        if let Ok(mut core) = self.core.try_lock() {
            core.close();
        }
    }
}

impl Sqlite {
    /// Opens a file with the defaults. See [`SqliteBuilder::open`].
    ///
    /// # Errors
    /// As [`SqliteBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path).await
    }

    /// Options for opening a file.
    pub fn builder() -> SqliteBuilder {
        SqliteBuilder { options: Options::default() }
    }

    /// Creates or upgrades the tables. Safe to call at every start and from several processes at once.
    ///
    /// # Errors
    /// [`Schema`](ErrorKind::Schema) if a newer version has migrated the file, or the database's own error.
    pub async fn migrate(&self) -> Result<()> {
        if self.state.is_migrated() {
            return Ok(()); // also without room to write anything
        }
        let prefix = self.options.prefix.clone();
        self.write(Class::Synced, move |tx| schema::migrate(tx.connection, &prefix, tx.sql)).await?;
        crash_point!("migrate.committed");
        self.state.set_migrated();
        Ok(())
    }

    /// The migrations as SQL, for a migration tool of your own.
    #[must_use]
    pub fn migrations_sql(&self) -> String {
        schema::print(&self.options.prefix)
    }

    /// Runs `work` in a transaction that commits together with those of other callers, and returns once that
    /// commit is durable.
    ///
    /// `work` may run more than once, because a neighbour may spoil the shared transaction; only one run
    /// commits. It gets its own savepoint, so its failure undoes its own work alone.
    ///
    /// # Errors
    /// The closure's own error, or the database's. [`CommitUnknown`](ErrorKind::CommitUnknown): it may have
    /// committed; repeat it under the same [once key](crate::Once). [`Reentrant`](ErrorKind::Reentrant): called
    /// from inside a transaction.
    ///
    /// # Cancel safety
    /// Dropping the future before it was first polled does nothing; after that the transaction may commit.
    pub async fn transaction<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        F: FnMut(&mut SqliteTx<'_>) -> std::result::Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.write(Class::Caller, work).await
    }

    /// Runs one group of queued transactions on the calling thread, when opened with [`Drive::Manual`]. Returns
    /// whether there was anything to do.
    pub fn step(&self) -> bool {
        if Inside::refuse().is_err() {
            return false; // called from inside a transaction, which is a step already
        }
        let mut jobs = self.database.queue.drain();
        let mut core = crate::writer::lock(&self.database.core);
        let any = !jobs.is_empty();
        while !jobs.is_empty() {
            let rest = core.step(jobs, &mut Late::nobody(&*self.options.clock));
            jobs = rest.with(VecDeque::new());
        }
        core.tick();
        core.checkpoint_inline();
        any
    }

    /// Steps whenever something is queued, for ever: drives a database opened with [`Drive::Manual`] from a
    /// task of a single-threaded runtime.
    pub async fn drive(&self) {
        loop {
            while self.step() {}
            self.database.queue.arrived().await;
        }
    }

    /// The clock the store dates things with.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.options.clock)
    }

    /// The store's source of chance.
    #[must_use]
    pub fn random(&self) -> Arc<dyn Random> {
        Arc::clone(&self.options.random)
    }

    /// The figures of this database, also for whatever else runs in the same node. All handles to a file share those of
    /// the one that was opened first.
    #[must_use]
    pub fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.options.meters)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.database.shared.opener.path
    }

    /// Runs `work` on the writer, as durable as `class` asks.
    pub(crate) async fn write<T, E, F>(&self, class: Class, work: F) -> std::result::Result<T, E>
    where
        F: FnMut(&mut SqliteTx<'_>) -> std::result::Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (job, receiver) = ClosureJob::new(class, work);
        self.submit(job).await?;
        let job = receiver.await.map_err(|_| Error::new(ErrorKind::Stopped, "the database is closed"))?;
        job.outcome()
    }

    /// Queues a job for the writer.
    pub(crate) async fn submit(&self, job: Box<dyn Job>) -> Result<()> {
        Inside::refuse()?;
        let permit = self.database.queue.place(job.class()).await?;
        self.database.queue.push(Queued { job, state: Arc::clone(&self.state), _permit: permit })
    }

    /// What the watcher of the file knows.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> (&Arc<Shared>, &Arc<Mutex<Core>>) {
        (&self.database.shared, &self.database.core)
    }

    /// A relay has come so far with the log: the writer may be waiting for it.
    pub(crate) fn note_reached(&self, source: &Source, upto: Option<i64>) {
        self.state.pace.reached(source, upto, self.options.clock.monotonic());
        self.database.queue.nudge();
    }

    /// Runs a short read.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection, &crate::sql::Sql) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        Inside::refuse()?;
        let sql = Arc::clone(&self.state.sql);
        self.database.shared.readers.read(move |connection| query(connection, &sql)).await
    }

    /// Completes once everything that is visible now would survive a power cut.
    pub(crate) async fn barrier(&self) -> Result<()> {
        self.write(Class::Barrier, |tx| touch(tx.connection, tx.sql).map_err(crate::error::wrap("sync")))
            .await
    }

    /// Fails unless this is a transaction on the same file: a message must be in the file of the rows it belongs to (S1).
    pub(crate) fn check_tx(&self, tx: &SqliteTx<'_>) -> Result<()> {
        if tx.file == self.database.shared.id() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the transaction is on another database than {}: enqueue with the outbox of the same file",
            self.path().display()
        )))
    }

    /// Who sweeps, when several processes could.
    pub(crate) fn sweeper_id(&self) -> String {
        self.database.sweeper_id.clone()
    }

    /// The name under which lanes are leased: others can tell from it whether this process still lives. The first
    /// call makes a file, so a process that does not relay leaves none.
    pub(crate) fn owner(&self, owner: &str) -> String {
        let opener = &self.database.shared.opener;
        let mut presence = self.database.presence.lock().unwrap_or_else(PoisonError::into_inner);
        if opener.is_plain_file() && !presence.as_ref().is_some_and(Presence::is_shown) {
            let name = format!("{:016x}", self.options.random.next_u64());
            let micros = u64::try_from(self.options.clock.now().as_micros()).unwrap_or(0);
            let now = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
            *presence = Presence::show(&opener.path, name, now);
        }
        presence.as_ref().map_or_else(|| owner.into(), |presence| presence.owner(owner))
    }

    /// Whether the process that leases lanes under this name is known to be dead.
    pub(crate) fn is_dead(&self, owner: &str) -> bool {
        presence::is_dead(self.path(), owner)
    }

    /// What everybody who uses the file shares.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.database.shared
    }

    pub(crate) fn epoch(&self) -> u64 {
        if mutant!(LaneKeptAfterReopen) { 1 } else { self.database.shared.epoch() }
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn wake_all(&self) {
        self.database.shared.wake_all();
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
