//! Claimed messages as a job of the writer: each handler's effects and the fenced end in one transaction.

use std::collections::BTreeMap;

use rusqlite::params;
use tokio::sync::oneshot;
use twobox_core::handler::shorten;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Handled, Job as Claimed, OwnerToken, Queue};
use twobox_core::{Error, Refusal, Response, Result, Timestamp, crash_point};

use super::settle::{die, failed, finish, held};
use crate::inbox::handle::{check_response, run};
use crate::writer::{Budget, Class, Job, Progress};
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
    /// What this group adds to the counters: done, dead, newest date, by peer.
    counts: BTreeMap<i64, (i64, i64, i64)>,
    reply: oneshot::Sender<Result<Vec<Handled>>>,
}

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
    ) -> (Self, oneshot::Receiver<Result<Vec<Handled>>>) {
        let (reply, receiver) = oneshot::channel();
        let handled = Vec::with_capacity(jobs.len());
        let (db, queue) = (db.clone(), queue.clone());
        (Self { db, queue, owner, jobs, handled, committed: 0, counts: BTreeMap::new(), reply }, receiver)
    }

    fn next(&mut self, tx: &mut SqliteTx<'_>) {
        let now = self.db.options.clock.now();
        let claimed = &self.jobs[self.handled.len()];
        let outcome = tx.isolate(|tx| self.attempt(tx, claimed, now));
        let (handled, peer) = match outcome {
            Ok((response, peer)) => (Handled::Done(response), Some(peer)),
            Err(Undo::Lost) => (Handled::LeaseLost, None),
            Err(Undo::Failed(refusal)) => {
                let settled = tx.savepoint(|tx| self.settle(tx, claimed, &refusal, now));
                settled.unwrap_or_else(|error: Error| {
                    (Handled::Retried { error: shorten(&error.chain()) }, None)
                })
            }
        };
        if let Some(peer) = peer {
            let counts = self.counts.entry(peer).or_insert((0, 0, i64::MIN));
            match &handled {
                Handled::Done(_) => counts.0 += 1,
                Handled::Died { .. } => counts.1 += 1,
                Handled::Retried { .. } | Handled::LeaseLost => {}
            }
            counts.2 = counts.2.max(claimed.message.available.as_micros());
        }
        self.handled.push(handled);
    }

    /// The handler, then the fenced end: both or none.
    fn attempt(
        &self,
        tx: &mut SqliteTx<'_>,
        claimed: &Claimed<SqliteHandler>,
        now: Timestamp,
    ) -> std::result::Result<(Response, i64), Undo> {
        let Some(held) = held(tx, self.owner, &claimed.lease)? else { return Err(Undo::Lost) };
        crash_point!("queue.before-handler");
        let response = run(&claimed.handler, tx, &claimed.message).map_err(Undo::Failed)?;
        crash_point!("queue.handled");
        check_response(&response, &self.db.options).map_err(|error| Undo::Failed(Refusal::reject(error)))?;
        if !finish(tx, (self.owner, &claimed.lease), &held, &response, now)? {
            return Err(Undo::Lost);
        }
        Ok((response, held.peer))
    }

    /// What a refusal means to the message. Its effects are undone.
    fn settle(
        &self,
        tx: &mut SqliteTx<'_>,
        claimed: &Claimed<SqliteHandler>,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Result<(Handled, Option<i64>)> {
        let error = refusal.error().to_owned();
        let Some(held) = held(tx, self.owner, &claimed.lease)? else { return Ok((Handled::LeaseLost, None)) };
        let item = (claimed.lease.place, &held);
        let died = if refusal.is_reject() {
            die(tx, &self.queue, item, (Reason::Rejected, &error, held.attempts.saturating_add(1)), now)?;
            true
        } else {
            let delay = refusal.after().filter(|delay| !delay.is_zero());
            failed(&self.db, tx, &self.queue, item, (Some(&error), delay), now)?
        };
        let handled = if died { Handled::Died { error } } else { Handled::Retried { error } };
        Ok((handled, Some(held.peer)))
    }

    /// Writes what this group adds to the counters, in the group's transaction.
    fn flush(&mut self, tx: &mut SqliteTx<'_>) -> Result<()> {
        for (peer, (done, dead, newest)) in std::mem::take(&mut self.counts) {
            tx.execute(&tx.sql.peer_count, params![peer, newest, done, 0, dead, 0, 0])?;
        }
        Ok(())
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
        if let Err(error) = self.flush(tx) {
            tracing::warn!(error = %error.chain(), "cannot count queued messages");
        }
        self.progress()
    }

    fn committed(&mut self) {
        self.committed = self.handled.len();
    }

    fn rolled_back(&mut self) {
        self.handled.truncate(self.committed);
        self.counts.clear();
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

    fn answer(self: Box<Self>, result: Result<()>) {
        // The caller may have stopped waiting; the effects stand all the same.
        let Self { reply, handled, .. } = *self;
        let _: Result<(), _> = reply.send(result.map(|()| handled));
    }
}
