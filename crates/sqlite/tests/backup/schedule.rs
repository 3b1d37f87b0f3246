//! Backups on a schedule, in time that jumps.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use twobox_core::meters::{BackupMeters, BackupOutcome, Meters};
use twobox_core::ports::{BackupStore, KeptBackup};
use twobox_core::{Clock, ErrorKind, Timestamp};
use twobox_engine::{BackupPlan, BackupStatus, Backups, Shutdown, Timer};
use twobox_sqlite::{BackupFolder, Drive, Sqlite, VerifyOptions, verify};
use twobox_testkit::{VirtualClock, eventually};

use crate::fixture::Place;

const HOUR: Duration = Duration::from_secs(3600);
const EVER: Duration = Duration::from_secs(3600 * 24 * 30);

struct World {
    place: Place,
    clock: Arc<VirtualClock>,
    folder: BackupFolder,
    meters: Arc<Meters>,
}

impl World {
    async fn new() -> Self {
        let (place, clock) = (Place::new(), Arc::new(VirtualClock::start()));
        let builder = Sqlite::builder().drive(Drive::Manual).clock(Arc::clone(&clock) as _);
        let db = builder.open(place.database()).await.unwrap();
        tokio::spawn({
            let db = db.clone();
            async move { db.drive().await }
        });
        db.migrate().await.unwrap();
        std::fs::create_dir(place.file("backups")).unwrap();
        let folder = BackupFolder::new(&db, place.file("backups")).unwrap();
        Self { place, clock, folder, meters: Arc::default() }
    }

    /// Runs the schedule until its status is as wanted.
    async fn run(&self, plan: BackupPlan, wanted: impl Fn(&BackupStatus) -> bool) -> BackupStatus {
        let backups = Backups::new(self.folder.clone(), Arc::clone(&self.clock) as _)
            .plan(plan)
            .meters(Arc::clone(&self.meters));
        let (stop, shutdown) = Shutdown::new();
        let running = tokio::spawn(backups.clone().run(shutdown));
        let status =
            eventually("the schedule", EVER, async || Some(backups.status()).filter(|status| wanted(status)))
                .await;
        stop.request();
        running.await.unwrap();
        status
    }

    async fn kept(&self) -> Vec<KeptBackup> {
        self.folder.kept_backups().await.unwrap()
    }

    async fn ages(&self) -> Vec<Duration> {
        let now = self.clock.now();
        self.kept().await.iter().map(|backup| now.since(backup.made)).collect()
    }
}

/// Hourly, kept for 7 days by default; files that are not ours stay, whatever they are called.
#[tokio::test(start_paused = true)]
async fn rf_18_backups_are_made_every_hour_and_kept_for_seven_days() {
    let world = World::new().await;
    let strangers = [
        "notes.txt",
        "shop.db.20200101T000000Z.backup.old",
        "shop.db.2020-01-01.backup",
        "other.db.20200101T000000Z.backup",
    ];
    strangers.iter().for_each(|name| std::fs::write(world.place.file("backups").join(name), "mine").unwrap());
    let status = world.run(BackupPlan::default(), |status| status.made == 3).await;
    let kept = world.kept().await;
    assert_eq!((kept.len(), status.kept, status.failed), (3, 3, 0));
    for pair in kept.windows(2) {
        let apart = pair[1].made.since(pair[0].made);
        assert!(
            apart >= HOUR - Duration::from_secs(1) && apart < HOUR + Duration::from_secs(60),
            "{apart:?}"
        );
    }
    assert_eq!(status.last.as_ref(), kept.last());
    for backup in &kept {
        assert!(verify(&backup.path, VerifyOptions::Quick).unwrap().is_sound());
    }
    world.run(BackupPlan::default(), |status| status.made == 24 * 8).await;
    let week = Duration::from_secs(7 * 24 * 3600);
    let ages = world.ages().await;
    assert!(ages.iter().all(|age| *age <= week + HOUR) && ages.len() >= 24 * 7, "{} kept", ages.len());
    for name in strangers {
        assert!(world.place.file("backups").join(name).exists(), "{name} was not ours");
    }
}

/// Every backup on a schedule has another name, and so has what a process that died has left of one.
#[tokio::test(start_paused = true)]
async fn rf_18_what_an_earlier_backup_of_the_schedule_has_left_is_removed_by_the_next() {
    let world = World::new().await;
    let make = |name: &str| {
        let path = world.place.file("backups").join(name);
        let file = File::create(&path).unwrap();
        (path, file)
    };
    let (left, old) = make("shop.db.20200101T000000Z.backup.00000000000000a1.partial");
    let (in_the_making, _) = make("shop.db.20200101T000000Z.backup.00000000000000a2.partial");
    let (stranger, of_stranger) = make("other.db.20200101T000000Z.backup.00000000000000a1.partial");
    [old, of_stranger].iter().for_each(|file| file.set_modified(SystemTime::UNIX_EPOCH).unwrap());
    world.run(BackupPlan::default(), |status| status.made == 1).await;
    assert!(!left.exists() && in_the_making.exists() && stranger.exists());
}

