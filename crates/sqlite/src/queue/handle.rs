//! Claimed messages as a job of the writer: each handler's effects and the fenced end in one transaction.

use tokio::sync::oneshot;
use twobox_core::handler::shorten;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Handled, Job as Claimed, OwnerToken, Queue};
use twobox_core::{Error, Refusal, Response, Result, Timestamp, crash_point, mutant};

use super::settle::{Again, die, failed, finish, held};
use crate::inbox::handle::{check_response, run};
use crate::inbox::peers::Counts;
use crate::writer::{Budget, Class, Job, Left, Progress};
use crate::{Sqlite, SqliteHandler, SqliteTx};

/// Handles claimed messages in order, as many per group as the group's time allows.
pub(super) struct HandleJob {
    db: Sqlite,
    queue: Queue,
    owner: OwnerToken,
    jobs: Vec<Claimed<SqliteHandler>>,
    handled: Vec<Handled>,
    /// How many of them are committed.
    committed: usize,
    reply: Option<oneshot::Sender<Answered>>,
}

/// What became of them, and the job itself: what it holds is dropped by whoever waits for it, not by the writer.
type Answered = (Result<Vec<Handled>>, Box<HandleJob>);

/// Why an attempt leaves nothing behind.
enum Undo {
    Lost,
    Failed(Refusal),
}

impl From<Error> for Undo {
    fn from(error: Error) -> Self {
        Self::Failed(Refusal::from(error))
    }
}

impl HandleJob {
    pub(super) fn new(
        db: &Sqlite,
        queue: &Queue,
        owner: OwnerToken,
        jobs: Vec<Claimed<SqliteHandler>>,
    ) -> (Box<Self>, oneshot::Receiver<Answered>) {
        let (reply, receiver) = oneshot::channel();
        let handled = Vec::with_capacity(jobs.len());
        let (db, queue) = (db.clone(), queue.clone());
        (Box::new(Self { db, queue, owner, jobs, handled, committed: 0, reply: Some(reply) }), receiver)
    }

    fn next(&mut self, tx: &mut SqliteTx<'_>) {
        let now = self.db.options.clock.now();
        let claimed = &self.jobs[self.handled.len()];
        let outcome = tx.isolate(|tx| self.attempt(tx, claimed, now));
        let handled = match outcome {
            Ok(response) => Handled::Done(response),
            Err(Undo::Lost) => Handled::LeaseLost,
            Err(Undo::Failed(refusal)) => {
                let settled = tx.savepoint(|tx| self.settle(tx, claimed, &refusal, now));
                settled.unwrap_or_else(|error: Error| Handled::Retried { error: shorten(&error.chain()) })
            }
        };
        self.handled.push(handled);
    }

    /// The handler, then the fenced end: both or none.
    fn attempt(
        &self,
        tx: &mut SqliteTx<'_>,
        claimed: &Claimed<SqliteHandler>,
        now: Timestamp,
    ) -> std::result::Result<Response, Undo> {
        let Some((held, available)) = held(tx, self.owner, &claimed.lease)? else {
            return Err(Undo::Lost);
        };
        crash_point!("queue.before-handler");
        let response = run(&claimed.handler, tx, &claimed.message).map_err(Undo::Failed)?;
        crash_point!("queue.handled");
        if mutant!(QueueEffectApart) {
            tx.commit_midway()?;
        }
        check_response(&response, &self.db.options).map_err(|error| Undo::Failed(Refusal::reject(error)))?;
        if !finish(tx, (self.owner, &claimed.lease), &held, &response, now)? {
            return Err(Undo::Lost);
        }
        Counts::done_later(available).write(tx, held.peer)?;
        Ok(response)
    }

    /// What a refusal means to the message. Its effects are undone.
    fn settle(
        &self,
        tx: &mut SqliteTx<'_>,
        claimed: &Claimed<SqliteHandler>,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Result<Handled> {
        let error = refusal.error().to_owned();
        let Some((held, _)) = held(tx, self.owner, &claimed.lease)? else { return Ok(Handled::LeaseLost) };
        let item = (claimed.lease.place, &held);
        let died = if refusal.is_reject() {
            die(tx, &self.queue, item, (Reason::Rejected, &error, held.attempts.saturating_add(1)), now)?;
            true
        } else {
            let again = refusal.after().map_or(Again::Backoff, Again::Asked);
            failed(&self.db, tx, &self.queue, item, (Some(&error), again), now)?
        };
        Ok(if died { Handled::Died { error } } else { Handled::Retried { error } })
    }

    fn progress(&self) -> Progress {
        if self.handled.len() == self.jobs.len() { Progress::Finished } else { Progress::More }
    }
}

impl Job for HandleJob {
    fn class(&self) -> Class {
        Class::Synced
    }

    fn run(&mut self, tx: &mut SqliteTx<'_>, budget: &Budget<'_>) -> Progress {
        while self.handled.len() < self.jobs.len() {
            self.next(tx);
            if tx.check().is_err() {
                return Progress::More; // the transaction is gone; the writer sees it and runs us again, alone
            }
            if budget.is_over() {
                break;
            }
        }
        crash_point!("queue.before-commit");
        self.progress()
    }

    fn committed(&mut self) {
        self.committed = self.handled.len();
    }

    fn rolled_back(&mut self) {
        self.handled.truncate(self.committed);
    }

    fn is_single(&self) -> bool {
        false
    }

    fn failed_alone(&mut self, error: Error) -> Progress {
        // The last one that ran is to blame. Its lease runs out, which counts as an attempt.
        self.rolled_back();
        if self.handled.len() < self.jobs.len() {
            self.handled.push(Handled::Retried { error: shorten(&error.chain()) });
        }
        self.committed = self.handled.len();
        self.progress()
    }

    fn answer(mut self: Box<Self>, result: Result<()>) -> Left {
        let handled = std::mem::take(&mut self.handled);
        // The caller may have stopped waiting; the effects stand all the same.
        let (_, left) = self.reply.take()?.send((result.map(|()| handled), self)).err()?;
        Some(left)
    }
}
