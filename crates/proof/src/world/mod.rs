//! A world of two nodes in which everything goes wrong, until it is healed and has to keep the promise.
//!
//! Both nodes send and receive. The engines, the store, SQLite, the envelopes and the signatures are those that ship;
//! the clock, the disk, the network and chance come from a seed. Processes die with their power at any write; what a
//! cut has left is recovered by the real store. Then all is made well, everything must be delivered, the databases are
//! read, and [`history::check`](twobox_testkit::history::check) judges.
//!
//! The same seed gives the same history, byte for byte.

mod audit;
mod authors;
mod clock;
mod foreign;
mod handlers;
mod keys;
mod life;
mod network;
mod operator;
mod panics;
mod process;
mod relays;
mod run;
mod serve;
mod stage;
mod tally;
mod weather;
mod work;

pub use self::run::{Options, Outcome, Violation, run};
pub use self::tally::{Kind, Tally};
