//! `cargo xtask mutants`: planted bugs, and which harness finds each of them.

use std::path::Path;

use crate::Result;
use crate::console::heading;
use crate::prove::{build, job::Job, lanes, report};

/// Plants all bugs, or the named ones, one after the other.
///
/// # Errors
/// If one survives, or a name is none.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<()> {
    heading("build");
    let programs = build::mutants(root)?;
    heading("mutants");
    let arguments: Vec<&str> = std::iter::once("mutants").chain(names.iter().map(String::as_str)).collect();
    let lanes = programs.iter().map(|program| vec![Job::new("mutants", program, &arguments)]).collect();
    let seen = lanes::run(lanes)?;
    let mutants = report::mutants(&seen);
    print!("{}", report::table(&mutants));
    let alive: Vec<_> = mutants.iter().filter(|mutant| mutant["found"].is_null()).collect();
    if mutants.is_empty() {
        return Err("no mutant was tried".into());
    }
    if alive.is_empty() { Ok(()) } else { Err(format!("{} mutants survived", alive.len()).into()) }
}
