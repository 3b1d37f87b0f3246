//! Which boxes these are, and which those of others were met.

use rusqlite::params;
use twobox_core::ports::{InstanceStore, LaneLease, Met, MetOutbox};
use twobox_core::{Consumer, Result, Source, Timestamp};

use crate::backup::INBOX_INSTANCE;
use crate::error::wrap;
use crate::inbox::job;
use crate::writer::Class;
use crate::{Row, Sqlite, SqliteTx};

/// Outboxes of one source that are remembered.
const OUTBOXES_MAX: i64 = 64;

impl InstanceStore for Sqlite {
    async fn inbox_instance(&self) -> Result<String> {
        self.read(|connection, sql| {
            connection
                .prepare_cached(&sql.meta_get)
                .and_then(|mut statement| statement.query_row([INBOX_INSTANCE], |row| row.get(0)))
                .map_err(wrap("read which inbox this is"))
        })
        .await
    }

    async fn meet_outbox(&self, consumer: &Consumer, source: &Source, outbox: &str) -> Result<Met> {
        let (clock, names, outbox) = (self.clock(), (consumer.clone(), source.clone()), outbox.to_owned());
        self.write(Class::Synced, move |tx| meet(tx, &names, &outbox, clock.now())).await
    }

    async fn met_outboxes(&self) -> Result<Vec<MetOutbox>> {
        self.read(|connection, sql| {
            let failed = || wrap("list the outboxes that were met");
            let mut statement = connection.prepare_cached(&sql.inbox_met_outboxes).map_err(failed())?;
            let rows = statement.query_map([], |row| Ok(met(&Row::new(row)))).map_err(failed())?;
            rows.map(|row| row.map_err(failed())?).collect()
        })
        .await
    }
}

fn met(row: &Row<'_>) -> Result<MetOutbox> {
    let mut met = MetOutbox::new(Consumer::new(row.get::<String>(0)?)?, Source::new(row.get::<String>(1)?)?);
    met.outbox = row.get(2)?;
    met.changed = row.get::<Option<i64>>(3)?.map(Timestamp::from_micros);
    met.changes = u64::try_from(row.get::<i64>(4)?).unwrap_or(0);
    Ok(met)
}

fn meet(tx: &mut SqliteTx<'_>, names: &(Consumer, Source), outbox: &str, now: Timestamp) -> Result<Met> {
    let peer = job::find(tx, &names.0, &names.1)?.id;
    let first = tx.execute(&tx.sql.inbox_meet_outbox, params![peer, outbox, now.as_micros()])? == 1;
    let other =
        tx.query_optional(&tx.sql.inbox_other_outbox, params![peer, outbox], |row| row.get::<i64>(0))?;
    let changed = first && other.is_some();
    let since = changed.then(|| now.as_micros());
    tx.execute(&tx.sql.inbox_peer_outbox, params![peer, outbox, since])?;
    tx.execute(&tx.sql.inbox_forget_outboxes, [peer, OUTBOXES_MAX])?;
    Ok(if changed { Met::Changed } else { Met::Known })
}

impl Sqlite {
    /// Remembers which inbox answers on a lane.
    pub(crate) async fn note_inbox(&self, lease: &LaneLease<i64>, inbox: &str) -> Result<Met> {
        let (db, lease, inbox) = (self.clone(), lease.clone(), inbox.to_owned());
        self.write(Class::Synced, move |tx| {
            let values = params![lease.lane.0, lease.token, inbox, db.options.clock.now().as_micros()];
            let changed = tx.query_optional(&tx.sql.meet_inbox, values, |row| row.get::<bool>(0))?;
            db.fenced(&lease, usize::from(changed.is_some()))?;
            Ok(if changed == Some(true) { Met::Changed } else { Met::Known })
        })
        .await
    }
}
