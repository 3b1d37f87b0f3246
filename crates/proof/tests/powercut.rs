//! Power cuts and failing calls, in short. The long form runs for as long as it is asked to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use twobox_core::ports::{Answer, LogStore};
use twobox_core::{Destination, Error, ErrorKind, Message, MessageId, NewMessage, Response, Source, Stamp};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Relay, Shutdown, Timer as _};
use twobox_proof::powercut::{
    Case, Control, Sample, Side, Syncs, Tally, Violation, Workload, campaign, check_control, check_copies,
    check_fault, check_faults, check_images, replay,
};
use twobox_sqlite::{Drive, Durability, Sqlite};
use twobox_testkit::disk::{Cut, Disk, Fault, Kind};
use twobox_testkit::{ScriptedTransport, SeededRandom, VirtualClock};

fn sound((tally, violations): (Tally, Vec<Violation>)) -> Tally {
    assert!(violations.is_empty(), "{} violations, first: {}", violations.len(), violations[0]);
    tally
}

fn whole(side: Side, seed: u64, messages: usize) {
    let workload = Workload { messages, ..Workload::new(side, seed) };
    let tally = sound(check_images(&workload, 1).unwrap());
    assert!(tally.acknowledged > 100, "too few images to say anything: {tally}");
    assert_eq!(tally.images, tally.killed + tally.lost + tally.subsets + tally.torn);
    for (kind, images) in [("kill", tally.killed), ("subset", tally.subsets), ("torn", tally.torn)] {
        assert!(images > 50, "too few of kind {kind}: {tally}");
    }
}

#[test]
fn s2_no_power_cut_loses_what_a_sender_was_told_is_committed() {
    whole(Side::Shop, 0, 7);
}

#[test]
fn s3_no_power_cut_loses_or_halves_an_effect_that_was_acknowledged() {
    whole(Side::Billing, 2, 12);
}

#[test]
fn s3_no_power_cut_loses_a_stored_message_or_doubles_what_a_worker_does() {
    whole(Side::Queue, 0, 8);
    whole(Side::Queue, 2, 3);
}

#[test]
fn ceb_1_no_power_cut_loses_a_claim_or_lets_what_was_called_be_called_again() {
    whole(Side::Claims, 0, 8);
    whole(Side::Claims, 1, 8);
}

fn with_faults(side: Side, kinds: &[Kind], every: u64) {
    let workload = Workload { messages: 5, ..Workload::new(side, 1) };
    let sample = Sample { every, steps: 10, variants: 1, recovering: false };
    for kind in kinds {
        let tally = sound(check_faults(&workload, &[*kind], sample, &|| false).unwrap());
        assert!(tally.faults > 0 && tally.acknowledged > 0, "{kind:?}, too little to say anything: {tally}");
    }
}

const SYNCS: [Kind; 3] = [Kind::Sync, Kind::SyncDroppingPages, Kind::SyncKeepingPages];
const WRITES: [Kind; 3] = [Kind::Write, Kind::Full, Kind::Truncate];

#[test]
fn s14_after_any_failed_sync_a_sender_loses_nothing_and_goes_on() {
    with_faults(Side::Shop, &SYNCS, 3);
}

#[test]
fn s14_after_any_failed_sync_a_receiver_loses_nothing_and_goes_on() {
    with_faults(Side::Billing, &SYNCS, 2);
}

#[test]
fn s14_after_any_failed_write_a_sender_loses_nothing_and_goes_on() {
    with_faults(Side::Shop, &WRITES, 41);
}

#[test]
fn s14_after_any_failed_write_a_receiver_loses_nothing_and_goes_on() {
    with_faults(Side::Billing, &WRITES, 23);
}

#[test]
fn s14_a_sender_that_cannot_read_loses_nothing_and_goes_on() {
    with_faults(Side::Shop, &[Kind::Read], 13);
}

#[test]
fn s14_after_any_failed_sync_a_queue_loses_nothing_and_goes_on() {
    with_faults(Side::Queue, &SYNCS, 7);
}

#[test]
fn s14_after_any_failed_write_a_queue_loses_nothing_and_goes_on() {
    with_faults(Side::Queue, &WRITES, 61);
}

#[test]
fn s3_a_queue_that_cannot_read_does_nothing_twice() {
    with_faults(Side::Queue, &[Kind::Read], 13);
}

/// A row that cannot be read is not a row that is not there: the effect would happen twice.
#[test]
fn s3_a_receiver_that_cannot_read_does_nothing_twice() {
    with_faults(Side::Billing, &[Kind::Read], 3);
}

