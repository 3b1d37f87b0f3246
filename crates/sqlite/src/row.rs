//! From rows to messages. A row that cannot be decoded says so and hides nothing else (S19).

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use twobox_core::ports::Undecodable;
use twobox_core::wire::check_content_type;
use twobox_core::{ContentType, Headers, Message, Payload, Result, Timestamp};

/// Columns in the order in which every statement that reads messages lists them.
mod column {
    pub(super) const SOURCE: usize = 1;
    pub(super) const DESTINATION: usize = 2;
    pub(super) const MESSAGE_ID: usize = 3;
    pub(super) const ENDPOINT: usize = 4;
    pub(super) const MESSAGE_TYPE: usize = 5;
    pub(super) const PAYLOAD: usize = 6;
    pub(super) const CONTENT_TYPE: usize = 7;
    pub(super) const CORRELATION_ID: usize = 8;
    pub(super) const ORDERING_KEY: usize = 9;
    pub(super) const HEADERS: usize = 10;
    pub(super) const CREATED_AT: usize = 11;
    pub(super) const DUE_AT: usize = 12;
    pub(super) const EXPIRES_AT: usize = 13;
}

/// Reads messages; names that repeat from row to row are checked and kept once.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Time to live of rows that do not say when they expire.
    ttl: Duration,
    last: Option<Arc<Message>>,
}

impl Decoder {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, last: None }
    }

    /// Reads the message of a row.
    pub(crate) fn message(&mut self, row: &Row<'_>, replay: u32) -> Result<Arc<Message>, Undecodable> {
        let message = decode(row, replay, self.ttl, self.last.as_deref());
        let message = message.map(Arc::new).map_err(|error| Undecodable { error })?;
        self.last = Some(Arc::clone(&message));
        Ok(message)
    }
}

fn decode(row: &Row<'_>, replay: u32, ttl: Duration, like: Option<&Message>) -> Result<Message, String> {
    let created = Timestamp::from_micros(integer(row, column::CREATED_AT)?.ok_or("created_at is null")?);
    let due = integer(row, column::DUE_AT)?.map(Timestamp::from_micros);
    let available = due.map_or(created, |due| due.max(created));
    let expires = integer(row, column::EXPIRES_AT)?.map(Timestamp::from_micros);
    Ok(Message {
        id: parse(row, column::MESSAGE_ID)?.ok_or("message_id is null")?,
        source: parse_like(row, column::SOURCE, like.map(|like| &like.source))?.ok_or("source is null")?,
        destination: parse_like(row, column::DESTINATION, like.map(|like| &like.destination))?
            .ok_or("destination is null")?,
        endpoint: parse_like(row, column::ENDPOINT, like.map(|like| &like.endpoint))?
            .ok_or("endpoint is null")?,
        message_type: parse(row, column::MESSAGE_TYPE)?.ok_or("message_type is null")?,
        payload: payload(row)?,
        content_type: content_type(row)?,
        correlation_id: parse(row, column::CORRELATION_ID)?,
        ordering_key: parse(row, column::ORDERING_KEY)?,
        headers: headers(row)?,
        created,
        available,
        expires: expires.unwrap_or_else(|| available.plus(ttl)),
        replay,
    })
}

/// One that no envelope can carry would make the receiver refuse the whole batch.
fn content_type(row: &Row<'_>) -> Result<ContentType, String> {
    let text = text(row, column::CONTENT_TYPE)?.ok_or("content_type is null")?;
    check_content_type(text).map_err(|error| error.to_string())?;
    Ok(text.into())
}

fn headers(row: &Row<'_>) -> Result<Headers, String> {
    let text = text(row, column::HEADERS)?;
    text.map_or_else(
        || Ok(Headers::default()),
        |json| Headers::from_json(json).map_err(|error| error.to_string()),
    )
}

fn payload(row: &Row<'_>) -> Result<Payload, String> {
    match value(row, column::PAYLOAD)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Ok(Payload::new(bytes.to_vec())),
        other => Err(format!("payload is {}", other.data_type())),
    }
}

fn parse<T: std::str::FromStr<Err = twobox_core::Error>>(
    row: &Row<'_>,
    column: usize,
) -> Result<Option<T>, String> {
    text(row, column)?.map(|text| text.parse::<T>().map_err(|error| error.to_string())).transpose()
}

/// As [`parse`], but takes the value of an earlier row if it says the same.
fn parse_like<T>(row: &Row<'_>, column: usize, like: Option<&T>) -> Result<Option<T>, String>
where
    T: std::str::FromStr<Err = twobox_core::Error> + AsRef<str> + Clone,
{
    let found = text(row, column)?;
    match like.filter(|like| found == Some((*like).as_ref())) {
        Some(like) => Ok(Some(like.clone())),
        None => parse(row, column),
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, String> {
    let value = value(row, column)?;
    value.as_str_or_null().map_err(|error| format!("column {column} is not text: {error}"))
}

fn integer(row: &Row<'_>, column: usize) -> Result<Option<i64>, String> {
    let value = value(row, column)?;
    value.as_i64_or_null().map_err(|error| format!("column {column} is not an integer: {error}"))
}

fn value<'r>(row: &'r Row<'_>, column: usize) -> Result<ValueRef<'r>, String> {
    row.get_ref(column).map_err(|error| error.to_string())
}

/// A text column as it stands, with what is not text replaced: for lists that must show every row.
pub(crate) fn lossy(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(value) => Some(value.to_string()),
        ValueRef::Real(value) => Some(value.to_string()),
    })
}

/// The bytes of a column, whatever it is declared as.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
        _ => None,
    })
}

/// A column's bytes, whatever its type: rows of other services need not even be text to be passed over.
pub(crate) fn raw<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    })
}
