//! How fast this machine's disk lets messages be enqueued durably: a first impression, not a benchmark.

use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use twobox::{NewMessage, Outbox, Sqlite, Twobox};
use twobox_core::Clock as _;
use twobox_core::system::SystemClock;

use super::output::{Sheet, number, print, print_json, text};
use crate::Result;
use crate::exit::Exit;

/// Callers that enqueue at the same time, so that they share syncs.
const CALLERS: u32 = 64;
/// About what a message takes in the log.
const BLOCK: [u8; 4096] = [7; 4096];

/// Options of `twobox bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A folder on the disk that is to be measured. What is written there is removed again.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// How often each is done; 64 callers at a time do it this often each.
    #[arg(long, value_name = "TIMES", default_value = "200")]
    times: NonZeroU32,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// One thing that was measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    what: &'static str,
    per_second: u64,
    p50_micros: u64,
    p99_micros: u64,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit> {
    let folder = tempfile::tempdir_in(&arguments.folder)?;
    let times = arguments.times.get();
    let bench = Bench::new(folder.path()).await?;
    let raw = syncs(folder.path(), times)?;
    let one = bench.one(times).await?;
    let measured = [raw, one, bench.many(times).await?];
    if arguments.json {
        print_json(&measured)?;
    } else {
        print(&sheet(&measured))?;
    }
    Ok(Exit::Done)
}

/// What the disk itself can do.
fn syncs(folder: &Path, times: u32) -> Result<Measured> {
    let clock = SystemClock::default();
    let mut file = File::create(folder.join("raw"))?;
    let mut took = Vec::new();
    for _ in 0..times {
        let began = clock.monotonic();
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        took.push(clock.monotonic().saturating_sub(began));
    }
    let all = took.iter().sum();
    Ok(Measured::of("write 4 KiB and fdatasync", took, all))
}

#[derive(Clone)]
struct Bench {
    db: Sqlite,
    outbox: Outbox,
}

impl Bench {
    async fn new(folder: &Path) -> Result<Self> {
        let db = Sqlite::open(folder.join("bench.db")).await?;
        db.migrate().await?;
        let outbox = Twobox::builder("bench", &db).build()?.outbox();
        Ok(Self { db, outbox })
    }

    async fn one(&self, times: u32) -> Result<Measured> {
        let clock = self.db.clock();
        let began = clock.monotonic();
        let took = self.enqueue(times).await?;
        Ok(Measured::of("enqueue, one caller", took, clock.monotonic().saturating_sub(began)))
    }

    async fn many(&self, times: u32) -> Result<Measured> {
        let clock = self.db.clock();
        let began = clock.monotonic();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let bench = self.clone();
                tokio::spawn(async move { bench.enqueue(times).await })
            })
            .collect();
        let mut took = Vec::new();
        for caller in callers {
            took.extend(caller.await??);
        }
        Ok(Measured::of("enqueue, 64 callers", took, clock.monotonic().saturating_sub(began)))
    }

    /// Enqueues messages one after another; each is durable before the next.
    async fn enqueue(&self, times: u32) -> twobox::Result<Vec<Duration>> {
        let clock = self.db.clock();
        let mut took = Vec::new();
        for _ in 0..times {
            let (outbox, message) =
                (self.outbox.clone(), NewMessage::json("nowhere", "Bench", &"a small payload")?);
            let began = clock.monotonic();
            self.db.transaction(move |tx| outbox.enqueue(tx, &message)).await?;
            took.push(clock.monotonic().saturating_sub(began));
        }
        Ok(took)
    }
}

impl Measured {
    fn of(what: &'static str, mut took: Vec<Duration>, all: Duration) -> Self {
        took.sort_unstable();
        let at = |percent: usize| {
            let place = (took.len() * percent / 100).min(took.len().saturating_sub(1));
            took.get(place).map_or(0, |took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
        };
        let count = u128::try_from(took.len()).unwrap_or(u128::MAX);
        let per_second = count.saturating_mul(1_000_000) / all.as_micros().max(1);
        Self {
            what,
            per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
            p50_micros: at(50),
            p99_micros: at(99),
        }
    }
}

fn sheet(measured: &[Measured]) -> Sheet {
    let mut sheet = Sheet::new(["what", "per second", "half within µs", "99 % within µs"]);
    for row in measured {
        sheet.row([text(row.what), number(row.per_second), number(row.p50_micros), number(row.p99_micros)]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_what_was_measured() {
        let took = (1..=100).map(Duration::from_micros).collect();
        let measured = Measured::of("test", took, Duration::from_millis(10));
        assert_eq!((measured.per_second, measured.p50_micros, measured.p99_micros), (10_000, 51, 100));
    }
}
