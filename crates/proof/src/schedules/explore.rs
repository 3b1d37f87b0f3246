//! Running schedules, with a record of the one that is under way.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use shuttle_engine::scheduler::serialization::serialize_schedule;

use super::place::Place;
use super::{Structure, Tally, Violation};

/// SQLite and code that is not optimised want more than a small stack.
const STACK_BYTES: usize = 1 << 20;
/// A schedule that goes on for longer gets nowhere.
const STEPS_MAX: usize = 300_000;

thread_local! {
    /// What was found in the schedule under way. All of its threads run on one.
    static FOUND: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Ends the schedule: this must not happen.
pub(super) fn violated(text: impl Into<String>) -> ! {
    let text = text.into();
    FOUND.with_borrow_mut(|found| _ = found.get_or_insert_with(|| text.clone()));
    panic!("{text}")
}

/// Ends the schedule unless it holds.
pub(super) fn ensure(holds: bool, text: impl FnOnce() -> String) {
    if !holds {
        violated(text());
    }
}

/// Runs a structure under a scheduler until that has had enough.
pub(super) fn explore(structure: Structure, scheduler: impl Scheduler + 'static) -> Result<Tally, Violation> {
    let (record, scenario) = (Arc::new(Mutex::new(Record::default())), structure.scenario());
    let violation = |text: String| {
        let schedule = serialize_schedule(&lock(&record).schedule).replace('\n', "");
        Violation { structure, text, schedule, found: None }
    };
    FOUND.take();
    // Outside of the schedules: a machine without room for a database breaks no promise.
    let place = Place::new(structure.without()).unwrap_or_else(|error| panic!("no database: {error}"));
    let runner = Runner::new(Recorder { scheduler, record: Arc::clone(&record) }, config());
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(move || scenario(&place))));
    match ran {
        Ok(_) => Ok(lock(&record).tally()),
        Err(payload) => Err(violation(FOUND.take().unwrap_or_else(|| text_of(&*payload)))),
    }
}

/// Runs something once, in whatever order.
pub(super) fn once(work: impl Fn() + Send + Sync + 'static) {
    Runner::new(shuttle::scheduler::RoundRobinScheduler::new(1), config()).run(work);
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    // What is left of a schedule that failed is not unwound: destructors would run without their threads.
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without text").to_owned()
}

/// What was decided.
#[derive(Default)]
struct Record {
    schedule: Schedule,
    hasher: DefaultHasher,
    schedules: u64,
    distinct: HashSet<u64>,
    steps: u64,
}

impl Record {
    fn end(&mut self) {
        let fingerprint = std::mem::take(&mut self.hasher).finish();
        if !self.schedule.is_empty() {
            self.schedules += 1;
            self.distinct.insert(fingerprint);
        }
    }

    fn tally(&self) -> Tally {
        let distinct = u64::try_from(self.distinct.len()).unwrap_or(u64::MAX);
        Tally { schedules: self.schedules, distinct, steps: self.steps }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides as another scheduler does, and writes it down.
struct Recorder<S> {
    scheduler: S,
    record: Arc<Mutex<Record>>,
}

impl<S: Scheduler> Scheduler for Recorder<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let mut record = lock(&self.record);
        record.end();
        record.schedule = Schedule::default();
        let schedule = self.scheduler.new_execution()?;
        record.schedule = schedule.clone();
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let task = self.scheduler.next_task(runnable, current, is_yielding)?;
        let mut record = lock(&self.record);
        record.steps += 1;
        usize::from(task).hash(&mut record.hasher);
        record.schedule.push_task(task);
        Some(task)
    }

    fn next_u64(&mut self) -> u64 {
        let mut record = lock(&self.record);
        record.schedule.push_random();
        self.scheduler.next_u64()
    }
}
