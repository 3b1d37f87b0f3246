//! Enqueueing and delivering while the file is backed up, as a fraction of the rate without.

use std::time::Duration;

use twobox_sqlite::{BackupOptions, VerifyOptions, verify};

use crate::Result;
use crate::enqueue::{CALLERS, callers};
use crate::lab::{Lab, timed};
use crate::report::{Figure, Target, Unit, thousands};
use crate::sink::Draining;
use crate::stats::median;
use crate::store::Store;

/// Bytes of the file that is backed up.
const FULL: u64 = 1 << 30;
const QUICK: u64 = 32 << 20;
/// Messages of one look at the file's size.
const FILL: u64 = 20_000;
/// How long the rate without a backup is measured each time.
const ALONE: Duration = Duration::from_secs(3);

/// The rate with a backup running, relative to the rates right before and after it.
pub(crate) async fn measure(lab: &mut Lab, quick: bool) -> Result<Vec<Figure>> {
    let bytes = if quick { QUICK } else { FULL };
    let folder = lab.new_folder()?;
    let store = Store::create(&folder).await?;
    eprintln!("backup: filling {} MiB ...", bytes >> 20);
    while std::fs::metadata(store.path())?.len() < bytes {
        store.fill(FILL).await?;
    }
    // The relay delivers all the time; what it is given at first is history.
    let draining = Draining::start(&store, u64::MAX)?;
    wait_for_the_relay(&store).await?;
    let (mut ratios, mut rates, mut seconds, mut wal) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut before = callers(&store, CALLERS, ALONE).await?.per_second;
    for round in 0..lab.plan.rounds.min(3) {
        eprintln!("backup: round {} ...", round + 1);
        let (to, loaded) = (folder.join(format!("{round}.backup")), store.clone());
        let clock = lab.clock;
        let (made, took) = timed(&clock, async {
            let (stop, stopped) = tokio::sync::watch::channel(false);
            let load = tokio::spawn(during(loaded, stopped));
            let made = store.db.backup(&to, &BackupOptions::default()).await?;
            stop.send_replace(true);
            Ok::<_, crate::BoxError>((made, load.await??))
        })
        .await?;
        let (made, messages) = made;
        let rate = crate::stats::per_second(messages, took);
        let after = callers(&store, CALLERS, ALONE).await?.per_second;
        ratios.push(rate / ((before + after) / 2.0));
        rates.push(rate);
        seconds.push(took.as_secs_f64());
        wal = made.wal_bytes.max(wal);
        before = after;
        if !verify(&to, VerifyOptions::Quick)?.is_sound() {
            return Err("the backup is not sound".into());
        }
        std::fs::remove_file(to)?;
    }
    draining.stop().await?;
    let detail = format!(
        "{} orders/s while {} MiB are copied in {:.1} s; log up to {} MiB",
        thousands(median(&rates)),
        std::fs::metadata(store.path())?.len() >> 20,
        median(&seconds),
        wal >> 20
    );
    let figure =
        Figure::new("orders enqueued and delivered, during a backup : without", median(&ratios), Unit::Times);
    Ok(vec![figure.target(Target::AtLeast(0.75)).detail(detail).samples(ratios)])
}

/// Enqueues from many callers until it is told to stop; returns how many orders.
async fn during(store: Store, stopped: tokio::sync::watch::Receiver<bool>) -> Result<u64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, stopped) = (store.clone(), stopped.clone());
        tasks.spawn(async move {
            let mut orders = 0_u64;
            while !*stopped.borrow() {
                store.order().await?;
                orders += 1;
            }
            Ok::<_, twobox_core::Error>(orders)
        });
    }
    let mut orders = 0;
    while let Some(outcome) = tasks.join_next().await {
        orders += outcome??;
    }
    Ok(orders)
}

async fn wait_for_the_relay(store: &Store) -> Result<()> {
    let left = "SELECT coalesce(max(l.seq), 0) - coalesce((SELECT max(cursor) FROM outbox_lanes), 0) FROM outbox_log AS l";
    while store.count(left).await? > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
