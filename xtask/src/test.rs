//! Every test of the workspace, then schedules and planted bugs, then the examples.

use std::path::Path;

use crate::console::Steps;
use crate::metadata::Package;
use crate::{Result, cargo, example, metadata, schemathesis};

/// What is run, and how.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Leaves out what has to be installed from the network.
    pub(crate) is_offline: bool,
    /// For the test binaries.
    pub(crate) arguments: Vec<String>,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (is_offline, rest) = match words {
            ["--offline", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let arguments = match rest {
            [] => &[][..],
            ["--", arguments @ ..] => arguments,
            _ => return None,
        };
        Some(Self { is_offline, arguments: arguments.iter().map(|&word| word.into()).collect() })
    }
}

/// With this feature threads and tasks run only under a scheduler, which all other tests do without.
const SCHEDULED: &str = "shuttle";
/// With this feature bugs can be planted; all other tests run without, as everybody does.
const MUTANTS: &str = "mutants";

/// Runs all tests.
///
/// # Errors
/// If anything failed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let Options { is_offline, arguments } = options;
    cargo::require_c_compiler()?;
    let packages = metadata::packages(root)?;
    let mut steps = Steps::default();
    let features = features(&packages);
    forget_readme(&root.join("crates/twobox"))?;
    // One failing crate must not hide the next, hence no stopping at the first.
    let all = ["test", "--workspace", "--no-fail-fast", "--features", &features];
    steps.run("tests", || cargo::run(root, &with(&all, arguments)));
    let scheduled = ["test", "--package", "twobox-proof", "--features", SCHEDULED, "--test", "schedules"];
    steps.run("schedules", || cargo::run(root, &with(&scheduled, arguments)));
    for features in [MUTANTS.to_owned(), format!("{MUTANTS},{SCHEDULED}")] {
        let mutants = ["test", "--package", "twobox-proof", "--features", &features, "--test", "mutants"];
        steps.run(&features, || cargo::run(root, &with(&mutants, arguments)));
    }
    for package in packages.iter().filter(|package| example::is_example(root, package)) {
        steps.run(&package.name, || example::run(root, package));
    }
    if arguments.is_empty() && !is_offline {
        steps.run("schemathesis", || schemathesis::run(root));
    }
    steps.finish()
}

/// Removes what the README's program has left where its test runs: the databases may be of an older schema.
fn forget_readme(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if ["shop.db", "billing.db"].iter().any(|left| name.to_string_lossy().starts_with(left)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// All features of all packages but those that make something else of the product.
fn features(packages: &[Package]) -> String {
    let of = |package: &Package| {
        let usual =
            package.features.iter().filter(|feature| ![SCHEDULED, MUTANTS].contains(&feature.as_str()));
        usual.map(|feature| format!("{}/{feature}", package.name)).collect::<Vec<_>>()
    };
    packages.iter().flat_map(of).collect::<Vec<_>>().join(",")
}

fn with<'a>(command: &[&'a str], arguments: &'a [String]) -> Vec<&'a str> {
    let separator = if arguments.is_empty() { None } else { Some("--") };
    command.iter().copied().chain(separator).chain(arguments.iter().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_test_binaries() {
        assert_eq!(with(&["test"], &["relay".into()]), ["test", "--", "relay"]);
        assert_eq!(with(&["test"], &[]), ["test"]);
    }

    #[test]
    fn tests_run_with_every_feature_but_the_scheduler_and_the_bugs() {
        let package = |name: &str, features: &[&str]| Package {
            name: name.into(),
            folder: name.into(),
            features: features.iter().map(|&feature| feature.into()).collect(),
            runnable: false,
        };
        assert_eq!(features(&[package("a", &["x", "shuttle"]), package("b", &["mutants", "y"])]), "a/x,b/y");
    }
}
