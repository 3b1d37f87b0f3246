//! Where work waits for the writer.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use twobox_core::{Error, ErrorKind, Result, mutant};

use super::job::Job;
use crate::shared::BoxState;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A job with its place in the queue and the tables it works on.
pub(crate) struct Queued {
    pub(crate) job: Box<dyn Job>,
    pub(crate) state: Arc<BoxState>,
    /// Held until the job is answered: bounds what is queued.
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// A bounded queue with one consumer.
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    permits: Arc<Semaphore>,
    arrived: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Queued>,
    closed: bool,
    /// The consumer sleeps until this many jobs are there.
    wanted: Option<usize>,
}

impl Queue {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            permits: Arc::new(Semaphore::new(max.max(1))),
            arrived: tokio::sync::Notify::new(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())
    }

    /// Adds a job.
    pub(crate) fn push(&self, queued: Queued) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        state.jobs.push_back(queued);
        if state.wanted.is_some_and(|wanted| state.jobs.len() >= wanted) {
            state.wanted = None;
            drop(state);
            self.filled.notify_one();
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes everything, waiting up to `patience` for the first job. `None` once closed and empty.
    pub(crate) fn take(&self, patience: Duration) -> Option<VecDeque<Queued>> {
        self.wait(1, patience);
        let mut state = self.lock();
        if state.closed && state.jobs.is_empty() { None } else { Some(std::mem::take(&mut state.jobs)) }
    }

    /// Waits until `wanted` jobs are there, at most `patience`.
    pub(crate) fn wait(&self, wanted: usize, patience: Duration) {
        let mut state = self.lock();
        if state.closed || state.jobs.len() >= wanted {
            return;
        }
        if mutant!(WakeUpLost) {
            drop(state);
            crate::sync::thread::yield_now();
            state = self.lock();
        }
        state.wanted = Some(wanted);
        let (mut state, _) = self
            .filled
            .wait_timeout_while(state, patience, |state| state.wanted.is_some() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.wanted = None;
    }

    /// Takes what is there without waiting.
    pub(crate) fn drain(&self) -> VecDeque<Queued> {
        let mut state = self.lock();
        std::mem::take(&mut state.jobs)
    }

    /// Completes when something was pushed since the last call.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Refuses further jobs; what is queued still runs.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.permits.close();
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the database is closed")
}
