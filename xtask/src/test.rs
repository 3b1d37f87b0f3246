//! Every test of the workspace, then the examples.

use std::path::Path;

use crate::console::Steps;
use crate::{Result, cargo, example, metadata};

/// Runs all tests; `arguments` go to the test binaries.
///
/// # Errors
/// If anything failed.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    cargo::require_c_compiler()?;
    let packages = metadata::packages(root)?;
    let mut steps = Steps::default();
    steps.run("tests", || cargo::run(root, &tests(arguments)));
    for package in packages.iter().filter(|package| example::is_example(root, package)) {
        steps.run(&package.name, || example::run(root, package));
    }
    steps.finish()
}

/// One failing crate must not hide the next, hence no stopping at the first.
fn tests(arguments: &[String]) -> Vec<&str> {
    let mut words = vec!["test", "--workspace", "--all-features", "--no-fail-fast"];
    if !arguments.is_empty() {
        words.push("--");
        words.extend(arguments.iter().map(String::as_str));
    }
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_reach_the_test_binaries() {
        assert_eq!(super::tests(&["relay".into()])[3..], ["--no-fail-fast", "--", "relay"]);
        assert_eq!(super::tests(&[]).last(), Some(&"--no-fail-fast"));
    }
}
