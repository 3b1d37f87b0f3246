//! Harnesses for as long as there is time.

mod kills;
mod model;
#[cfg(feature = "mutants")]
mod mutants;
mod options;
mod powercut;
#[cfg(feature = "shuttle")]
mod schedules;
mod world;

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use twobox_core::BoxError;

/// What a harness has seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    figures: Map<String, Value>,
    violations: Vec<String>,
    mutants: Vec<Value>,
    /// All bugs there are, whoever finds them, if all are looked for.
    planted: Vec<&'static str>,
}

impl Report {
    fn figure(mut self, name: &str, value: u64) -> Self {
        self.figures.insert(name.into(), value.into());
        self
    }

    fn note(mut self, name: &str, text: impl Into<String>) -> Self {
        self.figures.insert(name.into(), Value::String(text.into()));
        self
    }

    fn violations<V: ToString>(mut self, found: impl IntoIterator<Item = V>) -> Self {
        self.violations.extend(found.into_iter().map(|violation| violation.to_string()));
        self
    }

    /// Whether every promise was kept, and every planted bug found.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.mutants.iter().all(|mutant| !mutant["found"].is_null())
    }

    /// As one line.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut report = json!({ "figures": self.figures, "violations": self.violations });
        if !self.mutants.is_empty() {
            report["mutants"] = self.mutants.clone().into();
        }
        if !self.planted.is_empty() {
            report["planted"] = self.planted.clone().into();
        }
        report
    }
}

/// Runs a harness by its name.
///
/// # Errors
/// If there is none of this name in this build, its options make no sense, or the machine fails.
pub fn run(harness: &str, arguments: &[String]) -> Result<Report, BoxError> {
    match harness {
        "powercut" => powercut::run(arguments),
        "world" => world::run(arguments),
        "model" => model::run(arguments),
        "kills" => kills::run(arguments),
        #[cfg(feature = "shuttle")]
        "schedules" => schedules::run(arguments),
        #[cfg(feature = "mutants")]
        "mutants" => mutants::run(arguments),
        _ => Err(format!("this build has no harness {harness:?}").into()),
    }
}

/// The time a harness has, and what it tells of its progress.
#[derive(Clone, Copy, Debug)]
struct Time {
    start: Instant,
    given: Duration,
}

impl Time {
    #[expect(clippy::disallowed_methods, reason = "this is how long people wait")]
    fn new(given: Duration) -> Self {
        Self { start: Instant::now(), given }
    }

    fn passed(&self) -> Duration {
        self.start.elapsed()
    }

    fn is_up(&self) -> bool {
        self.passed() >= self.given
    }

    fn part(&self) -> f64 {
        self.passed().as_secs_f64() / self.given.as_secs_f64().max(1e-9)
    }

    /// Tells whoever reads along how far it is.
    fn tell(&self, text: &str) {
        progress(self.part(), text);
    }
}

fn progress(part: f64, text: &str) {
    println!("{}", json!({ "progress": part, "text": text }));
}
