//! The thread that drives a writer in production.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use twobox_core::{Clock, Error, ErrorKind, Result};

use super::checkpointer::Checkpointer;
use super::core::{Core, Rest};
use super::queue::{Late, Queue, Queued};
use crate::pace::HOLD_MAX;
use crate::shared::BoxState;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, MutexGuard};

/// How long the writer sleeps when nothing has to be synced; it is woken when work arrives.
const IDLE: Duration = Duration::from_secs(3600);

/// After this long without a pause, the writer makes one, so that connections that poll for the lock get it (W5).
const BUSY_MAX: Duration = Duration::from_millis(100);
/// How long that pause is: it catches the first polls of SQLite's busy handler (1, 2, 5 ms).
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The longest that a group waits for callers who were answered a moment ago.
const PATIENCE_MAX: Duration = Duration::from_micros(200);

/// How long the writer looks for callers who were answered a moment ago before it sleeps: about what it takes the first
/// of them to come back. To be woken takes half as long again.
const SPIN: Duration = Duration::from_micros(80);
/// For fewer callers it is not worth the processor time.
const SPIN_FOR: usize = 8;
/// So often it sleeps at once after it has looked in vain: then callers are busy otherwise, or need the processor.
const SPIN_REST: u32 = 15;

/// A running writer thread. Dropping it finishes what is queued, then stops.
pub(crate) struct WriterThread {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    pub(crate) fn spawn(
        core: Arc<Mutex<Core>>,
        queue: Arc<Queue>,
        checkpointer: Arc<Checkpointer>,
    ) -> Result<Self> {
        let queue_of_thread = Arc::clone(&queue);
        let thread = thread::Builder::new()
            .name("twobox-writer".into())
            .spawn(move || run(&core, &queue_of_thread, &checkpointer))
            .map_err(cannot_spawn)?;
        Ok(Self { queue, thread: Some(thread) })
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue.close();
        let thread = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the writer thread panicked");
        }
    }
}

fn run(core: &Mutex<Core>, queue: &Queue, checkpointer: &Checkpointer) {
    let clock = Arc::clone(&lock(core).shared.options.clock);
    let mut busy_since = clock.monotonic();
    let mut turns = Turns::new(queue, &*clock);
    loop {
        let sync_in = lock(core).time_to_sync().unwrap_or(IDLE);
        let idle_since = clock.monotonic();
        let Some(jobs) = turns.next(sync_in) else { break };
        if clock.monotonic().saturating_sub(idle_since) >= BUSY_PAUSE {
            busy_since = clock.monotonic();
        }
        let mut core = lock(core);
        turns.run(&mut core, jobs);
        checkpointer.after_group(&mut core);
        drop(core);
        if clock.monotonic().saturating_sub(busy_since) >= BUSY_MAX {
            queue.wait(usize::MAX, BUSY_PAUSE);
            busy_since = clock.monotonic();
        }
    }
    lock(core).sync_lazy();
}

/// Whose turn it is: what is remembered from one group to the next.
struct Turns<'q> {
    queue: &'q Queue,
    clock: &'q dyn Clock,
    /// Jobs of the last group, whose callers may be about to come back.
    answered: usize,
    /// How long they are waited for.
    patience: Duration,
    spin: Spin,
    /// What the last group has left to do.
    rest: Rest,
    hold: Option<Hold>,
}

/// Callers are held until delivery has caught up with them.
struct Hold {
    of: Arc<BoxState>,
    until: Duration,
}

impl Hold {
    fn is_over(&self, now: Duration) -> bool {
        now >= self.until || !self.of.pace.is_behind(now)
    }
}

impl<'q> Turns<'q> {
    fn new(queue: &'q Queue, clock: &'q dyn Clock) -> Self {
        let (patience, spin, rest) = (Duration::ZERO, Spin::default(), Rest::default());
        Self { queue, clock, answered: 0, patience, spin, rest, hold: None }
    }

    /// The jobs of the next group, beside what is left of the last, or none when it is time for lazy work to be synced. `None`
    /// once the queue is closed and everything is done.
    fn next(&mut self, sync_in: Duration) -> Option<VecDeque<Queued>> {
        if let Some(urgent) = self.while_held() {
            return Some(urgent);
        }
        if !self.rest.is_empty() {
            return Some(self.queue.take(Duration::ZERO).unwrap_or_default());
        }
        self.spin.look(self.queue, self.clock, self.answered);
        let mut jobs = self.queue.take(sync_in)?;
        // Lazy work costs a commit of its own, or next to nothing in that of callers who are about to come back.
        let are_patient = !jobs.is_empty() && jobs.iter().all(|queued| queued.job.class().is_patient());
        if are_patient && self.answered >= SPIN_FOR {
            self.queue.wait(1, self.patience);
            jobs.append(&mut self.queue.drain());
        }
        Some(jobs)
    }

    /// What is not held, while callers are. `None` once they are no longer.
    fn while_held(&mut self) -> Option<VecDeque<Queued>> {
        let (now, goes_on) = (self.clock.monotonic(), !self.rest.is_empty());
        let hold = self.hold.take().filter(|hold| !hold.is_over(now))?;
        let patience = if goes_on { Duration::ZERO } else { hold.until.saturating_sub(now) };
        let urgent = self.queue.hold(patience, || hold.of.pace.is_behind(self.clock.monotonic()));
        let any = goes_on || !urgent.is_empty();
        self.hold = Some(hold).filter(|_| any);
        any.then_some(urgent)
    }

    /// Runs a group, and those who join it.
    fn run(&mut self, core: &mut Core, jobs: VecDeque<Queued>) {
        let mut late = match self.hold {
            Some(_) => Late::nobody(self.clock),
            None => Late::expected(self.queue, self.clock, self.answered, self.patience),
        };
        self.answered = jobs.len();
        let jobs = std::mem::take(&mut self.rest).with(jobs);
        self.rest = guarded_step(core, jobs, &mut late);
        core.tick();
        self.answered += late.joined();
        // A fraction of what a commit takes: it never costs more than it saves.
        self.patience = (core.commit_time / 4).min(PATIENCE_MAX);
        if let Some(of) = core.give_way() {
            // A group of others than callers must not hold them any longer: they would never have a turn.
            let until = self.clock.monotonic().saturating_add(HOLD_MAX);
            self.hold.get_or_insert(Hold { of, until });
        }
    }
}

/// Whether it is worth to look for callers.
#[derive(Default)]
struct Spin {
    rests: u32,
}

impl Spin {
    /// Looks for those who were answered, if they usually come back at once.
    fn look(&mut self, queue: &Queue, clock: &dyn Clock, answered: usize) {
        // A schedule in which only the clock ends a wait would never end.
        if answered < SPIN_FOR || cfg!(feature = "shuttle") {
            return;
        }
        if self.rests > 0 {
            self.rests -= 1;
        } else if !queue.spin(clock, clock.monotonic().saturating_add(SPIN)) {
            self.rests = SPIN_REST;
        }
    }
}

/// A step that survives panics of code that is not ours: destructors of captured values, conversions of errors.
/// The jobs of that step are dropped, which tells their callers that nothing is known about them.
fn guarded_step(core: &mut Core, jobs: VecDeque<Queued>, late: &mut Late<'_>) -> Rest {
    catch_unwind(AssertUnwindSafe(|| core.step(jobs, late))).unwrap_or_else(|_| {
        core.doubt(&Error::new(ErrorKind::Unavailable, "code of the caller panicked on the writer's thread"));
        Rest::default()
    })
}

pub(crate) fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn cannot_spawn(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot start a thread").with_source(error)
}
