//! One harness as a process: it says line by line how far it is, and at the end what it has seen.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::report::wrong;
use crate::Result;

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// What a harness has seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: &'static str,
    pub(crate) report: Value,
}

impl Seen {
    /// A harness that could not say what it has seen.
    pub(crate) fn broken(name: &'static str, error: &dyn Error) -> Self {
        Self { name, report: json!({ "figures": {}, "violations": [format!("broken: {error}")] }) }
    }
}

impl Job {
    pub(crate) fn new(name: &'static str, program: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { name, program: program.to_owned(), arguments }
    }

    /// Runs it; `progress` is told a part of one and a few words.
    ///
    /// # Errors
    /// If it cannot be started, or ends without a report or otherwise than the report says.
    pub(crate) fn run(&self, mut progress: impl FnMut(f64, &str)) -> Result<Seen> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let output = child.stdout.take().ok_or("a child without output")?;
        let mut report = None;
        for line in BufReader::new(output).lines() {
            let line: Value = serde_json::from_str(&line?)?;
            match (&line, line.get("progress").and_then(Value::as_f64)) {
                (_, Some(part)) => progress(part, line["text"].as_str().unwrap_or_default()),
                (Value::Array(targets), None) => report = Some(fuzzed(targets)),
                (_, None) => report = Some(line),
            }
        }
        let status = child.wait()?;
        let report = report.ok_or_else(|| format!("it ended with {status} and no report"))?;
        let seen = Seen { name: self.name, report };
        // A harness that has found something says so in its report, and by its exit code.
        if !status.success() && wrong(std::slice::from_ref(&seen)).is_empty() {
            return Err(format!("it ended with {status}, and its report names nothing wrong").into());
        }
        Ok(seen)
    }
}

/// What the fuzzers say, in the form of the other harnesses.
fn fuzzed(targets: &[Value]) -> Value {
    let executions: u64 = targets.iter().filter_map(|target| target["executions"].as_u64()).sum();
    let found = targets.iter().filter(|target| target["findings"] != 0);
    let violations: Vec<String> = found
        .map(|target| format!("{}: {} ({})", target["target"], target["error"], target["input"]))
        .collect();
    json!({ "figures": { "executions": executions, "targets": targets.len() }, "violations": violations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_fuzzers_are_violations() {
        let good = json!({ "target": "answer", "executions": 5, "findings": 0 });
        let bad =
            json!({ "target": "probe", "executions": 7, "findings": 1, "error": "believed", "input": "f" });
        let report = fuzzed(&[good, bad]);
        assert_eq!(report["figures"]["executions"], 12);
        assert_eq!(report["violations"].as_array().map(Vec::len), Some(1));
    }
}