/// The switch to WAL mode is a transaction of its own. When its sync failed unnoticed, the file had no header, and the next
/// connection to open it took the write-ahead log for a leftover and deleted it.
#[test]
fn s14_a_sync_that_fails_while_the_file_is_created_is_noticed() {
    for (nth, fault_times) in [(0, 2), (1, 2), (2, 3)] {
        for kind in [Kind::Sync, Kind::SyncDroppingPages] {
            let fault = Some(Fault { kind, nth });
            let workload = Workload { messages: 8, fault, fault_times, ..Workload::new(Side::Shop, 2) };
            assert_eq!(replay(&Case { workload, step: 0, cut: None, variant: 0 }).unwrap(), []);
        }
    }
}

/// A kernel may keep pages it could not write and call them clean. That alone does no damage; a second failure, a power
/// cut while the store copies what it read of such pages, may, and is not looked at here.
#[test]
fn s14_pages_that_a_kernel_keeps_unwritten_do_no_damage_by_themselves() {
    let workload = Workload { messages: 6, ..Workload::new(Side::Billing, 2) };
    let sample = Sample { every: 2, steps: 30, variants: 1, recovering: false };
    let tally = sound(check_faults(&workload, &[Kind::SyncKeepingPages], sample, &|| false).unwrap());
    assert!(tally.faults > 5 && tally.acknowledged > 10, "too little to say anything: {tally}");
}

/// A store that could not be opened because syncs failed has left pages in its log that nobody will ever write. Whoever
/// opens it next must not append to them.
#[test]
fn s14_nothing_is_appended_to_a_log_whose_syncs_have_failed() {
    let sample = Sample { every: 1, steps: 20, variants: 1, recovering: false };
    let mut all = Tally::default();
    for nth in 0..10 {
        let fault = Some(Fault { kind: Kind::SyncKeepingPages, nth });
        let workload = Workload { messages: 2, fault, fault_times: 3, ..Workload::new(Side::Billing, 0) };
        all.add(sound(check_fault(&workload, sample, &|| false).unwrap()));
    }
    assert!(all.faults >= 8 && all.images > 100, "too little to say anything: {all}");
}

/// A claim that was never synced goes with a sync that fails, and its handler runs again: that is what the weaker
/// durability is. With the default one it stays.
#[test]
fn ceb_1_a_failed_sync_takes_no_claim_but_with_the_weaker_durability() {
    let sample = Sample { every: 1, steps: 20, variants: 1, recovering: false };
    for durability in [Durability::Full, Durability::ProcessCrash] {
        let fault = Some(Fault { kind: Kind::SyncDroppingPages, nth: 10 });
        let workload = Workload { durability, fault, fault_times: 3, ..Workload::new(Side::Claims, 5) };
        let tally = sound(check_fault(&workload, sample, &|| false).unwrap());
        assert!(tally.faults > 0, "nothing failed: {tally}");
    }
}

/// The harness can fail: with the weaker durability a power cut does lose acknowledged work. What is sent is still
/// durable, and nothing is committed by half.
#[test]
fn s2_the_weaker_durability_is_found_to_lose_acknowledged_work_and_nothing_else() {
    for side in Side::ALL {
        let weaker = Workload { messages: 4, durability: Durability::ProcessCrash, ..Workload::new(side, 0) };
        let (_, violations) = check_images(&weaker, 1).unwrap();
        assert!(!violations.is_empty(), "{side}");
        let other = violations.iter().find(|violation| !violation.text.contains("was acknowledged and"));
        assert_eq!(other, None);
        let again = replay(&violations[0].case).unwrap();
        assert_eq!(again, violations[..1], "the printed command shows it again");
    }
}

/// The harness can fail: a worker's effects that are committed apart from the end of their message are found out.
#[test]
fn s3_effects_apart_from_the_end_of_their_message_are_found_to_double() {
    let apart = Workload { messages: 3, apart: true, ..Workload::new(Side::Queue, 0) };
    let (_, violations) = check_images(&apart, 1).unwrap();
    assert!(violations.iter().any(|violation| violation.text.contains("is there twice")), "{violations:?}");
    let again = replay(&violations[0].case).unwrap();
    assert_eq!(again, violations[..1], "the printed command shows it again");
}

/// The harness can fail: the layouts that the store refuses are found out.
#[test]
fn s1_business_rows_and_messages_in_two_files_are_found_to_differ() {
    for control in [Control::AttachedFiles, Control::TwoDatabases] {
        assert_ne!(check_control(control, 0).unwrap().1, Vec::<String>::new(), "{control:?}");
    }
    assert_eq!(check_control(Control::Right, 0).unwrap().1, Vec::<String>::new());
}

