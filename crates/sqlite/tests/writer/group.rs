//! Group commit: many callers, one commit, and nobody pays for a neighbour (W1, W2, W3).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use twobox_core::{Error, ErrorKind, Result};
use twobox_sqlite::SqliteTx;

use crate::fixture::{Manual, Queued, commits, now, say};

/// Counts how often a closure ran.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A queued transaction that says one word.
fn queue_word(manual: &Manual, word: String) -> (Queued<()>, Runs) {
    let runs = Runs::default();
    let counted = runs.clone();
    let queued = manual.queue(move |tx| {
        counted.count();
        say(tx, &word)
    });
    (queued, runs)
}

fn queue_words(manual: &Manual, range: std::ops::Range<usize>) -> Vec<(Queued<()>, Runs)> {
    range.map(|n| queue_word(manual, format!("word {n:02}"))).collect()
}

fn expected(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("word {n:02}")).collect()
}

/// All were answered with success; returns how often each ran.
fn all_well(queued: Vec<(Queued<()>, Runs)>) -> Vec<usize> {
    queued
        .into_iter()
        .map(|(queued, runs)| {
            now(queued).unwrap();
            runs.get()
        })
        .collect()
}

#[test]
fn w1_transactions_of_many_callers_share_one_commit() {
    let manual = Manual::new();
    let before = commits(&manual.place.path());
    let queued = queue_words(&manual, 0..64);
    assert_eq!(manual.words(), expected(0..0), "nothing runs before the step");
    assert!(manual.db.step());
    assert_eq!(all_well(queued), [1; 64]);
    assert_eq!(manual.words(), expected(0..64));
    assert_eq!(commits(&manual.place.path()), before + 1);
    assert!(!manual.db.step(), "there is nothing more to do");
}

#[test]
fn w2_a_failing_neighbour_undoes_only_itself() {
    let manual = Manual::new();
    let before = commits(&manual.place.path());
    let first = queue_words(&manual, 0..32);
    let failing: Queued<()> = manual.queue(|tx| {
        say(tx, "half")?;
        Err(Error::invalid("changed my mind"))
    });
    let breaking = manual.queue(|tx| say(tx, "other half").and_then(|()| say(tx, "word 03")));
    let last = queue_words(&manual, 32..64);
    assert!(manual.db.step());
    assert_eq!(now(failing).unwrap_err().to_string(), "changed my mind");
    assert_eq!(now(breaking).unwrap_err().kind(), ErrorKind::Statement);
    all_well(first);
    all_well(last);
    assert_eq!(manual.words(), expected(0..64));
    assert_eq!(commits(&manual.place.path()), before + 1, "the others still share one commit");
}

#[test]
fn w2_a_neighbour_that_rolls_everything_back_leaves_the_others_committed_once() {
    let manual = Manual::new();
    manual.transaction(|tx| say(tx, "taken")).unwrap();
    let first = queue_words(&manual, 0..32);
    let spoiling = manual.queue(|tx| {
        say(tx, "half")?;
        tx.execute("INSERT OR ROLLBACK INTO words (word) VALUES ('taken')", [])
    });
    let last = queue_words(&manual, 32..64);
    assert!(manual.db.step());
    assert_eq!(now(spoiling).unwrap_err().kind(), ErrorKind::Statement);
    assert!(all_well(first).iter().all(|runs| *runs >= 2), "what shared the spoilt transaction ran again");
    all_well(last);
    assert_eq!(manual.words(), [vec!["taken".to_owned()], expected(0..64)].concat());
}

#[test]
fn s4_a_swallowed_rollback_commits_nothing_in_between() {
    let manual = Manual::new();
    manual.transaction(|tx| say(tx, "taken")).unwrap();
    let first = queue_words(&manual, 0..1);
    let swallowing: Queued<()> = manual.queue(|tx| {
        say(tx, "before")?;
        drop(tx.execute("INSERT OR ROLLBACK INTO words (word) VALUES ('taken')", []));
        // There is no transaction any more, so this would commit at once.
        assert_eq!(say(tx, "after").unwrap_err().kind(), ErrorKind::TransactionFailed);
        Ok(())
    });
    assert!(manual.db.step());
    assert_eq!(now(swallowing).unwrap_err().kind(), ErrorKind::TransactionFailed);
    all_well(first);
    assert_eq!(manual.words(), ["taken", "word 00"]);
}

