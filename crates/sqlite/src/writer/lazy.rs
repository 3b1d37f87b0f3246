//! What need not survive a power cut at once, and is synced soon after.

use std::time::Duration;

use twobox_core::{ErrorKind, crash_point};

use super::core::Core;
use crate::error::wrap;
use crate::guard::Inside;
use crate::options::Durability;

/// Lazy work is synced within this time (W4).
const LAZY_SYNC_AFTER: Duration = Duration::from_secs(1);

impl Core {
    /// Housekeeping between groups: what is in memory is kept within its limits, lazy work is synced.
    pub(crate) fn tick(&mut self) {
        self.shared.trim_recent();
        if self.ready().is_err() {
            self.put_off_sync();
            return;
        }
        if self.time_to_sync().is_some_and(|time| time.is_zero()) {
            self.sync_lazy();
        }
    }

    /// How long until lazy work must be synced.
    pub(crate) fn time_to_sync(&self) -> Option<Duration> {
        let since = self.unsynced_since.filter(|_| self.stopped.is_none())?;
        Some((since + LAZY_SYNC_AFTER).saturating_sub(self.shared.options.clock.monotonic()))
    }

    /// What cannot be synced now is tried again as late as if it had been written now.
    fn put_off_sync(&mut self) {
        let now = self.shared.options.clock.monotonic();
        self.unsynced_since.iter_mut().for_each(|since| *since = now);
    }

    /// Syncs what lazy groups have left unsynced.
    pub(crate) fn sync_lazy(&mut self) {
        let (Some(open), true) = (&mut self.open, self.unsynced_since.is_some()) else { return };
        let Some(barrier) = self.shared.barrier() else {
            self.unsynced_since = None; // there are no boxes yet, so nothing lazy of theirs either
            return;
        };
        let synced = open.set_mode(Durability::Full).and_then(|()| {
            let _inside = Inside::enter();
            open.guard
                .begin(&open.connection)
                .and_then(|()| barrier(&open.connection))
                .map_err(wrap("sync"))?;
            crash_point!("writer.before-lazy-sync");
            let start = self.shared.options.clock.monotonic();
            open.guard.commit(&open.connection).map_err(wrap("sync"))?;
            let took = self.shared.options.clock.monotonic().saturating_sub(start);
            self.shared.options.meters.store.synced.took(took, 1);
            Ok(())
        });
        match synced {
            Ok(()) => {
                crash_point!("writer.lazy-synced");
                self.unsynced_since = None;
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                let _: rusqlite::Result<()> = open.guard.rollback(&open.connection);
                self.put_off_sync();
            }
            Err(error) => {
                self.doubt(&error);
                self.put_off_sync();
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use twobox_core::ports::{SweepPlan, SweepStore};
    use twobox_testkit::ManualClock;
    use twobox_testkit::disk::{Disk, Fault, Kind};

    use super::*;
    use crate::{Drive, Sqlite};

    /// Whoever drives the writer sleeps until then.
    #[tokio::test]
    async fn s14_a_writer_in_trouble_does_not_try_to_sync_lazy_work_without_a_pause() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, clock) = (Disk::new(1), Arc::new(ManualClock::default()));
        let builder = Sqlite::builder().vfs(disk.name()).clock(Arc::clone(&clock) as _).drive(Drive::Manual);
        let db = builder.open(folder.path().join("shop.db")).await.unwrap();
        let driven = db.clone();
        let driver = tokio::spawn(async move { driven.drive().await });
        db.migrate().await.unwrap();
        db.sweep(&SweepPlan::default()).await.unwrap();
        let core = db.watched().1;
        let time_to_sync = || crate::writer::lock(core).time_to_sync();
        assert_eq!(time_to_sync(), Some(LAZY_SYNC_AFTER));

        disk.fail_times(Fault { kind: Kind::Sync, nth: 0 }, u64::MAX);
        for _ in 0..3 {
            clock.advance(LAZY_SYNC_AFTER);
            assert_eq!(time_to_sync(), Some(Duration::ZERO));
            db.step();
            assert_eq!(time_to_sync(), Some(LAZY_SYNC_AFTER), "not at once");
        }
        crate::writer::lock(core).stop("of no use to anybody".into());
        assert_eq!(time_to_sync(), None, "never");
        driver.abort();
    }
}
