//! `twobox serve`: real processes, and a program of the user's that they hand messages to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backups;
mod canary;
mod delivery;
mod guide;
mod kills;
mod operators;
mod program;
mod read_only;
mod signals;
mod tls;
mod world;
