//! One delivery: dedup row first, handler, guard (S3).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::config::CLOCK_SKEW_MAX;
use twobox_core::handler::shorten;
use twobox_core::panics::InHandler;
use twobox_core::ports::{Answer, ContentHash, Delivery, InboxRecord, InboxStatus, Treatment};
use twobox_core::wire::check_content_type;
use twobox_core::{
    Error, ErrorKind, HandlerResult, Message, Payload, Refusal, Response, Result, Timestamp, crash_point,
    mutant,
};

use super::SqliteHandler;
use super::job::{News, Peer, RowChange};
use crate::options::Options;
use crate::sql::Sql;
use crate::tx::as_user_code;
use crate::{SqliteTx, queue};

/// When to ask again about a message that somebody else is handling.
const IN_PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// Why a delivery leaves nothing behind: its savepoint is rolled back and the sender is told.
enum Undo {
    Answer(Answer),
    Reject(String),
}

impl From<Error> for Undo {
    fn from(error: Error) -> Self {
        Self::Answer(Answer::Retry { after: None, error: shorten(&error.chain()) })
    }
}

/// What the dedup row says.
enum Claim {
    /// It is to be handled. Its row has this place, and says already what it will say if the handler answers what it
    /// usually does; or not.
    Run {
        row: i64,
        says_done: bool,
        change: RowChange,
    },
    Known(Answer),
}

pub(super) trait Handle {
    /// The answer, and what is new about it.
    fn handle(&self, tx: &mut SqliteTx<'_>, options: &Options, peer: &Peer, turn: Turn) -> (Answer, News);
}

/// A delivery's turn.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) now: Timestamp,
    /// Its dedup row, if that is written already, as one of [several](super::ahead).
    pub(super) row: Option<i64>,
}

impl Handle for Delivery<SqliteHandler> {
    /// Handles the delivery in a savepoint of its own.
    fn handle(&self, tx: &mut SqliteTx<'_>, options: &Options, peer: &Peer, turn: Turn) -> (Answer, News) {
        let now = turn.now;
        let outcome = tx.isolate(|tx| attempt(self, tx, options, peer, turn));
        match outcome {
            Ok((answer, change)) => {
                let news = match (change, &self.treatment) {
                    (Some(change), Treatment::Queue) => News::Stored(change),
                    (Some(change), _) => News::Handled(change),
                    (None, _) => News::None,
                };
                (answer, news)
            }
            Err(Undo::Answer(answer)) => (answer, News::None),
            Err(Undo::Reject(error)) => match tx.savepoint(|tx| store_rejection(self, tx, peer, now, &error))
            {
                Ok(change) => {
                    crash_point!("inbox.rejected");
                    (Answer::Rejected { error }, News::Handled(change))
                }
                Err(failed) => (Answer::Retry { after: None, error: shorten(&failed.chain()) }, News::None),
            },
        }
    }
}

/// The answer, and what became of the message's row if it was handled or stored.
fn attempt(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    options: &Options,
    peer: &Peer,
    turn: Turn,
) -> std::result::Result<(Answer, Option<RowChange>), Undo> {
    let early = effect_first(delivery, tx, peer)?;
    let claimed = match turn.row {
        Some(row) => fresh(row, true),
        None => claim(delivery, tx, peer, turn.now)?,
    };
    let (row, says_done, change) = match claimed {
        Claim::Known(answer) => return Ok((answer, None)),
        Claim::Run { row, says_done, change } => (row, says_done, change),
    };
    crash_point!("inbox.claimed");
    let handler = match &delivery.treatment {
        Treatment::Handle(handler) => handler,
        Treatment::Queue => {
            if !mutant!(QueueUnstored) {
                queue::store_delivered(tx, &delivery.consumer, (peer.id, row), &delivery.message, turn.now)?;
            }
            return Ok((Answer::Done(Some(Response::empty())), Some(change)));
        }
        Treatment::Unknown => return Err(Undo::Answer(Answer::UnknownEndpoint)),
    };
    let response = match early {
        Some(response) => response,
        None => run(handler, tx, &delivery.message).map_err(|refusal| refused(&refusal))?,
    };
    crash_point!("inbox.handled");
    check_response(&response, options).map_err(Undo::Reject)?;
    if !says_done {
        finish(delivery, tx, (peer, row), turn.now, &response)?;
    } else if response != *handler.usual {
        store_response(delivery, tx, (peer, row), &response)?;
    } else if turn.row.is_none() {
        still_there(delivery, tx, (peer, row))?; // where several are written at once, all are looked at together
    }
    crash_point!("inbox.response-stored");
    Ok((Answer::Done(Some(response)), Some(change)))
}

