//! Calls to cargo, and what has to be on the machine before they can work.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// How the one test ended that was to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed,
}

/// Reads from what test binaries have printed how the one test ended that was to run.
///
/// # Errors
/// If it was not one: a filter that matches nothing is a success for cargo.
pub(crate) fn one_test(output: &Output) -> Result<Ended> {
    let text = String::from_utf8_lossy(&output.stdout);
    let results: Vec<&str> = text.lines().filter(|line| line.starts_with("test result: ")).collect();
    let count = |word: &str| results.iter().map(|result| counted(result, word)).sum::<u64>();
    match (count(" passed"), count(" failed")) {
        (1, 0) => Ok(Ended::Passed),
        (0, 1) => Ok(Ended::Failed),
        (passed, failed) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default();
            Err(format!("{passed} tests passed and {failed} failed, but one was to run; {last}").into())
        }
    }
}

/// The number before this word in a line with the result of a test binary.
fn counted(result: &str, word: &str) -> u64 {
    let before = result.split_once(word).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs one test with its output shown.
///
/// # Errors
/// If it cannot be started, does not pass, or is not one.
pub(crate) fn run_one_test(mut command: Command) -> Result<()> {
    let output = command.stderr(Stdio::inherit()).output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    match one_test(&output)? {
        Ended::Passed => Ok(()),
        Ended::Failed => Err(format!("{} failed", text(&command)).into()),
    }
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
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_failing_command_is_reported_with_its_arguments() {
        let mut command = command(Path::new("."), &["no-such-subcommand"]);
        command.stderr(Stdio::null());
        let error = finish(command).unwrap_err();
        assert!(error.to_string().contains("cargo no-such-subcommand"), "{error}");
    }

    #[test]
    fn a_test_that_is_not_there_has_not_passed() {
        let said = |stdout: &str| {
            let (stdout, stderr) = (stdout.into(), b"error: could not compile".to_vec());
            one_test(&Output { status: ExitStatus::default(), stdout, stderr }).ok()
        };
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored;\n";
        let passed = "test result: ok. 1 passed; 0 failed; 0 ignored;\n";
        let failed = "test result: FAILED. 0 passed; 1 failed; 0 ignored;\n";
        assert_eq!(said(&format!("{none}{passed}")), Some(Ended::Passed));
        assert_eq!(said(failed), Some(Ended::Failed));
        for not_one in ["", none, "test result: ok. 11 passed; 0 failed;", &format!("{passed}{failed}")] {
            assert_eq!(said(not_one), None, "{not_one}");
        }
    }

    #[test]
    fn a_program_is_found_only_where_it_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(is_on_path("Cargo.toml", folder.as_os_str()));
        assert!(!is_on_path("Cargo.toml", folder.join("src").as_os_str()));
    }
}