#[tokio::test(start_paused = true)]
async fn rf_18_a_restart_waits_for_the_next_hour_and_a_clock_set_back_does_not_stop_backups() {
    let world = World::new().await;
    world.run(BackupPlan::default(), |status| status.made == 1).await;
    Timer::sleep(&*world.clock, HOUR / 2).await;
    world.run(BackupPlan::default(), |status| status.kept == 1).await;
    assert_eq!(world.kept().await.len(), 1, "half an hour is too early");
    // A backup that is dated ahead was made by a clock that was wrong.
    let ahead = world.clock.now().plus(HOUR * 24 * 365);
    let made = world.folder.make_backup(ahead).await.unwrap();
    let status = world.run(BackupPlan::default(), |status| status.made == 1).await;
    assert_eq!(status.kept, 3);
    assert!(made.path.exists());
}

#[tokio::test(start_paused = true)]
async fn rf_18_a_failed_backup_is_shown_and_tried_again() {
    let world = World::new().await;
    let away = world.place.file("away");
    std::fs::rename(world.place.file("backups"), &away).unwrap();
    let status = world.run(BackupPlan::default(), |status| status.failed == 3).await;
    let figures = || {
        let BackupMeters { scheduled, newest, failing, tries, .. } = &world.meters.backups;
        let tries = [BackupOutcome::Made, BackupOutcome::Failed].map(|outcome| tries.get(outcome));
        (scheduled.get(), newest.get(), failing.get(), tries)
    };
    assert_eq!(figures(), (1, 0, 1, [0, 3]), "an alert can see that there is none");
    let (at, error) = status.last_error.unwrap();
    assert!(error.contains("backups") && at <= world.clock.now(), "{error}");
    std::fs::rename(away, world.place.file("backups")).unwrap();
    let status = world.run(BackupPlan::default(), |status| status.made == 1).await;
    let made = status.last.unwrap().made.as_micros();
    assert_eq!(figures(), (1, made, 0, [1, 3]));
}

#[tokio::test(start_paused = true)]
async fn rf_18_s16_a_plan_of_zeros_does_not_keep_the_disk_busy() {
    let world = World::new().await;
    let zeros = BackupPlan { every: Duration::ZERO, retry_after: Duration::ZERO, ..BackupPlan::default() };
    let start = world.clock.now();
    world.run(zeros.clone(), |status| status.made >= 3).await;
    assert!(world.clock.now().since(start) >= Duration::from_secs(2), "a second between two");
    std::fs::remove_dir_all(world.place.file("backups")).unwrap();
    let start = world.clock.now();
    world.run(zeros, |status| status.failed >= 3).await;
    assert!(world.clock.now().since(start) >= Duration::from_secs(2), "nor between two that fail");
}

#[tokio::test(start_paused = true)]
async fn rf_18_no_more_are_kept_than_allowed_and_never_none() {
    let world = World::new().await;
    let plan = BackupPlan { count_max: 2, ..BackupPlan::default() };
    world.run(plan, |status| status.made == 5).await;
    assert_eq!(world.kept().await.len(), 2);
    let plan = BackupPlan { keep: Duration::ZERO, count_max: 0, ..BackupPlan::default() };
    let status = world.run(plan, |status| status.made == 2).await;
    assert_eq!((status.kept, world.kept().await.len()), (1, 1), "the newest is kept however old it is");
}

/// Whatever it is asked to remove must be one of its own.
#[tokio::test(start_paused = true)]
async fn rf_18_only_backups_of_its_own_are_removed() {
    let world = World::new().await;
    let mine = world.place.file("shop.db.20200101T000000Z.backup");
    std::fs::write(&mine, "mine").unwrap();
    let made = Timestamp::from_rfc3339("2020-01-01T00:00:00Z").unwrap();
    let elsewhere = KeptBackup { made, path: mine.clone() };
    let refused = world.folder.remove_backup(&elsewhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let other = KeptBackup { made, path: world.place.database() };
    assert!(world.folder.remove_backup(&other).await.is_err());
    assert!(mine.exists() && world.place.database().exists());
    assert!(BackupFolder::new(&Sqlite::open(world.place.file("x.db")).await.unwrap(), "missing").is_err());
}