#[test]
fn w3_a_commit_that_fails_on_a_deferred_key_fails_only_its_author() {
    let manual = Manual::new();
    let create = |tx: &mut SqliteTx<'_>| -> Result<()> {
        tx.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)", [])?;
        let child = "CREATE TABLE child (parent INTEGER NOT NULL \
                     REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
        tx.execute(child, []).map(drop)
    };
    manual.transaction(create).unwrap();
    let first = queue_words(&manual, 0..2);
    let orphan = manual.queue(|tx| {
        say(tx, "orphan")?;
        tx.execute("INSERT INTO child (parent) VALUES (7)", [])
    });
    let family = manual.queue(|tx| {
        tx.execute("INSERT INTO child (parent) VALUES (8)", [])?;
        tx.execute("INSERT INTO parent (id) VALUES (8)", [])
    });
    let last = queue_words(&manual, 2..4);
    assert!(manual.db.step());
    let error = now(orphan).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Statement, "{error:?}");
    now(family).unwrap();
    assert!(all_well(first).iter().chain(&all_well(last)).all(|runs| *runs >= 2));
    assert_eq!(manual.words(), expected(0..4));
    manual.transaction(|tx| say(tx, "word 04")).expect("the writer goes on");
}

#[test]
fn s6_a_closure_that_panics_fails_and_its_neighbours_commit() {
    let manual = Manual::new();
    let before = commits(&manual.place.path());
    let first = queue_words(&manual, 0..2);
    let panicking: Queued<()> = manual.queue(|tx| {
        say(tx, "half")?;
        panic!("a mistake in the caller's code");
    });
    let last = queue_words(&manual, 2..4);
    assert!(manual.db.step());
    let error = now(panicking).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    all_well(first);
    all_well(last);
    assert_eq!(manual.words(), expected(0..4));
    assert_eq!(commits(&manual.place.path()), before + 1);
}

#[test]
fn s4_a_panic_in_a_nested_savepoint_leaves_nothing() {
    let manual = Manual::new();
    let panicking: Queued<()> = manual.queue(|tx| {
        say(tx, "outer")?;
        tx.savepoint(|tx| {
            say(tx, "middle")?;
            tx.savepoint(|tx| say(tx, "inner").map(|()| panic!("deep down")))
        })
    });
    let neighbour = queue_words(&manual, 0..1);
    assert!(manual.db.step());
    assert!(now(panicking).is_err());
    all_well(neighbour);
    assert_eq!(manual.words(), ["word 00"]);
}

#[test]
fn s4_a_caught_panic_undoes_its_savepoint_and_no_more() {
    let manual = Manual::new();
    manual
        .transaction(|tx| {
            say(tx, "before")?;
            let caught = catch_unwind(AssertUnwindSafe(|| {
                tx.savepoint(|tx| -> Result<()> {
                    say(tx, "inside")?;
                    panic!("caught by the caller");
                })
            }));
            assert!(caught.is_err());
            say(tx, "later")
        })
        .unwrap();
    assert_eq!(manual.words(), ["before", "later"]);
}

#[test]
fn w2_whatever_failed_before_the_next_groups_are_whole() {
    let manual = Manual::new();
    manual.transaction(|tx| say(tx, "taken")).unwrap();
    for round in 0..50 {
        let failing: Queued<()> = manual.queue(move |tx| {
            say(tx, &format!("half {round}"))?;
            match round % 4 {
                0 => Err(Error::invalid("changed my mind")),
                1 => say(tx, "taken"),
                2 => tx.execute("INSERT OR ROLLBACK INTO words VALUES ('taken')", []).map(drop),
                _ => drop_and_go_on(tx),
            }
        });
        // Every other time it has company.
        let company = (round % 2 == 1).then(|| queue_word(&manual, format!("word {round:02}")));
        assert!(manual.db.step());
        assert!(now(failing).is_err(), "round {round}");
        all_well(company.into_iter().collect());
        queue_and_run(&manual, &format!("whole {round:02}"));
    }
    let words = manual.words();
    assert_eq!(words.iter().filter(|word| word.starts_with("whole")).count(), 50);
    assert_eq!(words.iter().filter(|word| word.starts_with("word")).count(), 25);
    assert_eq!(words.len(), 76, "{words:?}");
}

