//! Replaying or purging many dead letters, or sending many messages again: in batches, at a pace, until none is left or somebody says stop.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{
    DeadLetter, DeadLetterFilter, DeadLetterStore, DeadWork, Queue, QueueStore, Replay, ResendFilter,
    ResendPlace, ResendStore, WorkFilter,
};
use twobox_core::{Result, Timestamp};

use crate::{Shutdown, Timer};

/// Messages of one batch: a few milliseconds of the writer.
const BATCH: NonZeroU32 = NonZeroU32::new(100).expect("is not zero");
/// A pace that leaves most of a receiver to everybody else.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("is not zero");

/// Something that is done to many dead letters, a batch at a time.
pub trait Batches: Send {
    /// Does it to the next dead letters, at most `limit`, in one commit. Only to those that died before `began`, and
    /// to none that an earlier batch came to: what is replayed and dies again waits for another call.
    fn next(&mut self, began: Timestamp, limit: usize) -> impl Future<Output = Result<Batch>> + Send;

    /// Whether what dies again, and is dated from this time on because the clock was set back, would be found again.
    fn finds_again(&self, _from: Timestamp) -> bool {
        false
    }
}

/// What one batch came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Dead letters it was done to.
    pub done: u64,
    /// Whether more are left.
    pub more: bool,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Dead letters it was done to so far.
    pub done: u64,
    /// Whether none is left of those that were there when it began.
    pub finished: bool,
}

/// Goes through dead letters in batches, at a pace.
///
/// Each batch is committed for itself. Whoever stops in between, or crashes, calls again and goes on with what is left.
pub struct Bulk {
    timer: Arc<dyn Timer>,
    batch: NonZeroU32,
    per_second: NonZeroU32,
}

impl Bulk {
    /// A hundred messages per second, in batches of a hundred.
    #[must_use]
    pub fn new(timer: Arc<dyn Timer>) -> Self {
        Self { timer, batch: BATCH, per_second: PER_SECOND }
    }

    /// Most messages of one batch. Default 100: a few milliseconds of the writer.
    #[must_use]
    pub fn batch(mut self, messages: NonZeroU32) -> Self {
        self.batch = messages;
        self
    }

    /// Most messages per second, so that what is replayed does not bury what is new. Default 100.
    #[must_use]
    pub fn per_second(mut self, messages: NonZeroU32) -> Self {
        self.per_second = messages;
        self
    }

    /// Goes through all of them, until none is left or it is asked to stop. Tells `progress` after every batch, and
    /// returns what it told last.
    ///
    /// # Errors
    /// The store's; what was told as done is done, and calling again goes on.
    ///
    /// # Cancel safety
    /// Dropping the future leaves every batch either done or not.
    pub async fn run(
        &self,
        mut batches: impl Batches,
        mut shutdown: Shutdown,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<Progress> {
        // A batch is no larger than what a second may take, or a slow pace would come in lumps.
        let limit = usize::try_from(self.batch.min(self.per_second).get()).unwrap_or(usize::MAX);
        let mut began = self.timer.now();
        let mut looked = self.timer.monotonic();
        let mut sum = Progress::default();
        while !shutdown.is_requested() {
            let start = self.timer.monotonic();
            // When the clock is set back, what dies again is dated before this call began, but not before the last
            // look, by the new time. Whatever is dated later is left to another call, rather than done twice.
            let last = self.timer.now().minus(start.saturating_sub(looked));
            if last < began && batches.finds_again(last) {
                began = last;
            }
            looked = start;
            let batch = batches.next(began, limit).await?;
            sum = Progress { done: sum.done + batch.done, finished: !batch.more };
            progress(sum);
            if sum.finished {
                break;
            }
            let next = start + self.time_for(batch.done);
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = self.timer.sleep(next.saturating_sub(self.timer.monotonic())) => {}
            }
        }
        Ok(sum)
    }

    /// How long the pace wants this many messages to take. A batch that came to nothing counts as one: nothing spins.
    fn time_for(&self, messages: u64) -> Duration {
        let messages = u32::try_from(messages.max(1)).unwrap_or(u32::MAX);
        Duration::from_secs(1) * messages / self.per_second.get()
    }
}

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk")
            .field("batch", &self.batch)
            .field("per_second", &self.per_second)
            .finish_non_exhaustive()
    }
}

/// The dead letters of an outbox, for [`Bulk`]: goes through them from the oldest death to the youngest.
#[derive(Clone, Debug)]
pub struct OutboxLetters<S: DeadLetterStore> {
    store: S,
    filter: DeadLetterFilter,
    act: Act,
    after: Option<DeadLetter<S::Position>>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Replay(Replay, Duration),
    Purge,
}

