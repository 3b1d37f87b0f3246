//! Everything a process logs, kept for a test to look at.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps every event and every span, of every level and from everybody, as one line each. There is one log per process,
/// so a test that wants it is a binary of its own, or tells its lines by their ids. Cheap to clone; clones share lines.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    spans: Arc<AtomicU64>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(self.0, " {field}={value:?}");
    }
}

impl Log {
    /// Becomes the log of this process.
    ///
    /// # Panics
    /// If the process has one already.
    #[must_use]
    pub fn install() -> Self {
        let log = Self::default();
        tracing::subscriber::set_global_default(log.clone()).expect("a process has one log");
        log
    }

    /// Whether there is a line of this level with all these words.
    #[must_use]
    pub fn has(&self, level: Level, words: &[&str]) -> bool {
        self.lock().iter().any(|(of, line)| *of == level && words.iter().all(|word| line.contains(word)))
    }

    /// All lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().iter().map(|(level, line)| format!("{level}{line}")).collect()
    }

    fn keep(&self, metadata: &Metadata<'_>, line: &Line) {
        self.lock().push((*metadata.level(), format!(" {}{}", metadata.target(), line.0)));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Level, String)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut line = Line(format!(" span {}", attributes.metadata().name()));
        attributes.record(&mut line);
        self.keep(attributes.metadata(), &line);
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.keep(event.metadata(), &line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
