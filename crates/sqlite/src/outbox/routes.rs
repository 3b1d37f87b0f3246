//! Destinations that nobody has registered are found in the log.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use rusqlite::{Connection, OptionalExtension, params};
use twobox_core::ports::Discovered;
use twobox_core::{Result, Source, crash_point};

use crate::Sqlite;
use crate::error::wrap;
use crate::row::raw;
use crate::sql::Sql;
use crate::sync::{Mutex, MutexGuard};
use crate::writer::Class;

/// Rows looked at in one search for destinations without a lane.
const SEARCH_ROWS: i64 = 20_000;

/// Up to where all messages of a source are known to have a lane. Whoever reads the log for its lanes has seen their
/// destinations, and need not have it searched again.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Places from before the file was reopened mean nothing afterwards.
    epoch: u64,
    upto: BTreeMap<Source, i64>,
}

impl Routes {
    /// The file was reopened.
    pub(crate) fn forget(&self, epoch: u64) {
        *self.lock() = Known { epoch, upto: BTreeMap::new() };
    }

    /// All messages of the source behind `after`, up to `upto`, have a lane.
    pub(super) fn seen(&self, epoch: u64, source: &Source, after: i64, upto: i64) {
        let mut known = self.lock();
        if known.epoch != epoch {
            return;
        }
        // What lies in between, if it does not begin where others have ended, nobody has looked at.
        if let Some(known) = known.upto.get_mut(source).filter(|known| after <= **known) {
            *known = upto.max(*known);
        }
    }

    /// A search from where nothing else was known has come so far.
    fn searched(&self, epoch: u64, source: &Source, upto: i64) {
        let mut known = self.lock();
        if known.epoch == epoch {
            let known = known.upto.entry(source.clone()).or_insert(upto);
            *known = upto.max(*known);
        }
    }

    fn upto(&self, source: &Source) -> Option<i64> {
        self.lock().upto.get(source).copied()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a search has found.
struct Found {
    /// New destinations, as they are stored, with their first message.
    lanes: Vec<(Vec<u8>, i64)>,
    /// How far was looked, and where the log ends.
    upto: i64,
    end: i64,
    /// From where the next process would look.
    stored: i64,
}

impl Sqlite {
    /// Makes lanes for destinations in the log that have none.
    pub(super) async fn search_log(&self, source: &Source) -> Result<Discovered> {
        let epoch = self.epoch();
        let name = format!("routes:{source}");
        let table = format!("{}outbox_log", self.options.prefix.as_str());
        let (of, key, known) = (source.clone(), name.clone(), self.state.routes.upto(source));
        let found = self
            .read(move |connection, sql| {
                search(connection, sql, &of, (&key, known), &table).map_err(wrap("look for new destinations"))
            })
            .await?;
        let discovered = Discovered { found: !found.lanes.is_empty(), more: found.upto < found.end };
        let upto = found.upto;
        if discovered.found || found.upto - found.stored >= SEARCH_ROWS {
            self.store_found(epoch, name, source.clone(), found).await?;
        }
        self.state.routes.searched(epoch, source, upto);
        Ok(discovered)
    }

    async fn store_found(&self, epoch: u64, name: String, source: Source, found: Found) -> Result<()> {
        let db = self.clone();
        self.write(Class::Lazy, move |tx| {
            if db.epoch() != epoch {
                return Ok(()); // what was found may not be there any more
            }
            let now = db.options.clock.now().as_micros();
            for (destination, first) in &found.lanes {
                tx.execute(&tx.sql.insert_lane, params![source.as_str(), destination, now, first - 1])?;
                crash_point!("lanes.discovered");
            }
            tx.execute(&tx.sql.meta_put, params![name, found.upto]).map(drop)
        })
        .await
    }
}

/// Looks from where the last search has ended, or from where the lanes of the messages are `known`.
fn search(
    connection: &Connection,
    sql: &Sql,
    source: &Source,
    (key, known): (&str, Option<i64>),
    table: &str,
) -> rusqlite::Result<Found> {
    let stored: Option<i64> =
        connection.prepare_cached(&sql.meta_get)?.query_row([key], |row| row.get(0)).optional()?;
    let stored = stored.unwrap_or(0);
    let end: i64 = connection.prepare_cached(&sql.log_end)?.query_row([table], |row| row.get(0))?;
    let from = stored.max(known.unwrap_or(stored)).min(end);
    let upto = end.min(from.saturating_add(SEARCH_ROWS));
    let mut statement = connection.prepare_cached(&sql.discover_lanes)?;
    let lanes = statement
        .query_map(params![source.as_str(), from, upto], |row| Ok((raw(row, 0)?.to_vec(), row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Found { lanes, upto, end, stored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_joins_on_is_known() {
        let (routes, shop) = (Routes::default(), Source::new("shop").unwrap());
        let upto = || routes.upto(&shop);
        routes.forget(1);
        routes.seen(1, &shop, 0, 10);
        assert_eq!(upto(), None, "nobody has looked at what was there before");
        routes.searched(1, &shop, 100);
        routes.seen(1, &shop, 90, 110);
        assert_eq!(upto(), Some(110));
        routes.seen(1, &shop, 111, 120);
        assert_eq!(upto(), Some(110), "nobody has looked at the one in between");
        routes.seen(1, &shop, 50, 60);
        routes.searched(1, &shop, 105);
        assert_eq!(upto(), Some(110), "it never goes back");
        assert_eq!(routes.upto(&Source::new("bank").unwrap()), None);
        routes.forget(2);
        assert_eq!(upto(), None);
        routes.searched(1, &shop, 110);
        assert_eq!(upto(), None, "from before the file was reopened");
        routes.searched(2, &shop, 100);
        routes.seen(1, &shop, 90, 110);
        assert_eq!(upto(), Some(100));
    }
}
