//! Replaying and purging dead letters: those that match, or all.
//!
//! A call does one batch in one commit and says how to go on. Whoever calls in a loop goes through everything that was
//! dead at the first call, at a pace that the node enforces; whoever stops, or crashes, has left every batch either
//! done or not, and nothing runs on behind their back.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use twobox::ports::{DeadLetterFilter, DeadLetterStore as _};
use twobox::{Replay, WorkFilter};
use twobox_core::Timestamp;
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::{Count, PAGE_MAX, PageToken};

use super::audit::Deed;
use super::extract::{Json as Asked, parsed, time};
use super::guard::Actor;
use super::pace::Pace;
use super::refusal::{Code, Refusal};
use super::{Admin, Answer, Shared};
use crate::api::{BulkAnswer, InboxFilter, InboxPurge, InboxReplay, OutboxFilter, OutboxPurge, OutboxReplay};

/// How far a dry run counts.
const COUNT_MAX: usize = 10_000;
/// Dead letters of one call unless said otherwise: a few milliseconds of the writer.
const LIMIT: u32 = 100;
/// Dead letters per second unless said otherwise: leaves most of a receiver to everybody else.
const PER_SECOND: u32 = 100;
/// The fastest pace that can be asked for.
const PER_SECOND_MAX: u32 = 10_000;

/// What all calls have in common.
struct Terms {
    /// Deaths after the first call are left alone.
    began: Timestamp,
    after: Option<PageToken>,
    limit: usize,
    per_second: u32,
}

/// What one batch came to.
struct Batch {
    done: u64,
    next: Option<String>,
}

impl Terms {
    fn new(
        now: Timestamp,
        next: Option<&str>,
        limit: Option<u32>,
        per_second: Option<u32>,
    ) -> Result<Self, Refusal> {
        let limit = usize::try_from(limit.unwrap_or(LIMIT)).unwrap_or(usize::MAX);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(Code::Invalid.because(format!("limit: {limit} is not from 1 to {PAGE_MAX}")));
        }
        let per_second = per_second.unwrap_or(PER_SECOND);
        if !(1..=PER_SECOND_MAX).contains(&per_second) {
            return Err(
                Code::Invalid.because(format!("perSecond: {per_second} is not from 1 to {PER_SECOND_MAX}"))
            );
        }
        let Some(next) = next else { return Ok(Self { began: now, after: None, limit, per_second }) };
        let (began, after) = next
            .split_once('.')
            .and_then(|(began, after)| Some((began.parse().ok()?, after)))
            .ok_or_else(|| Code::Invalid.because("next: not given out by this route"))?;
        let began = Timestamp::from_micros(began).min(now);
        Ok(Self { began, after: Some(PageToken::new(after)), limit, per_second })
    }

    /// Where the next call goes on.
    fn next(&self, after: &PageToken) -> String {
        format!("{}.{after}", self.began.as_micros())
    }
}

macro_rules! bulk_route {
    ($(#[$doc:meta])* $name:ident, $path:literal, $tag:literal, $action:literal, $body:ident, $work:ident, $pace:ident, |$asked:ident| $how:expr) => {
        $(#[$doc])*
        #[utoipa::path(post, path = $path, tag = $tag, request_body = $body,
            responses((status = 200, body = BulkAnswer), (status = 429)))]
        pub(super) async fn $name(
            State(admin): State<Shared>,
            actor: Actor,
            Asked($asked): Asked<$body>,
        ) -> Answer<BulkAnswer> {
            let now = admin.node.db.clock().now();
            let terms = Terms::new(now, $asked.next.as_deref(), $asked.limit, $asked.per_second)?;
            check_filter($asked.filter == Default::default(), $asked.all)?;
            let filter = $asked.filter.read(terms.began)?;
            if $asked.dry_run {
                return Ok(Json(counted(filter.count(&admin).await?)));
            }
            let detail = json!({ "filter": $asked.filter, "limit": terms.limit, "continued": $asked.next.is_some() });
            let deed = Deed { action: $action, subject: "dead letters".into(), detail };
            let doing = admin.paced(&admin.$pace, terms.per_second, admin.$work(&terms, &filter, $how));
            admin.audited(&actor, deed, doing).await
        }
    };
}

bulk_route! {
    /// Sends dead letters again: those that match, or all, a batch per call.
    outbox_replay, "/_rf/outbox/replay", "outbox", "outbox.replay", OutboxReplay, act_on_outbox, outbox_pace,
    |asked| Some(asked.mode.into())
}
bulk_route! {
    /// Removes dead letters for good: those that match, or all, a batch per call.
    outbox_purge, "/_rf/outbox/purge", "outbox", "outbox.purge", OutboxPurge, act_on_outbox, outbox_pace, |asked| None
}
bulk_route! {
    /// Runs dead letters again: those that match, or all, a batch per call.
    inbox_replay, "/_rf/inbox/replay", "inbox", "inbox.replay", InboxReplay, act_on_inbox, inbox_pace, |asked| true
}
bulk_route! {
    /// Removes dead letters for good: those that match, or all, a batch per call.
    inbox_purge, "/_rf/inbox/purge", "inbox", "inbox.purge", InboxPurge, act_on_inbox, inbox_pace, |asked| false
}

