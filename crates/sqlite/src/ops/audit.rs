//! What operators did, written down before it is done.

use rusqlite::{Connection, Row, params};
use twobox_core::ports::ops::{
    AUDIT_DETAIL_BYTES_MAX, AuditEntry, AuditFilter, AuditId, AuditOutcome, AuditRecord, EXAMINED_MAX, Page,
    PageToken,
};
use twobox_core::{Error, Result, Timestamp};

use super::{check_note, page_limit, token};
use crate::error::wrap;
use crate::row::lossy;
use crate::sql::Sql;
use crate::{Sqlite, SqliteTx};

/// The kind of its page tokens.
const KIND: char = 'a';

/// Refuses what would make the trail a place to keep things in.
pub(super) fn check(entry: &AuditEntry) -> Result<()> {
    check_note("actor", &entry.actor)?;
    check_note("action", &entry.action)?;
    check_note("subject", &entry.subject)?;
    check_json(&entry.detail).map(drop)
}

/// A JSON object as text.
pub(super) fn check_json(detail: &serde_json::Value) -> Result<String> {
    let text = detail.to_string();
    if !detail.is_object() || text.len() > AUDIT_DETAIL_BYTES_MAX {
        return Err(Error::invalid(format!(
            "details of an action have to be a JSON object of at most {AUDIT_DETAIL_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

pub(super) fn begin(db: &Sqlite, tx: &mut SqliteTx<'_>, entry: &AuditEntry) -> Result<AuditId> {
    let at = db.options.clock.now().as_micros();
    let values = params![at, entry.actor, entry.action, entry.subject, entry.detail.to_string()];
    tx.execute(&tx.sql.ops_audit_begin, values)?;
    Ok(AuditId(tx.connection.last_insert_rowid()))
}

pub(super) fn end(
    tx: &mut SqliteTx<'_>,
    id: AuditId,
    outcome: AuditOutcome,
    result: Option<&str>,
) -> Result<()> {
    tx.execute(&tx.sql.ops_audit_end, params![id.0, outcome.as_str(), result]).map(drop)
}

pub(super) fn list(
    connection: &Connection,
    sql: &Sql,
    filter: &AuditFilter,
    after: Option<&PageToken>,
    limit: usize,
) -> Result<Page<AuditRecord>> {
    let [mut last] = token::read::<1>(KIND, after)?.unwrap_or([i64::MAX]);
    let limit = page_limit(limit);
    let mut read = || {
        let mut page = Page { items: Vec::new(), next: None, examined: 0 };
        let mut statement = connection.prepare_cached(&sql.ops_audit_rows)?;
        let mut rows = statement.query([last, i64::try_from(EXAMINED_MAX).unwrap_or(i64::MAX)])?;
        while page.items.len() < limit && page.examined < EXAMINED_MAX {
            let Some(row) = rows.next()? else { return Ok(page) };
            page.examined += 1;
            let record = record(row)?;
            last = record.id.0;
            page.items.extend(Some(record).filter(|record| matches(record, filter)));
        }
        page.next = Some(token::write(KIND, &[last]));
        Ok(page)
    };
    read().map_err(wrap("list the audit trail"))
}

fn record(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    let text = |column| Ok::<_, rusqlite::Error>(lossy(row, column)?.unwrap_or_default());
    let json = |text: String| serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
    Ok(AuditRecord {
        id: AuditId(row.get(0)?),
        at: Timestamp::from_micros(row.get(1)?),
        entry: AuditEntry { actor: text(2)?, action: text(3)?, subject: text(4)?, detail: json(text(5)?) },
        // The schema allows no other text.
        outcome: text(6)?.parse().unwrap_or(AuditOutcome::Begun),
        result: lossy(row, 7)?.map(json),
    })
}

fn matches(record: &AuditRecord, filter: &AuditFilter) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    is(&filter.actor, &record.entry.actor)
        && is(&filter.action, &record.entry.action)
        && is(&filter.subject, &record.entry.subject)
}
