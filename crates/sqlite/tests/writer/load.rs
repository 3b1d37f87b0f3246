//! Under load nobody waits for everybody else (W5, W7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use twobox_core::ports::{Answer, Delivery, InboxStore, Treatment};
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Consumer, Error, Response};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::eventually;

use crate::fixture::{Place, message, number, say};

/// No task commits more often than this, whatever goes wrong.
const COMMITS_MAX: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_a_foreign_writer_gets_its_turn_under_full_load() {
    let place = Place::new();
    let db = place.open().await;
    place.foreign().execute_batch("CREATE TABLE load (task INTEGER); CREATE TABLE calm (n INTEGER)").unwrap();
    let (done, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|task: usize| tokio::spawn(hammer(db.clone(), task, Arc::clone(&done), Arc::clone(&commits))))
        .collect();
    let mut foreign = place.foreign(); // with the default busy time-out of 5 s
    for n in 0..20 {
        // The load goes on between any two of them, so each has to get the lock anew.
        let loaded = commits.load(Ordering::SeqCst) + 50;
        eventually("the load goes on", Duration::from_secs(30), async || {
            (commits.load(Ordering::SeqCst) >= loaded).then_some(())
        })
        .await;
        let wrote = tokio::task::spawn_blocking(move || {
            let wrote = write(&mut foreign, n);
            (foreign, wrote)
        });
        let wrote = wrote.await.unwrap();
        foreign = wrote.0;
        wrote.1.unwrap_or_else(|error| panic!("the foreign connection was refused at {n}: {error}"));
    }
    done.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(number(&place.path(), "SELECT count(*) FROM calm"), 20);
    let kept = usize::try_from(number(&place.path(), "SELECT count(*) FROM load")).unwrap();
    assert_eq!(kept, commits.load(Ordering::SeqCst));
}

fn write(foreign: &mut Connection, n: i64) -> rusqlite::Result<()> {
    let tx = foreign.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO calm (n) VALUES (?1)", [n])?;
    tx.commit()
}

async fn hammer(db: Sqlite, task: usize, done: Arc<AtomicBool>, commits: Arc<AtomicUsize>) {
    for _ in 0..COMMITS_MAX {
        if done.load(Ordering::SeqCst) {
            return;
        }
        let insert = move |tx: &mut SqliteTx<'_>| {
            tx.execute("INSERT INTO load (task) VALUES (?1)", [task.to_string()])
        };
        db.transaction::<_, Error, _>(insert).await.unwrap();
        commits.fetch_add(1, Ordering::SeqCst);
    }
}

/// A batch whose handlers each take about a millisecond. Counts how many have begun.
fn slow_batch(db: &Sqlite, count: usize, begun: &Arc<AtomicUsize>) -> Vec<Delivery<SqliteHandler>> {
    let (clock, begun) = (SystemClock::default(), Arc::clone(begun));
    let handler = SqliteHandler::new(move |tx, message| {
        begun.fetch_add(1, Ordering::SeqCst);
        let until = clock.monotonic() + Duration::from_millis(1);
        while clock.monotonic() < until {
            std::hint::spin_loop();
        }
        say(tx, message.id.as_str())?;
        Ok(Response::empty())
    });
    (0..count)
        .map(|n| {
            let message = message(db, &format!("{n:03}"));
            let body_hash = message.payload.sha256();
            let consumer = Consumer::new("billing").unwrap();
            Delivery {
                message: Arc::new(message),
                consumer,
                body_hash,
                treatment: Treatment::Handle(handler.clone()),
            }
        })
        .collect()
}

async fn effects(db: &Sqlite) -> usize {
    let count = |tx: &mut SqliteTx<'_>| {
        let sql = "SELECT count(*) FROM words";
        tx.query_optional(sql, [], |row| row.get::<i64>(0)).map(Option::unwrap_or_default)
    };
    usize::try_from(db.transaction::<_, Error, _>(count).await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_slow_batch_does_not_keep_a_transaction_waiting_for_all_of_it() {
    let place = Place::new();
    let db = place.open().await;
    let begun = Arc::new(AtomicUsize::new(0));
    let batch = slow_batch(&db, 300, &begun);
    let process = tokio::spawn({
        let db = db.clone();
        async move { db.process(batch, Duration::from_secs(60)).await }
    });
    eventually("the batch has begun", Duration::from_secs(30), async || {
        (begun.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    let seen = effects(&db).await;
    assert!(seen < 150, "it waited for {seen} of 300");
    let answers = process.await.unwrap().unwrap();
    assert_eq!(answers, vec![Answer::Done(Some(Response::empty())); 300], "the rest joined the next groups");
    assert_eq!(effects(&db).await, 300);
    assert_eq!(begun.load(Ordering::SeqCst), 300, "no handler ran twice");
}

#[tokio::test]
async fn w7_what_a_request_has_no_time_for_is_not_reached_and_not_done() {
    let place = Place::new();
    let db = place.open().await;
    let begun = Arc::new(AtomicUsize::new(0));
    let batch = slow_batch(&db, 300, &begun);
    let answers = db.process(batch, Duration::from_millis(50)).await.unwrap();
    assert_eq!(answers.len(), 300);
    let done = answers.iter().take_while(|answer| matches!(answer, Answer::Done(_))).count();
    assert!(done <= 50, "{done} done in 50 ms at 1 ms each");
    assert!(answers[done..].iter().all(|answer| *answer == Answer::NotReached));
    assert_eq!(begun.load(Ordering::SeqCst), done);
    assert_eq!(effects(&db).await, done);
    // The rest can be delivered again; what was done is known.
    let answers = db.process(slow_batch(&db, done + 1, &begun), Duration::from_secs(60)).await.unwrap();
    assert!(answers[..done].iter().all(|answer| matches!(answer, Answer::Duplicate(_))));
    assert!(matches!(answers[done], Answer::Done(_)));
}
