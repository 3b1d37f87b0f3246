//! Programs that die at a named crash point.
//!
//! Crash points exist in builds with the feature `crash-points`; the program under test is a child process, so
//! that its death is real.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Runs `program` so that it dies the `nth` time it passes `point`. Returns how it ended.
///
/// # Errors
/// If it cannot be started.
pub fn run_until(program: &Path, arguments: &[&str], point: &str, nth: u32) -> io::Result<ExitStatus> {
    Command::new(program).args(arguments).env(twobox_core::crash::VARIABLE, format!("{point}:{nth}")).status()
}

/// Whether the program died as at a crash point, rather than ending by itself.
#[must_use]
pub fn died(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL);
    #[cfg(not(unix))]
    return status.code().is_none();
}

/// What a crash point dies of, where there are signals.
#[cfg(unix)]
const SIGKILL: i32 = 9;
