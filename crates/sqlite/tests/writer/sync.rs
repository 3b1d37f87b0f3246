//! What is synced, and when (S2, W4, W6): counted by strace in a child process, which is this program again.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use twobox_core::Error;
use twobox_core::ports::{LogStore, SweepPlan, SweepStore};
use twobox_sqlite::{Durability, Sqlite};

use crate::fixture::{Place, message, say, skip, status};

const VARIABLE: &str = "TWOBOX_SYNC_CHILD";

/// Syncs of one part of a child's work.
struct Part {
    name: String,
    syncs: Vec<String>,
}

/// Runs a part of [`sync_child`] under strace. `None` if there is none.
fn trace(scenario: &str) -> Option<Vec<Part>> {
    let place = Place::new();
    let output = place.file("trace");
    let status = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fdatasync,fsync,write", "-o"])
        .arg(&output)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sync::sync_child", "--ignored", "--nocapture"])
        .env(VARIABLE, format!("{scenario}:{}", place.path().display()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            skip(&format!("no strace: {error}"));
            return None;
        }
    };
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    if !text.contains("mark: ") && !status.success() {
        skip("strace may not trace here");
        return None;
    }
    assert!(status.success(), "the child failed:\n{text}");
    Some(parts(&text))
}

fn parts(trace: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in trace.lines() {
        if let Some((_, name)) = line.split_once("\"mark: ") {
            let name = name.split("\\n").next().unwrap_or_default().to_owned();
            parts.push(Part { name, syncs: Vec::new() });
        } else if line.contains(" fdatasync(") || line.contains(" fsync(") {
            parts.iter_mut().last().into_iter().for_each(|part| part.syncs.push(line.to_owned()));
        }
    }
    parts
}

/// The syncs of the write-ahead log in a part.
fn syncs(parts: &[Part], name: &str) -> usize {
    let part = parts.iter().find(|part| part.name == name).expect("the part was traced");
    part.syncs.iter().filter(|line| line.contains("-wal")).count()
}

#[test]
fn s2_an_acknowledged_commit_is_synced_and_lazy_work_soon_after() {
    let Some(parts) = trace("full") else { return };
    assert!(syncs(&parts, "commit") >= 1);
    assert_eq!(syncs(&parts, "sent"), 0, "what a commit has synced needs no barrier");
    assert_eq!(syncs(&parts, "lazy"), 0, "lazy work alone does not sync");
    assert!(syncs(&parts, "a second and a half") >= 1, "but it is synced within a second");
    assert_eq!(syncs(&parts, "idle"), 0, "and then there is nothing left to sync");
}

#[test]
fn w6_what_is_sent_is_durable_although_commits_are_not() {
    let Some(parts) = trace("process-crash") else { return };
    assert_eq!(syncs(&parts, "commit"), 0, "that is what the weaker durability is for");
    assert!(syncs(&parts, "durable") >= 1);
    assert_eq!(syncs(&parts, "again"), 0, "what is durable stays so");
}

#[test]
fn w6_what_a_careless_connection_has_written_is_durable_before_it_is_sent() {
    let Some(parts) = trace("foreign") else { return };
    assert_eq!(syncs(&parts, "commit"), 0, "a foreign connection with synchronous = NORMAL");
    assert!(syncs(&parts, "durable") >= 1);
    assert_eq!(syncs(&parts, "again"), 0);
}

/// The child: marks in the trace what it is doing.
#[tokio::test]
#[ignore = "started by the tests above, under strace"]
async fn sync_child() {
    let Ok(scenario) = std::env::var(VARIABLE) else { return };
    let (scenario, path) = scenario.split_once(':').unwrap();
    match scenario {
        "full" => full(Path::new(path)).await,
        "process-crash" => process_crash(Path::new(path)).await,
        _ => foreign(Path::new(path)).await,
    }
}

fn mark(name: &str) {
    std::io::stderr().write_all(format!("mark: {name}\n").as_bytes()).unwrap();
}

async fn open(path: &Path, durability: Durability) -> Sqlite {
    let db = Sqlite::builder().durability(durability).open(path).await.unwrap();
    db.migrate().await.unwrap();
    db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE words (word)", [])).await.unwrap();
    db
}

async fn enqueue(db: &Sqlite) -> i64 {
    let inside = db.clone();
    let append = db.transaction::<_, Error, _>(move |tx| {
        say(tx, "word")?;
        inside.append(tx, &message(&inside, "m"))
    });
    append.await.unwrap();
    status(db, "m").await.unwrap().1
}

/// Lets time pass.
async fn pass(db: &Sqlite, time: Duration) {
    let never = tokio::time::timeout(time, db.changed(u64::MAX)).await;
    assert!(never.is_err());
}

async fn full(path: &Path) {
    let db = open(path, Durability::Full).await;
    mark("commit");
    let position = enqueue(&db).await;
    mark("sent");
    db.make_durable(&position).await.unwrap();
    mark("lazy");
    db.sweep(&SweepPlan::default()).await.unwrap();
    mark("a second and a half");
    pass(&db, Duration::from_millis(1_500)).await;
    mark("idle");
    pass(&db, Duration::from_millis(1_500)).await;
    mark("end");
}

async fn process_crash(path: &Path) {
    let db = open(path, Durability::ProcessCrash).await;
    mark("commit");
    let position = enqueue(&db).await;
    durable(&db, position).await;
}

async fn foreign(path: &Path) {
    let db = open(path, Durability::Full).await;
    let foreign = rusqlite::Connection::open(path).unwrap();
    foreign.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
    mark("commit");
    let insert = "INSERT INTO outbox_log (source, destination, endpoint, payload) VALUES ('s', 'd', 'e', '')";
    foreign.execute(insert, []).unwrap();
    durable(&db, foreign.last_insert_rowid()).await;
}

async fn durable(db: &Sqlite, position: i64) {
    mark("durable");
    db.make_durable(&position).await.unwrap();
    mark("again");
    db.make_durable(&position).await.unwrap();
    mark("end");
}
