//! The inbox: a row per message, written first, in one transaction with the handler's effects.

mod ahead;
mod dedup;
pub(crate) mod handle;
pub(crate) mod job;
pub(crate) mod peers;
mod unwritable;

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use twobox_core::ports::{Answer, Delivery, InboxRecord, InboxStore};
use twobox_core::{
    Consumer, Error, ErrorKind, HandlerResult, Message, MessageId, Refusal, Response, Result, Source,
};

use self::job::ProcessJob;
use crate::error::wrap;
use crate::{Sqlite, SqliteTx};

type HandlerFn = dyn Fn(&mut SqliteTx<'_>, &Message) -> HandlerResult + Send + Sync;

/// What handles a message on SQLite: a function of the transaction and the message.
///
/// It runs on the writer, so it must be quick, and it may run again if a neighbour spoils the shared
/// transaction. Effects written through the transaction happen exactly once.
#[derive(Clone)]
pub struct SqliteHandler {
    handle: Arc<HandlerFn>,
    /// Shared, because every message has a copy of its handler.
    usual: Arc<Response>,
    /// Whether it only answers for what this very delivery has done before its transaction.
    answers: bool,
}

impl SqliteHandler {
    /// Wraps a function.
    pub fn new(
        handle: impl Fn(&mut SqliteTx<'_>, &Message) -> HandlerResult + Send + Sync + 'static,
    ) -> Self {
        Self { handle: Arc::new(handle), usual: Arc::new(Response::empty()), answers: false }
    }

    /// Says what it usually answers. Default: [`Response::empty`].
    ///
    /// The row of a message is written before its handler runs, with this as its response; only a handler that answers
    /// something else has it written again. Rows of several messages may be written together: to a handler that reads the
    /// inbox, up to seven messages that come after its own may look as if they were handled.
    #[must_use]
    pub fn usually(mut self, response: Response) -> Self {
        self.usual = Arc::new(response);
        self
    }

    /// Runs it, for a handler that is made of another one.
    ///
    /// # Errors
    /// The handler's own refusal.
    pub fn call(&self, tx: &mut SqliteTx<'_>, message: &Message) -> HandlerResult<Response> {
        (self.handle)(tx, message)
    }
}

impl std::fmt::Debug for SqliteHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteHandler").finish_non_exhaustive()
    }
}

impl InboxStore for Sqlite {
    type Handler = SqliteHandler;

    fn refusing(refusal: Refusal) -> SqliteHandler {
        SqliteHandler::new(move |_, _| Err(refusal.clone()))
    }

    fn answering(response: Response) -> SqliteHandler {
        SqliteHandler { answers: true, ..SqliteHandler::new(move |_, _| Ok(response.clone())) }
    }

    async fn process(
        &self,
        deliveries: Vec<Delivery<SqliteHandler>>,
        budget: Duration,
    ) -> Result<Vec<Answer>> {
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        if self.shared().is_unwritable() {
            return unwritable::process(self, deliveries, budget).await;
        }
        self.handle(deliveries, budget).await
    }

    async fn inbox_record(
        &self,
        consumer: &Consumer,
        source: &Source,
        id: &MessageId,
    ) -> Result<Option<InboxRecord>> {
        let names = [consumer.to_string(), source.to_string(), id.to_string()];
        self.read(move |connection, sql| {
            let failed = || wrap("look up an inbox row");
            let peer: Option<i64> = connection
                .prepare_cached(&sql.peer_get)
                .and_then(|mut statement| {
                    statement.query_row(params![names[0], names[1]], |row| row.get(0)).optional()
                })
                .map_err(failed())?;
            let Some(peer) = peer else { return Ok(None) };
            let found = handle::record(connection, sql, peer, &names[2]).map_err(failed())?;
            Ok(found.map(|found| found.record))
        })
        .await
    }
}

impl Sqlite {
    /// Handles deliveries on the writer.
    async fn handle(
        &self,
        deliveries: Vec<Delivery<SqliteHandler>>,
        budget: Duration,
    ) -> Result<Vec<Answer>> {
        let (job, receiver) = ProcessJob::new(&self.options, deliveries, budget);
        self.submit(job).await?;
        let (answers, _) =
            receiver.await.map_err(|_| Error::new(ErrorKind::Stopped, "the database is closed"))?;
        answers
    }
}
