//! schemathesis asks the API of a node for everything it can think of; what it is comes from docs/openapi.json.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, cargo};

/// The version that is known to work with the document.
const VERSION: &str = "4.32.5";
/// Names the program to the test that starts the node.
const PROGRAM: &str = "TWOBOX_SCHEMATHESIS";
/// Makes the test of the document write it.
const REWRITE: &str = "TWOBOX_REWRITE";

/// Installs schemathesis if it is not there, and lets it loose on a node.
///
/// # Errors
/// If it cannot be installed, or found something.
pub(crate) fn run(root: &Path) -> Result<()> {
    let program = installed(root)?;
    let test = ["test", "-p", "twobox-server", "rf_22_answers_are_as_documented", "--", "--nocapture"];
    let mut command = cargo::command(root, &test);
    command.env(PROGRAM, program);
    cargo::run_one_test(command)
}

/// Writes the document from the code.
///
/// # Errors
/// If the code does not build, or the test that writes it is not there.
pub(crate) fn rewrite_document(root: &Path) -> Result<()> {
    let mut command = cargo::command(root, &["test", "-p", "twobox-server", "the_published_document"]);
    command.env(REWRITE, "1");
    cargo::run_one_test(command)
}

/// The program, in a folder of its own for each version, so that an older one is never taken for it.
fn installed(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target").join(format!("schemathesis-{VERSION}"));
    let program = folder.join("bin/schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    let remedy = "apt-get install -y python3-venv, see that the Python package index can be reached, or leave it out: \
        cargo xtask test --offline";
    let failed = |error| format!("cannot install schemathesis: {error}; {remedy}");
    python("python3", &["-m", "venv", "--clear"], &[&folder]).map_err(failed)?;
    let package = format!("schemathesis=={VERSION}");
    let pip = folder.join("bin/pip");
    python(&pip.display().to_string(), &["install", "--quiet", &package], &[]).map_err(failed)?;
    Ok(program)
}

fn python(program: &str, arguments: &[&str], paths: &[&Path]) -> std::result::Result<(), String> {
    let status = Command::new(program).args(arguments).args(paths).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
