//! Where work waits for the writer.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use twobox_core::{Clock, Error, ErrorKind, Result, mutant};

use super::job::{Class, Job};
use crate::shared::BoxState;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A group that has run this long takes nobody in any more: whoever waits for its commit has waited long enough. Sixty
/// small transactions take half of it.
const JOIN_MAX: Duration = Duration::from_millis(1);

/// How often the queue is looked at in one go, by a clock that stands still: many times what fits into the time.
const LOOKS_MAX: u32 = 100_000;

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
    /// Whether there are jobs, for those who look without the lock.
    any: AtomicBool,
    permits: Arc<Semaphore>,
    /// Places for what is short: callers may take all of the others.
    short_permits: Arc<Semaphore>,
    arrived: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Queued>,
    closed: bool,
    /// The consumer sleeps until this many jobs are there.
    wanted: Option<usize>,
    /// The consumer holds callers, until delivery has caught up or something else is to be done.
    holding: bool,
}

impl Queue {
    pub(crate) fn new(max: usize) -> Self {
        let places = || Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS)));
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            any: AtomicBool::new(false),
            permits: places(),
            short_permits: places(),
            arrived: tokio::sync::Notify::new(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn place(&self, class: Class) -> Result<OwnedSemaphorePermit> {
        let permits = if class.is_short() { &self.short_permits } else { &self.permits };
        Arc::clone(permits).acquire_owned().await.map_err(|_| closed())
    }

    /// Adds a job.
    pub(crate) fn push(&self, queued: Queued) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        let is_urgent = queued.job.class().is_urgent();
        state.jobs.push_back(queued);
        self.any.store(true, Ordering::Release);
        let is_enough = state.wanted.is_some_and(|wanted| state.jobs.len() >= wanted);
        if is_enough || (is_urgent && state.holding) {
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
        if state.closed && state.jobs.is_empty() { None } else { Some(self.all(&mut state)) }
    }

    /// Looks for a job again and again until `until`, on the monotonic clock. Says whether one came.
    pub(crate) fn spin(&self, clock: &dyn Clock, until: Duration) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.any.load(Ordering::Acquire) {
                return true;
            }
            if clock.monotonic() >= until {
                return false;
            }
            std::hint::spin_loop();
        }
        false
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

    /// Holds callers while delivery is behind, at most `patience`, until something comes that is not to be held. Takes
    /// that, and what rides along with it; callers stay.
    pub(crate) fn hold(&self, patience: Duration, is_behind: impl Fn() -> bool) -> VecDeque<Queued> {
        let is_urgent = |queued: &Queued| queued.job.class().is_urgent();
        let mut state = self.lock();
        state.holding = true;
        let (mut state, _) = self
            .filled
            .wait_timeout_while(state, patience, |state| {
                !state.closed && !state.jobs.iter().any(is_urgent) && is_behind()
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.holding = false;
        if !state.jobs.iter().any(is_urgent) {
            return VecDeque::new();
        }
        let is_caller = |queued: &Queued| queued.job.class() == Class::Caller;
        let (callers, others) = self.all(&mut state).into_iter().partition(is_caller);
        state.jobs = callers;
        self.any.store(!state.jobs.is_empty(), Ordering::Release);
        others
    }

    /// Delivery has come further: whoever holds callers for it looks again.
    pub(crate) fn nudge(&self) {
        if self.lock().holding {
            self.filled.notify_one();
        }
    }

    /// Takes what is there without waiting.
    pub(crate) fn drain(&self) -> VecDeque<Queued> {
        self.all(&mut self.lock())
    }

    fn all(&self, state: &mut State) -> VecDeque<Queued> {
        self.any.store(false, Ordering::Release);
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
        self.short_permits.close();
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Callers that were answered a moment ago. They usually come straight back, and what they bring joins the group that
/// is running: if each group were only what has queued when it begins, every sync would serve half of the callers.
pub(crate) struct Late<'q> {
    queue: Option<&'q Queue>,
    clock: &'q dyn Clock,
    /// Jobs that the group is to have. Without a bound it would never end.
    wanted: usize,
    /// How long they are waited for while there is nothing else to do, on the monotonic clock.
    until: Duration,
    /// When the group takes nobody in any more.
    closes: Duration,
    joined: usize,
}

impl<'q> Late<'q> {
    /// The group is what it is.
    pub(crate) fn nobody(clock: &'q dyn Clock) -> Self {
        Self { queue: None, clock, wanted: 0, until: Duration::ZERO, closes: Duration::ZERO, joined: 0 }
    }

    /// So many are expected back, and are waited for until `patience` is over.
    pub(crate) fn expected(
        queue: &'q Queue,
        clock: &'q dyn Clock,
        wanted: usize,
        patience: Duration,
    ) -> Self {
        let now = clock.monotonic();
        let (until, closes) = (now.saturating_add(patience), now.saturating_add(JOIN_MAX));
        Self { queue: Some(queue), clock, wanted, until, closes, joined: 0 }
    }

    /// Who has come since, for a group in which so many have run.
    pub(crate) fn join(&mut self, ran: usize) -> VecDeque<Queued> {
        let Some(queue) = self.queue.filter(|_| ran < self.wanted) else { return VecDeque::new() };
        let now = self.clock.monotonic();
        if now >= self.closes {
            return VecDeque::new();
        }
        if now < self.until {
            queue.wait(1, self.until - now);
        }
        let jobs = queue.drain();
        self.joined += jobs.len();
        jobs
    }

    /// How many have joined.
    pub(crate) fn joined(&self) -> usize {
        self.joined
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Stopped, "the database is closed")
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use twobox_testkit::ManualClock;

    use super::super::core::Rest;
    use super::super::job::ClosureJob;
    use super::*;
    use crate::{Prefix, SqliteTx};

    fn push(queue: &Queue) {
        push_of(queue, Class::Synced);
    }

    fn push_of(queue: &Queue, class: Class) {
        let (job, _) = ClosureJob::new(class, |_: &mut SqliteTx<'_>| Ok::<(), Error>(()));
        let permit = Arc::clone(&queue.permits).try_acquire_owned().expect("there is room");
        let state = Arc::new(BoxState::new(Prefix::default()));
        queue.push(Queued { job, state, _permit: permit }).expect("the queue is open");
    }

    #[test]
    fn any_bound_can_be_asked_for() {
        push(&Queue::new(0));
        push(&Queue::new(usize::MAX));
    }

    #[test]
    fn whoever_looks_for_a_job_sees_it_until_it_is_taken() {
        let (queue, clock) = (Queue::new(9), ManualClock::default());
        assert!(!queue.spin(&clock, clock.monotonic()), "nobody is there, and the time is up");
        assert!(!queue.spin(&clock, Duration::MAX), "a clock that stands still ends it as well");
        push(&queue);
        assert!(queue.spin(&clock, clock.monotonic()));
        assert_eq!(queue.take(Duration::ZERO).map(|jobs| jobs.len()), Some(1));
        assert!(!queue.spin(&clock, clock.monotonic()));
        push(&queue);
        assert_eq!(queue.drain().len(), 1);
        assert!(!queue.spin(&clock, clock.monotonic()));
    }

    fn classes(jobs: &VecDeque<Queued>) -> Vec<Class> {
        jobs.iter().map(|queued| queued.job.class()).collect()
    }

    #[test]
    fn callers_are_held_and_what_others_wait_for_is_not() {
        let (queue, clock) = (Queue::new(9), ManualClock::default());
        [Class::Caller, Class::Lazy, Class::Caller].into_iter().for_each(|class| push_of(&queue, class));
        assert_eq!(queue.hold(Duration::ZERO, || true).len(), 0, "nobody needs anything but callers");
        push_of(&queue, Class::Barrier);
        push_of(&queue, Class::Synced);
        let urgent = queue.hold(Duration::MAX, || true);
        assert_eq!(classes(&urgent), [Class::Lazy, Class::Barrier, Class::Synced], "lazy work rides along");
        assert!(queue.spin(&clock, clock.monotonic()), "callers are still there");
        assert_eq!(queue.hold(Duration::MAX, || false).len(), 0, "delivery has caught up");
        assert_eq!(classes(&queue.drain()), [Class::Caller, Class::Caller]);
        queue.close();
        assert_eq!(queue.hold(Duration::MAX, || true).len(), 0);
    }

    #[test]
    fn w7_what_is_short_goes_before_those_who_were_not_reached_and_has_places_of_its_own() {
        let queue = Queue::new(4);
        let jobs = |classes: &[Class]| {
            classes.iter().for_each(|class| push_of(&queue, *class));
            queue.drain()
        };
        let unreached = jobs(&[Class::Caller, Class::Synced]);
        let rest = Rest { unreached, ..Rest::default() };
        let next = rest.with(jobs(&[Class::Caller, Class::Ephemeral]));
        assert_eq!(classes(&next), [Class::Ephemeral, Class::Caller, Class::Synced, Class::Caller]);
        let rest = Rest { unreached: next, only_short_ran: true, ..Rest::default() };
        let next = rest.with(VecDeque::new());
        assert_eq!(
            classes(&next),
            [Class::Caller, Class::Synced, Class::Caller, Class::Ephemeral],
            "for once"
        );
        drop(next);
        let _taken: Vec<_> =
            (0..4).map(|_| Arc::clone(&queue.permits).try_acquire_owned().unwrap()).collect();
        let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let mut has_place = |class| std::pin::pin!(queue.place(class)).poll(waker).is_ready();
        assert_eq!([Class::Caller, Class::Synced, Class::Barrier].map(&mut has_place), [false, false, true]);
    }

    /// Settlements of a backlog that fails can be as long as a group, one after the other.
    #[tokio::test]
    async fn w7_short_work_that_fills_a_group_has_others_go_before_it_in_the_next() {
        let (folder, ran) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let builder = crate::Sqlite::builder().drive(crate::Drive::Manual).group_time(Duration::ZERO);
        let db = builder.open(folder.path().join("shop.db")).await.unwrap();
        let mut queued: Vec<_> =
            [("settles", Class::Lazy), ("calls", Class::Caller), ("settles too", Class::Lazy)]
                .map(|(name, class)| {
                    let ran = Arc::clone(&ran);
                    let work = move |_: &mut SqliteTx<'_>| {
                        ran.lock().unwrap().push(name);
                        Ok::<(), Error>(())
                    };
                    Box::pin(db.write(class, work))
                })
                .into();
        let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(queued.iter_mut().all(|queued| queued.as_mut().poll(waker).is_pending()));
        db.step();
        assert!(queued.iter_mut().all(|queued| queued.as_mut().poll(waker).is_ready()));
        assert_eq!(*ran.lock().unwrap(), ["settles", "calls", "settles too"]);
    }

    #[test]
    fn whoever_holds_callers_hears_that_delivery_has_come_further() {
        const LIMIT: Duration = Duration::from_secs(20);
        let (queue, behind) = (Arc::new(Queue::new(9)), Arc::new(AtomicBool::new(true)));
        let (tell, told) = std::sync::mpsc::channel();
        let of_thread = (Arc::clone(&queue), Arc::clone(&behind));
        let thread = std::thread::spawn(move || {
            let (queue, behind) = of_thread;
            tell.send(queue.hold(10 * LIMIT, || behind.load(Ordering::Acquire)).len())
        });
        while !queue.lock().holding {
            std::thread::yield_now();
        }
        behind.store(false, Ordering::Release);
        queue.nudge();
        assert_eq!(told.recv_timeout(LIMIT), Ok(0));
        assert!(thread.join().is_ok_and(|told| told.is_ok()));
    }

    #[test]
    fn as_many_join_a_group_as_were_answered_until_it_closes() {
        let (queue, clock) = (Queue::new(9), ManualClock::default());
        let mut late = Late::expected(&queue, &clock, 3, Duration::ZERO);
        assert_eq!(late.join(1).len(), 0, "nobody is there, and nobody is waited for");
        push(&queue);
        assert_eq!(late.join(1).len(), 1);
        push(&queue);
        assert_eq!(late.join(3).len(), 0, "the group has as many as were expected");
        clock.advance(JOIN_MAX);
        assert_eq!(late.join(1).len(), 0, "it takes nobody in any more");
        assert_eq!((late.joined(), queue.drain().len()), (1, 1));
        push(&queue);
        assert_eq!(Late::nobody(&clock).join(0).len(), 0);
    }
}