/// Refuses a response that could not be stored or sent.
pub(crate) fn check_response(response: &Response, options: &Options) -> std::result::Result<(), String> {
    if response.body.len() > options.response_bytes_max {
        return Err(format!(
            "the handler's response of {} bytes exceeds response_bytes_max ({})",
            response.body.len(),
            options.response_bytes_max
        ));
    }
    check_content_type(&response.content_type)
        .map_err(|error| format!("the handler's response cannot be sent: {error}"))
}

/// A hash as it is stored: without the name of its algorithm if that is SHA-256.
pub(crate) fn hash(algorithm: Option<String>, bytes: Option<Vec<u8>>) -> Option<ContentHash> {
    let algorithm = algorithm.unwrap_or_else(|| ContentHash::SHA256.into());
    // What is no hash cannot be compared with one.
    bytes.and_then(|bytes| ContentHash::new(&algorithm, bytes).ok())
}

/// The bug of a dedup row that is written last: the handler has run, and its effect is committed, before there is one.
fn effect_first(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    peer: &Peer,
) -> std::result::Result<Option<Response>, Undo> {
    if !mutant!(DedupRowLast) {
        return Ok(None);
    }
    let known =
        tx.note(record(tx.connection, tx.sql, peer.id, delivery.message.id.as_str()), "read an inbox row")?;
    let (None, Treatment::Handle(handler)) = (known, &delivery.treatment) else { return Ok(None) };
    let response = run(handler, tx, &delivery.message).map_err(|refusal| refused(&refusal))?;
    tx.commit_midway()?;
    Ok(Some(response))
}

/// Writes the dedup row, or finds out what is known about the message.
fn claim(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    peer: &Peer,
    now: Timestamp,
) -> std::result::Result<Claim, Undo> {
    // Written as it will stand if all goes well: nobody sees it before the commit, and if anything goes wrong it is
    // undone. Most handlers always answer the same, and then the row is not touched again.
    let usual = match &delivery.treatment {
        Treatment::Handle(handler) => Some(&*handler.usual),
        Treatment::Queue | Treatment::Unknown => None,
    };
    if insert_claim(delivery, tx, peer, now, usual)? {
        let row = tx.connection.last_insert_rowid();
        let run = fresh(row, usual.is_some());
        return check_date(delivery.message.available, peer, now).map(|()| run);
    }
    let id = delivery.message.id.as_str();
    let known = tx.note(record(tx.connection, tx.sql, peer.id, id), "read an inbox row")?;
    let Some(known) = known else {
        return Err(Error::new(ErrorKind::Statement, "an inbox row vanished while it was read").into());
    };
    let known = known.record;
    let hash = ContentHash::sha256(delivery.body_hash);
    let differs = known.hash.as_ref().is_some_and(|known| known.differs_from(&hash));
    if differs && !mutant!(ConflictIsDuplicate) {
        return Ok(Claim::Known(Answer::Conflict));
    }
    if known.is_queued {
        // It is stored here and no longer the sender's concern, whatever becomes of it.
        return Ok(Claim::Known(Answer::Duplicate(None)));
    }
    let knows = !matches!(delivery.treatment, Treatment::Unknown);
    let again = delivery.message.replay > known.replay && knows;
    match known.status {
        InboxStatus::Done if again && mutant!(ReplayRunsDone) => Ok(run_again(reclaim(delivery, tx, peer)?)),
        InboxStatus::Done => {
            crash_point!("inbox.duplicate");
            let response = Some(known.response.unwrap_or_else(Response::empty));
            // What was claimed first is done by the time its transaction begins, by this delivery and no other.
            let is_own = matches!(&delivery.treatment, Treatment::Handle(handler) if handler.answers);
            Ok(Claim::Known(if is_own { Answer::Done(response) } else { Answer::Duplicate(response) }))
        }
        InboxStatus::Dead if again => {
            let reclaimed = reclaim(delivery, tx, peer)?;
            crash_point!("inbox.reclaimed");
            Ok(run_again(reclaimed))
        }
        InboxStatus::Dead | InboxStatus::Expired => {
            Ok(Claim::Known(Answer::Rejected { error: known.error.unwrap_or_else(|| "expired".into()) }))
        }
        InboxStatus::Seen | InboxStatus::Processing => {
            Ok(Claim::Known(Answer::InProgress { after: IN_PROGRESS_AFTER }))
        }
    }
}

