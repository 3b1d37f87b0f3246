//! Commands for operators, as processes: on a database file and against a node that runs on it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backups;
mod dead_letters;
mod files;
mod guide;
mod looking;
mod steering;
mod terminal;
mod world;
