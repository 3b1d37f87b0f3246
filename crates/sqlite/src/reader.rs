//! Short reads beside the writer.

use std::sync::{Arc, PoisonError};

use rusqlite::Connection;
use tokio::sync::oneshot;
use twobox_core::{Error, ErrorKind, Result};

use crate::connection::Opener;
use crate::options::Drive;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::mpsc::{Receiver, Sender, channel};
use crate::sync::{Mutex, MutexGuard, thread};

/// A connection that is opened when first used and can be taken away between two uses.
type Slot = Mutex<Option<Connection>>;
type ReadJob = Box<dyn FnOnce(&Slots, usize) + Send>;

struct Slots {
    opener: Opener,
    slots: Vec<Slot>,
    /// Whether no connection is opened any more.
    closed: AtomicBool,
}

/// Threads that read, each with a connection of its own. The last slot belongs to the checkpointer, the one
/// before it to a backup. Without threads one connection is enough for all.
pub(crate) struct Readers {
    slots: Arc<Slots>,
    /// Whether somebody wants all connections closed: whoever reads for long gives up.
    closing: AtomicBool,
    jobs: Option<Mutex<Option<Sender<ReadJob>>>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// All connections are closed until this is dropped.
pub(crate) struct Closed<'a> {
    #[expect(dead_code, reason = "holds the locks")]
    guards: Vec<MutexGuard<'a, Option<Connection>>>,
    closing: &'a AtomicBool,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.closing.store(false, Ordering::Release);
    }
}

impl Readers {
    pub(crate) fn new(opener: Opener, threads: usize, drive: Drive) -> Result<Self> {
        let threads = threads.max(1);
        let places = if drive == Drive::Manual { 1 } else { threads + 2 };
        let slots = Arc::new(Slots {
            opener,
            slots: (0..places).map(|_| Slot::default()).collect(),
            closed: AtomicBool::new(false),
        });
        let mut running = Vec::new();
        let jobs = match drive {
            Drive::Manual => None,
            Drive::Thread => Some(Mutex::new(Some(spawn(&slots, threads, &mut running)?))),
        };
        Ok(Self { slots, closing: AtomicBool::new(false), jobs, threads: Mutex::new(running) })
    }

    /// Runs a query on a reader's thread, or on the caller's when driven manually.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(jobs) = &self.jobs else { return self.slots.with(0, query) };
        let (reply, receiver) = oneshot::channel();
        let job: ReadJob = Box::new(move |slots, slot| {
            let _: Result<(), _> = reply.send(slots.with(slot, query));
        });
        let sender = jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sender.ok_or_else(closed)?.send(job).map_err(|_| closed())?;
        receiver.await.map_err(|_| closed())?
    }

    pub(crate) fn with_checkpointer<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.slots.with(self.slots.slots.len() - 1, work)
    }

    /// Runs something long on a connection of its own, which is closed afterwards; only one at a time.
    ///
    /// It must ask [`is_closing`](Self::is_closing) again and again, and give up if so.
    pub(crate) fn with_backup<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let slot = &self.slots.slots[self.slots.slots.len().saturating_sub(2)];
        let Ok(_alone) = slot.try_lock() else {
            return Err(Error::new(ErrorKind::Busy, "a backup of this database is being made already"));
        };
        work(&self.slots.opener.reader()?)
    }

    /// Whether all connections are wanted closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Ends the threads and closes every connection. Copying the log is left to the writer, who knows whether it may be.
    pub(crate) fn shut_down(&self) {
        self.closing.store(true, Ordering::Release);
        self.slots.closed.store(true, Ordering::Release);
        self.jobs.iter().for_each(|jobs| drop(jobs.lock().unwrap_or_else(PoisonError::into_inner).take()));
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            let _: thread::Result<()> = thread.join();
        }
        for slot in &self.slots.slots {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.take().into_iter().for_each(crate::writer::close_without_checkpoint);
        }
    }

    /// Waits for running reads, closes every connection and keeps them closed until the result is dropped.
    pub(crate) fn close_all(&self) -> Closed<'_> {
        self.closing.store(true, Ordering::Release);
        let mut guards = Vec::with_capacity(self.slots.slots.len());
        for slot in &self.slots.slots {
            let mut guard = slot.lock().unwrap_or_else(PoisonError::into_inner);
            guard.take().into_iter().for_each(crate::writer::close_without_checkpoint);
            guards.push(guard);
        }
        Closed { guards, closing: &self.closing }
    }
}

impl Slots {
    fn with<T>(&self, slot: usize, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let mut slot = self.slots[slot].lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            if self.closed.load(Ordering::Acquire) {
                return Err(closed());
            }
            *slot = Some(self.opener.reader()?);
        }
        work(slot.as_ref().expect("just opened"))
    }
}

fn spawn(
    slots: &Arc<Slots>,
    threads: usize,
    running: &mut Vec<thread::JoinHandle<()>>,
) -> Result<Sender<ReadJob>> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for slot in 0..threads {
        let (slots, receiver) = (Arc::clone(slots), Arc::clone(&receiver));
        let thread = thread::Builder::new()
            .name(format!("twobox-reader-{slot}"))
            .spawn(move || {
                while let Some(job) = next(&receiver) {
                    job(&slots, slot);
                }
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a reader").with_source(error)
            })?;
        running.push(thread);
    }
    Ok(sender)
}

fn next(receiver: &Mutex<Receiver<ReadJob>>) -> Option<ReadJob> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the database is closed")
}
