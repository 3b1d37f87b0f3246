//! How many times the disk was synced.
//!
//! SQLite counts the transactions of a database in the header of the WAL index (the `-shm` file); a writer that
//! commits many callers' work together shows there as one. With `synchronous=FULL` each costs one sync, which is
//! an `fdatasync` or an `fsync`, depending on how SQLite was built; a checkpoint, every few thousand pages, adds
//! a few more, which only strace can see.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::lab::Lab;

/// Where the WAL index keeps its counter of transactions (`iChange`, 4 bytes in the machine's order).
const TRANSACTIONS_AT: u64 = 8;

/// The counter of the database at `path`. Call it only from a process that does not have the database open:
/// closing any descriptor of the file would drop the locks that SQLite holds on it.
pub(crate) fn commits_of(path: &Path) -> Result<u32> {
    let mut name = path.as_os_str().to_owned();
    name.push("-shm");
    let mut counter = [0; 4];
    File::open(PathBuf::from(name))?.read_exact_at(&mut counter, TRANSACTIONS_AT)?;
    Ok(u32::from_ne_bytes(counter))
}

/// As [`commits_of`], from another process.
pub(crate) fn commits(path: &Path) -> Result<u32> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("commits").arg(path);
    Ok(output(command)?.trim().parse()?)
}

/// Messages per `fdatasync` or `fsync` that really happened, checkpoints included: a process that enqueues,
/// under strace.
pub(crate) fn messages_per_sync(lab: &mut Lab) -> Result<f64> {
    // What opening, creating and closing a database costs is not the callers' affair.
    let (_, overhead) = traced(lab, Duration::ZERO)?;
    let duration = lab.plan.slice;
    let (messages, syncs) = traced(lab, duration)?;
    per_sync(messages, syncs.saturating_sub(overhead))
}

/// How many messages shared one.
///
/// # Errors
/// If none was counted: then the counter does not work, and nothing is known.
pub(crate) fn per_sync(messages: u64, syncs: u64) -> Result<f64> {
    if syncs == 0 {
        return Err(
            format!("{messages} messages and not one sync or commit: they are not counted right").into()
        );
    }
    Ok(messages as f64 / syncs as f64)
}

/// Messages and syncs of a process that enqueues for `duration`.
fn traced(lab: &mut Lab, duration: Duration) -> Result<(u64, u64)> {
    let folder = lab.new_folder()?;
    let summary = folder.join("strace");
    let mut command = Command::new("strace");
    // The filter runs in the kernel, so that other calls run at full speed.
    command.args(["-f", "--seccomp-bpf", "-c", "-e", "trace=fdatasync,fsync", "-o"]).arg(&summary);
    command.arg(std::env::current_exe()?).arg("enqueue-once").arg(&folder);
    command.arg(duration.as_millis().to_string());
    let messages = output(command)?.trim().parse()?;
    Ok((messages, syncs_in(&std::fs::read_to_string(summary)?)))
}

fn output(mut command: Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", command.get_program().display(), output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Calls in a summary of strace, whose columns are: time, seconds, microseconds per call, calls, errors (or
/// nothing), name.
pub(crate) fn syncs_in(summary: &str) -> u64 {
    let calls = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let known = matches!(columns.last(), Some(&"fdatasync" | &"fsync"));
        columns.get(3).filter(|_| known).and_then(|calls| calls.parse::<u64>().ok())
    };
    summary.lines().filter_map(calls).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_a_summary() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.00    0.100000         100      1000           fdatasync
  1.00    0.001000         100        10         2 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.101000                  1010           total
";
        assert_eq!(syncs_in(summary), 1_010);
        assert_eq!(syncs_in(""), 0);
    }
}
