//! Relay and receiver on a real SQLite file, on one thread, in virtual time: a night takes no time, and a run
//! repeats exactly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod bulk;
mod dead_letters;
mod failures;
mod keys;
mod lanes;
mod pause;
mod receiver;
mod simulation;
mod sweeper;
mod worker_pace;
mod workers;
mod world;