fn drop_and_go_on(tx: &mut SqliteTx<'_>) -> Result<()> {
    drop(say(tx, "taken"));
    Ok(())
}

fn queue_and_run(manual: &Manual, word: &str) {
    let word = word.to_owned();
    manual.transaction(move |tx| say(tx, &word)).unwrap();
}

/// A group remembers some statements of its callers, and runs the others all the same.
#[test]
fn many_different_statements_share_a_group_and_one_that_fails_is_not_remembered_as_failed() {
    const STATEMENTS: usize = 20;
    let manual = Manual::new();
    let insert = |n: usize| format!("INSERT INTO words (word) VALUES ('{n:02} ' || ?1)");
    let queued: Vec<_> = (0..3)
        .map(|caller: i64| {
            manual.queue(move |tx| {
                (0..STATEMENTS).try_for_each(|n| tx.execute(&insert(n), [caller]).map(drop))?;
                let failed = tx.savepoint::<_, Error>(|tx| tx.execute(&insert(0), [0, 0]).map(drop));
                assert!(failed.is_err(), "it has one parameter");
                tx.execute(&insert(0), [format!("again {caller}")]).map(drop)
            })
        })
        .collect();
    manual.db.step();
    queued.into_iter().for_each(|queued| now(queued).unwrap());
    assert_eq!(manual.words().len(), 3 * (STATEMENTS + 1));
}

/// A statement that is remembered keeps nothing of what somebody else has given for its parameters.
#[test]
fn a_parameter_that_is_left_out_is_null_whoever_was_there_before() {
    const INSERT: &str = "INSERT INTO words (word) VALUES (coalesce(:word, 'nothing'))";
    let manual = Manual::new();
    let first = manual.queue(|tx| tx.execute(INSERT, &[(":word", "mine")]).map(drop));
    let second = manual.queue(|tx| tx.execute(INSERT, &[] as &[(&str, &str)]).map(drop));
    manual.db.step();
    [first, second].into_iter().for_each(|queued| now(queued).unwrap());
    assert_eq!(manual.words(), ["mine", "nothing"]);
}

/// Panics when it is dropped.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("mine");
    }
}

/// Callers give up together when something is slow, and what they leave behind may panic when it is dropped.
#[test]
fn w2_what_callers_have_left_behind_panics_and_nobody_else_pays_for_it() {
    let manual = Manual::new();
    let reader = manual.place.foreign();
    reader.query_row("SELECT count(*) FROM words", [], |_| Ok(())).unwrap();
    for round in ["first", "second"] {
        let gone = ["gone", "lost"].map(|word| {
            let mine = Mine;
            manual.queue(move |tx| {
                let _held = &mine;
                say(tx, &format!("{round} {word}"))
            })
        });
        let (neighbour, _) = queue_word(&manual, format!("{round} neighbour"));
        drop(gone); // nobody waits for them any more
        assert!(manual.db.step());
        now(neighbour).unwrap();
    }
    let words =
        ["first gone", "first lost", "first neighbour", "second gone", "second lost", "second neighbour"];
    assert_eq!(manual.words(), words, "no commit was in doubt, although somebody else has the file open");
}

/// What a transaction has returned is dropped when it has to run again.
#[test]
fn w2_a_result_that_panics_when_its_transaction_runs_again_costs_nobody_else_anything() {
    let manual = Manual::new();
    let reader = manual.place.foreign();
    reader.query_row("SELECT count(*) FROM words", [], |_| Ok(())).unwrap();
    let returns = manual.queue(|tx| say(tx, "returns").map(|()| Mine));
    let fails = manual.queue(|tx| tx.execute("INSERT INTO nowhere VALUES (1)", []).map(drop));
    let (neighbour, _) = queue_word(&manual, "neighbour".into());
    assert!(manual.db.step());
    std::mem::forget(now(returns).unwrap());
    assert!(now(fails).is_err());
    now(neighbour).unwrap();
    assert_eq!(manual.words(), ["neighbour", "returns"]);
}
