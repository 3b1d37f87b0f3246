//! The packages of the workspace, as cargo sees them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Result, cargo};

/// What the chores need to know of a package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) features: Vec<String>,
    /// Whether `cargo run` can run it.
    pub(crate) runnable: bool,
}

/// Asks cargo for the packages of the workspace.
///
/// # Errors
/// If cargo fails or answers in a form not known here.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let output = cargo::command(root, &["metadata", "--no-deps", "--format-version", "1"]).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(json)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    packages
        .iter()
        .map(|value| package(value).ok_or_else(|| "cargo metadata has a new form".into()))
        .collect()
}

fn package(value: &Value) -> Option<Package> {
    Some(Package {
        name: value["name"].as_str()?.to_owned(),
        folder: Path::new(value["manifest_path"].as_str()?).parent()?.to_owned(),
        features: value["features"].as_object()?.keys().cloned().collect(),
        runnable: value["targets"].as_array()?.iter().any(is_binary),
    })
}

fn is_binary(target: &Value) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_with_features_and_kind() {
        let json = br#"{"packages": [
            {"name": "a", "manifest_path": "/w/a/Cargo.toml", "features": {"x": [], "default": ["x"]},
             "targets": [{"kind": ["lib"]}]},
            {"name": "b", "manifest_path": "/w/b/Cargo.toml", "features": {},
             "targets": [{"kind": ["bin"]}]}]}"#;
        let packages = parse(json).unwrap();
        assert_eq!(packages[0].features, ["default", "x"]);
        assert_eq!(packages[0].folder, Path::new("/w/a"));
        assert_eq!(packages.iter().map(|package| package.runnable).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn an_unknown_form_is_an_error() {
        assert!(parse(b"{}").is_err());
        assert!(parse(br#"{"packages": [{"name": "a"}]}"#).is_err());
    }
}
