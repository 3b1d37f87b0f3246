//! L2: the view `outbox_messages` says what a plain status table would say, after any sequence of events; and so do the
//! listing and the counters for operators.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use support::SqliteFixture;
use twobox_core::lifecycle::{Event, Reason, Standing, State, step};
use twobox_core::ports::ops::OutboxFilter;
use twobox_core::ports::{
    DeadLetterFilter, DeadLetterStore, HeadPolicy, LaneLease, LaneStore, LogEntry, LogStore, Look,
    NewWaiting, OpsStore, ReadLog, Replay, Settlement, TakeLanes, WaitingOutcome, WaitingStore,
};
use twobox_core::retry::Policy;
use twobox_core::{Clock, Destination, Message, NewMessage, Source, Stamp, Timestamp};
use twobox_sqlite::Sqlite;
use twobox_testkit::SeededRandom;
use twobox_testkit::conformance::StoreFixture;

/// What can happen to an outbox.
#[derive(Clone, Debug)]
enum Op {
    Enqueue(usize),
    /// The first few unsettled messages are on their way.
    Send(usize),
    /// They come back, with these fates.
    Settle(Vec<Fate>),
    /// What waits and is due is tried again, with these fates.
    Retry(Vec<Fate>),
    Replay,
    /// This many dead letters are removed, the oldest deaths first.
    Purge(usize),
    /// The relay gives its lane back and takes it again.
    Restart,
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Sent,
    Failed,
    Rejected,
    Expired,
}

impl Fate {
    fn event(self) -> (Event, Option<String>) {
        match self {
            Self::Sent => (Event::Succeeded, None),
            Self::Failed => (Event::Failed { after: None }, Some("failed".into())),
            Self::Rejected => (Event::Rejected(Reason::Rejected), Some("rejected".into())),
            Self::Expired => (Event::Expired, None),
        }
    }
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![4 => Just(Fate::Sent), 3 => Just(Fate::Failed), 1 => Just(Fate::Rejected), 1 => Just(Fate::Expired)];
    prop::collection::vec(fate, 1..6)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1..4_usize).prop_map(Op::Enqueue),
        (1..6_usize).prop_map(Op::Send),
        fates().prop_map(Op::Settle),
        fates().prop_map(Op::Retry),
        Just(Op::Replay),
        (1..4_usize).prop_map(Op::Purge),
        Just(Op::Restart),
        (1..400_u64).prop_map(Op::Wait),
    ]
}

/// A row of the usual status table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    status: String,
    retry_count: u32,
    last_error: Option<String>,
    sent_at: Option<String>,
}

/// The naive outbox: one row per message, updated in place.
#[derive(Default)]
struct Model {
    rows: BTreeMap<String, Row>,
    standings: BTreeMap<String, Standing>,
}

impl Model {
    fn enqueue(&mut self, id: &str) {
        let row = Row { status: "Pending".into(), retry_count: 0, last_error: None, sent_at: None };
        self.rows.insert(id.into(), row);
    }

    fn set_status(&mut self, id: &str, status: &str) {
        self.rows.get_mut(id).expect("was enqueued").status = status.into();
    }

    /// Applies a fate; `now` is when it was settled.
    fn judge(&mut self, id: &str, fate: Fate, now: Timestamp) -> WaitingOutcome {
        let standing = self.standings.get(id).copied().unwrap_or(Standing::FRESH);
        let (event, error) = fate.event();
        let step = step(standing, &event, &Policy::default(), &SeededRandom::new(3)).expect("it is open");
        self.standings.insert(id.into(), step.standing);
        let row = self.rows.get_mut(id).expect("was enqueued");
        row.retry_count = step.standing.attempts;
        row.last_error = error.clone().or_else(|| row.last_error.clone());
        row.status = match step.standing.state {
            State::Open => "Pending",
            State::Succeeded => "Sent",
            State::Dead => "Failed",
            State::Expired => "Expired",
        }
        .into();
        row.sent_at = (step.standing.state == State::Succeeded).then(|| iso(now));
        WaitingOutcome { step, error, head_policy: HeadPolicy::StepOver }
    }

    fn purge(&mut self, id: &str) {
        let row = self.rows.remove(id).expect("was enqueued");
        assert!(row.status == "Failed" || row.status == "Expired", "{row:?}");
    }

