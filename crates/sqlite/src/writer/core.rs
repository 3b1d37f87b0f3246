//! The step function.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use twobox_core::handler::shorten;
use twobox_core::meters::{StoreMeters, Trouble};
use twobox_core::{Error, ErrorKind, Result, crash_point, mutant, one_line};

use super::job::{Budget, Class, Left, Progress, discard};
use super::queue::{Late, Queued};
use super::recovery::close_without_checkpoint;
use crate::connection::set_synchronous;
use crate::error::{is_unwritable, wrap};
use crate::guard::{Guard, Inside};
use crate::kept::Kept;
use crate::options::{Durability, Options};
use crate::shared::{BoxState, Shared};
use crate::tx::{News, SqliteTx};

/// Groups that run with savepoints after one without has failed: failures come in flocks.
const CAREFUL_GROUPS: u32 = 100;

/// Groups between two looks at the size of the write-ahead log.
const GROUPS_PER_LOOK: u64 = 32;

/// The writer's state. One step at a time, on whichever thread calls.
pub(crate) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) open: Option<Open>,
    pub(super) stopped: Option<String>,
    /// When the first commit that is not yet synced happened.
    pub(super) unsynced_since: Option<Duration>,
    groups: u64,
    /// So many more groups run with a savepoint per job, because one has failed lately.
    careful: u32,
    /// How long the last commit took: what a gap is measured against.
    pub(super) commit_time: Duration,
    /// Boxes whose delivery is behind the last group.
    behind: Option<Arc<BoxState>>,
}

/// The connection and what guards it.
pub(crate) struct Open {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    synchronous: Durability,
    /// Changes when another connection commits, and only then; as it was when relays were last told.
    others: i64,
}

impl Open {
    /// Takes a connection that was opened for writing, with the durability of the options.
    pub(crate) fn new(mut connection: Connection, options: &Options) -> Result<Self> {
        let guard = Guard::install(&mut connection, &*options.random)?;
        let others = data_version(&connection)?;
        Ok(Self { connection, guard, synchronous: options.durability, others })
    }

    /// Opens the file again.
    pub(super) fn again(shared: &Shared) -> Result<Self> {
        Self::new(shared.opener.writer(shared.options.durability)?, &shared.options)
    }

    /// Switches between transactions; the setting applies from the next one on.
    pub(super) fn set_mode(&mut self, mode: Durability) -> Result<()> {
        if self.synchronous != mode {
            set_synchronous(&self.connection, mode)?;
            self.synchronous = mode;
        }
        Ok(())
    }
}

/// A number that changes when another connection than this one has committed.
fn data_version(connection: &Connection) -> Result<i64> {
    connection
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(wrap("read the data version"))
}

/// What a group has left to do, each in order.
#[derive(Default)]
pub(crate) struct Rest {
    /// The group's time was up before their turn: in the next one only what is short goes before them.
    pub(crate) unreached: VecDeque<Queued>,
    /// They have had their turn and need another one, after everybody who waits for a first one (W7).
    pub(crate) unfinished: VecDeque<Queued>,
    /// Only what is short had a turn: the next one is everybody else's.
    pub(crate) only_short_ran: bool,
}

impl Rest {
    pub(super) fn is_empty(&self) -> bool {
        self.unreached.is_empty() && self.unfinished.is_empty()
    }

    /// The jobs of the next group, with those who have come meanwhile: whoever was not reached first, whoever has had a
    /// turn last. So nobody is passed over twice, however much there is to do. Only what is short goes before all others:
    /// leases run out while transactions of a thousand callers have their turns. If it has filled a group by itself, as
    /// settlements of a large backlog that fails can, the others go first once.
    pub(crate) fn with(mut self, mut new: VecDeque<Queued>) -> VecDeque<Queued> {
        if self.unreached.is_empty() {
            new.append(&mut self.unfinished);
            return new;
        }
        if mutant!(NewcomersFirst) {
            std::mem::swap(&mut self.unreached, &mut new);
        }
        self.unreached.append(&mut new);
        self.unreached.append(&mut self.unfinished);
        let goes_first = |queued: &Queued| queued.job.class().is_short() != self.only_short_ran;
        let (mut jobs, mut others): (VecDeque<_>, VecDeque<_>) =
            self.unreached.into_iter().partition(goes_first);
        jobs.append(&mut others);
        jobs
    }
}

