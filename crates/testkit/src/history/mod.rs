//! What happened in a run, and whether it kept the promise.
//!
//! A [`History`] is appended to while things happen: what was enqueued, sent, answered, cut. At the end the databases
//! are read, and what is in them is appended as well. [`check`] then looks at nothing else, so a history can be kept,
//! printed and judged again. The same run has the same [text](History::text), byte for byte.

mod check;
#[cfg(test)]
mod check_tests;
mod event;
mod facts;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::check::{Clause, Finding, Rules, Summary, check};
pub use self::event::{Event, Order, Reply, Standing};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, since the beginning of the run.
    pub at: Duration,
    /// To whom.
    pub node: Arc<str>,
    /// What.
    pub event: Event,
}

/// Everything that happened, in order. Cheap to clone; clones share what is in it.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Entry>>>);

impl History {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends.
    pub fn push(&self, at: Duration, node: &Arc<str>, event: Event) {
        self.lock().push(Entry { at, node: Arc::clone(node), event });
    }

    /// A copy of everything so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// One line per entry: microseconds, node, event.
    #[must_use]
    pub fn text(&self) -> String {
        let line = |entry: &Entry| format!("{:>12} {} {}\n", entry.at.as_micros(), entry.node, entry.event);
        self.lock().iter().map(line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
