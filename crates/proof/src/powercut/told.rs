//! Who was told what: the marks of a record, sorted.

use std::collections::{BTreeMap, BTreeSet};

use twobox_testkit::disk::Record;

/// The database is set up.
pub(super) const READY: &str = "ready";
/// The transaction that placed an order returned, or whoever stored a message was told so.
pub(super) const ENQUEUED: &str = "enqueued";
/// A transport was given the message.
pub(super) const SENT: &str = "sent";
/// The receiver has acknowledged the message.
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
/// The callback was told that the message is dead.
pub(super) const DIED: &str = "died";
/// An operator sends dead letters again.
pub(super) const REPLAYED: &str = "replayed";
/// The receiver has answered that the message is handled.
pub(super) const DONE: &str = "done";
/// A handler outside of the database was given the message.
pub(super) const CALLED: &str = "called";
/// The receiver has answered that the message is rejected.
pub(super) const REJECTED: &str = "rejected";

/// The text of a mark.
pub(super) fn mark(verb: &str, id: &str) -> String {
    format!("{verb} {id}")
}

/// Everything that was told up to a step.
#[derive(Debug)]
pub(super) struct Told {
    by_verb: BTreeMap<String, BTreeSet<String>>,
    marks: usize,
    keeps_acknowledged: bool,
}

impl Told {
    /// Nothing yet. Unless what was acknowledged is kept, it does not count.
    pub(super) fn new(keeps_acknowledged: bool) -> Self {
        Self { by_verb: BTreeMap::new(), marks: 0, keeps_acknowledged }
    }

    /// Takes note of what was told since, up to `step`.
    pub(super) fn hear(&mut self, record: &Record, step: usize) {
        for mark in record.marks(step).skip(self.marks) {
            self.marks += 1;
            let heard = mark.0.split_once(' ');
            let counts = |verb: &str| self.keeps_acknowledged || ![ENQUEUED, DONE, REJECTED].contains(&verb);
            if let Some((verb, id)) = heard.filter(|(verb, _)| counts(verb)) {
                self.by_verb.entry(verb.into()).or_default().insert(id.into());
            }
        }
    }

    /// The same with everything that was told before `step`.
    pub(super) fn up_to(mut self, record: &Record, step: usize) -> Self {
        self.hear(record, step);
        self
    }

    pub(super) fn has(&self, verb: &str, id: &str) -> bool {
        self.by_verb.get(verb).is_some_and(|ids| ids.contains(id))
    }

    pub(super) fn all(&self, verb: &str) -> impl Iterator<Item = &str> {
        self.by_verb.get(verb).into_iter().flatten().map(String::as_str)
    }

    /// The first of those who were told `verb` that `known` does not contain.
    pub(super) fn missing(&self, verb: &str, known: &BTreeSet<String>) -> Option<&str> {
        self.all(verb).find(|id| !known.contains(*id))
    }

    /// How many messages somebody relies on.
    pub(super) fn acknowledged(&self) -> usize {
        self.all(ENQUEUED).count() + self.all(DONE).count()
    }
}
