//! What operators wait for, with a long history in both boxes.
//!
//! The file is filled by plain SQL: what is measured is reading, and a history of this size would take long to send.

use std::time::Duration;

use twobox_core::ports::OpsStore;
use twobox_core::ports::ops::{EXAMINED_MAX, InboxFilter, OutboxFilter, OutboxStatus};
use twobox_core::{Endpoint, MessageId, Timestamp};
use twobox_sqlite::Sqlite;
use twobox_sqlite::rusqlite::{Connection, params};

use crate::Result;
use crate::lab::{Lab, timed};
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::{median, percentile};
use crate::store::check;

/// Messages in each box.
pub(crate) const MESSAGES: u64 = 5_000_000;
/// The same in a hurry.
pub(crate) const MESSAGES_QUICK: u64 = 200_000;

/// How long an operator may wait.
const P99_MICROS: f64 = 20_000.0;
/// Times each thing is asked for.
const SAMPLES: usize = 300;
/// Messages of a destination that is down: more than are looked at.
const BACKLOG: u64 = 20_000;
/// Dead letters, and messages that are tried again.
const TROUBLE: u64 = 1_000;
/// Fewer leave too little that was sent.
const MESSAGES_MIN: u64 = 2 * (BACKLOG + TROUBLE);
/// Microseconds between two messages.
const APART: i64 = 100_000;
/// When the first message was created.
const START: i64 = 1_700_000_000_000_000;

/// Fills the outbox: all sent but the backlog, of which nothing is.
const FILL_OUTBOX: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO outbox_log (message_id, source, destination, endpoint, payload, created_at)
    SELECT printf('m-%012d', i), 'shop', iif(i > ?2, 'down', 'billing'), 'Pay', printf('{\"n\":%0190d}', i), ?3 + i * ?4
    FROM n";
const FILL_LANES: &str = "
    INSERT INTO outbox_lanes (source, destination, registered_at, cursor, sending, passed, sent)
    VALUES ('shop', 'billing', ?3, ?1, ?1, ?2, ?2), ('shop', 'down', ?3, ?2, ?2, 0, 0)";
const FILL_WAITING: &str = "
    INSERT INTO outbox_waiting (seq, lane_id, message_id, source, destination, endpoint, message_type, payload,
        content_type, created_at, expires_at, state, attempts, joined, next_attempt_at, last_error, reason, finished_at)
    SELECT seq, 1, message_id, source, destination, endpoint, message_type, payload, content_type, created_at,
        created_at + 86400000000, iif(seq % 2, 'Failed', 'Pending'), 1, 1, iif(seq % 2, NULL, created_at), 'no',
        iif(seq % 2, 'rejected', NULL), iif(seq % 2, created_at, NULL)
    FROM outbox_log WHERE seq <= ?1";
/// Fills the inbox: all done but a few.
const FILL_INBOX: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO inbox (peer_id, message_id, status, endpoint, message_type, body_hash, available_at, received_at,
        processed_at, response_type, response, error)
    SELECT 1, printf('m-%012d', i), iif(i <= ?2, 'Dead', 'Done'), 'Pay', 'Signal', zeroblob(32), ?3 + i * ?4,
        ?3 + i * ?4, ?3 + i * ?4, 'application/json', x'', iif(i <= ?2, 'never', NULL)
    FROM n";
const FILL_PEERS: &str = "
    INSERT INTO inbox_peers (consumer, source, newest_available, done, died, size)
    VALUES ('billing', 'shop', ?3 + ?1 * ?4, ?1 - ?2, ?2, ?1)";

/// All figures.
pub(crate) async fn measure(lab: &mut Lab, messages: u64) -> Result<Vec<Figure>> {
    eprintln!("ops: filling both boxes with {} messages ...", thousands(messages as f64));
    let path = lab.new_folder()?.join("boxes.db");
    let db = Sqlite::open(&path).await?;
    db.migrate().await?;
    if messages < MESSAGES_MIN {
        return Err(format!(
            "--messages {messages}: at least {MESSAGES_MIN}, or there is nothing to page through"
        )
        .into());
    }
    fill(&path, messages)?;
    let view = View { db, clock: lab.clock, messages };
    let mut figures = view.outbox().await?;
    figures.extend(view.inbox().await?);
    figures.extend(crate::scrape::measure(&view.db, &view.clock).await?);
    Ok(figures)
}

fn fill(path: &std::path::Path, messages: u64) -> Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;")?;
    let (all, sent) = (i64::try_from(messages)?, i64::try_from(messages - BACKLOG)?);
    let trouble = i64::try_from(TROUBLE)?;
    let tx = connection.transaction()?;
    tx.execute(FILL_OUTBOX, params![all, sent, START, APART])?;
    tx.execute(FILL_LANES, params![all, sent, START])?;
    tx.execute(FILL_WAITING, params![trouble])?;
    tx.commit()?;
    let tx = connection.transaction()?;
    tx.execute(FILL_PEERS, params![all, trouble, START, APART])?;
    tx.execute(FILL_INBOX, params![all, trouble, START, APART])?;
    tx.commit()?;
    Ok(())
}