/// A message that was not known has this row now.
fn fresh(row: i64, says_done: bool) -> Claim {
    Claim::Run { row, says_done, change: RowChange { fresh: true, revived: false } }
}

fn run_again((row, was_listed): (i64, bool)) -> Claim {
    Claim::Run { row, says_done: false, change: RowChange { fresh: false, revived: was_listed } }
}

/// Whether a message without a row may be handled, as far as its date goes (S9).
fn check_date(available: Timestamp, peer: &Peer, now: Timestamp) -> std::result::Result<(), Undo> {
    if available.as_micros() <= peer.watermark && !mutant!(NoWatermark) {
        // It may have been handled and forgotten.
        return Err(Undo::Answer(Answer::TooOld));
    }
    let ahead = available.since(now);
    if ahead > CLOCK_SKEW_MAX {
        return Err(Undo::Answer(Answer::TooEarly { after: ahead.saturating_sub(CLOCK_SKEW_MAX) }));
    }
    Ok(())
}

/// Whether a message without a row may be handled, as far as its date goes.
pub(super) fn is_plausible(available: Timestamp, peer: &Peer, now: Timestamp) -> bool {
    check_date(available, peer, now).is_ok()
}

/// Writes the row, as that of a message that is done with this response or of one that is being handled. `false`: there
/// is one.
fn insert_claim(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    peer: &Peer,
    now: Timestamp,
    done: Option<&Response>,
) -> Result<bool> {
    let message = &delivery.message;
    let status = if done.is_some() { InboxStatus::Done } else { InboxStatus::Processing };
    let values = params![
        peer.id,
        message.id.as_str(),
        status.as_str(),
        message.endpoint.as_str(),
        message.message_type.as_str(),
        delivery.body_hash,
        message.available.as_micros(),
        now.as_micros(),
        message.replay,
        done.map(|_| now.as_micros()),
        done.map(|response| response.content_type.as_str()),
        done.map(|response| response.body.as_bytes()),
    ];
    let sql = tx.sql;
    Ok(tx.execute_kept(&sql.claim, values)? == 1)
}

/// Runs the handler. A panic is a failure, never a crash of the writer (S6).
pub(crate) fn run(
    handler: &SqliteHandler,
    tx: &mut SqliteTx<'_>,
    message: &Message,
) -> HandlerResult<Response> {
    let result = as_user_code(tx, |tx| {
        let _inside = InHandler::enter();
        catch_unwind(AssertUnwindSafe(|| handler.call(tx, message)))
    });
    let response = result.unwrap_or_else(|_| Err(Refusal::retry("the handler panicked")))?;
    tx.check()?; // swallowing an SQL error cannot commit half an effect (S4)
    Ok(response)
}

fn refused(refusal: &Refusal) -> Undo {
    if refusal.is_reject() {
        return Undo::Reject(refusal.error().into());
    }
    Undo::Answer(Answer::Retry { after: refusal.after(), error: refusal.error().into() })
}

