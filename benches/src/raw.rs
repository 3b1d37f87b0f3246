//! What the disk can do: 4 KiB written and synced, back to back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use twobox_core::Clock;

use crate::Result;
use crate::stats::per_second;

const PAGE: usize = 4096;
/// Pages of the file: 16 MiB, about what a write-ahead log is overwritten in.
const PAGES: u64 = 4_096;

/// A file that is allocated already: one that grows syncs about half as fast, and no log that is reused does.
#[derive(Debug)]
pub(crate) struct Raw {
    file: File,
    next: u64,
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

    /// Syncs per second over about `duration`.
    pub(crate) fn sample(&mut self, clock: &dyn Clock, duration: Duration) -> Result<f64> {
        let start = clock.monotonic();
        let mut syncs = 0;
        loop {
            let page = self.next % PAGES;
            self.next += 1;
            let fill = u8::try_from(self.next % 251)?;
            self.file.write_all_at(&[fill; PAGE], page * PAGE as u64)?;
            self.file.sync_data()?;
            syncs += 1;
            let elapsed = clock.monotonic() - start;
            if elapsed >= duration {
                return Ok(per_second(syncs, elapsed));
            }
        }
    }
}