/// An operator.
struct View {
    db: Sqlite,
    clock: twobox_core::system::SystemClock,
    messages: u64,
}

impl View {
    /// Asks many times; the slowest hundredth is what counts.
    async fn figure<F>(&self, name: &'static str, mut ask: impl FnMut() -> F) -> Result<Figure>
    where
        F: Future<Output = Result<()>>,
    {
        eprintln!("ops: {name} ...");
        let mut micros = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let ((), took) = timed(&self.clock, ask()).await?;
            micros.push(took.as_secs_f64() * 1e6);
        }
        let detail = format!("p50 {:.0} us, {} messages", median(&micros), thousands(self.messages as f64));
        Ok(Figure::new(name, percentile(&micros, 99), Unit::Micros)
            .target(Target::Below(P99_MICROS))
            .detail(detail)
            .samples(micros))
    }

    /// A date in the middle of the history.
    fn middle(&self) -> Timestamp {
        let micros = i64::try_from(self.messages / 2).unwrap_or(0).saturating_mul(APART);
        Timestamp::from_micros(START).plus(Duration::from_micros(micros.unsigned_abs()))
    }

    async fn outbox(&self) -> Result<Vec<Figure>> {
        let db = &self.db;
        let nothing = OutboxFilter { endpoint: Some(Endpoint::new("Nothing")?), ..OutboxFilter::default() };
        let old = OutboxFilter { created_until: Some(self.middle()), ..OutboxFilter::default() };
        let failed = OutboxFilter { status: Some(OutboxStatus::Failed), ..OutboxFilter::default() };
        let all = OutboxFilter::default();
        let deep = db.outbox_list(&old, None, 50).await?.next;
        let stats = db.outbox_stats(EXAMINED_MAX).await?;
        check("messages pending", BACKLOG, stats.pending)?;
        check("messages enqueued", self.messages, stats.enqueued)?;
        let id = MessageId::new(format!("m-{:012}", self.messages / 2))?;
        let full = |found: usize| check("messages of a page", 50, found as u64);
        let list = async |filter: &OutboxFilter, after: Option<&_>| {
            full(db.outbox_list(filter, after, 50).await?.items.len())
        };
        Ok(vec![
            self.figure("outbox, first page", || list(&all, None)).await?,
            self.figure("outbox, deep page", || list(&all, deep.as_ref())).await?,
            self.figure("outbox, page by date", || list(&old, None)).await?,
            self.figure("outbox, failed", || list(&failed, None)).await?,
            self.figure("outbox, search that finds nothing", async || {
                let page = db.outbox_list(&nothing, None, 50).await?;
                check("rows looked at", EXAMINED_MAX as u64, page.examined as u64)
            })
            .await?,
            self.figure("outbox, one message", async || {
                check("messages found", 1, db.outbox_message(&id).await?.len() as u64)
            })
            .await?,
            self.figure("outbox, stats with a backlog", async || {
                check("messages pending", BACKLOG, db.outbox_stats(EXAMINED_MAX).await?.pending)
            })
            .await?,
            self.figure("outbox, stats without a look", async || {
                check("messages pending", BACKLOG, db.outbox_stats(0).await?.pending)
            })
            .await?,
        ])
    }

    async fn inbox(&self) -> Result<Vec<Figure>> {
        let db = &self.db;
        let nothing = InboxFilter { endpoint: Some(Endpoint::new("Nothing")?), ..InboxFilter::default() };
        let old = InboxFilter { received_until: Some(self.middle()), ..InboxFilter::default() };
        let dead =
            InboxFilter { status: Some(twobox_core::ports::InboxStatus::Dead), ..InboxFilter::default() };
        let all = InboxFilter::default();
        let deep = db.inbox_list(&old, None, 50).await?.next;
        let list = async |filter: &InboxFilter, after: Option<&_>| {
            check("messages of a page", 50, db.inbox_list(filter, after, 50).await?.items.len() as u64)
        };
        Ok(vec![
            self.figure("inbox, first page", || list(&all, None)).await?,
            self.figure("inbox, deep page", || list(&all, deep.as_ref())).await?,
            self.figure("inbox, page by date", || list(&old, None)).await?,
            self.figure("inbox, dead", || list(&dead, None)).await?,
            self.figure("inbox, search that finds nothing", async || {
                let page = db.inbox_list(&nothing, None, 50).await?;
                check("rows looked at", EXAMINED_MAX as u64, page.examined as u64)
            })
            .await?,
            self.figure("inbox, stats", async || {
                check("rows", self.messages, db.inbox_stats().await?.total.rows)
            })
            .await?,
        ])
    }
}
