//! The sweeper in the background.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::Error;
use twobox_core::name::OnceKey;
use twobox_core::ports::{SweepPlan, Transport};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Shutdown, Sweeper};
use twobox_sqlite::Once;
use twobox_testkit::{ScriptedTransport, eventually};

use crate::world::{EVER, World};

async fn log_rows(world: &World) -> i64 {
    world.query("SELECT count(*) FROM outbox_log", |row| row.get::<i64>(0)).await[0]
}

#[tokio::test(start_paused = true)]
async fn gp_5_rf_12_the_sweeper_trims_in_the_background_and_stops_when_asked() {
    let world = World::new().await;
    world.enqueue_many("m", 1_300).await;
    let sink: Arc<dyn Transport> = Arc::new(ScriptedTransport::sink());
    let relay = world.relay(&[("billing", sink)], RelayOptions::default());
    world.until_sent(1_300).await;
    relay.stop().await;
    let (handle, shutdown) = Shutdown::new();
    let plan = SweepPlan { sent_retention: Duration::from_secs(3600), ..SweepPlan::default() };
    let sweeper = Sweeper::new(world.db.clone(), Arc::clone(&world.clock) as _).plan(plan);
    let running = tokio::spawn(sweeper.run(shutdown));
    world.pass(Duration::from_secs(3_000)).await;
    assert_eq!(log_rows(&world).await, 1_300, "not before the retention is over");
    eventually("the log is trimmed", EVER, async || (log_rows(&world).await == 0).then_some(())).await;
    handle.request();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s18_only_one_process_sweeps_a_file() {
    use twobox_core::ports::SweepStore;
    let world = World::new().await;
    world.enqueue_many("m", 10).await;
    let sink: Arc<dyn Transport> = Arc::new(ScriptedTransport::sink());
    let relay = world.relay(&[("billing", sink)], RelayOptions::default());
    world.until_sent(10).await;
    relay.stop().await;
    let leader = "INSERT INTO twobox_meta (name, value) VALUES ('sweeper', ?1)";
    let until = twobox_core::Clock::now(&*world.clock).plus(Duration::from_secs(60)).as_micros();
    let lead =
        move |tx: &mut twobox_sqlite::SqliteTx<'_>| tx.execute(leader, [format!("{until} another process")]);
    world.db.transaction::<_, twobox_core::Error, _>(lead).await.unwrap();
    let plan = SweepPlan { sent_retention: Duration::ZERO, ..SweepPlan::default() };
    assert_eq!(world.db.sweep(&plan).await.unwrap().trimmed, 0, "another process is at it");
    world.pass(Duration::from_secs(61)).await;
    assert_eq!(world.db.sweep(&plan).await.unwrap().trimmed, 10, "its turn is over");
}

/// L8, S13: what was enqueued once is not enqueued again because a clock was ahead while somebody swept.
#[tokio::test(start_paused = true)]
async fn l8_s13_a_clock_that_is_ahead_makes_nobody_forget_what_was_enqueued_once() {
    use twobox_core::ports::SweepStore;
    let world = World::new().await;
    let once = async |key: &str| {
        let (db, key) = (world.db.clone(), OnceKey::new(key).unwrap());
        let message = world.stamped(&world.message(key.as_str(), "billing"));
        let enqueue = move |tx: &mut twobox_sqlite::SqliteTx<'_>| db.append_once(tx, &key, &message);
        let enqueued: Result<Once, Error> = world.db.transaction(enqueue).await;
        matches!(enqueued.unwrap(), Once::Enqueued(_))
    };
    let (retention, plan) = (SweepPlan::default().once_retention, SweepPlan::default());
    assert!(once("order 1").await);
    let ahead = i64::try_from((retention * 2).as_micros()).unwrap();
    world.clock.step_micros(ahead);
    assert_eq!(world.db.sweep(&plan).await.unwrap().once_keys, 0);
    world.clock.step_micros(-ahead);
    assert!(!once("order 1").await);
    world.pass(retention * 2).await;
    assert!(once("order 2").await);
    assert_eq!(world.db.sweep(&plan).await.unwrap().once_keys, 1, "what is old by newer ones is forgotten");
}
