//! Runs one harness for as long as asked, or one case again: what a campaign (`cargo xtask prove`) consists of.
//!
//! Standard output has a line of JSON now and then (`progress`, `text`), and one at the end (`figures`, `violations`).
//! Found something: exit code 1. Could not run: exit code 2.

use std::process::ExitCode;

use twobox_proof::campaign::{self, Report};

const USAGE: &str = "\
Usage: twobox-proof <harness> [options]

  powercut [--seconds N]              crash images and failing calls of the disk, seed by seed
  powercut --side S --seed N ...      one case again, as a violation prints it
  powercut --copies SEED              a backup and a restore of a seed again
  world [--seconds N] [--first SEED]  two nodes in which everything goes wrong, seed by seed
        [--every STEP]                (SQLite's page cache has one lock: two processes beat two threads)
  world --seed N                      one seed again, with its history
  powercut, world --seeds N           so many seeds, however long they take
  model [--short]                     every interleaving of the protocol's model
  kills [--seconds N] [--program P]   the shipped program, killed again and again
  schedules [--seconds N]             turns of threads and tasks (built with the feature shuttle)
  mutants [NAME ...]                  planted bugs, each hunted by its harness (built with the feature mutants)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let harness = arguments.next().unwrap_or_default();
    match campaign::run(&harness, &arguments.collect::<Vec<_>>()) {
        Ok(report) => end(&report),
        Err(error) => {
            eprintln!("{}\n\n{USAGE}", twobox_core::chain(&*error));
            ExitCode::from(2)
        }
    }
}

fn end(report: &Report) -> ExitCode {
    println!("{}", report.json());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
