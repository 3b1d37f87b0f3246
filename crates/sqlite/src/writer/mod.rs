//! The one writer of a database file: group commit as a step function (W1).
//!
//! [`Core::step`] takes what is queued and what comes meanwhile, runs it in one transaction, commits, and answers. A
//! thread drives it in production ([`thread`]); simulation drives it inline.

mod checkpointer;
mod core;
mod job;
mod lazy;
mod queue;
mod recovery;
mod thread;

pub(crate) use self::checkpointer::Checkpointer;
pub(crate) use self::core::{Core, Open};
pub(crate) use self::job::{Budget, Class, ClosureJob, Job, Left, Progress};
pub(crate) use self::queue::{Late, Queue, Queued};
pub(crate) use self::recovery::{checkpoint, close_without_checkpoint};
pub(crate) use self::thread::{WriterThread, lock};
