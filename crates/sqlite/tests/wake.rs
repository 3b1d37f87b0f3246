//! Relays wake when another process has written, and sleep when nobody has.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;
use twobox_core::config::Timing;
use twobox_core::ports::{LogStore, OpsStore, Transport};
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Clock, Destination, MessageId, Source};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Relay, Shutdown, ShutdownHandle, SystemTimer};
use twobox_sqlite::Sqlite;
use twobox_testkit::{ScriptedTransport, eventually, example};

const PATIENCE: Duration = Duration::from_secs(5);
const MESSAGES: usize = 50;

/// One test at a time: they look at clocks, and one at what the whole process does.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Another process that enqueues when it is told to. Ends when dropped.
struct Foreign {
    child: Child,
    input: Option<ChildStdin>,
}

impl Foreign {
    fn start(path: &Path) -> Self {
        let command = Command::new(example("foreign_writer"))
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut child = command.unwrap();
        let input = child.stdin.take();
        Self { child, input }
    }

    fn enqueue(&mut self, id: &str) {
        writeln!(self.input.as_mut().unwrap(), "{id}").unwrap();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        drop(self.input.take());
        let ended = self.child.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "the other process failed");
    }
}

async fn open() -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let db = Sqlite::open(directory.path().join("boxes.db")).await.unwrap();
    db.migrate().await.unwrap();
    (directory, db)
}

/// The version of the log once nothing has happened for longer than the watcher's slow look.
async fn quiet(db: &Sqlite) -> u64 {
    let mut seen = 0;
    while let Ok(version) = timeout(Duration::from_millis(1_300), db.changed(seen)).await {
        seen = version;
    }
    seen
}

async fn is_there(db: &Sqlite, id: &str) -> bool {
    db.message_status(&MessageId::new(id).unwrap()).await.unwrap().is_some()
}

fn relay(db: &Sqlite, transport: ScriptedTransport) -> ShutdownHandle {
    relay_with(db, transport, RelayOptions::default())
}

fn relay_with(db: &Sqlite, transport: ScriptedTransport, options: RelayOptions) -> ShutdownHandle {
    let (source, destination) = (Source::new("shop").unwrap(), Destination::new("billing").unwrap());
    let timer = Arc::new(SystemTimer::default());
    let relay = Relay::builder(db.clone(), source, timer, Arc::new(SystemRandom::default()))
        .options(options)
        .destination(destination, Arc::new(transport) as Arc<dyn Transport>)
        .unwrap();
    let (handle, shutdown) = Shutdown::new();
    tokio::spawn(relay.build().unwrap().run(shutdown));
    handle
}

#[tokio::test]
async fn speed_every_commit_of_another_process_wakes_us() {
    let _alone = ALONE.lock().await;
    let (_directory, db) = open().await;
    let mut foreign = Foreign::start(db.path());
    foreign.enqueue("warm up");
    eventually("the other process works", PATIENCE, async || is_there(&db, "warm up").await.then_some(()))
        .await;
    let mut seen = quiet(&db).await;
    let clock = SystemClock::default();
    for n in 0..MESSAGES {
        let id = format!("m{n}");
        foreign.enqueue(&id);
        // A wake-up may be for something else; the one for this message must come.
        loop {
            let changed = timeout(PATIENCE, db.changed(seen)).await;
            seen = changed.unwrap_or_else(|_| panic!("nobody woke us for {id}"));
            if is_there(&db, &id).await {
                break;
            }
        }
    }
    // The slow look alone would take half a second for each.
    let took = clock.monotonic();
    assert!(took < Duration::from_secs(10), "{MESSAGES} wake-ups took {took:?}");
}

#[tokio::test]
async fn speed_a_busy_relay_is_woken_by_another_process_and_not_by_its_slow_look() {
    const SLOW: Duration = Duration::from_millis(500);
    let _alone = ALONE.lock().await;
    let (_directory, db) = open().await;
    let transport = ScriptedTransport::sink();
    let _running = relay(&db, transport.clone());
    let mut foreign = Foreign::start(db.path());
    let ids: Vec<String> = (0..4 * MESSAGES).map(|n| format!("m{n}")).collect();
    let clock = SystemClock::default();
    let mut slow = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let start = clock.monotonic();
        // The relay is still settling the one before: its own commits must not hide the foreign one.
        foreign.enqueue(id);
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        let delivered = async {
            while transport.sent().len() <= n {
                looks.tick().await;
            }
        };
        timeout(PATIENCE, delivered).await.expect("it is delivered");
        let took = clock.monotonic() - start;
        slow.extend(Some((id, took)).filter(|_| took > SLOW));
    }
    assert_eq!(transport.sent(), ids);
    // Some may be late because the machine was busy; without wake-ups most would be.
    assert!(slow.len() <= 5, "{} of {} waited for the slow look: {slow:?}", slow.len(), ids.len());
}

/// RF-22: what another process resumes flows at once, and not when the lease is renewed.
#[tokio::test]
async fn rf_22_a_destination_that_another_process_resumes_is_sent_to() {
    let _alone = ALONE.lock().await;
    let (_directory, db) = open().await;
    let (source, destination) = (Source::new("shop").unwrap(), Destination::new("billing").unwrap());
    db.pause_lane(&source, &destination, "ann", "maintenance").await.unwrap();
    let transport = ScriptedTransport::sink();
    // Longer than anybody waits here: it is not the renewal that tells.
    let timing = Timing { lease: 20 * PATIENCE, ..Timing::default() };
    let options = RelayOptions { timing, ..RelayOptions::default() };
    let _running = relay_with(&db, transport.clone(), options);
    Foreign::start(db.path()).enqueue("m");
    eventually("it is there", PATIENCE, async || is_there(&db, "m").await.then_some(())).await;
    quiet(&db).await;
    assert!(transport.requests().is_empty());
    let other = twobox_sqlite::rusqlite::Connection::open(db.path()).unwrap();
    let resume = "UPDATE outbox_lanes SET paused_at = NULL, paused_by = NULL, paused_reason = NULL";
    other.execute(resume, []).unwrap();
    eventually("it is sent", PATIENCE, async || (transport.sent() == ["m"]).then_some(())).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn speed_an_idle_relay_costs_next_to_nothing() {
    let _alone = ALONE.lock().await;
    let (_directory, db) = open().await;
    let _running = relay(&db, ScriptedTransport::sink());
    let idle_for = Duration::from_secs(2);
    let mut seen = quiet(&db).await;
    let before = processor_ticks();
    let never = timeout(idle_for, async {
        loop {
            seen = db.changed(seen).await;
        }
    });
    assert!(never.await.is_err());
    let ticks = processor_ticks() - before;
    // A tick is 10 ms on every Linux there is.
    let share = ticks * 10 * 100 / u64::try_from(idle_for.as_millis()).unwrap();
    assert!(share < 5, "{share} % of a processor while idle ({ticks} ticks)");
}

/// User and system time of this process.
#[cfg(target_os = "linux")]
fn processor_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in brackets may contain anything; utime and stime are the 14th and 15th field.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}
