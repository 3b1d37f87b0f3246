//! What the databases say at the end.

use twobox_core::Error;
use twobox_sqlite::VerifyOptions;
use twobox_testkit::history::{Event, Standing};

use super::process::{Node, Process};
use super::stage::Stage;
use super::tally::Kind;
use super::work;

const OPEN: &str = "
    SELECT (SELECT count(*) FROM outbox_messages WHERE status NOT IN ('Sent', 'Failed', 'Expired'))
        + (SELECT count(*) FROM inbox_queue WHERE state = 'Open')";
const ROWS: &str = "SELECT id, place FROM orders ORDER BY place";
const EFFECTS: &str = "SELECT id, of, place FROM effects ORDER BY place";
const STANDS: &str = "
    SELECT m.message_id, trim(CAST(m.payload AS TEXT), '\"'), m.status, w.reason
    FROM outbox_messages AS m LEFT JOIN outbox_waiting AS w ON w.seq = m.seq
    ORDER BY m.seq";
const QUEUE: &str = "
    SELECT coalesce(i.message_id, 'nobody''s'), trim(CAST(q.payload AS TEXT), '\"')
    FROM inbox_queue AS q LEFT JOIN inbox AS i ON i.row_id = q.item_id
    ORDER BY q.item_id";

/// Peers of whom something was forgotten.
const FORGOTTEN: &str = "SELECT 1 FROM inbox_peers WHERE watermark > -9223372036854775808";

/// Counters that are kept with the rows they count, and what is counted now. Rejections in the handler's transaction are
/// the sender's dead letters.
const COUNTERS: &str = "
    SELECT 'lane ' || destination || ': ' || kept || ' is kept, ' || counted || ' is counted'
    FROM (
        SELECT destination,
            printf('%d %d %d %d', retrying, scheduled, held, dead) AS kept,
            (SELECT printf('%d %d %d %d',
                    coalesce(sum(next_attempt_at IS NOT NULL), 0),
                    coalesce(sum(state = 'Pending' AND joined IS NULL), 0),
                    coalesce(sum(state = 'Pending' AND joined IS NOT NULL AND next_attempt_at IS NULL), 0),
                    coalesce(sum(reason IS NOT NULL AND replayed_as IS NULL), 0))
                FROM outbox_waiting AS w WHERE w.lane_id = n.lane_id) AS counted
        FROM outbox_lanes AS n)
    WHERE kept <> counted
    UNION ALL
    SELECT 'log: ' || kept || ' pending is kept, ' || counted || ' is counted'
    FROM (
        SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox_log'), 0)
                - (SELECT coalesce(sum(passed), 0) FROM outbox_lanes) AS kept,
            (SELECT count(*) FROM outbox_log AS g
                WHERE seq > coalesce((SELECT cursor FROM outbox_lanes AS n
                    WHERE n.source = g.source AND n.destination = g.destination), 0)) AS counted)
    WHERE kept <> counted
    UNION ALL
    SELECT 'peer ' || source || ': ' || kept || ' is kept, ' || counted || ' is counted'
    FROM (
        SELECT source,
            printf('%d %d %d', size, queued, dead) AS kept,
            printf('%d %d %d',
                (SELECT count(*) FROM inbox AS i WHERE i.peer_id = p.peer_id),
                (SELECT count(*) FROM inbox_queue AS q WHERE q.peer_id = p.peer_id AND q.state = 'Open'),
                (SELECT count(*) FROM inbox AS i
                    WHERE i.peer_id = p.peer_id AND i.status IN ('Dead', 'Expired') AND i.handler IS NOT NULL)) AS counted
        FROM inbox_peers AS p)
    WHERE kept <> counted";

/// How many messages of a node are neither sent nor handled nor dead.
pub(super) async fn open_messages(process: &Process) -> Result<i64, Error> {
    let count = process
        .db
        .transaction::<_, Error, _>(|tx| {
            tx.query_optional(OPEN, [], |row| row.get(0)).map(Option::unwrap_or_default)
        })
        .await;
    count.inspect_err(|error| process.note_stopped(error))
}

/// Appends everything a node's database says.
pub(super) async fn read(stage: &Stage, node: &Node, process: &Process) -> Result<(), Error> {
    let letters = work::dead(node, process).await?;
    letters.iter().for_each(|_| stage.count(Kind::WorkDead));
    let events = process.db.transaction::<_, Error, _>(move |tx| {
        let mut events = tx.query(ROWS, [], |row| Ok(Event::Row { id: row.get(0)?, place: row.get(1)? }))?;
        events.extend(tx.query(EFFECTS, [], |row| {
            Ok(Event::Effect { id: row.get(0)?, of: row.get(1)?, place: row.get(2)? })
        })?);
        events.extend(tx.query(STANDS, [], |row| {
            let (status, reason): (String, Option<String>) = (row.get(2)?, row.get(3)?);
            let standing = match status.as_str() {
                "Sent" => Standing::Sent,
                "Failed" | "Expired" => Standing::Dead(reason.unwrap_or_default()),
                _ => Standing::Open,
            };
            Ok(Event::Stands { id: row.get(0)?, of: row.get(1)?, standing })
        })?);
        events.extend(tx.query(QUEUE, [], |row| {
            let id: String = row.get(0)?;
            // What no operator is shown is not dead with a reason.
            let letter = letters.iter().find(|letter| letter.id == id);
            let standing = letter.map_or(Standing::Open, |letter| Standing::Dead(letter.reason.to_string()));
            Ok(Event::Work { id, of: row.get(1)?, standing })
        })?);
        events.extend(tx.query(COUNTERS, [], |row| Ok(Event::Unsound(row.get(0)?)))?);
        Ok(events)
    });
    let events = events.await?;
    let forgotten = process.db.transaction::<_, Error, _>(|tx| tx.query(FORGOTTEN, [], |_| Ok(()))).await?;
    forgotten.iter().for_each(|()| stage.count(Kind::Purged));
    count_swept(stage, &events);
    events.into_iter().for_each(|event| stage.note(&node.name, event));
    Ok(())
}

/// Verifies the file of a node, whose process has ended, as an operator would.
pub(super) fn verify(stage: &Stage, node: &Node) -> Result<(), Error> {
    let verified = twobox_sqlite::verify(&node.path, VerifyOptions::Full)?;
    for finding in verified.findings {
        stage.note(&node.name, Event::Unsound(finding.to_string()));
    }
    Ok(())
}

/// Rows of authors whose messages stand nowhere any more.
fn count_swept(stage: &Stage, events: &[Event]) {
    let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
    let rows = count(|event| matches!(event, Event::Row { .. }));
    // What operators have removed stands nowhere either.
    let purged = usize::try_from(stage.tally().of(Kind::LetterPurged)).unwrap_or(usize::MAX);
    let stands = count(|event| matches!(event, Event::Stands { .. }));
    (stands.saturating_add(purged)..rows).for_each(|_| stage.count(Kind::Swept));
}
