//! What was done to the files of a disk, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fault::Kind;

/// Names a file of a disk: its path, as SQLite gave it. Every step has one, so it is shared.
pub(super) type Name = Arc<str>;

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Write {
        file: Name,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        file: Name,
        length: u64,
    },
    Sync {
        file: Name,
    },
    /// `synced`: with the directory.
    Delete {
        file: Name,
        synced: bool,
    },
    Rename {
        from: Name,
        to: Name,
    },
    /// Another name for the same file.
    Link {
        from: Name,
        to: Name,
    },
    SyncFolder,
    /// A call that was made to fail.
    Failed {
        file: Name,
        kind: Kind,
    },
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

    /// The files something was done to, each as often as that.
    pub(super) fn files(&self) -> impl Iterator<Item = &Name> {
        let touched = self.ops.iter().filter_map(|op| match op {
            Op::Write { file, .. } | Op::Truncate { file, .. } => Some(file),
            Op::Rename { to, .. } | Op::Link { to, .. } => Some(to),
            Op::Sync { .. } | Op::Delete { .. } | Op::SyncFolder | Op::Failed { .. } | Op::Mark(_) => None,
        });
        self.base.keys().chain(touched)
    }

    /// What was noted before `step`.
    pub fn marks(&self, step: usize) -> impl Iterator<Item = &Mark> {
        self.ops[..step.min(self.ops.len())].iter().filter_map(|op| match op {
            Op::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// The same without the syncs of a file whose name ends like this: to see what becomes of those who leave them out.
    #[must_use]
    pub fn unsynced(mut self, name_end: &str) -> Self {
        self.ops.retain(|op| !matches!(op, Op::Sync { file } if file.ends_with(name_end)));
        self
    }

    /// How many syncs there were before `step`.
    #[must_use]
    pub fn syncs(&self, step: usize) -> usize {
        self.ops[..step.min(self.ops.len())].iter().filter(|op| matches!(op, Op::Sync { .. })).count()
    }

    /// The step at which a call was made to fail for the first time.
    #[must_use]
    pub fn failed(&self) -> Option<usize> {
        self.ops.iter().position(|op| matches!(op, Op::Failed { .. }))
    }

    /// The step at which this was noted first.
    #[must_use]
    pub fn marked(&self, text: &str) -> Option<usize> {
        self.ops.iter().position(|op| matches!(op, Op::Mark(mark) if mark.0 == text))
    }

    /// The step from which on a file whose name ends like this, and which is deleted after `from`, cannot come back.
    #[must_use]
    pub fn gone(&self, name_end: &str, from: usize) -> Option<usize> {
        let after = |from: usize, wanted: &dyn Fn(&Op) -> bool| {
            Some(from + 1 + self.ops.get(from..)?.iter().position(wanted)?)
        };
        let deleted = after(from, &|op| matches!(op, Op::Delete { file, .. } if file.ends_with(name_end)))?;
        after(deleted, &|op| matches!(op, Op::Sync { .. }))
    }
}
