//! What the disk can do: 4 KiB written and synced, back to back or now and then.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use twobox_core::Clock;

use crate::Result;
use crate::stats::{per_second, percentile};

const PAGE: usize = 4096;
/// Pages of the file: 16 MiB, overwritten again and again as a write-ahead log is.
const PAGES: u64 = 4_096;

/// A file that is allocated already: one that grows syncs about half as fast, and no log that is reused does.
#[derive(Debug)]
pub(crate) struct Raw {
    file: File,
    next: u64,
}

/// Syncs back to back.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    /// The slowest hundredth took at least this many microseconds.
    pub(crate) p99: f64,
}

impl Raw {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(dir.join("raw"))?;
        for page in 0..PAGES {
            file.write_all_at(&[1; PAGE], page * PAGE as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, next: 0 })
    }

    /// Syncs back to back for about `duration`.
    pub(crate) fn sample(&mut self, clock: &dyn Clock, duration: Duration) -> Result<Sample> {
        let (start, mut before) = (clock.monotonic(), Duration::ZERO);
        let mut micros = Vec::new();
        loop {
            self.write()?;
            let elapsed = clock.monotonic() - start;
            micros.push((elapsed - before).as_secs_f64() * 1e6);
            before = elapsed;
            if elapsed >= duration {
                let per_second = per_second(micros.len() as u64, elapsed);
                return Ok(Sample { per_second, p99: percentile(&micros, 99) });
            }
        }
    }

    /// One durable write.
    pub(crate) fn write(&mut self) -> Result<()> {
        let page = self.next % PAGES;
        self.next += 1;
        let fill = u8::try_from(self.next % 251)?;
        self.file.write_all_at(&[fill; PAGE], page * PAGE as u64)?;
        Ok(self.file.sync_data()?)
    }
}