    fn replay(&mut self) {
        for (id, row) in &mut self.rows {
            if row.status == "Failed" || row.status == "Expired" {
                row.status = "Pending".into();
                row.retry_count = 0;
                self.standings.insert(id.clone(), Standing::FRESH);
            }
        }
    }
}

/// The date as the view writes it.
fn iso(at: Timestamp) -> String {
    let connection = twobox_sqlite::rusqlite::Connection::open_in_memory().unwrap();
    let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1e6, 'unixepoch')";
    connection.query_row(sql, [at.as_micros()], |row| row.get(0)).unwrap()
}

/// The store beside the model.
struct Twin {
    fixture: SqliteFixture,
    model: Model,
    stamp: Stamp,
    lease: LaneLease<i64>,
    sending: Vec<LogEntry<i64>>,
}

impl Twin {
    async fn new() -> Self {
        let fixture = SqliteFixture::fresh().await;
        let db: &Sqlite = fixture.store();
        let stamp = Stamp::new(Source::new("shop").unwrap(), db.clock(), db.random());
        let lease = take(&fixture).await;
        Self { fixture, model: Model::default(), stamp, lease, sending: Vec::new() }
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Enqueue(count) => self.enqueue(*count).await,
            Op::Send(count) => self.send(*count).await,
            Op::Settle(fates) => self.settle(fates).await,
            Op::Retry(fates) => self.retry(fates).await,
            Op::Replay => {
                let ttl = Duration::from_secs(3600 * 24);
                let all = DeadLetterFilter::default();
                self.fixture.store().replay(&all, Replay::SameId, ttl, 1_000).await.unwrap();
                self.model.replay();
            }
            Op::Purge(count) => self.purge(*count).await,
            Op::Restart => self.restart().await,
            Op::Wait(seconds) => self.fixture.clock().advance(Duration::from_secs(*seconds)),
        }
    }

    async fn enqueue(&mut self, count: usize) {
        let new = NewMessage::json("billing", "Pay", &1).unwrap();
        let messages: Vec<Message> = (0..count).map(|_| self.stamp.message(&new).unwrap()).collect();
        messages.iter().for_each(|message| self.model.enqueue(message.id.as_str()));
        self.fixture.append(messages).await.unwrap();
    }

    async fn send(&mut self, count: usize) {
        self.lease = take(&self.fixture).await; // renews
        let read = ReadLog {
            after: self.lease.cursor,
            until: None,
            lanes: vec![self.lease.clone()],
            scan_max: count.max(self.sending.len()),
            bytes_max: usize::MAX,
        };
        self.sending = self.fixture.store().read_log(read).await.unwrap().entries;
        let Some(last) = self.sending.last() else { return };
        self.fixture.store().mark_sending(&self.lease, &last.position).await.unwrap();
        for entry in &self.sending {
            self.model.set_status(entry.message.as_ref().unwrap().id.as_str(), "Sending");
        }
    }

    async fn settle(&mut self, fates: &[Fate]) {
        let settled: Vec<_> = self.sending.drain(..fates.len().min(self.sending.len())).collect();
        let (Some(first), Some(last)) = (settled.first(), settled.last()) else { return };
        let now = self.fixture.clock().now();
        let mut settlement = Settlement {
            upto: last.position,
            receipts: vec![(first.position, last.position, 0)],
            waiting: Vec::new(),
            sending: self.sending.last().map(|entry| entry.position),
        };
        for (entry, fate) in settled.iter().zip(fates) {
            let outcome = self.model.judge(entry.message.as_ref().unwrap().id.as_str(), *fate, now);
            if outcome.step.standing.state == State::Succeeded {
                settlement.receipts[0].2 += 1;
            } else {
                settlement.waiting.push(NewWaiting { position: entry.position, outcome: Some(outcome) });
            }
        }
        self.fixture.store().settle_log(&self.lease, settlement).await.unwrap();
        self.lease.cursor = last.position;
    }

    async fn retry(&mut self, fates: &[Fate]) {
        let look = Look {
            limit: fates.len(),
            bytes_max: usize::MAX,
            delay_max: Duration::from_secs(300),
            expired_only: false,
        };
        let due = self.fixture.store().due(&self.lease, &look).await.unwrap();
        let now = self.fixture.clock().now();
        let judged = due.messages.iter().zip(fates).map(|(waiting, fate)| {
            let id = waiting.message.as_ref().unwrap().id.to_string();
            let fate = if waiting.expired { Fate::Expired } else { *fate };
            (waiting.position, self.model.judge(&id, fate, now))
        });
        let outcomes: Vec<_> = judged.collect();
        self.fixture.store().settle_waiting(&self.lease, outcomes).await.unwrap();
    }

    async fn purge(&mut self, count: usize) {
        let all = DeadLetterFilter::default();
        let letters = self.fixture.store().dead_letters(&all, None, count).await.unwrap();
        let purged = self.fixture.store().purge(&all, count).await.unwrap();
        assert_eq!(purged.purged, u64::try_from(letters.len()).unwrap());
        letters.iter().for_each(|letter| self.model.purge(&letter.message_id));
    }

    async fn restart(&mut self) {
        self.fixture.store().release_lanes(std::slice::from_ref(&self.lease)).await.unwrap();
        for entry in self.sending.drain(..) {
            self.model.set_status(entry.message.unwrap().id.as_str(), "Pending");
        }
        self.lease = take(&self.fixture).await;
    }

    async fn view(&self) -> BTreeMap<String, Row> {
        let sql = "SELECT message_id, status, retry_count, last_error, sent_at FROM outbox_messages";
        let rows = self.fixture.store().transaction::<_, twobox_core::Error, _>(move |tx| {
            tx.query(sql, [], |row| {
                let view = Row {
                    status: row.get(1)?,
                    retry_count: row.get(2)?,
                    last_error: row.get(3)?,
                    sent_at: row.get(4)?,
                };
                Ok((row.get::<String>(0)?, view))
            })
        });
        rows.await.unwrap().into_iter().collect()
    }
}

