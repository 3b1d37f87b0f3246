//! What several test binaries need.

use std::sync::Arc;

use tempfile::TempDir;
use twobox_core::{
    Destination, Message, MessageId, NewMessage, Payload, Random, Refusal, Response, Result, Source, Stamp,
};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};
use twobox_testkit::ManualClock;
use twobox_testkit::conformance::{HandlerScript, StoreFixture};

/// A database of its own for every test.
pub(crate) struct SqliteFixture {
    directory: TempDir,
    db: Sqlite,
    clock: Arc<ManualClock>,
    random: Arc<dyn Random>,
}

impl SqliteFixture {
    async fn open(directory: TempDir, clock: Arc<ManualClock>, random: Arc<dyn Random>) -> Self {
        let builder = Sqlite::builder().clock(Arc::clone(&clock) as _).random(Arc::clone(&random));
        let db = builder.open(directory.path().join("boxes.db")).await.unwrap();
        db.migrate().await.unwrap();
        let create = "CREATE TABLE IF NOT EXISTS effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)";
        db.transaction::<_, twobox_core::Error, _>(|tx| tx.execute(create, [])).await.unwrap();
        Self { directory, db, clock, random }
    }

    async fn query<T: Send + 'static>(
        &self,
        sql: &'static str,
        parameter: String,
        read: impl Fn(&twobox_sqlite::Row<'_>) -> Result<T> + Send + Sync + 'static,
    ) -> Vec<T> {
        self.db
            .transaction::<_, twobox_core::Error, _>(move |tx| tx.query(sql, [&parameter], &read))
            .await
            .unwrap()
    }
}

impl StoreFixture for SqliteFixture {
    type Store = Sqlite;

    async fn start(clock: Arc<ManualClock>, random: Arc<dyn Random>) -> Self {
        Self::open(tempfile::tempdir().unwrap(), clock, random).await
    }

    async fn reopen(self) -> Self {
        let Self { directory, db, clock, random } = self;
        drop(db);
        Self::open(directory, clock, random).await
    }

    fn store(&self) -> &Sqlite {
        &self.db
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn append(&self, messages: Vec<Message>) -> Result<()> {
        let db = self.db.clone();
        self.db.transaction(move |tx| messages.iter().try_for_each(|message| db.append(tx, message))).await
    }

    async fn append_and_roll_back(&self, messages: Vec<Message>) {
        let db = self.db.clone();
        let result: Result<()> = self
            .db
            .transaction(move |tx| {
                messages.iter().try_for_each(|message| db.append(tx, message))?;
                Err(twobox_core::Error::invalid("changed my mind"))
            })
            .await;
        assert!(result.is_err());
    }

    async fn append_undecodable(&self, source: &Source, destination: &Destination) {
        let (source, destination) = (source.to_string(), destination.to_string());
        let sql = "INSERT INTO outbox_log (source, destination, endpoint, payload, headers) \
                   VALUES (?1, ?2, 'Pay', x'ff', 'no json')";
        let insert = move |tx: &mut SqliteTx<'_>| tx.execute(sql, [&source, &destination]);
        self.db.transaction::<_, twobox_core::Error, _>(insert).await.unwrap();
    }

    async fn spoil_work(&self, id: &str) {
        let id = id.to_owned();
        let sql = "UPDATE inbox_queue SET headers = 'no json' \
                   WHERE item_id IN (SELECT row_id FROM inbox WHERE message_id = ?1)";
        let spoil = move |tx: &mut SqliteTx<'_>| tx.execute(sql, [&id]);
        let spoilt = self.db.transaction::<_, twobox_core::Error, _>(spoil).await.unwrap();
        assert_eq!(spoilt, 1, "there is no such row");
    }

    fn handler(&self, script: HandlerScript) -> SqliteHandler {
        let (db, stamp) = (self.db.clone(), self.stamp());
        SqliteHandler::new(move |tx, message| {
            if let HandlerScript::Large(bytes) = script {
                return Ok(Response {
                    content_type: "text/plain".into(),
                    body: Payload::new(vec![b'x'; bytes]),
                });
            }
            tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
            match &script {
                HandlerScript::EffectThenRetry => return Err(Refusal::retry("not now")),
                HandlerScript::EffectThenRetryAfter(delay) => {
                    return Err(Refusal::retry_after(*delay, "not now"));
                }
                HandlerScript::EffectThenReject => return Err(Refusal::reject("never")),
                HandlerScript::EffectThenPanic => panic!("a handler's own mistake"),
                HandlerScript::EffectThenSwallow => drop(tx.execute("INSERT INTO nowhere VALUES (1)", [])),
                HandlerScript::EffectThenSpoil => {
                    drop(tx.execute("INSERT OR ROLLBACK INTO effects (n, id) VALUES (NULL, NULL)", []));
                    drop(tx.execute("INSERT INTO effects (id) VALUES ('after the rollback')", []));
                }
                HandlerScript::EffectAndFollowUp(destination) => {
                    let new = NewMessage::json(destination.as_str(), "Next", &1)?;
                    db.append(tx, &stamp.message(&new)?)?;
                }
                HandlerScript::Effect | HandlerScript::Large(_) => {}
            }
            Ok(Response { content_type: message.content_type.clone(), body: message.payload.clone() })
        })
    }

    async fn effects(&self) -> Vec<String> {
        self.query("SELECT id FROM effects WHERE ?1 = '' ORDER BY n", String::new(), |row| row.get(0)).await
    }

    async fn status(&self, id: &str) -> Option<(String, u32)> {
        let sql = "SELECT status, retry_count FROM outbox_messages WHERE message_id = ?1";
        let row =
            self.query(sql, id.into(), |row| Ok((row.get::<String>(0)?, row.get::<u32>(1)?))).await.pop();
        let found = self.db.message_status(&MessageId::new(id).unwrap()).await.unwrap();
        let found = found.map(|found| (found.status, found.attempts));
        assert_eq!(row, found, "looking up by id and reading the view must agree");
        row
    }

    async fn log_rows(&self) -> u64 {
        let sql = "SELECT count(*) FROM outbox_log WHERE ?1 = ''";
        let rows = self.query(sql, String::new(), |row| row.get::<i64>(0)).await;
        u64::try_from(rows[0]).unwrap()
    }
}

impl SqliteFixture {
    fn stamp(&self) -> Stamp {
        Stamp::new(Source::new("shop").unwrap(), self.db.clock(), self.db.random())
    }
}
