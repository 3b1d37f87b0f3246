//! The end of the log: our own writer, a stranger who writes behind its back, and a relay that must find everything.

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;
use tokio::sync::Notify;
use twobox_core::ports::{LaneLease, LaneStore as _, LogStore as _, ReadLog, TakeLanes};
use twobox_core::{Destination, Error, Source};
use twobox_sqlite::Sqlite;

use super::explore::{ensure, violated};
use super::place::{Place, Stranger, message};
use super::time::{Time, below};

/// A message through the store and one of the stranger. What matters is the last: of any before it the relay is told
/// again.
const ALL: usize = 2;

pub(super) fn scenario(place: &Place) {
    let (file, time) = (place.file(), Time::default());
    let stranger = file.stranger();
    let db = file.open(&time, |builder| builder);
    let lanes = block_on(lanes(&db)).unwrap_or_else(|error| violated(error.chain()));
    let reader = thread::spawn({
        let db = db.clone();
        move || block_on(read(&db, &lanes)).unwrap_or_else(|error| violated(error.chain()))
    });
    let begun = Arc::new(Notify::new());
    let caller = thread::spawn({
        let (db, time, begun) = (db.clone(), time.clone(), Arc::clone(&begun));
        move || enqueue(&db, &time, begun)
    });
    let foreign = thread::spawn({
        let (db, stranger) = (db.clone(), stranger.clone());
        move || enqueue_foreign(&db, &stranger, &begun)
    });
    join(caller);
    join(foreign);
    let found = join(reader);
    drop(db);
    let there = stranger.texts("SELECT message_id FROM outbox_log ORDER BY seq");
    ensure(found == there, || format!("the log has {there:?}, the relay has found {found:?}"));
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| violated("a thread panicked"))
}

fn enqueue(db: &Sqlite, time: &Time, begun: Arc<Notify>) {
    let (into, message) = (db.clone(), Arc::new(message(time, "ours")));
    let appended = db.transaction::<_, Error, _>(move |tx| {
        begun.notify_one();
        into.append(tx, &message)
    });
    block_on(appended).unwrap_or_else(|error| violated(error.chain()));
}

fn enqueue_foreign(db: &Sqlite, stranger: &Stranger, begun: &Notify) {
    if below(4) > 0 {
        // Otherwise he would nearly always be first: it is a long way to our own commit.
        block_on(begun.notified());
    }
    stranger.write(
        "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload) \
         VALUES ('foreign', 'shop', 'billing', 'Pay', '{}')",
    );
    db.notice_foreign_commit();
}

/// Reads as a relay does: only when told that there may be more, and then to the end.
async fn read(db: &Sqlite, lanes: &[LaneLease<i64>]) -> Result<Vec<String>, Error> {
    let (mut found, mut after, mut seen, mut more) = (Vec::new(), 0, 0, false);
    while found.len() < ALL {
        if !more {
            seen = db.changed(seen).await;
        }
        let read = ReadLog { after, until: None, lanes: lanes.to_vec(), scan_max: 2, bytes_max: 1 << 20 };
        let chunk = db.read_log(read).await?;
        more = chunk.more;
        for entry in chunk.entries {
            ensure(entry.position > after, || format!("{} was read again", entry.position));
            after = entry.position;
            found.push(entry.message.map_or_else(|undecodable| undecodable.error, |it| it.id.to_string()));
        }
        db.make_durable(lanes[0].epoch, &after).await?;
    }
    Ok(found)
}

async fn lanes(db: &Sqlite) -> Result<Vec<LaneLease<i64>>, Error> {
    let take = TakeLanes {
        owner: "relay".into(),
        source: Source::new("shop")?,
        destinations: vec![Destination::new("billing")?],
        everywhere: false,
        lease: Duration::from_secs(60),
        retries_max: 5,
        route_grace: Duration::from_secs(600),
    };
    db.take_lanes(&take).await
}
