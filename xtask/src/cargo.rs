//! Calls to cargo, and what has to be on the machine before they can work.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Prepares a call to the same cargo that runs this program.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    // Cargo names itself in this variable; the plain name could be another toolchain.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    command
}

/// Runs a cargo command with its output shown.
///
/// # Errors
/// If cargo cannot be started or does not succeed.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    finish(command(root, arguments))
}

/// Runs a prepared command with its output shown.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn finish(mut command: Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", text(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", text(&command)).into()) }
}

fn text(command: &Command) -> String {
    let words = command.get_args().map(OsStr::to_string_lossy).collect::<Vec<_>>();
    format!("cargo {}", words.join(" "))
}

/// Checks that SQLite, which is C, can be compiled.
///
/// # Errors
/// If there is no C compiler; the text gives the remedy.
pub(crate) fn require_c_compiler() -> Result<()> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    // Elsewhere the compiler has other names and other places, and its absence explains itself.
    if !cfg!(target_os = "linux") || std::env::var_os("CC").is_some() || is_on_path("cc", &search) {
        return Ok(());
    }
    Err("there is no C compiler (cc), which SQLite and the linker need: apt-get install -y build-essential"
        .into())
}

fn is_on_path(program: &str, search: &OsStr) -> bool {
    std::env::split_paths(search).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_failing_command_is_reported_with_its_arguments() {
        let mut command = command(Path::new("."), &["no-such-subcommand"]);
        command.stderr(Stdio::null());
        let error = finish(command).unwrap_err();
        assert!(error.to_string().contains("cargo no-such-subcommand"), "{error}");
    }

    #[test]
    fn a_program_is_found_only_where_it_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(is_on_path("Cargo.toml", folder.as_os_str()));
        assert!(!is_on_path("Cargo.toml", folder.join("src").as_os_str()));
    }
}
