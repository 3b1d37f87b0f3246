//! Cleaning up in the background (RF-12, GP-5).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::meters::{Meters, SweptRows};
use twobox_core::one_line;
use twobox_core::ports::{SweepPlan, SweepStore, Swept};

use crate::{Shutdown, Timer};

/// Sweeps a store at intervals, one small batch at a time, so that the writer is never held for long (S18).
#[must_use = "a sweeper does nothing until it is run"]
pub struct Sweeper<S> {
    store: S,
    timer: Arc<dyn Timer>,
    plan: SweepPlan,
    interval: Duration,
    pause: Duration,
    meters: Arc<Meters>,
}

impl<S: SweepStore> Sweeper<S> {
    /// A sweeper with the default plan, every 5 minutes.
    pub fn new(store: S, timer: Arc<dyn Timer>) -> Self {
        Self {
            store,
            timer,
            plan: SweepPlan::default(),
            interval: Duration::from_secs(300),
            pause: Duration::from_millis(20),
            meters: Arc::default(),
        }
    }

    /// How long things are kept.
    pub fn plan(mut self, plan: SweepPlan) -> Self {
        self.plan = plan;
        self
    }

    /// Time between two sweeps. Default 5 min (RF-12).
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Time between two batches of one sweep, which belongs to everybody else. Default 20 ms.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    pub fn meters(mut self, meters: Arc<Meters>) -> Self {
        self.meters = meters;
        self
    }

    fn count(&self, swept: &Swept) {
        let of = &self.meters.sweeper.swept;
        of.add(SweptRows::Log, swept.trimmed);
        of.add(SweptRows::Inbox, swept.purged);
        of.add(SweptRows::OnceKeys, swept.once_keys);
        of.add(SweptRows::Audit, swept.audit_rows);
    }

    /// Sweeps until asked to stop. A sweep that fails is logged and tried again at the next interval.
    pub async fn run(self, mut shutdown: Shutdown) {
        while !shutdown.is_requested() {
            // What is swept is swept, whoever hears of it: nobody waits for it in order to stop (S20).
            let swept = tokio::select! {
                biased;
                () = shutdown.requested() => break,
                swept = self.store.sweep(&self.plan) => swept,
            };
            swept.iter().for_each(|swept| self.count(swept));
            let wait = match swept {
                Ok(swept) if swept.more => self.pause,
                Ok(_) => self.interval,
                Err(error) => {
                    self.meters.sweeper.failed.one();
                    tracing::warn!(error = one_line(&error), "cannot sweep");
                    self.interval
                }
            };
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = self.timer.sleep(wait) => {}
            }
        }
    }
}

impl<S> fmt::Debug for Sweeper<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper")
            .field("plan", &self.plan)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}
