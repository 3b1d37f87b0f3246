//! What tests of schedules reach inside the store for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use twobox_core::{Error, ErrorKind, Result};

use crate::shared::BoxState;
use crate::writer::{Budget, Class, Job, Left, Progress, Queue, Queued};
use crate::{Prefix, Sqlite, SqliteTx};

impl Sqlite {
    /// Lets the store know that somebody else has committed, as its watcher does.
    pub fn notice_foreign_commit(&self) {
        self.wake_all();
    }
}

/// The writer's queue by itself. Its jobs do nothing: they are committed and answered. Cheap to clone.
#[derive(Clone)]
pub struct BareQueue {
    queue: Arc<Queue>,
    state: Arc<BoxState>,
}

impl BareQueue {
    /// A queue with so many places.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { queue: Arc::new(Queue::new(max)), state: Arc::new(BoxState::new(Prefix::default())) }
    }

    /// The caller's side: waits for a place, queues a job, waits for the answer.
    ///
    /// # Errors
    /// [`Stopped`](ErrorKind::Stopped) if the queue is closed or the job was dropped.
    pub async fn submit(&self, committed: impl FnMut() + Send + 'static) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let permit = self.queue.place(Class::Synced).await?;
        let job = Box::new(BareJob { committed, reply: Some(reply) });
        self.queue.push(Queued { job, state: Arc::clone(&self.state), _permit: permit })?;
        answer.await.map_err(|_| Error::new(ErrorKind::Stopped, "the job was dropped"))?
    }

    /// The writer's side: takes everything, as it does.
    #[must_use]
    pub fn take(&self, patience: Duration) -> Option<Group> {
        self.queue.take(patience).map(Group)
    }

    /// The writer's side: waits for callers to come back, as it does.
    pub fn wait(&self, wanted: usize, patience: Duration) {
        self.queue.wait(wanted, patience);
    }

    /// Refuses further jobs.
    pub fn close(&self) {
        self.queue.close();
    }
}

impl fmt::Debug for BareQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareQueue").finish_non_exhaustive()
    }
}

/// What was taken from the queue at once.
pub struct Group(VecDeque<Queued>);

impl Group {
    /// How many jobs there are.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.0.len()
    }

    /// Commits all of them, then answers them.
    pub fn finish(mut self) {
        self.0.iter_mut().for_each(|queued| queued.job.committed());
        self.0.into_iter().for_each(|queued| drop(queued.job.answer(Ok(()))));
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("jobs", &self.0.len()).finish()
    }
}

struct BareJob<F> {
    committed: F,
    reply: Option<oneshot::Sender<Result<()>>>,
}

impl<F: FnMut() + Send + 'static> Job for BareJob<F> {
    fn class(&self) -> Class {
        Class::Synced
    }

    fn run(&mut self, _: &mut SqliteTx<'_>, _: &Budget<'_>) -> Progress {
        Progress::Finished
    }

    fn committed(&mut self) {
        (self.committed)();
    }

    fn rolled_back(&mut self) {}

    fn is_single(&self) -> bool {
        true
    }

    fn failed_alone(&mut self, _: Error) -> Progress {
        Progress::Finished
    }

    fn answer(mut self: Box<Self>, result: Result<()>) -> Left {
        let _: Option<std::result::Result<(), _>> = self.reply.take().map(|reply| reply.send(result));
        Some(self)
    }
}
