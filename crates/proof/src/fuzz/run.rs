//! Running targets: one input, a corpus, or a number of seeded mutations.

use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use twobox_core::{BoxError, Random as _, chain};
use twobox_testkit::SeededRandom;

use super::{Check, Target, edit, target};

/// A target that has been set up, to be run as often as wished.
pub struct Runner {
    target: Target,
    check: Check,
}

impl Target {
    /// Sets the target up: the slow part, which does not depend on the input.
    ///
    /// # Errors
    /// If that fails, which no input can cause.
    pub fn start(&self) -> Result<Runner, BoxError> {
        Ok(Runner { target: *self, check: (self.open)()? })
    }
}

impl Runner {
    /// Runs one input. A panic is a finding like any other, and the target is set up again after it.
    ///
    /// # Errors
    /// Which promise was broken.
    pub fn run(&mut self, input: &[u8]) -> Result<(), String> {
        match catch_unwind(AssertUnwindSafe(|| (self.check)(input))) {
            Ok(checked) => checked.map_err(|error| chain(&*error)),
            Err(panic) => {
                self.check = (self.target.open)().map_err(|error| chain(&*error))?;
                Err(format!("panic: {}", said(&*panic)))
            }
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("target", &self.target.name).finish_non_exhaustive()
    }
}

/// How much was run and what was found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Inputs that were run.
    pub executions: u64,
    /// Broken promises.
    pub findings: Vec<Finding>,
}

/// An input that broke a promise.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The target.
    pub target: &'static str,
    /// What it was given.
    pub input: Vec<u8>,
    /// What became of it.
    pub text: String,
}

impl Finding {
    /// Writes the input to a file below `folder`, named by its content, so that it can be run again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        let folder = folder.join(self.target);
        fs::create_dir_all(&folder)?;
        let hash = twobox_core::signing::sha256(&self.input);
        let name: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("found-{name}"));
        fs::write(&path, &self.input)?;
        Ok(path)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (input: {})", self.target, self.text, self.input.escape_ascii())
    }
}

/// Runs every file below `folder`, which has a folder per target.
///
/// # Errors
/// If a file cannot be read, or a folder is called like no target: its inputs would never be run.
pub fn replay_corpus(folder: &Path) -> Result<Tally, BoxError> {
    let mut tally = Tally::default();
    for of in sorted(folder)? {
        let name = of.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = target(&name).ok_or_else(|| format!("there is no target called {name}"))?;
        let mut runner = target.start()?;
        for file in sorted(&of)? {
            tally.run(&mut runner, &fs::read(file)?);
        }
    }
    Ok(tally)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Runs the target's seeds and then mutations of them, up to `executions` in all or to the first finding. The same
/// seed runs the same inputs.
///
/// # Errors
/// If the target cannot be set up.
pub fn mutate_run(target: &Target, seed: u64, executions: u64) -> Result<Tally, BoxError> {
    let (mut runner, mut pool) = (target.start()?, target.seeds()?);
    let (random, mut tally) = (SeededRandom::new(seed), Tally::default());
    for input in pool.iter().take(usize::try_from(executions)?) {
        tally.run(&mut runner, input);
    }
    let seeds = pool.len();
    while tally.executions < executions && tally.findings.is_empty() {
        let input = invent(&random, &pool);
        tally.run(&mut runner, &input);
        // Some live on, in the place of others, so that changes add up.
        if pool.len() < seeds * 8 {
            pool.push(input);
        } else if below(&random, 16) == 0 {
            let at = seeds + below(&random, pool.len() - seeds);
            pool[at] = input;
        }
    }
    Ok(tally)
}

/// Mostly a change to what there is; now and then something that owes it nothing.
fn invent(random: &SeededRandom, pool: &[Vec<u8>]) -> Vec<u8> {
    if below(random, 8) == 0 {
        return (0..below(random, 64)).map(|_| random.next_u64().to_le_bytes()[0]).collect();
    }
    let mut input = pool[below(random, pool.len())].clone();
    edit::mutate(random, &mut input, &pool[below(random, pool.len())]);
    input
}

fn below(random: &SeededRandom, end: usize) -> usize {
    usize::try_from(random.next_u64() >> 33).unwrap_or(0) % end
}

/// Mutates an input in place, as a fuzzer's own mutator: `size` of `bytes` are in use, and the new size is returned.
#[must_use]
pub fn mutate(bytes: &mut [u8], size: usize, seed: u32) -> usize {
    let mut input = bytes[..size.min(bytes.len())].to_vec();
    let other = input.clone();
    edit::mutate(&SeededRandom::new(u64::from(seed)), &mut input, &other);
    let size = input.len().min(bytes.len());
    bytes[..size].copy_from_slice(&input[..size]);
    size
}

impl Tally {
    fn run(&mut self, runner: &mut Runner, input: &[u8]) {
        self.executions += 1;
        if let Err(text) = runner.run(input) {
            self.findings.push(Finding { target: runner.target.name, input: input.to_vec(), text });
        }
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: Self) {
        self.executions += other.executions;
        self.findings.extend(other.findings);
    }
}
