//! Parts for testing Twobox, its stores and its transports.
//!
//! - [`store_conformance!`]: one line stamps one named test per case for a store.
//! - [`ManualClock`]: time that moves when the test says so.
//! - [`VirtualClock`]: time that jumps to the next timer on a paused runtime, so a day takes no time.
//! - [`SeededRandom`]: chance that repeats.
//! - [`ScriptedTransport`]: answers as the test says, and remembers what it was given.
//! - [`leaks`]: finds canaries in what was said, in any disguise.
//! - [`Log`]: everything the process logs, for a test to look at.
//! - [`example`]: finds a program that a test starts as a process.
//! - [`Silent`]: an address at which nobody answers.
//! - `disk` (feature `disk`): a disk for SQLite whose power can be cut at any step.
//! - [`history`]: what happened in a run, and one judge of whether it kept the promise.
//! - [`crash`]: runs a program that dies at a named crash point.

mod canary;
mod clock;
pub mod conformance;
pub mod crash;
#[cfg(feature = "disk")]
pub mod disk;
pub mod history;
mod log;
mod program;
mod silent;
mod transport;
mod wait;

pub use crate::canary::leaks;
pub use crate::clock::{ManualClock, SeededRandom, VirtualClock};
pub use crate::log::Log;
pub use crate::program::example;
pub use crate::silent::Silent;
pub use crate::transport::ScriptedTransport;
pub use crate::wait::eventually;
