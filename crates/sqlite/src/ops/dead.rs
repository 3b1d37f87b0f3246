//! Dead letters of both boxes, page by page, and keys of the inbox that wait for somebody.

use rusqlite::{Connection, params};
use twobox_core::lifecycle::Reason;
use twobox_core::ports::ops::{BlockedWorkKey, EXAMINED_MAX, Page, PageToken};
use twobox_core::ports::{DeadLetter, DeadLetterFilter, DeadWork, WorkFilter};
use twobox_core::{Consumer, OrderingKey, Result, Source, Timestamp};

use super::stats::peers;
use super::{page_limit, token};
use crate::error::wrap;
use crate::outbox::dead_letters::{find, letter};
use crate::row::lossy;
use crate::sql::Sql;

/// The kinds of their page tokens.
const LETTERS: char = 'd';
const WORK: char = 'w';

/// Messages behind a blocked key are counted up to this.
const BEHIND_MAX: i64 = 10_000;

/// Before every death: when it was, and where.
const FROM_THE_START: [i64; 2] = [i64::MIN, i64::MIN];

pub(super) fn letters(
    connection: &Connection,
    sql: &Sql,
    filter: &DeadLetterFilter,
    after: Option<&PageToken>,
    limit: usize,
) -> Result<Page<DeadLetter<i64>>> {
    let after = token::read::<2>(LETTERS, after)?.unwrap_or(FROM_THE_START);
    let read = || {
        if filter.message_id.is_some() {
            let found = find(connection, sql, filter, (after[0], after[1]), page_limit(limit) + 1)?;
            return Ok(of_one_id(LETTERS, limit, found, |letter| [letter.died.as_micros(), letter.position]));
        }
        let most = i64::try_from(EXAMINED_MAX).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(&sql.ops_dead_letters)?;
        let mut rows = statement.query(params![after[0], after[1], most])?;
        walk(LETTERS, limit, || {
            let Some(row) = rows.next()? else { return Ok(None) };
            let (source, letter) = (lossy(row, 10)?, letter(row)?);
            let place = [letter.died.as_micros(), letter.position];
            let wanted = letter_matches(&letter, source.as_deref(), filter);
            Ok(Some((place, wanted.then_some(letter))))
        })
    };
    read().map_err(wrap("list dead letters"))
}

fn letter_matches(letter: &DeadLetter<i64>, source: Option<&str>, filter: &DeadLetterFilter) -> bool {
    filter.source.as_ref().is_none_or(|wanted| source == Some(wanted.as_str()))
        && filter.destination.as_ref().is_none_or(|wanted| wanted.as_str() == letter.destination)
        && filter.endpoint.as_ref().is_none_or(|wanted| wanted.as_str() == letter.endpoint)
        && filter.reason.is_none_or(|wanted| wanted == letter.reason)
        && filter.died_before.is_none_or(|before| letter.died < before)
}

/// A page of what has one message id, of which there may be one more than fits.
fn of_one_id<T>(kind: char, limit: usize, mut items: Vec<T>, place: impl Fn(&T) -> [i64; 2]) -> Page<T> {
    let limit = page_limit(limit);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| token::write(kind, &place(last)));
    let examined = items.len();
    Page { items, next, examined }
}

/// Takes rows until enough were found or looked at. Each comes with its place, and with itself if it matches.
fn walk<T>(
    kind: char,
    limit: usize,
    mut next: impl FnMut() -> rusqlite::Result<Option<([i64; 2], Option<T>)>>,
) -> rusqlite::Result<Page<T>> {
    let limit = page_limit(limit);
    let mut page = Page { items: Vec::new(), next: None, examined: 0 };
    let mut last = FROM_THE_START;
    while page.items.len() < limit && page.examined < EXAMINED_MAX {
        let Some((place, found)) = next()? else { return Ok(page) };
        last = place;
        page.examined += 1;
        page.items.extend(found);
    }
    page.next = Some(token::write(kind, &last));
    Ok(page)
}

