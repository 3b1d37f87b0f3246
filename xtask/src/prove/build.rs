//! The programs a campaign needs: the harnesses as they ship, on a scheduler of their own, and with planted bugs.

use std::path::{Path, PathBuf};

use crate::{Result, cargo, fuzz};

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) plain: PathBuf,
    pub(crate) schedules: PathBuf,
    /// With planted bugs, as they ship and on the scheduler.
    pub(crate) mutants: [PathBuf; 2],
    /// The shipped program, which is killed.
    pub(crate) twobox: PathBuf,
    /// This program, which runs the fuzzers.
    pub(crate) xtask: PathBuf,
}

/// Builds all of them in release.
///
/// # Errors
/// If one cannot be built.
pub(crate) fn all(root: &Path) -> Result<Programs> {
    cargo::require_c_compiler()?;
    fuzz::build(&root.join("fuzz"))?;
    let folder = root.join("target/proof");
    std::fs::create_dir_all(&folder)?;
    built(root, &["--package", "twobox-server"])?;
    let twobox = kept(root, &folder, "twobox", "twobox")?;
    Ok(Programs {
        plain: proof(root, &folder, None, "plain")?,
        schedules: proof(root, &folder, Some("shuttle"), "schedules")?,
        mutants: mutants(root)?,
        twobox,
        xtask: std::env::current_exe()?,
    })
}

/// Builds the programs with planted bugs.
///
/// # Errors
/// If one cannot be built.
pub(crate) fn mutants(root: &Path) -> Result<[PathBuf; 2]> {
    let folder = root.join("target/proof");
    std::fs::create_dir_all(&folder)?;
    Ok([
        proof(root, &folder, Some("mutants"), "mutants")?,
        proof(root, &folder, Some("mutants,shuttle"), "mutants-schedules")?,
    ])
}

fn proof(root: &Path, folder: &Path, feature: Option<&str>, name: &str) -> Result<PathBuf> {
    let mut arguments = vec!["--package", "twobox-proof", "--bins"];
    arguments.extend(feature.iter().flat_map(|feature| ["--features", feature]));
    built(root, &arguments)?;
    kept(root, folder, "twobox-proof", name)
}

/// Builds into the folder that is looked into afterwards, whatever is configured: what lies there may be an old one.
fn built(root: &Path, arguments: &[&str]) -> Result<()> {
    let folder = root.join("target");
    let mut command = cargo::command(root, &["build", "--release", "--target-dir"]);
    command.arg(folder).args(arguments);
    cargo::finish(command)
}

/// The next build of the same program with other features would take its place.
fn kept(root: &Path, folder: &Path, program: &str, name: &str) -> Result<PathBuf> {
    let suffix = std::env::consts::EXE_SUFFIX;
    let kept = folder.join(format!("{name}{suffix}"));
    std::fs::copy(root.join("target/release").join(format!("{program}{suffix}")), &kept)?;
    Ok(kept)
}
