//! Schedules: what happens if threads and tasks take turns in another order.
//!
//! The product's own code runs on a scheduler that decides at every lock, wake-up and look at the clock who goes on.
//! Half of the schedules are chosen at random, half by priorities that change at a few places (PCT), which finds races
//! that need few but exact switches. SQLite is C and runs as one step; its calls begin and end where others may run.
//!
//! A violation carries the schedule that leads to it, and [`replay`] follows it.

mod explore;
mod in_flight;
mod leases;
mod log;
mod place;
mod planted;
mod queue;
mod time;
mod writer;

use std::fmt;
use std::str::FromStr;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use twobox_core::BoxError;

use self::explore::explore;
use self::place::Place;

/// Changes of priority in a schedule of the second half: races that need more are rare.
const DEPTH: usize = 3;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The writer's queue: bounded, in order, every job answered once, nobody sleeps for ever.
    Queue,
    /// The store with its threads: transactions of many callers in shared commits, answered after the commit.
    Writer,
    /// The end of the log: whoever is told of a commit finds it, whoever made it.
    Log,
    /// Two relays and one lane: whatever dies or stalls, every message is settled once.
    Leases,
    /// The receiver's table of what is being handled: one delivery of a message at a time.
    InFlight,
    /// A race that is there on purpose: where it is not found, nothing that was not found means anything.
    Planted,
}

impl Structure {
    /// All parts of the product.
    pub const ALL: [Self; 5] = [Self::Queue, Self::Writer, Self::Log, Self::Leases, Self::InFlight];

    /// Removes from a database what the scenario does not touch.
    fn without(self) -> &'static str {
        if self == Self::Leases { NO_INBOX } else { LOG_ONLY }
    }

    fn scenario(self) -> fn(&Place) {
        match self {
            Self::Queue => queue::scenario,
            Self::Writer => writer::scenario,
            Self::Log => log::scenario,
            Self::Leases => leases::scenario,
            Self::InFlight => in_flight::scenario,
            Self::Planted => planted::scenario,
        }
    }
}

/// What nobody in these scenarios touches.
const NO_INBOX: &str =
    "DROP VIEW outbox_messages; DROP VIEW inbox_messages; DROP TABLE inbox; DROP TABLE inbox_peers;
    DROP TABLE outbox_once;";
const LOG_ONLY: &str = "DROP VIEW outbox_messages; DROP VIEW inbox_messages; DROP TABLE inbox; DROP TABLE inbox_peers;
    DROP TABLE outbox_once; DROP TABLE outbox_waiting; DROP TABLE outbox_receipts; DROP TABLE outbox_attempts;";

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Structure {
    type Err = BoxError;

    fn from_str(name: &str) -> Result<Self, BoxError> {
        let named = |structure: &Self| structure.to_string().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(named).ok_or_else(|| format!("there is no structure {name:?}").into())
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Schedules that ran to their end.
    pub schedules: u64,
    /// Schedules that differ from each other.
    pub distinct: u64,
    /// Decisions who goes on.
    pub steps: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        let Self { schedules, distinct, steps } = other;
        self.schedules += schedules;
        self.distinct += distinct;
        self.steps += steps;
    }
}

/// A schedule that must not end as it did.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What was run.
    pub structure: Structure,
    /// What went wrong.
    pub text: String,
    /// Who went on at each step, as shuttle writes it.
    pub schedule: String,
    /// How it is found again: so many schedules of this seed. None for one that was given.
    pub found: Option<(u64, u64)>,
}

/// Longer schedules are of no use on a command line.
const PRINTED_MAX: usize = 20_000;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { structure, text, schedule, found } = self;
        writeln!(f, "{structure}: {text}")?;
        match found {
            Some((schedules, seed)) if schedule.len() > PRINTED_MAX => {
                write!(
                    f,
                    "the schedule is long; run(Structure::{structure}, {schedules}, {seed}) finds it again"
                )
            }
            _ => write!(
                f,
                "replay: TWOBOX_SCHEDULE={structure}:{schedule} cargo test -p twobox-proof --features shuttle --test schedules replay"
            ),
        }
    }
}

impl std::error::Error for Violation {}

/// Runs so many schedules of a structure, chosen by `seed`.
///
/// # Errors
/// The first violation.
pub fn run(structure: Structure, schedules: u64, seed: u64) -> Result<Tally, Violation> {
    let by_chance = usize::try_from(schedules.div_ceil(2)).unwrap_or(usize::MAX);
    let by_priority = usize::try_from(schedules / 2).unwrap_or(usize::MAX);
    let found = |violation| Violation { found: Some((schedules, seed)), ..violation };
    let chance = explore(structure, RandomScheduler::new_from_seed(seed, by_chance)).map_err(found)?;
    let priority =
        explore(structure, PctScheduler::new_from_seed(seed, DEPTH, by_priority)).map_err(found)?;
    Ok(Tally {
        schedules: chance.schedules + priority.schedules,
        distinct: chance.distinct + priority.distinct,
        steps: chance.steps + priority.steps,
    })
}

/// Follows the schedule of a [`Violation`].
///
/// # Errors
/// What it leads to.
pub fn replay(structure: Structure, schedule: &str) -> Result<Tally, Violation> {
    let mut scheduler = ReplayScheduler::new_from_encoded(schedule);
    scheduler.set_allow_incomplete(); // what was mended goes another way
    explore(structure, scheduler)
}
