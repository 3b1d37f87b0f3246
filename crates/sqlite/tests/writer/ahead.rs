//! Dedup rows of several messages are written at once, before their handlers run (S3).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use twobox_core::ports::{Answer, Delivery, Enqueued, InboxStore, Queue, Work};
use twobox_core::{Consumer, Message, Payload, Refusal, Response, Result};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};

use crate::fixture::{Manual, batch, delivery, message, now, number, poll, say};

/// Longer than anything here takes.
const BUDGET: Duration = Duration::from_secs(600);
/// Longer than a group may take.
const LONG: Duration = Duration::from_secs(1);

impl Manual {
    /// Has deliveries handled and returns the answers, in a word each.
    fn process(&self, deliveries: Vec<Delivery<SqliteHandler>>) -> Vec<&'static str> {
        let mut answers = Box::pin(self.db.process(deliveries, BUDGET));
        assert!(poll(answers.as_mut()).is_pending());
        assert!(self.db.step());
        now(answers).unwrap().iter().map(word).collect()
    }

    fn number(&self, sql: &str) -> i64 {
        number(&self.place.path(), sql)
    }

    /// Rows of the inbox that say that they are done, and effects: never one without the other. Counters know of both.
    fn done(&self) -> usize {
        let rows = self.number("SELECT count(*) FROM inbox WHERE status = 'Done'");
        assert_eq!(rows, self.number("SELECT count(*) FROM words JOIN inbox ON message_id = word"));
        assert_eq!(rows, self.number("SELECT count(*) FROM words"));
        let counted = "SELECT coalesce(sum(done), 0) FROM inbox_peers WHERE size = done + queued";
        assert_eq!(rows, self.number(counted));
        usize::try_from(rows).unwrap()
    }

    /// Groups that had to run again.
    fn again(&self) -> u64 {
        self.db.meters().store.groups_again.get()
    }
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Duplicate(_) => "duplicate",
        Answer::Retry { .. } => "retry",
        Answer::Conflict => "conflict",
        Answer::NotReached => "not reached",
        _ => "something else",
    }
}