/// The harness can fail: an effect and its dedup row in two transactions are found out, in whichever order.
#[test]
fn s3_a_dedup_row_in_a_transaction_of_its_own_is_found_to_lose_or_double_effects() {
    for control in [Control::DedupLast, Control::DedupFirst] {
        assert_ne!(check_control(control, 0).unwrap().1, Vec::<String>::new(), "{control:?}");
    }
}

#[test]
fn rf_18_no_power_cut_harms_what_is_backed_up_or_leaves_half_a_copy_or_half_a_restore() {
    let (tally, wrong) = check_copies(2, Syncs::Right, &|| false).unwrap();
    assert_eq!(wrong, Vec::<String>::new());
    assert!(tally.acknowledged > 100, "too few images to say anything: {tally}");
}

/// The harness can fail: copies that get their name before they are synced are found out, by a backup and by a restore.
#[test]
fn rf_18_copies_that_are_named_before_they_are_synced_are_found_to_be_half() {
    let (_, wrong) = check_copies(2, Syncs::NotTheCopy, &|| false).unwrap();
    for text in ["a file under the name of a backup is none", "a restore has left"] {
        assert!(wrong.iter().any(|wrong| wrong.contains(text)), "{text}: {wrong:?}");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let workload = Workload { messages: 3, ..Workload::new(Side::Shop, 3) };
    let case = Case { workload, step: 200, cut: Some(Cut::Torn), variant: 1 };
    assert_eq!(replay(&case).unwrap(), []);
    let first = check_images(&workload, 1).unwrap();
    assert_eq!(check_images(&workload, 1).unwrap(), first);
}

#[test]
fn a_campaign_ends_when_it_is_told_to() {
    let mut told = 0;
    let (tally, _) = campaign(0.., &|| true, &mut |_| told += 1).unwrap();
    assert_eq!((tally, told), (Tally::default(), 0));
}

/// A store whose commits are not synced, on a disk of its own, with a relay that sends everything.
struct Weak {
    disk: Disk,
    clock: Arc<VirtualClock>,
    db: Sqlite,
    stamp: Stamp,
    sent: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

impl Weak {
    async fn open() -> Self {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new(0));
        let (clock, random) = (Arc::new(VirtualClock::start()), Arc::new(SeededRandom::new(0)));
        let builder = Sqlite::builder()
            .clock(Arc::clone(&clock) as _)
            .random(Arc::clone(&random) as _)
            .durability(Durability::ProcessCrash)
            .drive(Drive::Manual)
            .vfs(disk.name());
        let db = builder.open(folder.path().join("shop.db")).await.unwrap();
        let driven = db.clone();
        tokio::spawn(async move { driven.drive().await });
        db.migrate().await.unwrap();
        let stamp = Stamp::new(Source::new("shop").unwrap(), Arc::clone(&clock) as _, random);
        Self { disk, clock, db, stamp, sent: Arc::default(), _folder: folder }
    }

    fn relay(&self) {
        let sent = Arc::clone(&self.sent);
        let transport = ScriptedTransport::each(move |message| {
            sent.lock().unwrap().push(message.id.to_string());
            Answer::Done(Some(Response::empty()))
        });
        let (timer, random) = (Arc::clone(&self.clock) as _, Arc::new(SeededRandom::new(1)) as _);
        let relay = Relay::builder(self.db.clone(), Source::new("shop").unwrap(), timer, random)
            .destination(Destination::new("billing").unwrap(), Arc::new(transport))
            .unwrap()
            .options(RelayOptions::default())
            .build()
            .unwrap();
        let (handle, shutdown) = Shutdown::new();
        tokio::spawn(async move {
            let _until_the_end = handle;
            relay.run(shutdown).await;
        });
    }

    /// Enqueues messages in one transaction.
    async fn enqueue(&self, ids: &[&str]) {
        let message = |id: &&str| {
            let new = NewMessage::json("billing", "Pay", id).unwrap().id(MessageId::new(*id).unwrap());
            self.stamp.message(&new).unwrap()
        };
        let (db, messages) = (self.db.clone(), ids.iter().map(message).collect::<Vec<Message>>());
        let append = self.db.transaction::<_, Error, _>(move |tx| {
            messages.iter().try_for_each(|message| db.append(tx, message))
        });
        append.await.unwrap();
    }

    async fn sent_in_a_minute(&self) -> Vec<String> {
        self.clock.sleep(Duration::from_secs(60)).await;
        self.sent.lock().unwrap().clone()
    }
}

/// A relay has read messages that are visible and not yet durable. The sync before they are sent fails, their pages are
/// gone, and the store is opened anew: their places in the log are given again, to other messages. Those must be read
/// and sent, and what vanished must not be.
#[test]
fn l1_a_relay_reads_anew_from_its_cursors_after_the_store_was_reopened() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let weak = Weak::open().await;
        weak.relay();
        weak.enqueue(&["first"]).await;
        assert_eq!(weak.sent_in_a_minute().await, ["first"]);
        weak.disk.fail(Fault { kind: Kind::SyncDroppingPages, nth: 0 });
        weak.enqueue(&["gone-1", "gone-2"]).await;
        assert_eq!(weak.sent_in_a_minute().await, ["first"], "what is not durable must not be sent");
        assert_eq!(weak.disk.struck(), 1);
        weak.enqueue(&["second", "third"]).await;
        assert_eq!(weak.sent_in_a_minute().await, ["first", "second", "third"]);
        let known = weak.db.message_status(&MessageId::new("gone-1").unwrap()).await.unwrap();
        assert!(known.is_none(), "otherwise this test says nothing");
    });
}