impl<S: DeadLetterStore> OutboxLetters<S> {
    /// Sends those that match again, with this time to live.
    #[must_use]
    pub fn replay(store: S, filter: DeadLetterFilter, replay: Replay, ttl: Duration) -> Self {
        Self { store, filter, act: Act::Replay(replay, ttl), after: None }
    }

    /// Removes those that match.
    #[must_use]
    pub fn purge(store: S, filter: DeadLetterFilter) -> Self {
        Self { store, filter, act: Act::Purge, after: None }
    }
}

impl<S: DeadLetterStore> Batches for OutboxLetters<S> {
    async fn next(&mut self, began: Timestamp, limit: usize) -> Result<Batch> {
        let before = self.filter.died_before.map_or(began, |before| before.min(began));
        let filter = DeadLetterFilter { died_before: Some(before), ..self.filter.clone() };
        let mut page = self.store.dead_letter_page(&filter, self.after.as_ref(), limit).await?;
        let deaths = page.deaths();
        let done = match self.act {
            Act::Replay(replay, ttl) => self.store.replay_deaths(deaths, replay, ttl).await?,
            Act::Purge => self.store.purge_deaths(deaths).await?,
        };
        self.after = page.letters.pop().or(self.after.take());
        Ok(Batch { done, more: page.more })
    }

    fn finds_again(&self, from: Timestamp) -> bool {
        self.after.as_ref().is_some_and(|after| after.died < from)
    }
}

/// The dead letters of an inbox, for [`Bulk`]: goes through them from the oldest death to the youngest.
#[derive(Clone, Debug)]
pub struct InboxLetters<S> {
    store: S,
    queue: Queue,
    filter: WorkFilter,
    replays: bool,
    after: Option<DeadWork>,
}

impl<S: QueueStore> InboxLetters<S> {
    /// Runs those that match again.
    #[must_use]
    pub fn replay(store: S, queue: Queue, filter: WorkFilter) -> Self {
        Self { store, queue, filter, replays: true, after: None }
    }

    /// Removes those that match.
    #[must_use]
    pub fn purge(store: S, queue: Queue, filter: WorkFilter) -> Self {
        Self { store, queue, filter, replays: false, after: None }
    }
}

impl<S: QueueStore> Batches for InboxLetters<S> {
    async fn next(&mut self, began: Timestamp, limit: usize) -> Result<Batch> {
        let before = self.filter.died_before.map_or(began, |before| before.min(began));
        let filter = WorkFilter { died_before: Some(before), ..self.filter.clone() };
        let consumer = &self.queue.consumer;
        let mut page = self.store.dead_work_page(consumer, &filter, self.after.as_ref(), limit).await?;
        let deaths = page.deaths();
        let done = if self.replays {
            self.store.replay_work_deaths(&self.queue, deaths).await?
        } else {
            self.store.purge_work_deaths(&self.queue, deaths).await?
        };
        self.after = page.letters.pop().or(self.after.take());
        Ok(Batch { done, more: page.more })
    }

    fn finds_again(&self, from: Timestamp) -> bool {
        self.after.as_ref().is_some_and(|after| after.died < from)
    }
}

/// The sent messages of an outbox, for [`Bulk`]: sends those that match again, lane by lane, in log order.
#[derive(Clone, Debug)]
pub struct SentMessages<S: ResendStore> {
    store: S,
    filter: ResendFilter,
    ttl: Duration,
    from: Option<ResendPlace<S::Position>>,
}

impl<S: ResendStore> SentMessages<S> {
    /// Sends those that match again; each is worth delivering for at least `ttl` from then.
    #[must_use]
    pub fn resend(store: S, filter: ResendFilter, ttl: Duration) -> Self {
        Self { store, filter, ttl, from: None }
    }
}

impl<S: ResendStore> Batches for SentMessages<S> {
    async fn next(&mut self, began: Timestamp, limit: usize) -> Result<Batch> {
        // What an earlier batch has sent again is sent once more only if somebody asks for it later.
        let before = self.filter.before.map_or(began, |before| before.min(began));
        let filter = ResendFilter { before: Some(before), ..self.filter.clone() };
        let resent = self.store.resend(&filter, self.from.as_ref(), limit, self.ttl).await?;
        self.from = resent.next;
        Ok(Batch { done: resent.resent, more: self.from.is_some() })
    }
}
