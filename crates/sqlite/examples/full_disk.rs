//! A process whose disk fills up while it commits, and has room again later. Started by `tests/full_disk.rs` with
//! a limit on the size of files; prints what it saw, one fact per line.
//!
//! With the word `checkpoint` behind the path, the write-ahead log is kept so short that the database file meets the
//! limit first.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::ports::{Answer, Delivery, InboxStore, Treatment};
use twobox_core::system::{SystemClock, SystemRandom};
use twobox_core::{Consumer, Error, ErrorKind, MessageId, NewMessage, Response, Source, Stamp};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};

/// Longer than anything takes that works.
const EVER: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let path =
        std::env::args_os().nth(1).map(PathBuf::from).expect("the database's path as the first argument");
    let builder = Sqlite::builder();
    let is_kept_short = std::env::args().nth(2).is_some_and(|word| word == "checkpoint");
    let builder = if is_kept_short { builder.wal_pages_max(64) } else { builder };
    let db = builder.open(path).await?;
    db.migrate().await?;
    let create = "CREATE TABLE rows (n INTEGER PRIMARY KEY, filler BLOB)";
    db.transaction::<_, Error, _>(move |tx| tx.execute(create, [])).await?;

    let known = delivery("known")?;
    db.process(vec![known], EVER).await?;

    let (acknowledged, first, while_full) = fill(&db).await;
    println!("first error: {:?}", first.kind());
    println!("while full: {}", if while_full.is_transient() { "transient" } else { "final" });
    println!("it is named: {}", names(&db, &while_full));
    println!("reads while full: {}", db.lanes_listed().await);
    let answers = db.process(vec![delivery("known")?, delivery("new")?], EVER).await?;
    println!("answers while full: {}", short(&answers));
    let alone =
        db.process(vec![delivery("new")?], EVER).await.map(drop).map_err(|error| error.is_transient());
    println!("alone while full: {}", if alone == Err(true) { "later" } else { "?" });

    lift_limit();
    insert(&db, -2).await?;
    let rows = db
        .transaction::<_, Error, _>(|tx| tx.query("SELECT n FROM rows", [], |row| row.get::<i64>(0)))
        .await?;
    let lost = acknowledged.iter().filter(|n| !rows.contains(n)).count();
    println!("lost: {lost} of {}", if acknowledged.len() > 10 { "many" } else { "few" });
    println!("recovered: {}", rows.contains(&-2));
    let answers = db.process(vec![delivery("known")?, delivery("new")?], EVER).await?;
    println!("answers afterwards: {}", short(&answers));
    Ok(())
}

/// Inserts until it fails twice in a row: the first time the write-ahead log is full, and recovering makes room in
/// it; in the end there is none anywhere. Returns what was acknowledged, the first error and the last.
async fn fill(db: &Sqlite) -> (Vec<i64>, Error, Error) {
    let (mut acknowledged, mut first, mut failed) = (Vec::new(), None, false);
    for n in 0.. {
        match insert(db, n).await {
            Ok(()) => {
                acknowledged.push(n);
                failed = false;
            }
            Err(error) if failed => return (acknowledged, first.expect("one before"), error),
            Err(error) => {
                first.get_or_insert(error);
                failed = true;
            }
        }
    }
    unreachable!("the limit is finite")
}

async fn insert(db: &Sqlite, n: i64) -> Result<(), Error> {
    let insert = move |tx: &mut SqliteTx<'_>| {
        tx.execute("INSERT INTO rows VALUES (?1, zeroblob(3000))", [n]).map(drop)
    };
    db.transaction(insert).await
}

fn short(answers: &[Answer]) -> String {
    let word = |answer: &Answer| match answer {
        Answer::Done(_) => "done",
        Answer::Duplicate(_) => "duplicate",
        Answer::NotReached => "later",
        _ => "?",
    };
    answers.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn names(db: &Sqlite, error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == ErrorKind::Full
        && text.contains(&db.path().display().to_string())
        && text.contains("disk")
}

fn delivery(id: &str) -> Result<Delivery<SqliteHandler>, Error> {
    let new = NewMessage::json("billing", "Pay", &id)?.id(MessageId::new(id)?);
    let stamp =
        Stamp::new(Source::new("shop")?, Arc::new(SystemClock::default()), Arc::new(SystemRandom::default()));
    let message = Arc::new(stamp.message(&new)?);
    let handler = SqliteHandler::new(|tx, _| {
        Ok(tx.execute("INSERT INTO rows VALUES (-3, zeroblob(3000))", []).map(|_| Response::empty())?)
    });
    Ok(Delivery {
        body_hash: message.payload.sha256(),
        message,
        consumer: Consumer::new("billing")?,
        treatment: Treatment::Handle(if id == "known" {
            SqliteHandler::new(|_, _| Ok(Response::empty()))
        } else {
            handler
        }),
    })
}

trait Listed {
    async fn lanes_listed(&self) -> &'static str;
}

impl Listed for Sqlite {
    async fn lanes_listed(&self) -> &'static str {
        use twobox_core::ports::LaneStore;
        match self.lanes().await {
            Ok(_) => "fine",
            Err(error) if error.kind() == ErrorKind::Unavailable => "unavailable",
            Err(_) => "broken",
        }
    }
}

#[cfg(target_os = "linux")]
fn lift_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).expect("the hard limit was left alone");
}

#[cfg(not(target_os = "linux"))]
fn lift_limit() {}