/// Jobs that ran in the open transaction.
type Ran = Vec<(Queued, Progress)>;

/// Why a group did not commit.
enum Failure {
    /// Nothing happened, and everybody gets this error.
    Refused(Error),
    /// Nothing happened; one of the jobs is to blame.
    Spoilt(Error),
    /// It may have happened (S14).
    Unknown(Error),
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, open: Open) -> Self {
        Self {
            shared,
            open: Some(open),
            stopped: None,
            unsynced_since: None,
            groups: 0,
            careful: 0,
            commit_time: Duration::ZERO,
            behind: None,
        }
    }

    /// Runs one group, those included who join it, and returns what is left to do.
    pub(crate) fn step(&mut self, mut jobs: VecDeque<Queued>, late: &mut Late<'_>) -> Rest {
        if let Err(error) = self.ready() {
            note_trouble(&self.shared.options, &error);
            answer_all(jobs, &self.named(error));
            return Rest::default();
        }
        if jobs.is_empty() {
            return Rest::default();
        }
        let mut ran = Vec::with_capacity(jobs.len());
        let lean = self.careful == 0;
        self.careful = self.careful.saturating_sub(1);
        let mut outcome = self.run_group(&mut jobs, &mut ran, lean, late);
        if outcome.is_err() {
            self.shared.forget_schema();
        }
        if lean && let Err(Failure::Spoilt(error)) = outcome {
            outcome = self.run_again(&mut jobs, &mut ran, error);
        }
        let only_short_ran = ran.iter().all(|(queued, _)| queued.job.class().is_short());
        let unfinished = match outcome {
            Ok(()) => {
                self.meters().group.saw(ran.len() as u64, 1);
                self.answer(ran)
            }
            Err(Failure::Refused(error)) => {
                self.stop_if_damaged(&error);
                let error = self.named(error);
                answer_all(ran.into_iter().map(|(queued, _)| queued).chain(jobs.drain(..)), &error);
                VecDeque::new()
            }
            Err(Failure::Unknown(error)) => {
                let error = self.named(error);
                self.doubt(&error);
                answer_all(ran.into_iter().map(|(queued, _)| queued), &unknown(&error));
                VecDeque::new()
            }
            Err(Failure::Spoilt(error)) => self.run_apart(ran, &error),
        };
        Rest { unreached: jobs, unfinished, only_short_ran }
    }

    /// A group without savepoints failed: what ran alone is to blame for it, others run again with savepoints.
    fn run_again(&mut self, jobs: &mut VecDeque<Queued>, ran: &mut Ran, error: Error) -> Result<(), Failure> {
        if let Some(open) = &self.open {
            let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
        }
        if let [(queued, progress)] = ran.as_mut_slice()
            && queued.job.is_single()
        {
            *progress = queued.job.failed_alone(error);
            return Ok(());
        }
        self.careful = CAREFUL_GROUPS;
        self.meters().groups_again.one();
        crash_point!("writer.before-run-again");
        for (mut queued, _) in ran.drain(..).rev() {
            queued.job.rolled_back();
            jobs.push_front(queued);
        }
        let clock = Arc::clone(&self.shared.options.clock);
        self.run_group(jobs, ran, false, &mut Late::nobody(&*clock))
    }

    fn run_group(
        &mut self,
        jobs: &mut VecDeque<Queued>,
        ran: &mut Ran,
        lean: bool,
        late: &mut Late<'_>,
    ) -> Result<(), Failure> {
        let mode = self.mode(jobs.iter().map(|queued| queued.job.class()));
        let (options, file) = (&self.shared.options, self.shared.id());
        let open = self.open.as_mut().expect("ready() has opened it");
        open.set_mode(mode).map_err(Failure::Refused)?;
        crash_point!("writer.before-begin");
        open.guard.begin(&open.connection).map_err(wrap("begin a transaction")).map_err(|error| {
            note_trouble(options, &error);
            Failure::Refused(error)
        })?;
        crash_point!("writer.begun");
        let inside = Inside::enter();
        let budget = Budget {
            clock: &*options.clock,
            until: options.clock.monotonic().saturating_add(options.group_time),
            one_by_one: false,
        };
        // Boxes may be added meanwhile; whoever comes with new ones is for the next group.
        let boxes = self.shared.all_boxes();
        let known = |queued: &Queued| boxes.iter().find(|state| Arc::ptr_eq(state, &queued.state));
        let (mut news, mut kept) = (Vec::new(), Kept::default());
        while let Some(state) = jobs.front().and_then(known) {
            let Some(mut queued) = jobs.pop_front() else { break };
            let mut tx = SqliteTx::new(&open.connection, state, &open.guard, file, (lean, kept));
            let progress = queued.job.run(&mut tx, &budget);
            // What a commit is to survive is settled when it begins: nobody joins one that is not synced. And a batch
            // has waited long enough by the time it has run.
            let is_open = mode == Durability::Full && queued.job.is_single() && !budget.is_over();
            if jobs.is_empty() && is_open {
                jobs.append(&mut late.join(ran.len() + 1));
            }
            let is_last = jobs.front().and_then(known).is_none() || budget.is_over();
            let counted = if is_last { tx.write_counts() } else { Ok(()) };
            // A savepoint that could not be undone leaves half an effect: the transaction must not commit.
            let spoilt = counted.and_then(|()| tx.check().map_err(|_| gone()));
            let trouble = tx.trouble();
            tx.pass_news_on(&mut news);
            kept = tx.take_kept();
            drop(tx);
            ran.push((queued, progress));
            if let Some(trouble) = trouble {
                let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
                note_trouble(options, &trouble);
                // A damaged one is of no use to anybody; one that is full may still have room for the others.
                let damaged = trouble.kind() == ErrorKind::Corrupt;
                self.shared.set_unwritable(is_unwritable(&trouble));
                return Err(if damaged { Failure::Refused(trouble) } else { Failure::Spoilt(trouble) });
            }
            spoilt.map_err(Failure::Spoilt)?;
            if is_last {
                break;
            }
            crash_point!("writer.between-jobs");
        }
        drop((inside, kept));
        if mutant!(AcknowledgeBeforeCommit) {
            let rest = self.answer(std::mem::take(ran));
            ran.extend(rest.into_iter().map(|queued| (queued, Progress::More)));
        }
        self.commit(mode, news, ran.iter().map(|(queued, _)| queued.job.class()))
    }

    /// Commits the open transaction and publishes what became visible and durable.
    fn commit(
        &mut self,
        mode: Durability,
        news: Vec<News>,
        classes: impl Iterator<Item = Class>,
    ) -> Result<(), Failure> {
        // Whoever has appended has written; of all others only SQLite knows, which leaves out what is as it was.
        let must_write = mode == Durability::Full && !news.iter().any(|news| news.log().is_some());
        let (ends, others) = match self.prepare_commit(must_write) {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(open) = &self.open {
                    let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
                }
                return Err(Failure::Refused(error));
            }
        };
        crash_point!("writer.before-commit");
        if mode == Durability::Full {
            stir(&news, self.shared.options.clock.monotonic());
        }
        let start = self.shared.options.clock.monotonic();
        let open = self.open.as_mut().expect("a transaction is open");
        if let Err(error) = open.guard.commit(&open.connection) {
            return Err(judge_commit(open, error));
        }
        crash_point!("writer.after-commit");
        let now = self.shared.options.clock.monotonic();
        self.commit_time = now.saturating_sub(start);
        self.groups += 1;
        self.shared.set_unwritable(false);
        match mode {
            Durability::Full => self.meters().synced.took(self.commit_time, 1),
            Durability::ProcessCrash => self.meters().unsynced.took(self.commit_time, 1),
        }
        match mode {
            Durability::Full => self.unsynced_since = None,
            Durability::ProcessCrash if classes.into_iter().any(|class| class != Class::Ephemeral) => {
                crash_point!("writer.lazy-committed");
                self.unsynced_since.get_or_insert(now);
            }
            Durability::ProcessCrash => {}
        }
        self.shared.check_file().map_err(|error| {
            self.stop(error.to_string());
            Failure::Refused(error)
        })?;
        let rings = news.into_iter().fold(false, |rings, news| news.publish() | rings);
        self.behind = self.shared.publish(&ends, mode == Durability::Full, rings, now);
        self.tell_of_others(others);
        Ok(())
    }

    /// Tells relays and workers if another connection has committed since they were last told. Says whether it has.
    pub(crate) fn look_for_others(&mut self) -> bool {
        let Some(open) = &self.open else { return false }; // they are told when it is open again
        // Looking again is harmless, not looking is not.
        let others = data_version(&open.connection).unwrap_or(-1);
        self.tell_of_others(others)
    }

    fn tell_of_others(&mut self, others: i64) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.others != others) else { return false };
        open.others = others;
        self.shared.others_have_written();
        true
    }

    /// Reads the ends of the logs, and what tells whether others have written. A commit syncs only if it has something to
    /// write; when there is something in the log that is not durable yet, a group that may have nothing must write a little
    /// to take it along (W6).
    fn prepare_commit(&self, must_write: bool) -> Result<(Vec<i64>, i64)> {
        let open = self.open.as_ref().expect("a transaction is open");
        let ends = self.shared.log_ends(&open.connection).map_err(wrap("read the end of the log"))?;
        if must_write
            && !mutant!(NoChangeIsSync)
            && (self.unsynced_since.is_some() || self.shared.is_beyond_synced(&ends))
            && let Some(barrier) = self.shared.barrier()
        {
            barrier(&open.connection).map_err(wrap("sync"))?;
        }
        Ok((ends, data_version(&open.connection)?))
    }

    /// Which setting a group needs.
    fn mode(&self, classes: impl Iterator<Item = Class>) -> Durability {
        let configured = self.shared.options.durability;
        classes.fold(Durability::ProcessCrash, |mode, class| match class {
            Class::Barrier => Durability::Full,
            Class::Synced | Class::Caller if mutant!(AcknowledgeBeforeSync) => mode,
            Class::Synced | Class::Caller if configured == Durability::Full => Durability::Full,
            _ => mode,
        })
    }

    /// Runs jobs each in its own transaction, because one of them spoilt the shared one.
    fn run_apart(&mut self, ran: Ran, error: &Error) -> VecDeque<Queued> {
        let mut rest = VecDeque::new();
        if let Some(open) = &self.open {
            let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
        }
        self.meters().groups_again.one();
        let jobs = ran.len();
        tracing::debug!(
            error = one_line(error),
            jobs,
            "a shared transaction failed; running its members apart"
        );
        let mut left: Vec<Left> = Vec::new();
        for (at, (mut queued, _)) in ran.into_iter().enumerate() {
            if at > 0 {
                crash_point!("writer.between-apart");
            }
            queued.job.rolled_back();
            match self.run_alone(&mut queued) {
                Ok(Progress::Finished) => left.push(queued.job.answer(Ok(()))),
                Ok(Progress::More) => rest.push_back(queued),
                Err(error) => left.push(queued.job.answer(Err(error))),
            }
        }
        discard(left);
        rest
    }

    /// Runs one job item by item, each in its own transaction, until it is finished or its turn is over.
    fn run_alone(&mut self, queued: &mut Queued) -> Result<Progress> {
        let until = self.shared.options.clock.monotonic().saturating_add(self.shared.options.group_time);
        loop {
            self.ready()?;
            let progress = self.run_item(queued).map_err(|error| {
                self.stop_if_damaged(&error);
                self.named(error)
            })?;
            if progress == Progress::Finished || self.shared.options.clock.monotonic() >= until {
                return Ok(progress);
            }
        }
    }

    fn run_item(&mut self, queued: &mut Queued) -> Result<Progress> {
        let mode = self.mode(std::iter::once(queued.job.class()));
        let (clock, file) = (Arc::clone(&self.shared.options.clock), self.shared.id());
        let open = self.open.as_mut().expect("ready() has opened it");
        open.set_mode(mode)?;
        open.guard.begin(&open.connection).map_err(wrap("begin a transaction"))?;
        let inside = Inside::enter();
        let budget = Budget { clock: &*clock, until: Duration::MAX, one_by_one: true };
        let mut tx =
            SqliteTx::new(&open.connection, &queued.state, &open.guard, file, (false, Kept::default()));
        let progress = queued.job.run(&mut tx, &budget);
        let counted = tx.write_counts();
        let mut news = Vec::new();
        tx.pass_news_on(&mut news);
        if let Some(trouble) = tx.trouble() {
            note_trouble(&self.shared.options, &trouble);
            let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
            return Err(trouble);
        }
        if let Err(error) = counted.and_then(|()| tx.check().map_err(|_| gone())) {
            let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
            return Ok(queued.job.failed_alone(error));
        }
        drop(tx);
        drop(inside);
        match self.commit(mode, news, std::iter::once(queued.job.class())) {
            Ok(()) => {
                queued.job.committed();
                Ok(progress)
            }
            Err(Failure::Spoilt(error)) => Ok(queued.job.failed_alone(error)),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Unknown(error)) => {
                let error = self.named(error);
                self.doubt(&error);
                Err(unknown(&error))
            }
        }
    }

    /// Tells everybody whose work is committed, and returns those who have more.
    fn answer(&mut self, ran: Ran) -> VecDeque<Queued> {
        let mut rest = VecDeque::new();
        crash_point!("writer.before-answers");
        let (mut left, mut answered) = (Vec::new(), Vec::with_capacity(ran.len()));
        for (at, (mut queued, progress)) in ran.into_iter().enumerate() {
            if at > 0 {
                crash_point!("writer.between-answers");
            }
            queued.job.committed();
            match progress {
                Progress::Finished => {
                    let Queued { job, state, _permit: permit } = queued;
                    left.extend(job.answer(Ok(())).map(Some));
                    answered.push((state, permit));
                }
                Progress::More => rest.push_back(queued),
            }
        }
        // Not one by one: whoever is told runs at once, finds nobody else, and has to be woken again for the next.
        drop(answered);
        discard(left);
        rest
    }

    /// The boxes whose delivery is behind the group that has just committed: callers are to be held for it.
    pub(super) fn give_way(&mut self) -> Option<Arc<BoxState>> {
        self.behind.take().inspect(|_| self.meters().gave_way.one())
    }

    /// Where the writer counts.
    pub(super) fn meters(&self) -> &StoreMeters {
        &self.shared.options.meters.store
    }

    /// Acknowledges nothing any more until the file is opened again.
    pub(super) fn stop(&mut self, reason: String) {
        let store = self.shared.opener.path.display().to_string();
        tracing::error!(store, error = shorten(&reason), "stopped: nothing is acknowledged any more");
        self.meters().stopped.set(1);
        self.stopped = Some(reason);
    }

    /// Closes the connection. The last one to close a database copies its log, by what is known of it; if a sync has
    /// failed, the next one to open it does, by what is there (S14).
    pub(crate) fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.shared.take_doubt().is_some() {
            close_without_checkpoint(open.connection);
        }
    }

    /// Whether it is time to look at the size of the write-ahead log.
    pub(crate) fn is_time_to_look(&self) -> bool {
        self.groups.is_multiple_of(GROUPS_PER_LOOK)
    }
}

