//! What was done to the files of a disk, in order.

use std::collections::BTreeMap;

/// Names a file of a disk: its path, as SQLite gave it.
pub(super) type Name = String;

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Write { file: Name, offset: u64, data: Vec<u8> },
    Truncate { file: Name, length: u64 },
    Sync { file: Name },
    Delete { file: Name },
    Mark(Mark),
}

/// Something a test notes between two steps, for instance that a message was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(pub String);

/// Everything that was done, in order. The number of a step is its place.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub(super) base: BTreeMap<Name, Vec<u8>>,
    pub(super) ops: Vec<Op>,
}

impl Record {
    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The files something was done to.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let touched = self.ops.iter().filter_map(|op| match op {
            Op::Write { file, .. } | Op::Truncate { file, .. } => Some(file.as_str()),
            Op::Sync { .. } | Op::Delete { .. } | Op::Mark(_) => None,
        });
        self.base.keys().map(String::as_str).chain(touched)
    }

    /// Takes back what was done to a file since its last sync.
    pub(super) fn forget_unsynced(&mut self, name: &str) {
        let synced = self.ops.iter().rposition(|op| matches!(op, Op::Sync { file } if file == name));
        let mut at = 0;
        self.ops.retain(|op| {
            at += 1;
            let touches = match op {
                Op::Write { file, .. } | Op::Truncate { file, .. } => file == name,
                Op::Sync { .. } | Op::Delete { .. } | Op::Mark(_) => false,
            };
            !touches || synced.is_some_and(|synced| at - 1 < synced)
        });
    }

    /// What was noted before `step`.
    pub fn marks(&self, step: usize) -> impl Iterator<Item = &Mark> {
        self.ops[..step.min(self.ops.len())].iter().filter_map(|op| match op {
            Op::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// How many syncs there were before `step`.
    #[must_use]
    pub fn syncs(&self, step: usize) -> usize {
        self.ops[..step.min(self.ops.len())].iter().filter(|op| matches!(op, Op::Sync { .. })).count()
    }
}
