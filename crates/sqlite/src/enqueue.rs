//! Enqueueing: into a transaction on the writer, into the caller's own, or as plain SQL.

use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use twobox_core::name::OnceKey;
use twobox_core::{Error, ErrorKind, Message, MessageId, Result, crash_point, mutant};

use crate::error::wrap;
use crate::sql::Sql;
use crate::{Sqlite, SqliteTx};

/// A plain statement with its values in order: enqueues a message through any driver.
#[derive(Clone, PartialEq)]
pub struct Insert {
    /// The SQL text with `?1`, `?2`, … for the values.
    pub sql: String,
    /// The values.
    pub params: Vec<Value>,
}

impl std::fmt::Debug for Insert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Insert").field("sql", &self.sql).finish_non_exhaustive() // the values hold the payload
    }
}

/// What [`Sqlite::append_once`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// The message was enqueued now.
    Enqueued(MessageId),
    /// A message had been enqueued under the key before.
    Already(MessageId),
}

impl Once {
    /// The id of the message that is enqueued under the key.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        match self {
            Self::Enqueued(id) | Self::Already(id) => id,
        }
    }
}

/// A transaction that messages can be enqueued into.
#[diagnostic::on_unimplemented(
    message = "messages cannot be enqueued into `{Self}`",
    label = "expected a `SqliteTx` or a `rusqlite` connection inside a transaction"
)]
pub trait Enqueue: sealed::Sealed {
    /// Appends a message.
    #[doc(hidden)]
    fn append(&mut self, db: &Sqlite, message: &Arc<Message>) -> Result<()>;

    /// Runs a statement and returns how many rows it changed.
    #[doc(hidden)]
    fn run(&mut self, db: &Sqlite, insert: &Insert) -> Result<usize>;

    /// Reads one text.
    #[doc(hidden)]
    fn read_text(&mut self, db: &Sqlite, insert: &Insert) -> Result<Option<String>>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::SqliteTx<'_> {}
    impl Sealed for rusqlite::Connection {}
    impl Sealed for rusqlite::Transaction<'_> {}
    impl Sealed for rusqlite::Savepoint<'_> {}
}

impl Enqueue for SqliteTx<'_> {
    fn append(&mut self, db: &Sqlite, message: &Arc<Message>) -> Result<()> {
        db.check_tx(self)?;
        let columns = Columns::of(message);
        let sql = self.sql;
        let appended = if self.is_of(&db.state) {
            self.execute_kept(&sql.append, columns.params())?
        } else {
            self.execute(&db.state.sql.append, columns.params())?
        };
        // A trigger of the user's may have swallowed it.
        if appended == 1 {
            self.note_appended(&db.state, message);
        }
        crash_point!("enqueue.appended");
        Ok(())
    }

    fn run(&mut self, db: &Sqlite, insert: &Insert) -> Result<usize> {
        db.check_tx(self)?;
        self.execute(&insert.sql, params_from_iter(&insert.params))
    }

    fn read_text(&mut self, db: &Sqlite, insert: &Insert) -> Result<Option<String>> {
        db.check_tx(self)?;
        self.query_optional(&insert.sql, params_from_iter(&insert.params), |row| row.get(0))
    }
}

impl Enqueue for Connection {
    fn append(&mut self, db: &Sqlite, message: &Arc<Message>) -> Result<()> {
        append(self, db, message)
    }

    fn run(&mut self, db: &Sqlite, insert: &Insert) -> Result<usize> {
        db.check_caller(self)?;
        run(self, insert)
    }

    fn read_text(&mut self, _: &Sqlite, insert: &Insert) -> Result<Option<String>> {
        read_text(self, insert)
    }
}

macro_rules! through_connection {
    ($($type:ident)*) => {$(
        impl Enqueue for rusqlite::$type<'_> {
            fn append(&mut self, db: &Sqlite, message: &Arc<Message>) -> Result<()> {
                append(self, db, message)
            }

            fn run(&mut self, db: &Sqlite, insert: &Insert) -> Result<usize> {
                db.check_caller(self)?;
                run(self, insert)
            }

            fn read_text(&mut self, _: &Sqlite, insert: &Insert) -> Result<Option<String>> {
                read_text(self, insert)
            }
        }
    )*};
}

through_connection! { Transaction Savepoint }

fn append(connection: &Connection, db: &Sqlite, message: &Message) -> Result<()> {
    db.check_caller(connection)?;
    let columns = Columns::of(message);
    connection
        .prepare_cached(&db.state.sql.append)
        .and_then(|mut statement| statement.execute(columns.params()))
        .map(drop)
        .map_err(wrap("enqueue"))
}

/// A message as the columns of the log that are not plainly its fields.
struct Columns<'a> {
    message: &'a Message,
    headers: Option<String>,
    due: Option<i64>,
}

impl<'a> Columns<'a> {
    fn of(message: &'a Message) -> Self {
        let headers = (!message.headers.is_empty()).then(|| message.headers.to_json());
        let due = (message.available > message.created).then(|| message.available.as_micros());
        Self { message, headers, due }
    }

