//! Where the program is.

use std::path::PathBuf;

use twobox_core::BoxError;

/// The program `twobox` that was built beside the one that is running, which may be a test.
///
/// # Errors
/// If it was not built.
pub fn twobox() -> Result<PathBuf, BoxError> {
    let running = std::env::current_exe()?;
    let name = format!("twobox{}", std::env::consts::EXE_SUFFIX);
    let found =
        running.ancestors().skip(1).take(2).map(|folder| folder.join(&name)).find(|path| path.is_file());
    let remedy = "`cargo build -p twobox-server`, in the same profile, builds it";
    found.ok_or_else(|| format!("there is no {name} beside {}: {remedy}", running.display()).into())
}