/// Nobody means all by accident.
fn check_filter(is_empty: bool, all: bool) -> Result<(), Refusal> {
    match (is_empty, all) {
        (true, false) => {
            Err(Code::Invalid.because("the filter is empty: say `\"all\": true` if all are meant"))
        }
        (false, true) => {
            Err(Code::Invalid.because("a filter and `all` contradict each other: leave one out"))
        }
        _ => Ok(()),
    }
}

fn counted(count: u64) -> BulkAnswer {
    let matched = Count { value: count, at_least: count >= COUNT_MAX as u64 };
    BulkAnswer { dry_run: true, matched: Some(matched.into()), done: 0, next: None, wait_ms: 0 }
}

impl Admin {
    async fn paced(
        &self,
        pace: &Pace,
        per_second: u32,
        doing: impl Future<Output = Result<Batch, Refusal>>,
    ) -> Result<BulkAnswer, Refusal> {
        let clock = self.node.db.clock();
        let turn = pace.turn(clock.monotonic())?;
        let Batch { done, next } = doing.await?;
        let wait: Duration = turn.end(clock.monotonic(), done, per_second);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Ok(BulkAnswer { dry_run: false, matched: None, done, next, wait_ms })
    }

    /// Replays a batch, or purges it.
    async fn act_on_outbox(
        &self,
        terms: &Terms,
        filter: &DeadLetterFilter,
        replay: Option<Replay>,
    ) -> Result<Batch, Refusal> {
        let db = &self.node.db;
        let page = db.dead_letter_list(filter, terms.after.as_ref(), terms.limit).await?;
        let deaths = page.items.iter().map(|letter| (letter.position, letter.died)).collect();
        let done = match replay {
            Some(replay) => db.replay_deaths(deaths, replay, self.node.ttl).await?,
            None => db.purge_deaths(deaths).await?,
        };
        Ok(Batch { done, next: page.next.map(|after| terms.next(&after)) })
    }

    /// Replays a batch, or purges it.
    async fn act_on_inbox(
        &self,
        terms: &Terms,
        filter: &WorkFilter,
        replays: bool,
    ) -> Result<Batch, Refusal> {
        let (db, inbox) = (&self.node.db, &self.node.inbox);
        let page = db.dead_work_list(inbox.consumer(), filter, terms.after.as_ref(), terms.limit).await?;
        let deaths = page.items.iter().map(|letter| (letter.place, letter.died)).collect();
        let done =
            if replays { inbox.replay_deaths(deaths).await? } else { inbox.purge_deaths(deaths).await? };
        Ok(Batch { done, next: page.next.map(|after| terms.next(&after)) })
    }
}

impl OutboxFilter {
    fn read(&self, began: Timestamp) -> Result<DeadLetterFilter, Refusal> {
        let before = time("diedBefore", self.died_before.as_deref())?;
        Ok(DeadLetterFilter {
            source: parsed("source", self.source.as_deref())?,
            destination: parsed("destination", self.destination.as_deref())?,
            endpoint: parsed("endpoint", self.endpoint.as_deref())?,
            message_id: parsed("messageId", self.message_id.as_deref())?,
            reason: parsed("reason", self.reason.as_deref())?,
            died_before: Some(before.map_or(began, |before| before.min(began))),
        })
    }
}

impl InboxFilter {
    fn read(&self, began: Timestamp) -> Result<WorkFilter, Refusal> {
        let before = time("diedBefore", self.died_before.as_deref())?;
        Ok(WorkFilter {
            source: parsed("source", self.source.as_deref())?,
            id: parsed("messageId", self.message_id.as_deref())?,
            topic: parsed("endpoint", self.endpoint.as_deref())?,
            reason: parsed("reason", self.reason.as_deref())?,
            died_before: Some(before.map_or(began, |before| before.min(began))),
        })
    }
}

/// A dry run.
trait Counted {
    async fn count(&self, admin: &Admin) -> Result<u64, Refusal>;
}

impl Counted for DeadLetterFilter {
    async fn count(&self, admin: &Admin) -> Result<u64, Refusal> {
        Ok(admin.node.db.dead_letter_count(self, COUNT_MAX).await?)
    }
}

impl Counted for WorkFilter {
    async fn count(&self, admin: &Admin) -> Result<u64, Refusal> {
        Ok(admin.node.inbox.dead_letter_count(self, COUNT_MAX).await?)
    }
}
