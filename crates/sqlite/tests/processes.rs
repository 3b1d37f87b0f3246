//! Several processes work on one queue at the same time, and wait for each other (IBX-104, IBX-105, IBX-106).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use twobox_core::ports::{Enqueued, InboxStatus, MessageKey, Queue, QueueStore, Work, WorkFilter};
use twobox_core::{Consumer, Error, NewMessage, OrderingKey, Source, Stamp};
use twobox_sqlite::Sqlite;
use twobox_testkit::example;

const MESSAGES: usize = 300;
const KEYS: usize = 7;
/// Two processes cannot do it all, even with what they let lie.
const SHARE: usize = 105;

async fn open(path: &Path) -> Sqlite {
    let db = Sqlite::open(path).await.unwrap();
    db.migrate().await.unwrap();
    let create = "CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL, worker TEXT NOT NULL)";
    db.transaction::<_, Error, _>(|tx| tx.execute(create, [])).await.unwrap();
    db
}

/// Every second message has an ordering key. Returns place and key of each id.
async fn enqueue(db: &Sqlite, queue: &Queue) -> BTreeMap<String, (usize, Option<usize>)> {
    let stamp = Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random());
    let mut ids = BTreeMap::new();
    for n in 0..MESSAGES {
        let key = (n % 2 == 0).then_some(n / 2 % KEYS);
        let mut message = stamp.message(&NewMessage::json("billing", "Pay", &n).unwrap()).unwrap();
        message.ordering_key = key.map(|key| OrderingKey::new(format!("k{key}")).unwrap());
        ids.insert(message.id.to_string(), (n, key));
        let queued = db.enqueue_work(queue, &Work { message, hash: None }).await.unwrap();
        assert_eq!(queued, Enqueued::New);
    }
    ids
}

fn start(path: &Path, name: &str) -> Child {
    let (path, share) = (path.to_str().unwrap(), SHARE.to_string());
    Command::new(example("queue_worker")).args([path, name, &share]).stdin(Stdio::piped()).spawn().unwrap()
}

#[tokio::test]
async fn ibx_104_ibx_105_ibx_106_processes_on_one_file_have_each_effect_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("boxes.db");
    let db = open(&path).await;
    let queue = Queue::new(Consumer::new("billing").unwrap());
    let ids = enqueue(&db, &queue).await;
    let mut workers = ["a", "b", "c"].map(|name| start(&path, name));
    for worker in &mut workers {
        worker.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let effects = db
        .transaction::<_, Error, _>(|tx| {
            tx.query("SELECT id, worker FROM effects ORDER BY n", [], |row| {
                Ok((row.get::<String>(0)?, row.get::<String>(1)?))
            })
        })
        .await
        .unwrap();
    let seen: BTreeSet<_> = effects.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(effects.len(), MESSAGES, "an effect happened twice, or not at all");
    assert!(seen.iter().eq(ids.keys()));
    let workers: BTreeSet<_> = effects.iter().map(|(_, worker)| worker.as_str()).collect();
    assert_eq!(workers.len(), 3, "all of them had a part in it");
    for key in 0..KEYS {
        let places = effects.iter().map(|(id, _)| ids[id]).filter(|(_, of)| *of == Some(key));
        assert!(places.is_sorted(), "the effects of a key come in its order");
    }
    for id in ids.keys() {
        let record = db.work(&queue.consumer, &MessageKey::new("shop", id).unwrap()).await.unwrap().unwrap();
        assert_eq!(record.status, InboxStatus::Done);
    }
    assert_eq!(db.next_work(&queue.consumer).await.unwrap(), None);
    assert_eq!(db.dead_work(&queue.consumer, &WorkFilter::default(), None, 1).await.unwrap(), []);
}
