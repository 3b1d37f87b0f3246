//! Everything that can be said about the workspace without running it.

use std::path::Path;

use crate::console::Steps;
use crate::metadata::{self, Package};
use crate::{Result, cargo, requirements, tidy};

const CLIPPY: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];

/// Runs every check.
///
/// # Errors
/// If one of them found something.
pub(crate) fn run(root: &Path) -> Result<()> {
    cargo::require_c_compiler()?;
    let mut steps = Steps::default();
    steps.run("format", || cargo::run(root, &["fmt", "--all", "--check"]));
    steps.run("lints", || cargo::run(root, &CLIPPY));
    steps.run("docs", || docs(root));
    for package in metadata::packages(root)? {
        for features in alone(&package) {
            check_features(&mut steps, root, &package.name, features);
        }
    }
    // The fuzz targets are a workspace of their own, which nothing else here builds.
    steps.run("lock file of fuzz", || cargo::run(&root.join("fuzz"), &["fetch", "--quiet", "--locked"]));
    steps.run("tidy", || tidy::inspect(root));
    steps.run("requirements", || requirements::run(root, requirements::Format::Brief));
    steps.finish()
}

fn docs(root: &Path) -> Result<()> {
    let mut command = cargo::command(root, &["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    cargo::finish(command)
}

/// The feature sets that show whether each feature stands on its own: none, then one at a time.
///
/// A package without features has nothing to tell apart, and the lints have built it already.
fn alone(package: &Package) -> Vec<Option<&str>> {
    if package.features.is_empty() {
        return Vec::new();
    }
    std::iter::once(None).chain(package.features.iter().map(|feature| Some(feature.as_str()))).collect()
}

fn check_features(steps: &mut Steps, root: &Path, package: &str, feature: Option<&str>) {
    let mut arguments = vec!["check", "--quiet", "-p", package, "--no-default-features"];
    if let Some(feature) = feature {
        arguments.extend(["--features", feature]);
    }
    let title = format!("{package} with {}", feature.unwrap_or("no features"));
    steps.run(&title, || cargo::run(root, &arguments));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &[&str]) -> Package {
        Package {
            name: "a".into(),
            folder: "a".into(),
            features: features.iter().map(|&feature| feature.into()).collect(),
            runnable: false,
        }
    }

    #[test]
    fn every_feature_is_checked_alone_and_once_without_any() {
        assert_eq!(alone(&package(&["default", "x"])), [None, Some("default"), Some("x")]);
        assert!(alone(&package(&[])).is_empty());
    }
}
