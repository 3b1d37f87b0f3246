//! Fuzzing guided by coverage: builds the binaries under `fuzz/` and gives each of them its share of the time.
//!
//! libFuzzer comes as C++ source with its crate, and the compiler's own coverage pass is asked for by flags that stable
//! Rust has, so neither nightly nor another tool is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{Result, cargo, console};

/// Counters at every edge, and where they are: what libFuzzer reads. Comparisons are not traced; that halves the rate,
/// and the mutator knows the words of the formats already.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Ccodegen-units=1";
/// Beyond this size only limits are met, and those have tests of their own.
const INPUT_BYTES_MAX: &str = "-max_len=2048";
/// Long enough to see something, short enough to wait for.
const SECONDS: u64 = 60;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// For all targets together.
    pub(crate) seconds: u64,
    /// One target instead of all.
    pub(crate) target: Option<String>,
    /// One input instead of new ones.
    pub(crate) replay: Option<PathBuf>,
    /// For machines.
    pub(crate) json: bool,
}

impl Options {
    /// Reads the words after `fuzz`; `None` if there is one that means nothing.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self { seconds: SECONDS, target: None, replay: None, json: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => options.seconds = words.next()?.parse().ok()?,
                "--target" => options.target = Some((*words.next()?).to_owned()),
                "--replay" => options.replay = Some(words.next()?.into()),
                "--json" => options.json = true,
                _ => return None,
            }
        }
        // An input belongs to one target.
        (options.replay.is_none() || options.target.is_some()).then_some(options)
    }
}

/// What became of a target.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    target: String,
    executions: u64,
    corpus: usize,
    /// What was said about the input that broke a promise, and where it is.
    finding: Option<(String, PathBuf)>,
}

/// Fuzzes.
///
/// # Errors
/// If something was found, or the binaries cannot be built.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let folder = root.join("fuzz");
    let targets = chosen(&folder, options)?;
    let bin = build(&folder)?;
    if let (Some(input), [target]) = (&options.replay, targets.as_slice()) {
        return replay(&folder, &bin, target, input);
    }
    // What was found in earlier runs helps the next ones, so short targets still get a whole second.
    let seconds = (options.seconds / targets.len() as u64).max(1);
    let mut outcomes = Vec::new();
    for target in &targets {
        if !options.json {
            eprintln!("{target}: {seconds} s");
        }
        outcomes.push(fuzz(&folder, &bin, target, seconds)?);
    }
    report(&outcomes, options.json)
}

fn replay(folder: &Path, bin: &Path, target: &str, input: &Path) -> Result<()> {
    let scratch = scratch(folder)?;
    let status = fuzzer(bin, target, &scratch, &[&input.to_string_lossy()]).status();
    remove(&scratch);
    if status?.success() { Ok(()) } else { Err(format!("{target} broke a promise").into()) }
}

/// The targets are the binaries, and each has a source file.
fn chosen(folder: &Path, options: &Options) -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(folder.join("src/bin"))? {
        targets.extend(entry?.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    targets.sort();
    if let Some(wanted) = &options.target {
        if !targets.contains(wanted) {
            return Err(
                format!("there is no target called {wanted}: choose one of {}", targets.join(", ")).into()
            );
        }
        targets.retain(|target| target == wanted);
    }
    Ok(targets)
}

/// Builds all targets and says where they are. Cargo keeps flags away from build scripts only if the machine to build
/// for is named.
pub(crate) fn build(folder: &Path) -> Result<PathBuf> {
    cargo::require_c_compiler()?;
    let host = host(folder)?;
    let output = folder.join("target");
    let mut command =
        cargo::command(folder, &["build", "--quiet", "--release", "--locked", "--target", &host]);
    command.env("RUSTFLAGS", COVERAGE).env("CARGO_TARGET_DIR", &output);
    cargo::finish(command)?;
    Ok(output.join(host).join("release"))
}

fn host(folder: &Path) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).current_dir(folder).arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say which machine this is".into())
}