impl Twin {
    /// What the listing says, a page at a time, against the model.
    async fn check_listing(&self) -> Result<(), TestCaseError> {
        let (mut listed, mut after) = (BTreeMap::new(), None);
        loop {
            let filter = OutboxFilter::default();
            let page = self.fixture.store().outbox_list(&filter, after.as_ref(), 4).await.unwrap();
            for found in page.items {
                let doubled = listed.insert(found.message_id, (found.status.as_str(), found.attempts));
                prop_assert_eq!(doubled, None, "nothing is listed twice");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let listed: Vec<_> =
            listed.iter().map(|(id, (status, tries))| (id.as_str(), *status, *tries)).collect();
        let rows = self.model.rows.iter();
        let expected: Vec<_> =
            rows.map(|(id, row)| (id.as_str(), row.status.as_str(), row.retry_count)).collect();
        prop_assert_eq!(listed, expected);
        Ok(())
    }

    /// What the counters say, against the model.
    async fn check_counters(&self) -> Result<(), TestCaseError> {
        let stats = self.fixture.store().outbox_stats(1_000).await.unwrap();
        let of = |wanted: [&str; 2]| {
            let rows = self.model.rows.values().filter(|row| wanted.contains(&row.status.as_str()));
            u64::try_from(rows.count()).unwrap()
        };
        prop_assert_eq!(stats.pending + stats.waiting.open(), of(["Pending", "Sending"]), "{:?}", stats);
        prop_assert_eq!(stats.waiting.dead, of(["Failed", "Expired"]), "{:?}", stats);
        let lane = &stats.lanes[0];
        prop_assert_eq!((lane.pending.value, lane.pending.at_least), (stats.pending, false));
        Ok(())
    }
}

async fn take(fixture: &SqliteFixture) -> LaneLease<i64> {
    let take = TakeLanes {
        owner: "relay".into(),
        source: Source::new("shop").unwrap(),
        destinations: vec![Destination::new("billing").unwrap()],
        everywhere: false,
        lease: Duration::from_secs(3_000),
        retries_max: 5,
        route_grace: Duration::from_secs(600),
    };
    fixture.store().take_lanes(&take).await.unwrap().remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn l2_rf_02_rf_22_the_view_agrees_with_a_naive_status_table(ops in prop::collection::vec(op(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut twin = Twin::new().await;
            for op in &ops {
                twin.apply(op).await;
                prop_assert_eq!(twin.view().await, twin.model.rows.clone(), "after {:?}", op);
                twin.check_listing().await?;
                twin.check_counters().await?;
            }
            Ok(())
        })?;
    }
}
