//! The programs a campaign needs: the harnesses as they ship, on a scheduler of their own, and with planted bugs.

use std::path::{Path, PathBuf};

use crate::{Result, cargo, fuzz};

/// How the harnesses are built: as fast as what ships, in less time.
const HARNESS: &str = "harness";
/// How the program is built that ships.
const RELEASE: &str = "release";

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

/// Builds all of them.
///
/// # Errors
/// If one cannot be built.
pub(crate) fn all(root: &Path) -> Result<Programs> {
    cargo::require_c_compiler()?;
    fuzz::build(&root.join("fuzz"))?;
    built(root, RELEASE, &["--package", "twobox-server"])?;
    let twobox = kept(root, RELEASE, "twobox", "twobox")?;
    Ok(Programs {
        plain: proof(root, None, "plain")?,
        schedules: proof(root, Some("shuttle"), "schedules")?,
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
    Ok([proof(root, Some("mutants"), "mutants")?, proof(root, Some("mutants,shuttle"), "mutants-schedules")?])
}

fn proof(root: &Path, feature: Option<&str>, name: &str) -> Result<PathBuf> {
    let mut arguments = vec!["--package", "twobox-proof", "--bins"];
    arguments.extend(feature.iter().flat_map(|feature| ["--features", feature]));
    built(root, HARNESS, &arguments)?;
    kept(root, HARNESS, "twobox-proof", name)
}

/// Builds into the folder that is looked into afterwards, whatever is configured: what lies there may be an old one.
fn built(root: &Path, profile: &str, arguments: &[&str]) -> Result<()> {
    let folder = root.join("target");
    let mut command = cargo::command(root, &["build", "--profile", profile, "--target-dir"]);
    command.arg(folder).args(arguments);
    cargo::finish(command)
}

/// The next build of the same program with other features would take its place.
fn kept(root: &Path, profile: &str, program: &str, name: &str) -> Result<PathBuf> {
    let (folder, suffix) = (root.join("target/proof"), std::env::consts::EXE_SUFFIX);
    std::fs::create_dir_all(&folder)?;
    let kept = folder.join(format!("{name}{suffix}"));
    std::fs::copy(root.join("target").join(profile).join(format!("{program}{suffix}")), &kept)?;
    Ok(kept)
}
