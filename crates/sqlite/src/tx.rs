//! The transaction that closures and handlers are given.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, RowIndex};
use twobox_core::meters::MESSAGES;
use twobox_core::{Consumer, Error, ErrorKind, Message, Result, Source, mutant};

use crate::error::{is_trouble, wrap};
use crate::guard::Guard;
use crate::inbox::peers::Counts;
use crate::kept::{Counted, Kept};
use crate::recent::{Appended, Generation};
use crate::shared::{BoxState, FileId};
use crate::sql::Sql;

/// What others want to hear of once it is committed.
pub(crate) enum News {
    /// A message was appended to a log of this file: relays may have it.
    InLog { log: Arc<BoxState>, generation: Generation, appended: Appended },
    /// There is something to do in a queue of this file.
    Work(Arc<BoxState>),
    /// A lane was paused or resumed.
    Steered(Arc<BoxState>),
}

impl News {
    /// Whether whoever heard this needs not hear the other one.
    fn says_it_all(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Work(queue), Self::Work(other)) if Arc::ptr_eq(queue, other))
    }

    /// The log that has grown, if this is about one.
    pub(crate) fn log(&self) -> Option<&Arc<BoxState>> {
        match self {
            Self::InLog { log, .. } => Some(log),
            Self::Work(_) | Self::Steered(_) => None,
        }
    }

    /// Tells. Returns whether other processes have to hear of it as well.
    pub(crate) fn publish(self) -> bool {
        match self {
            Self::InLog { log, generation, appended } => {
                tell_enqueued(&appended.1);
                log.recent.push(generation, appended);
                false // the log's own end says so
            }
            Self::Work(queue) => {
                queue.tell_work();
                true
            }
            Self::Steered(lanes) => {
                lanes.tell_steered();
                true
            }
        }
    }
}

/// Says that a message is in the log for good.
fn tell_enqueued(message: &Message) {
    tracing::info!(
        target: MESSAGES,
        source = message.source.as_str(),
        destination = message.destination.as_str(),
        endpoint = message.endpoint.as_str(),
        message_id = message.id.as_str(),
        "enqueued"
    );
}

/// A transaction on the writer. It commits when the closure it was given to returns `Ok`, together with its
/// neighbours, and rolls back otherwise.
///
/// It never derefs to a connection, and after an SQL error outside a [`savepoint`](Self::savepoint) it can only
/// roll back: swallowing an error cannot commit half an effect (S4).
pub struct SqliteTx<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) sql: &'c Sql,
    boxes: &'c Arc<BoxState>,
    guard: &'c Guard,
    /// Which open file this is a transaction on.
    pub(crate) file: FileId,
    failed: Cell<bool>,
    /// Whether somebody was told what is not so: the group has to run again, whatever savepoints undo.
    misled: Cell<bool>,
    /// What a statement has found if the database itself is in trouble, whoever ran the statement.
    trouble: RefCell<Option<Error>>,
    /// What others want to hear of, as far as it has not been undone.
    news: RefCell<Vec<News>>,
    /// Whether jobs run without savepoints of our own; see [`isolate`](Self::isolate).
    lean: bool,
    /// Rows of the inbox that say that they are done, of messages whose turn has yet to come.
    ahead: Range<i64>,
    kept: Kept<'c>,
}

/// One row of a result.
#[derive(Debug)]
pub struct Row<'r>(&'r rusqlite::Row<'r>);

impl<'r> Row<'r> {
    pub(crate) fn new(row: &'r rusqlite::Row<'r>) -> Self {
        Self(row)
    }

    /// The text of a column, with what is not text replaced.
    pub(crate) fn get_lossy(&self, column: usize) -> Result<Option<String>> {
        crate::row::lossy(self.0, column).map_err(wrap("read a column"))
    }

    /// The value of a column, by index or name.
    ///
    /// # Errors
    /// [`Undecodable`](ErrorKind::Undecodable) if there is no such column or its value is of another type.
    pub fn get<T: FromSql>(&self, column: impl RowIndex) -> Result<T> {
        self.0
            .get(column)
            .map_err(|error| Error::new(ErrorKind::Undecodable, "cannot read a column").with_source(error))
    }
}