/// A store that commits as it does by default, on a disk of its own.
struct Strong {
    disk: Disk,
    db: Sqlite,
    folder: tempfile::TempDir,
}

impl Strong {
    async fn open() -> Self {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new(0));
        let builder = Sqlite::builder().drive(Drive::Manual).vfs(disk.name());
        let db = builder.open(folder.path().join("shop.db")).await.unwrap();
        let driven = db.clone();
        tokio::spawn(async move { driven.drive().await });
        db.migrate().await.unwrap();
        Self { disk, db, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    /// Runs a statement in a transaction of its own.
    async fn run(&self, sql: &'static str) -> twobox_core::Result<usize> {
        self.db.transaction::<_, Error, _>(move |tx| tx.execute(sql, [])).await
    }

    /// Another program's connection to the same file.
    fn neighbour(&self) -> rusqlite::Connection {
        let flags = rusqlite::OpenFlags::default();
        rusqlite::Connection::open_with_flags_and_vfs(self.path(), flags, self.disk.name()).unwrap()
    }
}

/// A connection that does not sync inserts a message, and then come commits that leave everything as it is. SQLite syncs
/// nothing for those, so the message is no more durable than before.
#[test]
fn w6_what_may_be_sent_survives_a_power_cut_whatever_commits_came_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let strong = Strong::open().await;
        strong.run("CREATE TABLE words (word)").await.unwrap();
        strong.run("INSERT INTO words VALUES ('same')").await.unwrap();
        let careless = strong.neighbour();
        careless.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
        let insert =
            "INSERT INTO outbox_log (source, destination, endpoint, payload) VALUES ('s', 'd', 'e', '')";
        careless.execute(insert, []).unwrap();
        strong.db.migrate().await.unwrap();
        strong.run("UPDATE words SET word = 'same'").await.unwrap();
        strong.db.make_durable(1, &careless.last_insert_rowid()).await.unwrap();
        let image = strong.disk.image(Cut::Lost, &SeededRandom::new(0));
        strong.disk.power_on(image).unwrap();
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let left = strong.neighbour().query_row("SELECT count(*) FROM outbox_log", [], count);
        assert_eq!(left.unwrap(), 1);
    });
}

/// A sync fails while another process has the file open. That process remembers a log whose pages are gone; what it
/// remembers must not be copied into the database, checksums unread.
#[test]
fn s14_nothing_of_the_log_is_copied_while_another_process_has_the_file_open() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let strong = Strong::open().await;
        strong.run("CREATE TABLE one (n INTEGER)").await.unwrap();
        let neighbour = strong.neighbour();
        neighbour.query_row("SELECT count(*) FROM one", [], |_| Ok(())).unwrap();
        let before = std::fs::read(strong.path()).unwrap();
        strong.disk.fail(Fault { kind: Kind::SyncDroppingPages, nth: 0 });
        let failed = strong.run("CREATE TABLE two (n INTEGER)").await.unwrap_err();
        assert_eq!((failed.kind(), strong.disk.struck()), (ErrorKind::CommitUnknown, 1), "{failed}");
        let stopped = strong.run("CREATE TABLE three (n INTEGER)").await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Stopped, "{stopped}");
        assert!(std::fs::read(strong.path()).unwrap() == before, "the log was copied");
        drop(neighbour);
    });
}
