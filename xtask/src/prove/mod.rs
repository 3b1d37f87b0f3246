//! `cargo xtask prove`: every harness, for as long as asked, and a report of what they have seen.

pub(crate) mod build;
pub(crate) mod job;
pub(crate) mod lanes;
mod plan;
pub(crate) mod report;

use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::console::heading;
use crate::{Result, mutants};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Options {
    /// How long all of it may take, without building.
    pub(crate) minutes: f64,
}

/// Planted bugs, those of the harnesses beside those of tests by name: each of the two is mostly one process at a time.
fn hunt(root: &Path, programs: &build::Programs) -> Result<Vec<job::Seen>> {
    thread::scope(|scope| {
        let suite = scope.spawn(|| mutants::suite(root, &[]));
        let mut seen = lanes::run(plan::mutants(programs))?;
        seen.push(suite.join().map_err(|_| "the suite panicked")?);
        Ok(seen)
    })
}

/// Runs everything and writes the report.
///
/// # Errors
/// If a promise was broken, a mutant survived, a goal was missed in the time it is meant for, or a harness failed.
pub(crate) fn run(root: &Path, options: Options) -> Result<()> {
    heading("build");
    let programs = build::all(root)?;
    mutants::build_suite(root)?;
    heading(&format!("prove, {} minutes", options.minutes));
    #[expect(clippy::disallowed_methods, reason = "this is how long people wait")]
    let start = Instant::now();
    let mut seen = Vec::new();
    for phase in plan::phases(&programs, options.minutes) {
        seen.extend(lanes::run(phase)?);
    }
    seen.extend(hunt(root, &programs)?);
    let report = report::Report::new(seen, options.minutes, start.elapsed());
    let folder = root.join("target/proof");
    std::fs::write(folder.join("report.json"), report.json())?;
    std::fs::write(folder.join("report.txt"), report.text())?;
    println!("{}", report.text());
    eprintln!("also in target/proof/report.txt and target/proof/report.json");
    report.verdict()
}
