//! Processes that are told what to do in lines, and answer in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Result;

/// A part of the benchmark in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    /// `None` once it was asked to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts `part` of this program and waits for its first line.
    pub(crate) fn start(part: &'static str, arguments: &[&str]) -> Result<(Self, Value)> {
        Self::of(&std::env::current_exe()?, part, arguments)
    }

    /// As [`start`](Self::start), of another build of this program.
    pub(crate) fn of(program: &Path, part: &'static str, arguments: &[&str]) -> Result<(Self, Value)> {
        Self::spawn(part, Command::new(program), arguments)
    }

    /// As [`start`](Self::start), behind a program that watches it.
    pub(crate) fn watched(
        part: &'static str,
        mut watcher: Command,
        arguments: &[&str],
    ) -> Result<(Self, Value)> {
        watcher.arg(std::env::current_exe()?);
        Self::spawn(part, watcher, arguments)
    }

    fn spawn(name: &'static str, mut command: Command, arguments: &[&str]) -> Result<(Self, Value)> {
        command.args(["part", name]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or("a process has no output")?;
        let mut process = Self { name, child, input, output: BufReader::new(output) };
        let first = process.answer()?;
        Ok((process, first))
    }

    /// Tells it something, word by word with tabs between them, and waits for its answer.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Value> {
        let Some(input) = &mut self.input else { return Err("the process was asked to end".into()) };
        writeln!(input, "{request}").map_err(|error| format!("the {} is gone: {error}", self.name))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("the {} ended before its time; its last words are above", self.name).into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// The most memory it has had so far, in bytes.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        peak_in(&status).ok_or_else(|| "the system does not tell how much memory a process has had".into())
    }

    /// The processor time of its threads so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let mut nanos = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // One that has just ended cannot be read; those that matter live as long as their process.
            let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            nanos += text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        }
        if nanos == 0 {
            return Err("the system does not tell how long threads have run".into());
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Lets it end by itself.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the {} failed: {status}", self.name).into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has usually ended already; there is nothing to be done about a process that cannot be killed.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<_> = self.child.wait();
    }
}

/// Makes this process end with the one that started it, however that one ends: its input ends as well, but that
/// is noticed only between two questions.
pub(crate) fn end_with_parent() -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let signal = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(signal))?;
    }
    Ok(())
}

/// The other side: says `first`, then answers line by line until there are no more.
pub(crate) fn serve(first: &Value, mut answer: impl FnMut(&[&str]) -> Result<Value>) -> Result<()> {
    println!("{first}");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // Not by spaces: some of the words are paths.
        let words: Vec<&str> = line.split('\t').collect();
        println!("{}", answer(&words)?);
    }
    Ok(())
}

/// What is said to something that is not understood.
pub(crate) fn not_understood(words: &[&str]) -> Result<Value> {
    Err(format!("not understood: {words:?}").into())
}

/// A number in an answer.
pub(crate) fn number(answer: &Value, name: &str) -> Result<u64> {
    answer[name].as_u64().ok_or_else(|| format!("there is no number {name} in {answer}").into())
}

/// The line `VmHWM:  1234 kB` of a process's status.
fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_a_status() {
        let status = "Name:\ttwobox-bench\nVmPeak:\t  999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 100 kB\n";
        assert_eq!(peak_in(status), Some(2 << 20));
        assert_eq!(peak_in("Name:\tx\n"), None);
    }
}
