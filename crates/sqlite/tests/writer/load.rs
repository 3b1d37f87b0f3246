//! Under load nobody waits for everybody else (W5, W7).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use twobox_core::ports::{Answer, Delivery, InboxStore};
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Error, Response};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::eventually;

use crate::fixture::{Manual, Place, batch, now, number, poll, say};

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
    batch(db, count, &handler)
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
    let mut process = Box::pin(db.process(slow_batch(&db, 300, &begun), Duration::from_secs(60)));
    assert!(poll(process.as_mut()).is_pending());
    // Queued right behind it.
    let seen = effects(&db).await;
    assert!(seen < 150, "it waited for {seen} of 300");
    let answers = process.await.unwrap();
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

/// A writer that is full gets to a request late: if it then got nothing, the next one would fare no better.
#[test]
fn w7_a_request_whose_turn_comes_late_gets_some_of_its_time() {
    let manual = Manual::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let late = |budget: Duration| {
        let mut late = Box::pin(manual.db.process(slow_batch(&manual.db, 3, &begun), budget));
        assert!(poll(late.as_mut()).is_pending());
        manual.clock.advance(budget * 2);
        assert!(manual.db.step());
        now(late).unwrap()
    };
    assert_eq!(late(Duration::ZERO), vec![Answer::NotReached; 3], "what has no time gets none");
    assert_eq!(late(Duration::from_millis(50)), vec![Answer::Done(Some(Response::empty())); 3]);
}

/// Work that says that it has begun and goes on when it is told to.
struct Stepwise {
    begun: mpsc::Sender<String>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Stepwise {
    fn act(&self, tx: &mut SqliteTx<'_>, word: &str) -> Result<(), Error> {
        self.begun.send(word.to_owned()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        say(tx, word)
    }
}

/// Whoever was not reached comes before those who came later, and whoever has had a turn after them: or a stream of
/// newcomers would keep both waiting for ever.
#[tokio::test]
async fn w7_nobody_is_passed_over_by_those_who_come_later() {
    let place = Place::new();
    // Every group has time for one piece of work.
    let db = place.open_with(Sqlite::builder().group_time(Duration::from_nanos(1))).await;
    let ((begun, has_begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
    let work = Arc::new(Stepwise { begun, go: Mutex::new(gone) });
    let queue = |word: &'static str| {
        let work = Arc::clone(&work);
        let mut queued = Box::pin(db.transaction(move |tx: &mut SqliteTx<'_>| work.act(tx, word)));
        assert!(poll(queued.as_mut()).is_pending());
        queued
    };
    let of_handler = Arc::clone(&work);
    let handler = SqliteHandler::new(move |tx, message| {
        of_handler.act(tx, message.id.as_str())?;
        Ok(Response::empty())
    });
    let mut batch = Box::pin(db.process(batch(&db, 3, &handler), Duration::from_secs(60)));
    assert!(poll(batch.as_mut()).is_pending());

    assert_eq!(has_begun.recv().unwrap(), "000");
    let mut queued = vec![queue("a"), queue("b")];
    go.send(()).unwrap();
    assert_eq!(has_begun.recv().unwrap(), "a");
    queued.push(queue("c"));
    (0..5).for_each(|_| go.send(()).unwrap());
    let order: Vec<String> = (0..4).map(|_| has_begun.recv().unwrap()).collect();
    assert_eq!(order, ["b", "001", "c", "002"]);
    assert_eq!(batch.await.unwrap().len(), 3);
    for queued in queued {
        queued.await.unwrap();
    }
}