/// The guard where nothing is left to write: the row that was written first must still be there, as it was (S3).
fn still_there(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    (peer, row): (&Peer, i64),
) -> Result<()> {
    let (sql, id) = (tx.sql, delivery.message.id.as_str());
    let there = tx.exists_kept(&sql.still_done, params![row, peer.id, id])?;
    one_row(usize::from(there))
}

/// The guard where there is another response to store: the last statement must touch exactly one row (S3).
fn store_response(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    (peer, row): (&Peer, i64),
    response: &Response,
) -> Result<()> {
    let id = delivery.message.id.as_str();
    let values = params![peer.id, id, row, response.content_type.as_str(), response.body.as_bytes()];
    let sql = tx.sql;
    one_row(tx.execute_kept(&sql.respond, values)?)
}

/// The guard of a message that is handled again: as [`store_response`], and its row is done again.
fn finish(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    (peer, row): (&Peer, i64),
    now: Timestamp,
    response: &Response,
) -> Result<()> {
    let id = delivery.message.id.as_str();
    let values =
        params![peer.id, id, now.as_micros(), response.content_type.as_str(), response.body.as_bytes(), row];
    let sql = tx.sql;
    one_row(tx.execute_kept(&sql.done, values)?)
}

/// A rejection's effects are rolled back, but the rejection itself is kept.
fn store_rejection(
    delivery: &Delivery<SqliteHandler>,
    tx: &mut SqliteTx<'_>,
    peer: &Peer,
    now: Timestamp,
    error: &str,
) -> Result<RowChange> {
    let id = delivery.message.id.as_str();
    let fresh = insert_claim(delivery, tx, peer, now, None)?;
    if !fresh {
        reclaim(delivery, tx, peer)?;
    }
    one_row(tx.execute(&tx.sql.dead, params![peer.id, id, now.as_micros(), error])?)?;
    Ok(RowChange { fresh, revived: false })
}

/// Makes a rejected message's row that of a message that is being handled; returns its place, and whether it was a dead
/// letter that is listed.
fn reclaim(delivery: &Delivery<SqliteHandler>, tx: &mut SqliteTx<'_>, peer: &Peer) -> Result<(i64, bool)> {
    let message = &delivery.message;
    let values = params![peer.id, message.id.as_str(), message.replay];
    let rows = tx.query(&tx.sql.reclaim, values, |row| Ok((row.get(0)?, row.get(1)?)))?;
    one_row(rows.len())?;
    Ok(rows[0])
}

fn one_row(changed: usize) -> Result<()> {
    if changed == 1 {
        return Ok(());
    }
    Err(not_as_written())
}

pub(super) fn not_as_written() -> Error {
    Error::new(
        ErrorKind::Statement,
        "the inbox row of this message is not as it was written, so nothing was committed: leave the inbox to Twobox",
    )
}

/// A row with its place.
pub(super) struct Placed {
    pub(super) row: i64,
    /// The date of the message.
    pub(super) available: i64,
    /// Whether it is a dead letter that is listed, if it is dead.
    pub(super) listed: bool,
    pub(super) record: InboxRecord,
}

/// The row of a message.
pub(super) fn record(
    connection: &Connection,
    sql: &Sql,
    peer: i64,
    id: &str,
) -> rusqlite::Result<Option<Placed>> {
    let mut statement = connection.prepare_cached(&sql.inbox_get)?;
    statement
        .query_row(params![peer, id], |row| {
            let status: String = row.get(0)?;
            let content_type: Option<String> = row.get(4)?;
            let body: Option<Vec<u8>> = row.get(5)?;
            let response = content_type.zip(body);
            let record = InboxRecord {
                // The schema allows no other text; were there one, nothing may be concluded from the row.
                status: status.parse().unwrap_or(InboxStatus::Processing),
                hash: hash(row.get(7)?, row.get(1)?),
                is_queued: row.get(8)?,
                replay: row.get(2)?,
                processed: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros),
                response: response.map(|(content_type, body)| Response {
                    content_type: content_type.into(),
                    body: Payload::new(body),
                }),
                error: row.get(6)?,
            };
            Ok(Placed { row: row.get(9)?, available: row.get(10)?, listed: row.get(11)?, record })
        })
        .optional()
}