/// Stirs whoever will want to hear of this once it is committed, unless they are busy anyhow.
fn stir(news: &[News], now: Duration) {
    let mut stirred: Option<&Arc<BoxState>> = None;
    for log in news.iter().filter_map(News::log) {
        if stirred.replace(log).is_none_or(|last| !Arc::ptr_eq(last, log)) && log.pace.is_quiet(now) {
            log.stir();
        }
    }
}

/// Counts and tells that the database itself is in trouble, if it is.
fn note_trouble(options: &Options, error: &Error) {
    if error.kind() == ErrorKind::Corrupt || error.kind() == ErrorKind::Unavailable || is_unwritable(error) {
        options.meters.store.trouble.one(Trouble::from(error.kind()));
        tracing::error!(error = one_line(error), "the database is in trouble");
    }
}

/// What a failed COMMIT means (W3).
fn judge_commit(open: &Open, error: rusqlite::Error) -> Failure {
    let known = match error.sqlite_error_code() {
        // A deferred constraint: the transaction is still open and can be rolled back.
        Some(ErrorCode::ConstraintViolation | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => true,
        _ => false,
    };
    if known && open.guard.rollback(&open.connection).is_ok() {
        return Failure::Spoilt(wrap("commit")(error));
    }
    Failure::Unknown(wrap("commit")(error))
}

fn gone() -> Error {
    Error::new(
        ErrorKind::TransactionFailed,
        "a statement rolled back the whole transaction (ON CONFLICT ROLLBACK, RAISE(ROLLBACK), full disk or I/O error)",
    )
}

fn unknown(cause: &Error) -> Error {
    Error::new(
        ErrorKind::CommitUnknown,
        format!(
            "the commit failed and may or may not have happened ({}); repeat it with the same id or key",
            cause.chain()
        ),
    )
}

fn answer_all(jobs: impl IntoIterator<Item = Queued>, error: &Error) {
    let answer = |queued: Queued| queued.job.answer(Err(Error::new(error.kind(), error.chain())));
    let left: Vec<Left> = jobs.into_iter().map(answer).collect();
    discard(left);
}
