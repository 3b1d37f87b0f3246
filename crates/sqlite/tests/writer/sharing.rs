//! One file, one writer, however often it is opened (W4, ADR-06).

use std::sync::{Arc, mpsc};
use std::time::Duration;

use twobox_core::message::PAYLOAD_BYTES_MAX;
use twobox_core::ports::{Answer, Delivery, Enqueued, InboxStore, Queue, QueueStore, Treatment, Work};
use twobox_core::{Consumer, Error, ErrorKind, Response};
use twobox_sqlite::{Drive, Durability, Prefix, Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::ManualClock;

use crate::fixture::{Manual, Place, commits, message, now, number, poll, say, status, words};

/// W4, IBX-123: opening a file again costs nothing and makes nothing anew.
#[test]
fn w4_a_file_that_is_opened_twice_has_one_writer() {
    let manual = Manual::new();
    let builder = || Sqlite::builder().drive(Drive::Manual);
    let second = now(builder().open(manual.place.path())).unwrap();
    let before = commits(&manual.place.path());
    let first_word = manual.queue(|tx| say(tx, "first"));
    let mut second_word = std::pin::pin!(second.transaction::<_, Error, _>(|tx| say(tx, "second")));
    assert!(poll(second_word.as_mut()).is_pending());
    assert!(second.step(), "whoever steps, steps for both");
    now(first_word).unwrap();
    now(second_word).unwrap();
    assert_eq!(commits(&manual.place.path()), before + 1);
    assert_eq!(manual.words(), ["first", "second"]);
}

#[cfg(unix)]
#[test]
fn w4_also_under_another_name() {
    let manual = Manual::new();
    let link = manual.place.file("link.db");
    std::os::unix::fs::symlink(manual.place.path(), &link).unwrap();
    let second = now(Sqlite::builder().drive(Drive::Manual).open(link)).unwrap();
    let queued = manual.queue(|tx| say(tx, "first"));
    assert!(second.step());
    now(queued).unwrap();
}

#[tokio::test]
async fn w4_a_second_handle_must_agree_on_durability_and_drive() {
    let place = Place::new();
    let first = place.open().await;
    let relaxed = Sqlite::builder().durability(Durability::ProcessCrash).open(place.path()).await;
    assert_eq!(relaxed.unwrap_err().kind(), ErrorKind::Misconfigured);
    let manual = Sqlite::builder().drive(Drive::Manual).open(place.path()).await;
    assert_eq!(manual.unwrap_err().kind(), ErrorKind::Misconfigured);
    drop(first);
    // Nobody has it open any more, so whoever opens it decides.
    Sqlite::builder().durability(Durability::ProcessCrash).open(place.path()).await.unwrap();
}

/// Which files of the database this process has open.
#[cfg(target_os = "linux")]
fn open_files(place: &Place) -> Vec<std::path::PathBuf> {
    let of_place = |path: &std::path::PathBuf| path.starts_with(place.path().parent().unwrap());
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter_map(|link| std::fs::read_link(link.path()).ok()).filter(of_place).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn w4_dropping_the_last_handle_finishes_and_closes_the_file() {
    for round in 0..20 {
        let place = Place::new();
        let db = place.open().await;
        assert_eq!(status(&db, "m").await, None); // so that a reader has it open as well
        let second = db.clone();
        let (busy, until) = mpsc::channel::<()>();
        let work = move |tx: &mut SqliteTx<'_>| {
            until.recv().unwrap_err(); // or it may be done before it is polled
            say(tx, "queued")
        };
        let mut queued = Box::pin(db.transaction::<_, Error, _>(work));
        assert!(poll(queued.as_mut()).is_pending());
        drop(queued);
        drop(busy);
        drop((db, second));
        assert_eq!(open_files(&place), Vec::<std::path::PathBuf>::new(), "round {round}");
        assert_eq!(words(&place), ["queued"]);
    }
}

#[tokio::test]
async fn w4_a_second_handle_keeps_the_writers_time() {
    let place = Place::new();
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(3600));
    let _first = place.open_with(Sqlite::builder().clock(clock)).await;
    // Its own clock starts at zero, where the deadline of a request would have passed an hour ago.
    let second = place.open().await;
    let handler = SqliteHandler::new(|tx, message| {
        say(tx, message.id.as_str())?;
        Ok(Response::empty())
    });
    let message = message(&second, "m");
    let body_hash = message.payload.sha256();
    let consumer = Consumer::new("billing").unwrap();
    let delivery =
        Delivery { message: Arc::new(message), consumer, body_hash, treatment: Treatment::Handle(handler) };
    let answers = second.process(vec![delivery], Duration::from_secs(1)).await.unwrap();
    assert_eq!(answers, [Answer::Done(Some(Response::empty()))]);
    assert_eq!(words(&place), ["m"]);
}

fn prefixed(prefix: &str) -> twobox_sqlite::SqliteBuilder {
    Sqlite::builder().drive(Drive::Manual).prefix(Prefix::new(prefix).unwrap())
}