/// A handler that says the message's id, and then does something more.
fn handler(
    then: impl Fn(&mut SqliteTx<'_>, &str) -> Result<(), Refusal> + Send + Sync + 'static,
) -> SqliteHandler {
    SqliteHandler::new(move |tx, message| {
        say(tx, message.id.as_str())?;
        then(tx, message.id.as_str())?;
        Ok(Response::empty())
    })
}

fn plain() -> SqliteHandler {
    handler(|_, _| Ok(()))
}

#[test]
fn s3_rows_of_many_messages_stand_for_one_effect_each() {
    let manual = Manual::new();
    for count in [1, 2, 3, 7, 8, 9, 64, 100] {
        let before = manual.done();
        let deliveries: Vec<_> =
            (0..count).map(|n| delivery(&manual.db, &format!("{count}-{n}"), &plain())).collect();
        assert_eq!(manual.process(deliveries), vec!["done"; count]);
        assert_eq!(manual.done(), before + count);
    }
    assert_eq!(manual.again(), 0);
}

/// A row without its effect would be a message lost: the next delivery of it would be a duplicate.
#[test]
fn s3_rows_of_messages_whose_turn_did_not_come_are_taken_back() {
    let manual = Manual::new();
    let clock = Arc::clone(&manual.clock);
    let slow = handler(move |_, id| {
        if id.ends_with('5') {
            clock.advance(LONG);
        }
        Ok(())
    });
    assert_eq!(manual.process(batch(&manual.db, 64, &slow)), ["done"; 64], "in several groups");
    assert_eq!((manual.done(), manual.again()), (64, 0));
}

#[test]
fn s3_w7_rows_of_messages_there_is_no_time_for_are_taken_back() {
    let manual = Manual::new();
    let clock = Arc::clone(&manual.clock);
    let endless = handler(move |_, id| {
        if id == "004" {
            clock.advance(BUDGET * 2);
        }
        Ok(())
    });
    let mut expected = ["not reached"; 40];
    expected[..5].fill("done");
    assert_eq!(manual.process(batch(&manual.db, 40, &endless)), expected);
    assert_eq!(manual.done(), 5);
    expected[..5].fill("duplicate");
    expected[5..].fill("done");
    assert_eq!(manual.process(batch(&manual.db, 40, &plain())), expected);
    assert_eq!(manual.done(), 40);
}

#[test]
fn s3_known_messages_among_new_ones_are_found_out() {
    let manual = Manual::new();
    let known = |n: usize| matches!(n, 3 | 4 | 15 | 20 | 39);
    let (db, plain) = (&manual.db, plain());
    let all = || batch(db, 40, &plain);
    let first: Vec<_> = all().into_iter().enumerate().filter(|(n, _)| known(*n)).map(|(_, of)| of).collect();
    assert_eq!(manual.process(first), ["done"; 5]);
    let expected: Vec<_> = (0..40).map(|n| if known(n) { "duplicate" } else { "done" }).collect();
    assert_eq!(manual.process(all()), expected);
    assert_eq!(manual.process(all()), ["duplicate"; 40]);

    let new = |n: usize| delivery(db, &format!("new {n:02}"), &plain);
    let mut twice: Vec<_> = (0..40).map(new).collect();
    twice[9] = new(2);
    let other = Message { payload: Payload::new(&b"2"[..]), ..(*twice[1].message).clone() };
    twice[10] = Delivery { body_hash: other.payload.sha256(), message: Arc::new(other), ..new(1) };
    let mut expected = ["done"; 40];
    (expected[9], expected[10]) = ("duplicate", "conflict");
    assert_eq!(manual.process(twice), expected, "twice in one request");
    assert_eq!((manual.done(), manual.again()), (78, 0));

    let five = || (0..5).map(|n| delivery(db, &format!("five {n}"), &plain)).collect::<Vec<_>>();
    assert_eq!(manual.process(five().drain(..1).collect()), ["done"]);
    assert_eq!(
        manual.process(five()),
        ["duplicate", "done", "done", "done", "done"],
        "fewer than a statement has"
    );
    assert_eq!((manual.done(), manual.again()), (83, 0));
}

/// It hears of every row, or keeps it: none may be written that is not there to stay.
#[test]
fn s3_rows_that_triggers_hear_of_are_written_one_by_one() {
    for trigger in [
        "CREATE TRIGGER t AFTER INSERT ON Inbox BEGIN INSERT INTO heard VALUES (NEW.message_id); END",
        "CREATE TRIGGER t BEFORE DELETE ON inbox BEGIN SELECT RAISE(IGNORE); END",
    ] {
        let manual = Manual::new();
        let clock = Arc::clone(&manual.clock);
        let slow = handler(move |_, id| {
            if id.ends_with('3') {
                clock.advance(LONG);
            }
            Ok(())
        });
        let known = delivery(&manual.db, "020", &plain());
        assert_eq!(manual.process(vec![known]), ["done"]);
        assert_eq!(manual.process(batch(&manual.db, 10, &plain())), ["done"; 10], "without triggers");
        manual.place.foreign().execute_batch("CREATE TABLE heard (id)").unwrap();
        manual.place.foreign().execute_batch(trigger).unwrap();
        let answers = manual.process(batch(&manual.db, 40, &slow));
        let others = |n: &usize| *n >= 10 && *n != 20;
        assert!((0..40).filter(others).all(|n| answers[n] == "done"), "{trigger}: {answers:?}");
        assert_eq!((manual.done(), manual.again()), (40, 0), "{trigger}");
        let heard = manual.number("SELECT count(*) FROM heard");
        assert_eq!(heard, if trigger.contains("heard") { 29 } else { 0 }, "{trigger}");
    }
}

/// A handler may queue the very message that comes after its own: what stands there so far is not what became of it.
#[test]
fn s3_ibx_028_a_row_that_is_written_ahead_is_no_message_that_was_handled() {
    queues_a_later_message(Sqlite::enqueue_work_in);
}

/// Nor is it if the handler can do without: nobody goes on with an error that is not so.
#[test]
fn s3_s4_ibx_028_nor_is_it_one_in_a_savepoint_that_is_undone() {
    queues_a_later_message(|db, tx, queue, work| tx.savepoint(|tx| db.enqueue_work_in(tx, queue, work)));
}

/// Has `enqueue` queue a message whose row is written ahead, in a handler that succeeds whatever comes of it.
fn queues_a_later_message(
    enqueue: impl Fn(&Sqlite, &mut SqliteTx<'_>, &Queue, &Work) -> Result<Enqueued> + Send + Sync + 'static,
) {
    let manual = Manual::new();
    let (db, seen) = (manual.db.clone(), Arc::new(Mutex::new(Vec::new())));
    let queue = Queue::new(Consumer::new("billing").unwrap());
    let saw = Arc::clone(&seen);
    let queueing = handler(move |tx, id| {
        if id == "002" {
            let work = Work { message: message(&db, "005"), hash: None };
            let enqueued = enqueue(&db, tx, &queue, &work);
            *saw.lock().unwrap() = vec![enqueued.ok()]; // of the turn that counts
        }
        Ok(())
    });
    let mut expected = ["done"; 8];
    expected[5] = "duplicate";
    assert_eq!(manual.process(batch(&manual.db, 8, &queueing)), expected);
    let as_if_alone = [Some(Enqueued::New)];
    assert_eq!(*seen.lock().unwrap(), as_if_alone, "as if every message had been delivered alone");
    assert_eq!((manual.done(), manual.again()), (7, 1));
}

#[test]
fn s3_s4_one_that_fails_leaves_nothing_and_its_neighbours_are_done() {
    let manual = Manual::new();
    let failing = handler(|_, id| if id == "020" { Err(Refusal::retry("no ink")) } else { Ok(()) });
    let mut expected = ["done"; 40];
    expected[20] = "retry";
    assert_eq!(manual.process(batch(&manual.db, 40, &failing)), expected);
    assert_eq!(manual.done(), 39);
    assert_eq!(manual.process(batch(&manual.db, 21, &plain()))[20], "done");
}

/// Handlers may write whatever they want; not, however, that a message was handled that was not.
#[test]
fn s3_a_row_that_a_handler_has_changed_is_noticed() {
    for change in [
        "DELETE FROM inbox WHERE message_id = '020'",
        "UPDATE inbox SET message_id = 'x' WHERE message_id = '020'",
        "UPDATE inbox SET row_id = 1000000 WHERE message_id = '020'",
        "UPDATE inbox SET status = 'Processing' WHERE message_id = '020'",
        "DELETE FROM inbox WHERE message_id IN ('020', '022')",
    ] {
        let manual = Manual::new();
        let vandal = handler(move |tx, id| {
            if id == "020" {
                tx.execute(change, [])?;
            }
            Ok(())
        });
        let mut expected = ["done"; 40];
        expected[20] = "retry";
        assert_eq!(manual.process(batch(&manual.db, 40, &vandal)), expected, "{change}");
        assert_eq!(manual.done(), 39, "{change}");
    }
}

/// What a handler answers otherwise than usual is stored, and told again.
#[test]
fn rf_08_every_message_keeps_its_own_response() {
    let manual = Manual::new();
    let odd = SqliteHandler::new(|tx, message| {
        say(tx, message.id.as_str())?;
        let is_odd = message.id.as_str().ends_with('1');
        Ok(if is_odd { Response::json(&message.id.as_str())? } else { Response::empty() })
    });
    let mut expected = ["done"; 32];
    assert_eq!(manual.process(batch(&manual.db, 32, &odd)), expected);
    assert_eq!((manual.done(), manual.again()), (32, 0));
    assert_eq!(manual.number("SELECT count(*) FROM inbox WHERE response = x''"), 28);
    assert_eq!(manual.number("SELECT count(*) FROM inbox WHERE CAST(response AS TEXT) LIKE '\"0_1\"'"), 4);
    expected.fill("duplicate");
    assert_eq!(manual.process(batch(&manual.db, 32, &odd)), expected);
}
