//! What user SQL may not do, and what an error does to its transaction (W2, S4, W8).

use twobox_core::{Error, ErrorKind, MessageId, Result};

use crate::fixture::{Manual, Place, message, now, say, status, words};

const FORBIDDEN: [&str; 18] = [
    "COMMIT",
    "END",
    "ROLLBACK",
    "BEGIN",
    "BEGIN IMMEDIATE",
    "SAVEPOINT mine",
    "RELEASE mine",
    "ROLLBACK TO mine",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "PRAGMA synchronous = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA user_version",
    "CREATE TEMP TABLE outbox_log (id)",
    "CREATE TEMPORARY TABLE words AS SELECT 1 AS word",
    "CREATE TEMP VIEW words AS SELECT 1 AS word",
    "CREATE TEMP TRIGGER quiet AFTER INSERT ON words BEGIN DELETE FROM words; END",
];

#[test]
fn w2_user_sql_cannot_end_or_bypass_its_transaction() {
    let manual = Manual::new();
    for sql in FORBIDDEN {
        let failed = manual.transaction(move |tx| {
            say(tx, "half")?;
            tx.execute(sql, [])
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid, "{sql}");
        let queried = manual.transaction(move |tx| {
            say(tx, "half")?;
            tx.query(sql, [], |row| row.get::<i64>(0))
        });
        assert_eq!(queried.unwrap_err().kind(), ErrorKind::Invalid, "{sql} as a query");
    }
    assert!(manual.words().is_empty());
}

#[test]
fn w2_a_temporary_table_cannot_stand_in_front_of_ours_however_it_is_spelt() {
    let manual = Manual::new();
    for sql in [
        "CREATE TABLE temp.outbox_log AS SELECT * FROM main.outbox_log",
        "CREATE TABLE temp.words (word)",
        "CREATE VIEW temp.words AS SELECT 1 AS word",
        "CREATE VIRTUAL TABLE temp.words USING fts5 (word)",
        "CREATE TRIGGER temp.quiet AFTER INSERT ON words BEGIN DELETE FROM words; END",
    ] {
        let kind = manual.transaction(move |tx| tx.execute(sql, [])).map_err(|error| error.kind());
        let db = manual.db.clone();
        manual.transaction(move |tx| db.append(tx, &message(&db, "m"))).unwrap();
        assert!(now(status(&manual.db, "m")).is_some(), "{sql}: the message went elsewhere");
        assert_eq!(kind, Err(ErrorKind::Invalid), "{sql}");
    }
}

#[test]
fn s4_a_swallowed_refusal_cannot_commit_half_an_effect() {
    let manual = Manual::new();
    for sql in FORBIDDEN {
        let swallowed = manual.transaction(move |tx| {
            say(tx, "half")?;
            assert_eq!(tx.execute(sql, []).unwrap_err().kind(), ErrorKind::Invalid, "{sql}");
            Ok(())
        });
        assert_eq!(swallowed.unwrap_err().kind(), ErrorKind::TransactionFailed, "{sql}");
    }
    assert!(manual.words().is_empty());
    manual.transaction(|tx| say(tx, "whole")).expect("the writer goes on");
    assert_eq!(manual.words(), ["whole"]);
}

#[test]
fn w2_neither_can_sql_that_looks_like_the_writers_own() {
    let manual = Manual::new();
    // The writer has run its own BEGIN and COMMIT on this connection many times by now.
    for _ in 0..3 {
        manual.transaction(|tx| tx.execute("DELETE FROM words", [])).unwrap();
    }
    for sql in ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"] {
        let failed = manual.transaction(move |tx| tx.execute(sql, []));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid, "{sql}");
    }
}

#[test]
fn s4_an_error_outside_a_savepoint_sticks() {
    let manual = Manual::new();
    let swallowed = manual.transaction(|tx| {
        say(tx, "before")?;
        assert!(tx.execute("INSERT INTO nowhere VALUES (1)", []).is_err());
        let later = [
            say(tx, "later").unwrap_err(),
            tx.query("SELECT 1", [], |row| row.get::<i64>(0)).unwrap_err(),
            tx.query_optional("SELECT 1", [], |row| row.get::<i64>(0)).unwrap_err(),
            tx.savepoint(|tx| say(tx, "later")).unwrap_err(),
        ];
        assert!(later.iter().all(|error| error.kind() == ErrorKind::TransactionFailed));
        Ok(())
    });
    assert_eq!(swallowed.unwrap_err().kind(), ErrorKind::TransactionFailed);
    assert!(manual.words().is_empty());
}

#[test]
fn s4_an_error_inside_a_savepoint_does_not_stick() {
    let manual = Manual::new();
    let kept: Result<usize> = manual.transaction(|tx| {
        say(tx, "before")?;
        let failed: Result<()> = tx.savepoint(|tx| {
            say(tx, "inside")?;
            say(tx, "before")
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Statement);
        // Not even swallowing an error inside the savepoint can keep its other half.
        let swallowed: Result<()> = tx.savepoint(|tx| {
            say(tx, "inside")?;
            drop(tx.execute("PRAGMA user_version", []));
            Ok(())
        });
        assert_eq!(swallowed.unwrap_err().kind(), ErrorKind::TransactionFailed);
        tx.savepoint(|tx| say(tx, "kept"))?;
        tx.execute("INSERT INTO words (word) VALUES ('later')", [])
    });
    assert_eq!(kept.unwrap(), 1);
    assert_eq!(manual.words(), ["before", "kept", "later"]);
}

#[test]
fn s4_an_error_of_the_reader_is_not_one_of_the_statement() {
    let manual = Manual::new();
    manual
        .transaction(|tx| {
            say(tx, "text")?;
            let error = tx.query("SELECT word FROM words", [], |row| row.get::<i64>(0)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Undecodable);
            say(tx, "more")
        })
        .unwrap();
    assert_eq!(manual.words(), ["more", "text"]);
}

#[test]
fn w8_calling_the_database_from_inside_its_transaction_is_an_error_and_no_deadlock() {
    let manual = Manual::new();
    let db = manual.db.clone();
    let outer = manual.transaction(move |tx| {
        say(tx, "outer")?;
        let inner = now(db.transaction::<(), Error, _>(|tx| say(tx, "inner")));
        assert_eq!(inner.unwrap_err().kind(), ErrorKind::Reentrant);
        let read = now(db.message_status(&MessageId::new("m")?));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Reentrant);
        assert!(!db.step(), "a step inside a step does nothing");
        say(tx, "still here")
    });
    outer.unwrap();
    assert_eq!(manual.words(), ["outer", "still here"]);
}

#[tokio::test]
async fn w8_also_on_the_writers_own_thread() {
    let place = Place::new();
    let db = place.open().await;
    let inside = db.clone();
    let refused = db
        .transaction::<_, Error, _>(move |tx| {
            say(tx, "outer")?;
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let inner = runtime.block_on(inside.transaction::<(), Error, _>(|tx| say(tx, "inner")));
            Ok(inner.unwrap_err().kind())
        })
        .await;
    assert_eq!(refused.unwrap(), ErrorKind::Reentrant);
    assert_eq!(words(&place), ["outer"]);
    // Outside of it the same handle works again.
    db.transaction::<_, Error, _>(|tx| say(tx, "next")).await.unwrap();
}