impl<'c> SqliteTx<'c> {
    pub(crate) fn new(
        connection: &'c Connection,
        boxes: &'c Arc<BoxState>,
        guard: &'c Guard,
        file: FileId,
        (lean, kept): (bool, Kept<'c>),
    ) -> Self {
        Self {
            connection,
            sql: &boxes.sql,
            boxes,
            guard,
            file,
            failed: Cell::new(false),
            misled: Cell::new(false),
            trouble: RefCell::new(None),
            news: RefCell::default(),
            lean,
            ahead: 0..0,
            kept,
        }
    }

    /// Runs a statement and returns how many rows it changed.
    ///
    /// # Errors
    /// The statement's; from then on the transaction can only roll back.
    pub fn execute(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        self.check()?;
        let result = match self.kept.their_statement(self.connection, sql) {
            Ok(Some(statement)) => {
                // A named parameter that is left out is NULL, whatever somebody else has given for it.
                statement.clear_bindings();
                statement.execute(params)
            }
            Ok(None) => {
                self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params))
            }
            Err(error) => Err(error),
        };
        self.note(result, "execute a statement")
    }

    /// Runs a statement of ours and keeps it for the next time in this transaction.
    pub(crate) fn execute_kept(&mut self, sql: &'c str, params: impl Params) -> Result<usize> {
        self.check()?;
        let result = self.kept.statement(self.connection, sql).and_then(|kept| kept.execute(params));
        self.note(result, "execute a statement")
    }

    /// Whether a query of ours, which is kept, finds anything.
    pub(crate) fn exists_kept(&mut self, sql: &'c str, params: impl Params) -> Result<bool> {
        self.check()?;
        let result = self.kept.statement(self.connection, sql).and_then(|kept| kept.exists(params));
        self.note(result, "run a query")
    }

    /// The first row of a query of ours, which only reads and is kept.
    pub(crate) fn read_kept<T>(
        &mut self,
        sql: &'c str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.check()?;
        let kept = self.kept.statement(self.connection, sql);
        let result = kept.and_then(|kept| kept.query_row(params, read).optional());
        self.note(result, "run a query")
    }

    /// Calls `read` with each row of a query of ours, which only reads and is kept.
    pub(crate) fn each_kept(
        &mut self,
        sql: &'c str,
        params: impl Params,
        mut read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<()> {
        self.check()?;
        let result = self.kept.statement(self.connection, sql).and_then(|kept| {
            let mut rows = kept.query(params)?;
            while let Some(row) = rows.next()? {
                read(row)?;
            }
            Ok(())
        });
        self.note(result, "run a query")
    }

    /// The row of a consumer and source, if a job of this group has looked it up.
    pub(crate) fn kept_peer(&self, consumer: &Consumer, source: &Source) -> Option<i64> {
        self.kept.peer(self.boxes, consumer, source)
    }

    /// Lets the jobs behind this one know the row of a consumer and source.
    pub(crate) fn keep_peer(&mut self, consumer: &Consumer, source: &Source, id: i64) {
        self.kept.keep_peer(self.boxes, (consumer, source), id);
    }

    /// Adds to the counters of a peer, which are written once per group.
    pub(crate) fn count(&mut self, peer: i64, counts: &Counts) -> Result<()> {
        self.check()?;
        let counted = self.kept.count(self.connection, (self.boxes, peer), counts);
        self.note(counted, "count a message")
    }

    /// Writes what the jobs of this group have counted. The last one does so before the group commits.
    pub(crate) fn write_counts(&mut self) -> Result<()> {
        // What has failed is rolled back, counters and all; whoever asks for the commit is told so.
        if !self.kept.has_counted() || self.check().is_err() {
            return Ok(());
        }
        let written = self.kept.write_counts(self.connection);
        self.note(written, "write the counters")
    }

    /// What the next job of the group can use.
    pub(crate) fn take_kept(&mut self) -> Kept<'c> {
        std::mem::take(&mut self.kept)
    }

    /// The first row of a query, if there is one.
    ///
    /// # Errors
    /// The statement's; from then on the transaction can only roll back. Errors of `read` are passed on and
    /// change nothing.
    pub fn query_optional<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.check()?;
        let mut statement = self.note(self.connection.prepare_cached(sql), "prepare a query")?;
        let mut rows = self.note(statement.query(params), "run a query")?;
        let value = self.note(rows.next(), "read a row")?.map(|row| read(&Row(row))).transpose()?;
        Ok(value)
    }

    /// All rows of a query.
    ///
    /// # Errors
    /// As [`query_optional`](Self::query_optional).
    pub fn query<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.check()?;
        let mut statement = self.note(self.connection.prepare_cached(sql), "prepare a query")?;
        let mut rows = self.note(statement.query(params), "run a query")?;
        let mut values = Vec::new();
        while let Some(row) = self.note(rows.next(), "read a row")? {
            values.push(read(&Row(row))?);
        }
        Ok(values)
    }

    /// All rows of a query of ours, as the driver has them.
    pub(crate) fn query_raw<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.check()?;
        let mut statement = self.note(self.connection.prepare_cached(sql), "prepare a query")?;
        let rows = statement.query_map(params, read).and_then(Iterator::collect);
        self.note(rows, "run a query")
    }

    /// Runs `work` in a savepoint: if it fails, what it did is undone and the transaction goes on.
    ///
    /// # Errors
    /// Those of `work`, and of the savepoint itself.
    pub fn savepoint<T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.check()?;
        self.guard.savepoint(self.connection)?;
        let before = (self.news.borrow().len(), self.kept.counted());
        // A panic must not leave the savepoint open: the next one to be undone would then be the wrong one.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        match outcome.map(|outcome| outcome.and_then(|value| self.check().map(|()| value).map_err(E::from))) {
            Ok(Ok(value)) => {
                self.note(self.guard.release(self.connection), "release a savepoint")?;
                Ok(value)
            }
            Ok(Err(error)) => {
                self.undo(before)?;
                Err(error)
            }
            Err(panic) => {
                self.undo(before)?;
                resume_unwind(panic)
            }
        }
    }

    /// Keeps the failure of one job or delivery from its neighbours.
    ///
    /// A savepoint costs as much as a small statement, and nearly all of them are for nothing. So groups run
    /// without any first; a failure then fails the group, which runs again with them.
    pub(crate) fn isolate<T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !self.lean {
            return self.savepoint(work);
        }
        self.check()?;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        let failed = !matches!(outcome, Ok(Ok(_)));
        self.failed.set(self.failed.get() || failed);
        match outcome {
            Ok(Ok(value)) => self.check().map(|()| value).map_err(E::from),
            Ok(Err(error)) => Err(error),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Whether a failure fails the group, which then runs again with savepoints.
    pub(crate) fn is_lean(&self) -> bool {
        self.lean
    }

    /// Takes note of rows of the inbox that are written ahead.
    pub(crate) fn set_ahead(&mut self, rows: Range<i64>) {
        self.ahead = rows;
    }

    /// Fails if this row of the inbox is only written ahead: nothing may be concluded from it, and nothing from this error
    /// either. The group runs again, in which no row is.
    pub(crate) fn check_row(&self, row: i64) -> Result<()> {
        if !self.ahead.contains(&row) {
            return Ok(());
        }
        self.misled.set(true);
        Err(Error::new(
            ErrorKind::TransactionFailed,
            "the message is about to be handled in this transaction",
        ))
    }

    /// Whether somebody has put triggers on the inbox. Looked up when the schema has changed.
    pub(crate) fn inbox_has_triggers(&mut self) -> Result<bool> {
        let schema = self.read_kept("PRAGMA schema_version", [], |row| row.get(0))?.unwrap_or_default();
        if let Some(known) = self.boxes.inbox_triggers(schema) {
            return Ok(known);
        }
        let sql = self.sql;
        let found = self.read_kept(&sql.inbox_has_triggers, [], |row| row.get(0))?.unwrap_or(true);
        self.boxes.note_inbox_triggers(schema, found);
        Ok(found)
    }

    /// Goes back to the last savepoint, if there is still a transaction to go back in.
    fn undo(&mut self, (news, counted): (usize, Vec<Counted<'c>>)) -> Result<()> {
        self.kept.undo(counted);
        if self.connection.is_autocommit() {
            self.failed.set(true);
            return Ok(());
        }
        self.note(self.guard.undo(self.connection), "undo a savepoint")?;
        self.failed.set(false);
        self.news.borrow_mut().truncate(news);
        Ok(())
    }

    /// Whether it was begun for these boxes: another prefix has statements of its own.
    pub(crate) fn is_of(&self, boxes: &Arc<BoxState>) -> bool {
        Arc::ptr_eq(self.boxes, boxes)
    }

    /// Notes that a message was appended by the last statement.
    pub(crate) fn note_appended(&self, log: &Arc<BoxState>, message: &Arc<Message>) {
        let appended = (self.connection.last_insert_rowid(), Arc::clone(message));
        let generation = log.recent.generation();
        self.news.borrow_mut().push(News::InLog { log: Arc::clone(log), generation, appended });
    }

    /// Notes that something was queued, or can be claimed.
    pub(crate) fn note_work(&self) {
        let mut news = self.news.borrow_mut();
        // Jobs have hundreds of messages.
        if !matches!(news.last(), Some(News::Work(_))) {
            news.push(News::Work(Arc::clone(self.boxes)));
        }
    }

    /// Notes that a lane was paused or resumed.
    pub(crate) fn note_steered(&self) {
        self.news.borrow_mut().push(News::Steered(Arc::clone(self.boxes)));
    }

    /// Tells what others want to hear of once it is committed.
    pub(crate) fn pass_news_on(&self, group: &mut Vec<News>) {
        for news in self.news.borrow_mut().drain(..) {
            // One word per group is enough, and a group may be many small jobs.
            if !group.last().is_some_and(|last| last.says_it_all(&news)) {
                group.push(news);
            }
        }
    }

    /// Fails if the transaction can only roll back.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.failed.get() && !self.misled.get() && !self.connection.is_autocommit() {
            return Ok(());
        }
        self.failed.set(true);
        Err(Error::new(
            ErrorKind::TransactionFailed,
            "a statement failed earlier in this transaction, so it cannot commit; wrap what may fail in savepoint()",
        ))
    }

    /// Part of a planted bug: commits what is there, and goes on in another transaction.
    pub(crate) fn commit_midway(&self) -> Result<()> {
        if !self.lean {
            self.note(self.guard.release(self.connection), "leave the savepoint")?;
        }
        self.note(self.guard.commit(self.connection), "commit midway")?;
        self.note(self.guard.begin(self.connection), "begin again")?;
        if self.lean { Ok(()) } else { self.guard.savepoint(self.connection) }
    }

    /// What a statement has found, if the database itself is in trouble.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.trouble.take()
    }

    /// The value of a statement, or its error, of which the transaction takes note.
    pub(crate) fn note<T>(&self, result: rusqlite::Result<T>, attempted: &str) -> Result<T> {
        result.map_err(|error| {
            self.failed.set(!mutant!(SwallowedErrorCommits));
            let is_trouble = is_trouble(&error);
            let error = wrap(attempted)(error);
            if is_trouble {
                self.trouble.replace(Some(Error::new(error.kind(), error.chain())));
            }
            error
        })
    }
}

/// Runs a user's closure apart from its neighbours. A panic counts as failure (S6).
pub(crate) fn isolated<T, E: From<Error>>(
    tx: &mut SqliteTx<'_>,
    work: impl FnOnce(&mut SqliteTx<'_>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let guard = tx.guard;
    tx.isolate(|tx| {
        let _user = guard.user_code();
        catch_unwind(AssertUnwindSafe(|| work(tx)))
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Statement, "the closure panicked").into()))
    })
}

impl std::fmt::Debug for SqliteTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTx").field("failed", &self.failed.get()).finish_non_exhaustive()
    }
}

/// Runs `work` with the limits that user code has.
pub(crate) fn as_user_code<T>(tx: &mut SqliteTx<'_>, work: impl FnOnce(&mut SqliteTx<'_>) -> T) -> T {
    let _user = tx.guard.user_code();
    work(tx)
}
