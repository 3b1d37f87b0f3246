//! What the writer runs: units of work that share a transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::sync::oneshot;
use twobox_core::{Clock, Error, Result};

use crate::tx::{SqliteTx, isolated};

/// Whether losing the work at a power cut matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It must be durable before it is acknowledged.
    Synced,
    /// As well, and whoever waits for it may be held while delivery is behind: a transaction of the user's.
    Caller,
    /// Losing it only causes work to be done again; synced within a second (W4).
    Lazy,
    /// Losing it changes nothing after a restart: lease renewals, what is shown to people.
    Ephemeral,
    /// It exists to make everything before it durable, whatever the configured durability.
    Barrier,
}

impl Class {
    /// Whether nobody waits for its commit: it rides along with the next one that somebody waits for.
    pub(crate) fn is_patient(self) -> bool {
        matches!(self, Self::Lazy | Self::Ephemeral)
    }

    /// Whether it is short work of relays, workers and the sweeper: leases, settlements, barriers. There is never much of
    /// it, and nothing gets done without it, so it does not wait for all the transactions that were queued before.
    pub(crate) fn is_short(self) -> bool {
        matches!(self, Self::Lazy | Self::Ephemeral | Self::Barrier)
    }

    /// Whether it is not to be held when callers are.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Self::Synced | Self::Barrier)
    }
}

/// How far a job got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All of it has run.
    Finished,
    /// The group's time was up; the rest joins the next group.
    More,
}

/// Time a group may take, shared by its jobs (W7).
pub(crate) struct Budget<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) until: Duration,
    /// Run one item, then let it commit alone: a neighbour has spoilt the shared transaction.
    pub(crate) one_by_one: bool,
}

impl Budget<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.one_by_one || self.clock.monotonic() >= self.until
    }
}

/// A unit of work. It may run several times; only what was followed by [`committed`](Job::committed) counts.
pub(crate) trait Job: Send {
    fn class(&self) -> Class;

    /// Runs inside the open transaction, isolating its own failures in savepoints.
    fn run(&mut self, tx: &mut SqliteTx<'_>, budget: &Budget<'_>) -> Progress;

    /// What ran since the last commit is committed, and durable if the class asks for it.
    fn committed(&mut self);

    /// What ran since the last commit never happened and will run again.
    fn rolled_back(&mut self);

    /// Whether it is one item, so that a transaction it ran in alone failed because of it.
    fn is_single(&self) -> bool;

    /// What ran last, alone in its transaction, made that transaction fail. It will not run again.
    fn failed_alone(&mut self, error: Error) -> Progress;

    /// The end: everything committed, or an error that says what is known. If nobody waits for it any more, what is left
    /// of it is returned.
    fn answer(self: Box<Self>, result: Result<()>) -> Left;
}

/// What is left of a job whose caller has stopped waiting. Dropping it runs code of the user's: not before everybody
/// else is told, and by [`discard`].
pub(crate) type Left = Option<Box<dyn Send>>;

/// Drops what callers have left behind. A destructor that panics is nobody else's affair: no transaction is lost and no
/// commit in doubt because of it.
pub(crate) fn discard(left: impl IntoIterator<Item = Left>) {
    left.into_iter().flatten().for_each(drop_caught);
}

/// Drops something of a caller's, whatever its destructor does.
fn drop_caught(of_caller: impl Sized) {
    if catch_unwind(AssertUnwindSafe(|| drop(of_caller))).is_err() {
        tracing::error!("a destructor of a caller's panicked on the writer's thread");
    }
}

/// A job made of one closure. In the end it goes back as a whole: what the closure holds is the caller's, and dropped
/// there. The writer has better things to do, and memory goes back quickest to the thread that it came from.
pub(crate) struct ClosureJob<F, T, E> {
    class: Class,
    work: F,
    outcome: Option<std::result::Result<T, E>>,
    /// Why the outcome does not count.
    failed: Option<Error>,
    reply: Option<oneshot::Sender<Box<Self>>>,
}

impl<F, T, E> ClosureJob<F, T, E> {
    pub(crate) fn new(class: Class, work: F) -> (Box<Self>, oneshot::Receiver<Box<Self>>) {
        let (reply, receiver) = oneshot::channel();
        (Box::new(Self { class, work, outcome: None, failed: None, reply: Some(reply) }), receiver)
    }

    /// What became of it, once it is back.
    pub(crate) fn outcome(self) -> std::result::Result<T, E>
    where
        E: From<Error>,
    {
        match self.failed {
            Some(error) => Err(error.into()),
            None => self.outcome.unwrap_or_else(|| Err(lost().into())),
        }
    }
}

impl<F, T, E> Job for ClosureJob<F, T, E>
where
    F: FnMut(&mut SqliteTx<'_>) -> std::result::Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    fn class(&self) -> Class {
        self.class
    }

    fn run(&mut self, tx: &mut SqliteTx<'_>, _: &Budget<'_>) -> Progress {
        self.outcome = Some(isolated(tx, &mut self.work));
        Progress::Finished
    }

    fn committed(&mut self) {}

    fn rolled_back(&mut self) {
        drop_caught(self.outcome.take());
    }

    fn is_single(&self) -> bool {
        true
    }

    fn failed_alone(&mut self, error: Error) -> Progress {
        let (own, undone) = match self.outcome.take() {
            Some(Err(own)) => (Some(own), None),
            outcome => (None, outcome),
        };
        drop_caught(undone);
        // The closure's own error says more than what it did to the transaction.
        self.outcome = Some(Err(own.unwrap_or_else(|| error.into())));
        Progress::Finished
    }

    fn answer(mut self: Box<Self>, result: Result<()>) -> Left {
        self.failed = result.err();
        // The caller may have stopped waiting; the commit stands all the same.
        let left = self.reply.take()?.send(self).err()?;
        Some(left)
    }
}

/// An error for a job that was answered without having run.
pub(crate) fn lost() -> Error {
    Error::new(twobox_core::ErrorKind::Stopped, "the writer stopped before it ran this transaction")
}
