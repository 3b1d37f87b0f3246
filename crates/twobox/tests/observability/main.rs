//! Figures, log events, and whether the page that documents them says what is there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dashboard;
mod documented;
mod flow;
mod page;
mod queue;
mod sources;

use std::path::PathBuf;

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}
