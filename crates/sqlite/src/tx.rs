//! The transaction that closures and handlers are given.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, RowIndex};
use twobox_core::{Error, ErrorKind, Result};

use crate::error::wrap;
use crate::guard::Guard;
use crate::sql::Sql;

/// A transaction on the writer. It commits when the closure it was given to returns `Ok`, together with its
/// neighbours, and rolls back otherwise.
///
/// It never derefs to a connection, and after an SQL error outside a [`savepoint`](Self::savepoint) it can only
/// roll back: swallowing an error cannot commit half an effect (S4).
pub struct SqliteTx<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) sql: &'c Sql,
    guard: &'c Guard,
    failed: Cell<bool>,
}

/// One row of a result.
#[derive(Debug)]
pub struct Row<'r>(&'r rusqlite::Row<'r>);

impl<'r> Row<'r> {
    pub(crate) fn new(row: &'r rusqlite::Row<'r>) -> Self {
        Self(row)
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
    pub(crate) fn new(connection: &'c Connection, sql: &'c Sql, guard: &'c Guard) -> Self {
        Self { connection, sql, guard, failed: Cell::new(false) }
    }

    /// Runs a statement and returns how many rows it changed.
    ///
    /// # Errors
    /// The statement's; from then on the transaction can only roll back.
    pub fn execute(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        self.check()?;
        self.note(
            self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)),
            "execute a statement",
        )
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
        let row = self.note(rows.next(), "read a row")?;
        row.map(|row| read(&Row(row))).transpose()
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
        let outcome = work(self).and_then(|value| self.check().map(|()| value).map_err(E::from));
        if outcome.is_ok() {
            self.note(self.guard.release(self.connection), "release a savepoint")?;
        } else if self.connection.is_autocommit() {
            self.failed.set(true); // the whole transaction is gone, there is nothing to go back to
        } else {
            self.note(self.guard.undo(self.connection), "undo a savepoint")?;
            self.failed.set(false);
        }
        outcome
    }

    /// Fails if the transaction can only roll back.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.failed.get() && !self.connection.is_autocommit() {
            return Ok(());
        }
        self.failed.set(true);
        Err(Error::new(
            ErrorKind::TransactionFailed,
            "a statement failed earlier in this transaction, so it cannot commit; wrap what may fail in savepoint()",
        ))
    }

    fn note<T>(&self, result: rusqlite::Result<T>, attempted: &str) -> Result<T> {
        result.map_err(|error| {
            self.failed.set(true);
            wrap(attempted)(error)
        })
    }
}

/// Runs a user's closure within a savepoint of its own. A panic counts as failure (S6).
pub(crate) fn isolated<T, E: From<Error>>(
    tx: &mut SqliteTx<'_>,
    work: impl FnOnce(&mut SqliteTx<'_>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let guard = tx.guard;
    tx.savepoint(|tx| {
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