#[test]
fn adr_06_two_prefixes_in_one_file_are_independent_and_share_one_writer() {
    let manual = Manual::new();
    let path = manual.place.path();
    let sales = now(prefixed("sales_").open(&path)).unwrap();
    let stock = now(prefixed("stock_").open(&path)).unwrap();
    for db in [&sales, &stock] {
        let mut migrated = std::pin::pin!(db.migrate());
        assert!(poll(migrated.as_mut()).is_pending());
        assert!(db.step());
        now(migrated).unwrap();
    }
    let before = commits(&path);
    let mut appends: Vec<_> = [(&sales, "of sales"), (&stock, "of stock"), (&manual.db, "of nobody")]
        .into_iter()
        .map(|(db, id)| {
            let inside = db.clone();
            Box::pin(db.transaction::<_, Error, _>(move |tx| inside.append(tx, &message(&inside, id))))
        })
        .collect();
    assert!(appends.iter_mut().all(|append| poll(append.as_mut()).is_pending()));
    assert!(manual.db.step());
    appends.into_iter().for_each(|append| now(append).unwrap());
    assert_eq!(commits(&path), before + 1);

    for (db, table, id) in [
        (&sales, "sales_outbox_log", "of sales"),
        (&stock, "stock_outbox_log", "of stock"),
        (&manual.db, "outbox_log", "of nobody"),
    ] {
        assert_eq!(number(&path, &format!("SELECT count(*) FROM {table}")), 1);
        assert_eq!(now(status(db, id)).unwrap(), ("Pending".into(), 1));
        let others = ["of sales", "of stock", "of nobody"].into_iter().filter(|other| *other != id);
        others.for_each(|other| assert_eq!(now(status(db, other)), None));
    }
}

/// What a group remembers of one pair of boxes says nothing about another.
#[test]
fn adr_06_a_group_keeps_the_sources_and_counters_of_two_prefixes_apart() {
    let manual = Manual::new();
    let path = manual.place.path();
    let sales = now(prefixed("sales_").open(&path)).unwrap();
    let mut migrated = std::pin::pin!(sales.migrate());
    assert!(poll(migrated.as_mut()).is_pending());
    assert!(sales.step());
    now(migrated).unwrap();
    // The row of `shop` is the first of one and the second of the other.
    let sql = "INSERT INTO sales_inbox_peers (consumer, source) VALUES ('billing', 'another')";
    manual.place.foreign().execute_batch(sql).unwrap();
    let queue = Queue::new(Consumer::new("billing").unwrap());
    let before = commits(&path);
    let works: Vec<_> = ["a", "b"].map(|id| Work { message: message(&sales, id), hash: None }).into();
    let mut queued: Vec<_> = [(&manual.db, 0), (&sales, 0), (&manual.db, 1)]
        .into_iter()
        .map(|(db, at)| Box::pin(db.enqueue_work(&queue, &works[at])))
        .collect();
    assert!(queued.iter_mut().all(|queued| poll(queued.as_mut()).is_pending()));
    assert!(manual.db.step());
    for queued in queued {
        assert_eq!(now(queued).unwrap(), Enqueued::New);
    }
    assert_eq!(commits(&path), before + 1);

    for (prefix, peers) in
        [("", [("shop", 2)].as_slice()), ("sales_", [("another", 0), ("shop", 1)].as_slice())]
    {
        for (source, messages) in peers {
            let of_source = format!("FROM {prefix}inbox_peers WHERE source = '{source}'");
            for counter in ["size", "queued"] {
                assert_eq!(
                    number(&path, &format!("SELECT {counter} {of_source}")),
                    *messages,
                    "{prefix}{source}"
                );
            }
            let rows =
                format!("SELECT count(*) FROM {prefix}inbox WHERE peer_id = (SELECT peer_id {of_source})");
            assert_eq!(number(&path, &rows), *messages, "{prefix}{source}");
        }
    }
}

#[test]
fn adr_06_a_commit_wakes_the_boxes_it_concerns() {
    use twobox_core::ports::LogStore;
    let manual = Manual::new();
    let sales = now(prefixed("sales_").open(manual.place.path())).unwrap();
    let mut migrated = std::pin::pin!(sales.migrate());
    assert!(poll(migrated.as_mut()).is_pending());
    assert!(sales.step());
    now(migrated).unwrap();
    let seen = (0..).take_while(|seen| poll(std::pin::pin!(sales.changed(*seen))).is_ready()).last();
    let seen = seen.map_or(0, |seen| seen + 1);
    let mut changed = std::pin::pin!(sales.changed(seen));
    let db = manual.db.clone();
    manual.transaction(move |tx| db.append(tx, &message(&db, "of nobody"))).unwrap();
    assert!(poll(changed.as_mut()).is_pending(), "somebody else's message woke it");
    let db = sales.clone();
    let mut append =
        std::pin::pin!(sales.transaction::<_, Error, _>(move |tx| db.append(tx, &message(&db, "m"))));
    assert!(poll(append.as_mut()).is_pending());
    assert!(sales.step());
    now(append).unwrap();
    assert!(poll(changed).is_ready());
}

#[tokio::test]
async fn s10_responses_that_no_sender_could_read_are_refused_beforehand() {
    let place = Place::new();
    let open = |bytes| Sqlite::builder().response_bytes_max(bytes).open(place.path());
    let refused = open(PAYLOAD_BYTES_MAX + 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(refused.to_string().contains("response_bytes_max"), "{refused}");
    open(PAYLOAD_BYTES_MAX).await.unwrap();
}