    /// The values of `append.sql`, in their order.
    fn values(&self) -> [ToSqlOutput<'_>; 13] {
        let message = self.message;
        let text = |text: &'a str| ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()));
        let optional = |text: Option<&'a str>| {
            ToSqlOutput::Borrowed(text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())))
        };
        let integer = |value: i64| ToSqlOutput::Borrowed(ValueRef::Integer(value));
        let headers = self.headers.as_deref().map_or(ValueRef::Null, |json| ValueRef::Text(json.as_bytes()));
        [
            text(message.id.as_str()),
            text(message.source.as_str()),
            text(message.destination.as_str()),
            text(message.endpoint.as_str()),
            text(message.message_type.as_str()),
            ToSqlOutput::Borrowed(ValueRef::Blob(message.payload.as_bytes())),
            text(&message.content_type),
            optional(message.correlation_id.as_ref().map(AsRef::as_ref)),
            optional(message.ordering_key.as_ref().map(AsRef::as_ref)),
            ToSqlOutput::Borrowed(headers),
            integer(message.created.as_micros()),
            self.due.map_or(ToSqlOutput::Borrowed(ValueRef::Null), integer),
            integer(message.expires.as_micros()),
        ]
    }

    fn params(&self) -> impl rusqlite::Params + '_ {
        params_from_iter(self.values())
    }
}

fn run(connection: &Connection, insert: &Insert) -> Result<usize> {
    connection
        .prepare_cached(&insert.sql)
        .and_then(|mut statement| statement.execute(params_from_iter(&insert.params)))
        .map_err(wrap("enqueue"))
}

fn read_text(connection: &Connection, insert: &Insert) -> Result<Option<String>> {
    use rusqlite::OptionalExtension;
    connection
        .prepare_cached(&insert.sql)
        .and_then(|mut statement| {
            statement.query_row(params_from_iter(&insert.params), |row| row.get(0)).optional()
        })
        .map_err(wrap("look up a once key"))
}

impl Sqlite {
    /// Appends a message to the log within the caller's transaction: it exists exactly when the caller's own
    /// rows do (RF-01).
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if `tx` is a connection to another file or is not in a transaction;
    /// otherwise the statement's error.
    pub fn append(&self, tx: &mut impl Enqueue, message: &Message) -> Result<()> {
        self.append_shared(tx, &Arc::new(message.clone()))
    }

    /// As [`append`](Self::append), of a message that need not be copied for relays.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_shared(&self, tx: &mut impl Enqueue, message: &Arc<Message>) -> Result<()> {
        tx.append(self, message)
    }

    /// Appends a message unless one was appended under the same source and key before (L8). For callers that
    /// may repeat themselves, for example after [`CommitUnknown`](ErrorKind::CommitUnknown).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_once(&self, tx: &mut impl Enqueue, key: &OnceKey, message: &Message) -> Result<Once> {
        let sql: &Sql = &self.state.sql;
        let identity = vec![text(&message.source), text(key)];
        let mut claim = Insert { sql: sql.once_insert.clone(), params: identity.clone() };
        claim.params.push(text(&message.id));
        claim.params.push(Value::Integer(message.created.as_micros()));
        if tx.run(self, &claim)? == 1 {
            crash_point!("enqueue.once-claimed");
            let appended = self.append(tx, message);
            if appended.is_err() {
                // The caller may commit all the same; a key without a message would swallow the next try.
                tx.run(self, &Insert { sql: sql.once_delete.clone(), params: identity })?;
            }
            return appended.map(|()| Once::Enqueued(message.id.clone()));
        }
        let known = tx.read_text(self, &Insert { sql: sql.once_get.clone(), params: identity })?;
        let known = known
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, "a once key vanished while it was read"))?;
        Ok(Once::Already(MessageId::new(known)?))
    }

    /// The statement that appends a message, for drivers this library does not know. Run it in your
    /// transaction; the relay notices when it commits.
    #[must_use]
    pub fn insert(&self, message: &Message) -> Insert {
        let owned = |value: &ToSqlOutput<'_>| match value {
            ToSqlOutput::Borrowed(ValueRef::Integer(value)) => Value::Integer(*value),
            ToSqlOutput::Borrowed(ValueRef::Text(text)) => {
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            ToSqlOutput::Borrowed(ValueRef::Blob(bytes)) => Value::Blob(bytes.to_vec()),
            _ => Value::Null, // the values of a message are of no other kind
        };
        let params = Columns::of(message).values().iter().map(owned).collect();
        Insert { sql: self.state.sql.append.clone(), params }
    }

    /// Refuses a connection with which the promise would not hold (S1).
    fn check_caller(&self, connection: &Connection) -> Result<()> {
        if connection.is_autocommit() {
            return Err(Error::invalid(
                "the connection is not in a transaction, so the message and your rows would not commit together: \
                 begin one first",
            ));
        }
        let same = connection.path().is_some_and(|path| {
            let path = std::path::Path::new(path);
            path == self.path()
                || std::fs::canonicalize(path)
                    .ok()
                    .is_some_and(|path| Some(path) == std::fs::canonicalize(self.path()).ok())
        });
        if same || mutant!(OtherFileAccepted) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the connection is to another file than {}: outbox and business rows must share one file, because \
             transactions across files are not atomic",
            self.path().display()
        )))
    }
}

fn text(name: &impl AsRef<str>) -> Value {
    Value::Text(name.as_ref().into())
}