pub(super) fn work(
    connection: &Connection,
    sql: &Sql,
    consumer: &Consumer,
    filter: &WorkFilter,
    after: Option<&PageToken>,
    limit: usize,
) -> Result<Page<DeadWork>> {
    let after = token::read::<2>(WORK, after)?.unwrap_or(FROM_THE_START);
    let read = || {
        if filter.id.is_some() {
            let (after, limit_and_one) = ((after[0], after[1]), page_limit(limit) + 1);
            let found = crate::queue::dead_of_id(connection, sql, consumer, filter, after, limit_and_one)?;
            return Ok(of_one_id(WORK, limit, found, |letter| [letter.died.as_micros(), letter.place]));
        }
        let peers = peers(connection, sql)?;
        let most = i64::try_from(EXAMINED_MAX).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(&sql.ops_dead_work)?;
        let mut rows = statement.query(params![after[0], after[1], most])?;
        walk(WORK, limit, || {
            let Some(row) = rows.next()? else { return Ok(None) };
            let of: i64 = row.get(1)?;
            let peer = peers.iter().find(|peer| peer.id == of && peer.consumer == consumer.as_str());
            let place = [row.get(8)?, row.get(0)?];
            let letter = match peer {
                Some(peer) => Some(dead_work(row, peer.source.clone())?),
                None => None,
            };
            Ok(Some((place, letter.filter(|letter| work_matches(letter, filter)))))
        })
    };
    read().map_err(wrap("list dead letters of the inbox"))
}

fn dead_work(row: &rusqlite::Row<'_>, source: String) -> rusqlite::Result<DeadWork> {
    Ok(DeadWork {
        place: row.get(0)?,
        source,
        id: lossy(row, 2)?.unwrap_or_default(),
        topic: lossy(row, 3)?.unwrap_or_default(),
        ordering_key: lossy(row, 4)?,
        // What was never queued has none of its own.
        reason: lossy(row, 5)?.and_then(|reason| reason.parse().ok()).unwrap_or(Reason::Rejected),
        error: lossy(row, 6)?,
        attempts: row.get(7)?,
        died: Timestamp::from_micros(row.get(8)?),
        blocks_key: row.get(9)?,
    })
}

fn work_matches(letter: &DeadWork, filter: &WorkFilter) -> bool {
    filter.source.as_ref().is_none_or(|wanted| wanted.as_str() == letter.source)
        && filter.topic.as_ref().is_none_or(|wanted| wanted.as_str() == letter.topic)
        && filter.reason.is_none_or(|wanted| wanted == letter.reason)
        && filter.died_before.is_none_or(|before| letter.died < before)
}

/// Keys of the inbox that wait for an operator.
pub(super) fn blocked(connection: &Connection, sql: &Sql, limit: usize) -> Result<Vec<BlockedWorkKey>> {
    let read = || {
        let peers = peers(connection, sql)?;
        let mut statement = connection.prepare_cached(&sql.ops_blocked_work)?;
        let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            let (of, key) = (row.get::<_, i64>(0)?, lossy(row, 1)?.unwrap_or_default());
            let (head, waiting): (String, i64) = connection
                .prepare_cached(&sql.ops_work_behind)?
                .query_row(params![of, key, BEHIND_MAX], |row| {
                    Ok((lossy(row, 0)?.unwrap_or_default(), row.get(1)?))
                })?;
            let peer = peers.iter().find(|peer| peer.id == of);
            keys.extend(peer.and_then(|peer| {
                // Only a key that can be named can be released; one that cannot does not hide the others (S19).
                Some(BlockedWorkKey {
                    consumer: Consumer::new(&peer.consumer).ok()?,
                    source: Source::new(&peer.source).ok()?,
                    ordering_key: OrderingKey::new(&key).ok()?,
                    head,
                    waiting: waiting.unsigned_abs(),
                })
            }));
        }
        Ok(keys)
    };
    read().map_err(wrap("list blocked keys of the inbox"))
}
