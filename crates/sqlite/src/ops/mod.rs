//! What operators see and steer. Reads are one snapshot each, and none costs more because more is retained.

mod audit;
mod dead;
pub(crate) mod detail;
mod inbox;
mod lanes;
mod outbox;
mod range;
mod stats;
mod token;

use rusqlite::{Connection, params};
use twobox_core::ports::ops::{
    AuditEntry, AuditFilter, AuditId, AuditOutcome, AuditRecord, BlockedWorkKey, InboxDetail, InboxFilter,
    InboxStats, InboxSummary, NOTE_CHARS_MAX, OutboxDetail, OutboxFilter, OutboxStats, OutboxSummary,
    PAGE_MAX, Page, PageToken,
};
use twobox_core::ports::{DeadLetter, DeadLetterFilter, DeadWork, OpsStore, WorkFilter};
use twobox_core::{Consumer, Destination, Error, MessageId, Result, Source};

use crate::Sqlite;
use crate::error::wrap;
use crate::sql::Sql;
use crate::writer::Class;

impl OpsStore for Sqlite {
    fn position_text(position: &i64) -> String {
        position.to_string()
    }

    fn parse_position(text: &str) -> Result<i64> {
        outbox::parse_position(text)
    }

    async fn outbox_stats(&self, examine: usize) -> Result<OutboxStats> {
        let (table, now) = (self.log_table(), self.options.clock.now());
        self.snapshot(move |connection, sql| stats::outbox(connection, sql, &table, examine, now)).await
    }

    async fn inbox_stats(&self) -> Result<InboxStats> {
        self.snapshot(stats::inbox).await
    }

    async fn outbox_list(
        &self,
        filter: &OutboxFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> Result<Page<OutboxSummary<i64>>> {
        let (table, filter, after) = (self.log_table(), filter.clone(), after.cloned());
        self.snapshot(move |connection, sql| {
            outbox::list(connection, sql, &table, &filter, after.as_ref(), limit)
        })
        .await
    }

    async fn inbox_list(
        &self,
        filter: &InboxFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> Result<Page<InboxSummary>> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.snapshot(move |connection, sql| inbox::list(connection, sql, &filter, after.as_ref(), limit))
            .await
    }

    async fn dead_letter_list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> Result<Page<DeadLetter<i64>>> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.snapshot(move |connection, sql| dead::letters(connection, sql, &filter, after.as_ref(), limit))
            .await
    }

    async fn dead_work_list(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> Result<Page<DeadWork>> {
        let (consumer, filter, after) = (consumer.clone(), filter.clone(), after.cloned());
        self.snapshot(move |connection, sql| {
            dead::work(connection, sql, &consumer, &filter, after.as_ref(), limit)
        })
        .await
    }

    async fn outbox_message(&self, id: &MessageId) -> Result<Vec<OutboxDetail<i64>>> {
        let id = id.clone();
        self.snapshot(move |connection, sql| detail::outbox(connection, sql, &id)).await
    }

    async fn inbox_message(&self, id: &MessageId) -> Result<Vec<InboxDetail>> {
        let id = id.clone();
        self.snapshot(move |connection, sql| detail::inbox(connection, sql, &id)).await
    }

    async fn blocked_work_keys(&self, limit: usize) -> Result<Vec<BlockedWorkKey>> {
        self.snapshot(move |connection, sql| dead::blocked(connection, sql, limit)).await
    }

    async fn pause_lane(
        &self,
        source: &Source,
        destination: &Destination,
        by: &str,
        reason: &str,
    ) -> Result<bool> {
        check_note("who pauses a lane", by)?;
        check_note("the reason for a pause", reason)?;
        let db = self.clone();
        let texts = [source.as_str(), destination.as_str(), by, reason].map(str::to_owned);
        self.write(Class::Synced, move |tx| {
            let [source, destination, by, reason] = &texts;
            let now = db.options.clock.now().as_micros();
            let values = params![source, destination, now, by, reason];
            let paused = tx.execute(&tx.sql.ops_pause_lane, values)? > 0;
            tx.note_steered();
            Ok(paused)
        })
        .await
    }

    async fn resume_lane(&self, source: &Source, destination: &Destination) -> Result<bool> {
        let names = [source.as_str(), destination.as_str()].map(str::to_owned);
        self.write(Class::Synced, move |tx| {
            let resumed = tx.execute(&tx.sql.ops_resume_lane, params![names[0], names[1]])? > 0;
            tx.note_steered();
            Ok(resumed)
        })
        .await
    }

    async fn begin_audit(&self, entry: &AuditEntry) -> Result<AuditId> {
        audit::check(entry)?;
        let (db, entry) = (self.clone(), entry.clone());
        self.write(Class::Synced, move |tx| audit::begin(&db, tx, &entry)).await
    }

    async fn end_audit(
        &self,
        id: AuditId,
        outcome: AuditOutcome,
        result: Option<&serde_json::Value>,
    ) -> Result<()> {
        let result = result.map(audit::check_json).transpose()?;
        self.write(Class::Synced, move |tx| audit::end(tx, id, outcome, result.as_deref())).await
    }

    async fn audit_list(
        &self,
        filter: &AuditFilter,
        after: Option<&PageToken>,
        limit: usize,
    ) -> Result<Page<AuditRecord>> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.snapshot(move |connection, sql| audit::list(connection, sql, &filter, after.as_ref(), limit))
            .await
    }
}

impl Sqlite {
    fn log_table(&self) -> String {
        format!("{}outbox_log", self.options.prefix.as_str())
    }

    /// Runs reads that belong together: what is committed in between is seen by all of them or by none.
    async fn snapshot<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, &Sql) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.read(move |connection, sql| {
            let transaction = connection.unchecked_transaction().map_err(wrap("begin to read"))?;
            read(&transaction, sql)
        })
        .await
    }
}

/// The longest page of a listing that asks for this many.
fn page_limit(limit: usize) -> usize {
    limit.clamp(1, PAGE_MAX)
}

/// Refuses a text that nobody would write by hand.
fn check_note(what: &str, text: &str) -> Result<()> {
    let chars = text.chars().count();
    if chars > NOTE_CHARS_MAX {
        return Err(Error::invalid(format!("{what} has {chars} characters, more than {NOTE_CHARS_MAX}")));
    }
    Ok(())
}