fn fuzz(folder: &Path, bin: &Path, target: &str, seconds: u64) -> Result<Outcome> {
    let (grown, committed) = (folder.join("target/corpus").join(target), folder.join("corpus").join(target));
    let artifacts = folder.join("artifacts").join(target);
    for folder in [&grown, &artifacts] {
        fs::create_dir_all(folder)?;
    }
    let scratch = scratch(folder)?;
    let arguments = [
        INPUT_BYTES_MAX.to_owned(),
        // Weighing every feature of every run takes as long as the runs themselves.
        "-entropic=0".to_owned(),
        "-reduce_inputs=0".to_owned(),
        format!("-max_total_time={seconds}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
        grown.display().to_string(),
        committed.display().to_string(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = fuzzer(bin, target, &scratch, &arguments).stderr(Stdio::piped()).output()?;
    remove(&scratch);
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && crash(&log).is_none() {
        return Err(format!("{target} ended with {}:\n{log}", output.status).into());
    }
    Ok(outcome(target, &log))
}

fn fuzzer(bin: &Path, target: &str, scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bin.join(target));
    command.args(arguments).env("TMPDIR", scratch);
    command
}

/// Where a target keeps its database. libFuzzer ends the process without cleaning up, so that is done here.
fn scratch(folder: &Path) -> Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let name = format!("twobox-fuzz-{}", std::process::id());
    let scratch = if memory.is_dir() { memory.join(name) } else { folder.join("target").join(name) };
    fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

fn remove(scratch: &Path) {
    // What is left behind is small and nobody's.
    let _: std::io::Result<()> = fs::remove_dir_all(scratch);
}

fn outcome(target: &str, log: &str) -> Outcome {
    let said = log.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or("see its log");
    Outcome {
        target: target.to_owned(),
        executions: executions(log),
        corpus: corpus(log),
        finding: crash(log).map(|path| (said.to_owned(), path)),
    }
}

fn executions(log: &str) -> u64 {
    log.lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
        .unwrap_or(0)
}

/// `… corp: 1220/66Kb …`, as last said.
fn corpus(log: &str) -> usize {
    let last = log.lines().rev().find_map(|line| line.split_once("corp: "));
    last.and_then(|(_, rest)| rest.split('/').next()?.parse().ok()).unwrap_or(0)
}

/// libFuzzer says where it put the input it ended with, be it a crash, a hang or too much memory.
fn crash(log: &str) -> Option<PathBuf> {
    log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim().into())
}

fn report(outcomes: &[Outcome], as_json: bool) -> Result<()> {
    if as_json {
        println!("{}", Value::from_iter(outcomes.iter().map(value)));
    } else {
        println!("{:<16}{:>12}{:>10}{:>10}", "target", "executions", "corpus", "findings");
        for outcome in outcomes {
            let findings = usize::from(outcome.finding.is_some());
            println!("{:<16}{:>12}{:>10}{findings:>10}", outcome.target, outcome.executions, outcome.corpus);
        }
        let all: u64 = outcomes.iter().map(|outcome| outcome.executions).sum();
        println!("{:<16}{all:>12}", "all");
    }
    let found: Vec<_> = outcomes.iter().filter(|outcome| outcome.finding.is_some()).collect();
    for outcome in &found {
        let Some((said, path)) = &outcome.finding else { continue };
        let replay = format!("cargo xtask fuzz --target {} --replay {}", outcome.target, path.display());
        console::failure(&format!("{}: {said}\nreplay it: {replay}", outcome.target));
    }
    match found.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings").into()),
    }
}

fn value(outcome: &Outcome) -> Value {
    json!({
        "target": outcome.target,
        "executions": outcome.executions,
        "corpus": outcome.corpus,
        "findings": usize::from(outcome.finding.is_some()),
        "error": outcome.finding.as_ref().map(|(said, _)| said),
        "input": outcome.finding.as_ref().map(|(_, path)| path.display().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "INFO: Seed: 1\n#9\tINITED cov: 1 ft: 2 corp: 3/9b exec/s: 0 rss: 31Mb\n\
        #86092\tDONE   cov: 2156 ft: 6389 corp: 1220/66Kb lim: 2048 exec/s: 12298 rss: 34Mb\n\
        stat::number_of_executed_units: 86092\n";
    const BAD: &str = "thread '<unnamed>' (7) panicked at src/bin/answer.rs:4:1:\nbelieved, but never signed\n\
        artifact_prefix='a/'; Test unit written to a/crash-1\nstat::number_of_executed_units: 34\n";

    #[test]
    fn words_are_read_and_others_refused() {
        let options = Options::parse(&["--seconds", "9", "--target", "answer", "--json"]).unwrap();
        assert_eq!((options.seconds, options.target.as_deref(), options.json), (9, Some("answer"), true));
        assert_eq!(Options::parse(&[]).unwrap().seconds, SECONDS);
        for words in [&["--fast"][..], &["--seconds"], &["--seconds", "x"], &["--replay", "file"]] {
            assert_eq!(Options::parse(words), None, "{words:?}");
        }
    }

    #[test]
    fn a_log_is_read() {
        let good = Outcome { target: "answer".into(), executions: 86_092, corpus: 1220, finding: None };
        assert_eq!(outcome("answer", GOOD), good);
        let bad = outcome("answer", BAD);
        assert_eq!(bad.finding, Some(("believed, but never signed".into(), "a/crash-1".into())));
        assert!(report(&[good], true).is_ok());
        assert!(report(&[bad], true).is_err());
    }

    #[test]
    fn every_target_has_a_corpus() {
        let folder = crate::root().join("fuzz");
        let options = Options::parse(&[]).unwrap();
        for target in chosen(&folder, &options).unwrap() {
            assert!(folder.join("corpus").join(&target).is_dir(), "{target} has no corpus");
        }
        let options = Options::parse(&["--target", "gone"]).unwrap();
        assert!(chosen(&folder, &options).is_err());
    }
}
