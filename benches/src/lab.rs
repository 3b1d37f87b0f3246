//! Where measurements happen: a folder on the disk, a clock, and raw samples around every slice.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use twobox_core::Clock;
use twobox_core::system::SystemClock;

use crate::Result;
use crate::raw::{Raw, Sample};
use crate::rest;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How long a raw sample takes.
    pub(crate) raw: Duration,
    /// How long a slice of enqueueing takes.
    pub(crate) slice: Duration,
    /// Slices of each way of enqueueing.
    pub(crate) slices: usize,
    /// Messages of one drain.
    pub(crate) drain: u64,
    /// Messages that history consists of.
    pub(crate) history: u64,
    /// Rounds of drain and history.
    pub(crate) rounds: usize,
    /// How long idleness is watched.
    pub(crate) idle: Duration,
}

impl Plan {
    /// A few minutes.
    pub(crate) fn full() -> Self {
        Self {
            raw: Duration::from_millis(250),
            slice: Duration::from_secs(1),
            slices: 9,
            drain: 200_000,
            history: 2_000_000,
            rounds: 7,
            idle: Duration::from_secs(5),
        }
    }

    /// Under a minute.
    pub(crate) fn quick() -> Self {
        Self {
            slice: Duration::from_millis(500),
            slices: 5,
            drain: 20_000,
            history: 100_000,
            rounds: 3,
            idle: Duration::from_secs(3),
            ..Self::full()
        }
    }
}

/// The value of a slice and the raw rate around it.
#[derive(Clone, Debug)]
pub(crate) struct Slice<T> {
    pub(crate) value: T,
    /// Mean of the samples directly before and after.
    pub(crate) raw: f64,
    pub(crate) samples: [f64; 2],
    /// The slowest hundredths of the syncs in either of them, in microseconds.
    pub(crate) sync_p99s: [f64; 2],
}

impl<T> Slice<T> {
    /// The same slice with another value.
    pub(crate) fn map<U>(self, value: impl FnOnce(T) -> U) -> Slice<U> {
        let Self { value: old, raw, samples, sync_p99s } = self;
        Slice { value: value(old), raw, samples, sync_p99s }
    }

    /// Mean of the slowest hundredths, in microseconds.
    pub(crate) fn sync_p99(&self) -> f64 {
        mean(self.sync_p99s)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) plan: Plan,
    pub(crate) clock: SystemClock,
    folder: TempDir,
    pub(crate) raw: Raw,
    samples: Vec<f64>,
    files: u32,
}

impl Lab {
    /// Works in a new folder within `dir`, or beside the program: build folders are on a real disk, while the
    /// system's folder for temporary files often is not.
    pub(crate) fn new(dir: Option<&Path>, plan: Plan) -> Result<Self> {
        let program = std::env::current_exe()?;
        let parent = dir.or(program.parent()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("twobox-bench-").tempdir_in(parent)?;
        let raw = Raw::new(folder.path())?;
        Ok(Self { plan, clock: SystemClock::default(), folder, raw, samples: Vec::new(), files: 0 })
    }

    /// A folder of its own for one more database.
    pub(crate) fn new_folder(&mut self) -> Result<PathBuf> {
        self.files += 1;
        let path = self.folder.path().join(format!("db-{}", self.files));
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Runs `work` between two raw samples.
    pub(crate) async fn slice<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<Slice<T>> {
        let before = self.sample()?;
        let value = work.await?;
        let after = self.sample()?;
        let samples = [before.per_second, after.per_second];
        self.samples.extend(samples);
        Ok(Slice { value, raw: mean(samples), samples, sync_p99s: [before.p99, after.p99] })
    }

    /// What the disk can do when it has nothing else to do for us.
    fn sample(&mut self) -> Result<Sample> {
        self.rest()?;
        self.raw.sample(&self.clock, self.plan.raw)
    }

    /// Waits until nobody writes to its folder any more.
    pub(crate) fn rest(&self) -> Result<()> {
        rest::until_quiet(self.folder.path())
    }

    /// All raw samples so far.
    pub(crate) fn raw_samples(&self) -> &[f64] {
        &self.samples
    }
}

fn mean([one, two]: [f64; 2]) -> f64 {
    f64::midpoint(one, two)
}

/// Runs `work` and says how long it took.
pub(crate) async fn timed<T>(
    clock: &dyn Clock,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Duration)> {
    let start = clock.monotonic();
    let value = work.await?;
    Ok((value, clock.monotonic() - start))
}
