//! Billing: one effect per order, whatever arrives how often.

use std::sync::Arc;
use std::time::Duration;

use twobox_core::message::{Headers, JSON};
use twobox_core::ports::Answer;
use twobox_core::{
    BoxError, Consumer, Destination, Endpoint, Error, Message, MessageId, MessageType, Payload, Refusal,
    Response, Source, Timestamp,
};
use twobox_engine::receiver::{OnError, Route, claim_first};
use twobox_engine::{Receiver, SystemTimer};
use twobox_sqlite::{Sqlite, SqliteHandler, SqliteTx};

use crate::orders::{CALL, CLAIM, KEEP, MEND, PAY, PREPARE, QUEUE, QUEUE_MEND, RELEASE, RENEW, VOID};
use crate::outside::{Caller, Young};

/// Nothing here keeps an effect from happening twice: that is what the inbox is for.
pub(crate) const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS effects (order_id INTEGER NOT NULL, message_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mended (x INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS plans (id INTEGER PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS unfinished (message_id TEXT NOT NULL)",
];

const BUDGET: Duration = Duration::from_secs(5);

/// Lets those work that were rejected so far.
pub(crate) async fn mend(billing: &Sqlite) -> Result<(), Error> {
    billing.transaction::<_, Error, _>(|tx| tx.execute("INSERT INTO mended VALUES (1)", [])).await.map(drop)
}

/// Whether somebody has.
pub(crate) async fn is_mended(billing: &Sqlite) -> Result<bool, Error> {
    let mended =
        |tx: &mut SqliteTx<'_>| tx.query_optional("SELECT 1 FROM mended", [], |row| row.get::<i64>(0));
    Ok(billing.transaction::<_, Error, _>(mended).await?.is_some())
}

pub(crate) fn receiver(billing: &Sqlite) -> Result<Receiver<Sqlite>, Error> {
    let handler = handler(billing);
    let second = handler.clone();
    let prepared = Route::Prepared(Arc::new(move |_| {
        let second = second.clone();
        Box::pin(async move { Ok(second) })
    }));
    let mut builder =
        Receiver::builder(billing.clone(), Consumer::new("billing")?, Arc::new(SystemTimer::default()));
    for endpoint in [PAY, MEND, RENEW, VOID] {
        builder = builder.route(Endpoint::new(endpoint)?, Route::Handler(handler.clone()))?;
    }
    for endpoint in [QUEUE, QUEUE_MEND, CALL] {
        builder = builder.route(Endpoint::new(endpoint)?, Route::Queued)?;
    }
    let caller = Arc::new(Caller::new(billing));
    for (endpoint, on_error) in [(CLAIM, OnError::Keep), (KEEP, OnError::Keep), (RELEASE, OnError::Release)] {
        let caller = Arc::clone(&caller);
        let handler = Arc::new(move |message: Arc<Message>| {
            let caller = Arc::clone(&caller);
            Box::pin(async move { caller.call(&message).await }) as _
        });
        let route = claim_first(billing.clone(), Consumer::new("billing")?, endpoint, on_error, handler);
        builder = builder.route(Endpoint::new(endpoint)?, route)?;
    }
    Ok(builder.route(Endpoint::new(PREPARE)?, prepared)?.build())
}

/// Has its effects in the transaction that ends the message.
pub(crate) fn handler(billing: &Sqlite) -> SqliteHandler {
    let young = Young::new(billing.clock());
    SqliteHandler::new(move |tx, message| {
        let (order, kind): (i64, String) = serde_json::from_slice(message.payload.as_bytes())?;
        tx.execute("INSERT INTO effects VALUES (?1, ?2)", (order, message.id.as_str()))?;
        let mended = tx.query_optional("SELECT 1 FROM mended", [], |row| row.get::<i64>(0))?.is_some();
        let young = young.is(order);
        match kind.trim_start_matches("queued ") {
            "doomed" | "void" => Err(Refusal::reject("never")),
            "mend" | "renew" if !mended => Err(Refusal::reject("not like this")),
            "flaky" if young => Err(Refusal::retry("not yet")),
            _ => Ok(Response::empty()),
        }
    })
}

/// Delivers everything that was ever in the log again, as a network would that repeats itself. Whatever billing has
/// forgotten meanwhile, nothing may be handled again.
pub(crate) async fn echo(shop: &Sqlite, receiver: &Receiver<Sqlite>) -> Result<(), BoxError> {
    let connection = rusqlite::Connection::open(shop.path())?;
    let mut statement =
        connection.prepare("SELECT message_id, destination, endpoint, payload, available_at FROM ledger")?;
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, Timestamp::from_micros(row.get(4)?)))
    })?;
    let messages: Vec<Arc<Message>> =
        rows.map(|row| row.map_err(BoxError::from).and_then(repeated)).collect::<Result<_, _>>()?;
    for (message, answer) in messages.iter().zip(receiver.receive(messages.clone(), BUDGET).await?) {
        if !matches!(answer, Answer::Duplicate(_) | Answer::TooOld | Answer::Rejected { .. }) {
            return Err(format!("{} was delivered once more and answered {answer:?}", message.id).into());
        }
    }
    Ok(())
}

type Row = (String, String, String, Vec<u8>, Timestamp);

/// A message as it was sent.
fn repeated((id, destination, endpoint, payload, available): Row) -> Result<Arc<Message>, BoxError> {
    Ok(Arc::new(Message {
        id: MessageId::new(id)?,
        source: Source::new("shop")?,
        destination: Destination::new(destination)?,
        endpoint: Endpoint::new(endpoint)?,
        message_type: MessageType::Signal,
        payload: Payload::new(payload),
        content_type: JSON.into(),
        correlation_id: None,
        ordering_key: None,
        headers: Headers::default(),
        created: available,
        available,
        expires: available.plus(Duration::from_secs(3600)),
        replay: 0,
    }))
}
