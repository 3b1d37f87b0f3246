//! Examples are stories with a known ending: what one prints is compared with its `expected.txt`.

use std::path::Path;
use std::process::Stdio;

use crate::diff::diff;
use crate::metadata::Package;
use crate::{Result, cargo};

/// Whether a package is a program under `examples/`.
pub(crate) fn is_example(root: &Path, package: &Package) -> bool {
    package.runnable && package.folder.starts_with(root.join("examples"))
}

/// Runs an example and compares what it prints.
///
/// An example without `expected.txt` may well run until it is stopped, so it is only named.
///
/// # Errors
/// If the example fails or prints something else.
pub(crate) fn run(root: &Path, package: &Package) -> Result<()> {
    let file = package.folder.join("expected.txt");
    if !file.is_file() {
        eprintln!("not run: it has no expected.txt");
        return Ok(());
    }
    let expected = std::fs::read_to_string(file)?;
    compare(&expected, &output(root, &package.name)?)
}

fn output(root: &Path, name: &str) -> Result<String> {
    let mut command = cargo::command(root, &["run", "-q", "-p", name]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    print!("{text}");
    Err(format!("{name} ended with {}", output.status).into())
}

fn compare(expected: &str, actual: &str) -> Result<()> {
    if expected == actual {
        eprintln!("printed what it should");
        return Ok(());
    }
    print!("{}", diff(expected, actual));
    Err("the output differs from expected.txt (- expected, + printed)".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, runnable: bool) -> Package {
        Package { name: "a".into(), folder: folder.into(), features: Vec::new(), runnable }
    }

    #[test]
    fn only_programs_under_examples_are_examples() {
        let root = Path::new("/w");
        assert!(is_example(root, &package("/w/examples/order", true)));
        assert!(!is_example(root, &package("/w/examples/shared", false)));
        assert!(!is_example(root, &package("/w/benches", true)));
    }

    #[test]
    fn any_difference_in_output_is_a_failure() {
        compare("delivered\n", "delivered\n").unwrap();
        for actual in ["", "delivered", "delivered \n", "delivered\n\n"] {
            compare("delivered\n", actual).unwrap_err();
        }
    }
}
