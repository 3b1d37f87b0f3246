//! What operators see of the outbox: counters, listings, one message (RF-22).

use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::ops::{
    Count, DATE_SLACK_ROWS, EXAMINED_MAX, LaneStats, OutboxFilter, OutboxStats, OutboxStatus, OutboxSummary,
    Page, PageToken, WaitingCounts,
};
use twobox_core::ports::{
    DeadLetterFilter, DeadLetterStore, LaneStore, LogStore, OpsStore, Replay, SweepPlan, SweepStore,
};
use twobox_core::{Clock, ErrorKind, Headers, Message, Payload};

use super::fixture::{StoreFixture, all_sent, keyed, lane, message, message_from, name, unread};
use super::waiting::{dead, due, expired, failed, wait_with};

const MINUTE: Duration = Duration::from_secs(60);

type Summary<F> = OutboxSummary<<<F as StoreFixture>::Store as LaneStore>::Position>;

async fn stats<F: StoreFixture>(fixture: &F) -> OutboxStats {
    fixture.store().outbox_stats(EXAMINED_MAX).await.expect("counts")
}

fn lane_to<'s>(stats: &'s OutboxStats, destination: &str) -> &'s LaneStats {
    let found = stats.lanes.iter().find(|lane| lane.lane.destination.as_str() == destination);
    found.expect("has a lane")
}

async fn page<F: StoreFixture>(
    fixture: &F,
    filter: &OutboxFilter,
    after: Option<&PageToken>,
    limit: usize,
) -> Page<Summary<F>> {
    fixture.store().outbox_list(filter, after, limit).await.expect("lists")
}

/// Everything that matches, page by page.
async fn list<F: StoreFixture>(fixture: &F, filter: &OutboxFilter, limit: usize) -> Vec<Summary<F>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = page(fixture, filter, after.as_ref(), limit).await;
        assert!(page.items.len() <= limit);
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

fn ids<P>(found: &[OutboxSummary<P>]) -> Vec<&str> {
    found.iter().map(|summary| summary.message_id.as_str()).collect()
}

async fn of_status<F: StoreFixture>(fixture: &F, status: OutboxStatus) -> Vec<String> {
    let filter = OutboxFilter { status: Some(status), ..OutboxFilter::default() };
    let found = list(fixture, &filter, 3).await;
    assert!(found.iter().all(|summary| summary.status == status));
    ids(&found).into_iter().map(Into::into).collect()
}

/// What the counters say is what a listing finds.
async fn agree<F: StoreFixture>(fixture: &F) -> OutboxStats {
    let stats = stats(fixture).await;
    let unsent = of_status(fixture, OutboxStatus::Pending).await.len()
        + of_status(fixture, OutboxStatus::Sending).await.len();
    assert_eq!(stats.pending + stats.waiting.open(), unsent as u64, "{stats:?}");
    let letters =
        fixture.store().dead_letters(&DeadLetterFilter::default(), None, 1_000).await.expect("lists");
    assert_eq!(stats.waiting.dead, letters.len() as u64, "{stats:?}");
    let counted: u64 = stats.lanes.iter().map(|lane| lane.pending.value).sum();
    assert!(counted <= stats.pending, "{stats:?}");
    stats
}

fn counts(retrying: u64, scheduled: u64, held: u64, dead: u64) -> WaitingCounts {
    WaitingCounts { retrying, scheduled, held, dead }
}

/// S18: counters follow a message through everything that can happen to it.
pub async fn s18_rf_22_outbox_counters_follow_every_message<F: StoreFixture>() {
    let fixture = F::fresh().await;
    assert_eq!(agree(&fixture).await, OutboxStats::default());
    let later = fixture.clock().now().plus(MINUTE);
    let messages = vec![
        (message(&fixture, "dead", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "old", "billing"), Some(expired())),
        (keyed(&fixture, "head", "k"), Some(failed(1))),
        (keyed(&fixture, "behind", "k"), Some(failed(1))),
        (Message { available: later, ..message(&fixture, "later", "billing") }, None),
    ];
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture
        .append(vec![message(&fixture, "new", "billing"), message(&fixture, "else", "crm")])
        .await
        .expect("appends");
    let stats = agree(&fixture).await;
    assert_eq!((stats.enqueued, stats.pending, stats.waiting), (7, 2, counts(1, 1, 1, 2)));
    assert_eq!((stats.sent, stats.failed, stats.expired), (0, 1, 1));
    let billing = lane_to(&stats, "billing");
    assert_eq!((billing.pending, billing.lane.waiting), (Count::exactly(1), counts(1, 1, 1, 2)));

    fixture.clock().advance(MINUTE);
    assert_eq!(due(&fixture, &lease).await.len(), 3, "what is due joins");
    assert_eq!(agree(&fixture).await.waiting, counts(2, 0, 1, 2));
    let entries = unread(&fixture, &lane(&fixture).await).await;
    let sent = all_sent(&entries);
    fixture.store().settle_log(&lane(&fixture).await, sent).await.expect("settles");
    let stats = agree(&fixture).await;
    assert_eq!((stats.pending, stats.sent), (1, 1));

    let ttl = MINUTE * 60;
    let one = |id: &str| DeadLetterFilter { message_id: Some(name(id)), ..DeadLetterFilter::default() };
    fixture.store().replay(&one("dead"), Replay::SameId, ttl, 10).await.expect("replays");
    assert_eq!(agree(&fixture).await.waiting, counts(3, 0, 1, 1));
    fixture.store().replay(&one("old"), Replay::NewId, ttl, 10).await.expect("replays");
    let stats = agree(&fixture).await;
    assert_eq!((stats.waiting, stats.pending, stats.enqueued), (counts(3, 0, 1, 0), 2, 8));
    let fixture = fixture.reopen().await;
    assert_eq!(agree(&fixture).await.waiting, counts(3, 0, 1, 0), "counters are stored");
}

/// S18: purging and sweeping take off what they remove, and nothing else.
pub async fn s18_rf_22_outbox_counters_know_what_was_removed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = ["a", "b", "c"].map(|id| (message(&fixture, id, "billing"), Some(dead(Reason::Rejected))));
    wait_with(&fixture, messages.into()).await;
    assert_eq!(fixture.store().purge(&DeadLetterFilter::default(), 2).await.expect("purges").purged, 2);
    let stats = agree(&fixture).await;
    assert_eq!((stats.waiting.dead, stats.failed, stats.pending, stats.enqueued), (1, 3, 0, 3));
    fixture.append(vec![message(&fixture, "d", "billing")]).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    fixture.clock().advance(MINUTE * 60 * 24 * 30);
    fixture.store().sweep(&SweepPlan::default()).await.expect("sweeps");
    let stats = agree(&fixture).await;
    assert_eq!((stats.waiting.dead, stats.sent, stats.pending), (1, 1, 0));
}

/// RF-22: what each destination has pending, and for how long; what was rolled back is not counted.
pub async fn rf_22_pending_messages_are_counted_per_destination<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture
        .append(vec![message(&fixture, "a", "billing"), message(&fixture, "b", "crm")])
        .await
        .expect("appends");
    fixture
        .append_and_roll_back(vec![message(&fixture, "x", "billing"), message(&fixture, "y", "crm")])
        .await;
    fixture.clock().advance(MINUTE);
    fixture
        .append(vec![message(&fixture, "c", "billing"), message(&fixture, "d", "ship")])
        .await
        .expect("appends");
    fixture
        .store()
        .take_lanes(&super::fixture::take("relay", "shop", &["billing", "crm"]))
        .await
        .expect("takes");
    let stats = agree(&fixture).await;
    assert_eq!((stats.enqueued, stats.pending), (4, 4), "one destination has no lane yet");
    let of = |stats: &OutboxStats, to: &str| (lane_to(stats, to).pending, lane_to(stats, to).oldest);
    assert_eq!(of(&stats, "billing"), (Count::exactly(2), Some(MINUTE)));
    assert_eq!(of(&stats, "crm"), (Count::exactly(1), Some(MINUTE)));
    assert_eq!(stats.oldest, Some(MINUTE));
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries[..1])).await.expect("settles");
    let stats = agree(&fixture).await;
    assert_eq!(of(&stats, "billing"), (Count::exactly(1), Some(Duration::ZERO)));
    assert_eq!((stats.pending, lane_to(&stats, "billing").lane.sent), (3, 1));
}

/// RF-22: a long backlog is counted as a whole, and for each lane as far as was looked.
pub async fn rf_22_a_long_backlog_is_counted_up_to_a_bound<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let many = (0..30).map(|n| message(&fixture, &format!("m{n}"), "billing"));
    fixture.append(many.collect()).await.expect("appends");
    fixture.clock().advance(MINUTE);
    fixture.append(vec![message(&fixture, "last", "crm")]).await.expect("appends");
    fixture
        .store()
        .take_lanes(&super::fixture::take("relay", "shop", &["billing", "crm"]))
        .await
        .expect("takes");
    let stats = fixture.store().outbox_stats(10).await.expect("counts");
    assert_eq!(stats.pending, 31);
    assert_eq!(lane_to(&stats, "billing").pending, Count { value: 9, at_least: true });
    assert_eq!(lane_to(&stats, "crm").pending, Count { value: 1, at_least: true });
    let none = fixture.store().outbox_stats(0).await.expect("counts");
    assert_eq!((none.pending, lane_to(&none, "crm").pending), (31, Count { value: 0, at_least: true }));
    let stats = fixture.store().outbox_stats(1_000).await.expect("counts");
    assert_eq!(lane_to(&stats, "billing").pending, Count::exactly(30));
    assert_eq!(lane_to(&stats, "billing").oldest, Some(MINUTE));
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries[..25])).await.expect("settles");
    let stats = fixture.store().outbox_stats(10).await.expect("counts");
    assert_eq!(lane_to(&stats, "billing").pending, Count::exactly(5), "nothing else is pending");
    assert_eq!(lane_to(&stats, "crm").pending, Count::exactly(1));
}

/// RF-22: messages are listed newest first, page by page, wherever they stand.
pub async fn rf_22_the_outbox_is_listed_in_pages<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (message(&fixture, "a", "billing"), Some(failed(2))),
        (message(&fixture, "b", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "c", "billing"), Some(expired())),
    ];
    wait_with(&fixture, messages).await;
    fixture.append(["d", "e"].map(|id| message(&fixture, id, "billing")).into()).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    fixture.append(["f", "g"].map(|id| message(&fixture, id, "billing")).into()).await.expect("appends");
    let entries = unread(&fixture, &lane(&fixture).await).await;
    fixture.store().mark_sending(&lease, &entries[0].position).await.expect("shows");
    for limit in 1..9 {
        let found = list(&fixture, &OutboxFilter::default(), limit).await;
        assert_eq!(ids(&found), ["g", "f", "e", "d", "c", "b", "a"], "in pages of {limit}");
    }
    assert_eq!(of_status(&fixture, OutboxStatus::Sending).await, ["f"]);
    assert_eq!(of_status(&fixture, OutboxStatus::Pending).await, ["g", "a"]);
    assert_eq!(of_status(&fixture, OutboxStatus::Sent).await, ["e", "d"]);
    assert_eq!(of_status(&fixture, OutboxStatus::Failed).await, ["b"]);
    assert_eq!(of_status(&fixture, OutboxStatus::Expired).await, ["c"]);
    let one = list(&fixture, &OutboxFilter::default(), 10).await.remove(6);
    assert_eq!((one.attempts, one.last_error.as_deref(), one.payload_bytes), (2, Some("no"), 3));
    assert!(one.next_attempt.is_some());
}

/// RF-22: messages are found by what is known about them, and by nothing else.
pub async fn rf_22_the_outbox_is_searched<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let start = fixture.clock().now();
    let day = MINUTE * 60 * 24;
    for n in 0..6_u32 {
        let plain = message(&fixture, &format!("m{n}"), "billing");
        let refund =
            Message { endpoint: name("Refund"), ..message_from(&fixture, "crm", &format!("r{n}"), "ship") };
        let keyed = Message { id: name(&format!("k{n}")), ..keyed(&fixture, "k", &format!("key-{n}")) };
        fixture.append(vec![plain, refund, keyed]).await.expect("appends");
        fixture.clock().advance(day);
    }
    let search = async |filter: OutboxFilter| {
        let found = list(&fixture, &filter, 2).await;
        ids(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = OutboxFilter::default();
    let refunds = ["r5", "r4", "r3", "r2", "r1", "r0"];
    assert_eq!(search(OutboxFilter { source: Some(name("crm")), ..all.clone() }).await, refunds);
    assert_eq!(search(OutboxFilter { destination: Some(name("ship")), ..all.clone() }).await, refunds);
    assert_eq!(search(OutboxFilter { endpoint: Some(name("Refund")), ..all.clone() }).await, refunds);
    assert_eq!(search(OutboxFilter { ordering_key: Some(name("key-2")), ..all.clone() }).await, ["k2"]);
    assert_eq!(search(OutboxFilter { message_id: Some(name("m3")), ..all.clone() }).await, ["m3"]);
    let (from, until) = (Some(start.plus(day)), Some(start.plus(day * 3)));
    let range = OutboxFilter { created_from: from, created_until: until, ..all.clone() };
    assert_eq!(search(range.clone()).await, ["k2", "r2", "m2", "k1", "r1", "m1"]);
    let refund = OutboxFilter { endpoint: Some(name("Refund")), ..range.clone() };
    assert_eq!(search(refund).await, ["r2", "r1"]);
    assert!(search(OutboxFilter { message_id: Some(name("m3")), ..range }).await.is_empty());
    assert!(search(OutboxFilter { source: Some(name("nobody")), ..all }).await.is_empty());
}

/// S18: a search that finds nothing looks at a bounded number of rows, and can be gone on with; a range of dates is
/// found without looking at what is outside of it.
pub async fn s18_rf_22_a_search_looks_at_a_bounded_number_of_rows<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let start = fixture.clock().now();
    let many = |count: usize| (0..count).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    fixture.append(many(5)).await.expect("appends");
    fixture.clock().advance(MINUTE * 60 * 24);
    fixture.append(many(EXAMINED_MAX)).await.expect("appends");
    let nothing = OutboxFilter { endpoint: Some(name("Nothing")), ..OutboxFilter::default() };
    let first = page(&fixture, &nothing, None, 10).await;
    assert_eq!((first.items.len(), first.examined), (0, EXAMINED_MAX));
    let rest = page(&fixture, &nothing, first.next.as_ref(), 10).await;
    assert_eq!((rest.items.len(), rest.examined, rest.next), (0, 5, None));
    let old = OutboxFilter { created_until: Some(start.plus(MINUTE)), ..OutboxFilter::default() };
    let found = page(&fixture, &old, None, 10).await;
    assert_eq!((found.items.len(), found.next), (5, None));
    assert!(found.examined <= DATE_SLACK_ROWS + 8, "{} of many", found.examined);
    let full = page(&fixture, &OutboxFilter::default(), None, 10).await;
    assert_eq!((full.items.len(), full.examined), (10, 10), "no more than is shown");
    let lease = lane(&fixture).await;
    let upto = list(&fixture, &old, 10).await.remove(0).position;
    let mut settlement = all_sent(&unread(&fixture, &lease).await[..5]);
    settlement.upto = upto;
    fixture.store().settle_log(&lease, settlement).await.expect("settles");
    let pending = OutboxFilter {
        status: Some(OutboxStatus::Pending),
        endpoint: nothing.endpoint,
        ..OutboxFilter::default()
    };
    let first = page(&fixture, &pending, None, 10).await;
    assert_eq!((first.examined, first.items.len()), (EXAMINED_MAX, 0));
    let rest = page(&fixture, &pending, first.next.as_ref(), 10).await;
    assert_eq!((rest.examined, rest.next), (0, None), "all that is pending was seen, so the log need not be");
}

/// RF-22: a range of dates finds what waits where nothing is left of the log around it.
pub async fn rf_22_a_search_by_date_finds_what_waits_in_a_gap_of_the_log<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let start = fixture.clock().now();
    let many = |count: usize| (0..count).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    fixture.append(vec![message(&fixture, "oldest", "crm")]).await.expect("appends");
    fixture.clock().advance(MINUTE);
    fixture.append(many(DATE_SLACK_ROWS + 1)).await.expect("appends");
    loop {
        let lease = lane(&fixture).await;
        let entries = unread(&fixture, &lease).await;
        if entries.is_empty() {
            break;
        }
        fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    }
    let waits = message(&fixture, "waits", "billing");
    wait_with(&fixture, vec![(waits, Some(dead(Reason::Rejected)))]).await;
    let plan = SweepPlan { sent_retention: Duration::ZERO, ..SweepPlan::default() };
    while fixture.store().sweep(&plan).await.expect("sweeps").more {}
    assert_eq!(fixture.log_rows().await, 1, "only the oldest is left");
    fixture.clock().advance(MINUTE);
    fixture.append(many(3)).await.expect("appends");
    let until = Some(start.plus(MINUTE * 2));
    let old = OutboxFilter { created_until: until, ..OutboxFilter::default() };
    assert_eq!(ids(&list(&fixture, &old, 10).await), ["waits", "oldest"]);
}

/// RF-22: a message that waits beside its row in the log is found although a page ends between the two.
pub async fn rf_22_a_page_that_ends_at_a_waiting_message_does_not_hide_it<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.append(vec![message(&fixture, "oldest", "crm")]).await.expect("appends");
    let waits = Message { endpoint: name("Refund"), ..message(&fixture, "waits", "billing") };
    wait_with(&fixture, vec![(waits, Some(failed(1)))]).await;
    // With its row in the log, exactly as many as one page looks at.
    let newer = (1..EXAMINED_MAX).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    fixture.append(newer).await.expect("appends");
    for status in [None, Some(OutboxStatus::Pending)] {
        let refunds = OutboxFilter { status, endpoint: Some(name("Refund")), ..OutboxFilter::default() };
        let first = page(&fixture, &refunds, None, 10).await;
        assert_eq!((first.items.len(), first.examined), (0, EXAMINED_MAX), "{status:?}");
        assert_eq!(ids(&list(&fixture, &refunds, 10).await), ["waits"], "{status:?}");
    }
}

/// ADR-09, RF-22: one message, attempt by attempt, with its place in a trace.
pub async fn adr_09_rf_22_a_message_of_the_outbox_is_shown<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut headers = Headers::default();
    headers.insert("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("legal");
    headers.insert("token", "s3cr3t").expect("legal");
    let payload = Payload::new(b"\"canary\"".to_vec());
    let hash = payload.sha256();
    let traced = Message { headers, payload, correlation_id: Some(name("c-1")), ..keyed(&fixture, "a", "k") };
    let (lease, positions) = wait_with(&fixture, vec![(traced, Some(failed(1)))]).await;
    fixture.clock().advance(MINUTE);
    let again = vec![(positions[0].clone(), dead(Reason::Rejected))];
    twobox_core::ports::WaitingStore::settle_waiting(fixture.store(), &lease, again).await.expect("settles");
    let found = fixture.store().outbox_message(&name("a")).await.expect("looks");
    let [detail] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(detail.summary.status, OutboxStatus::Failed);
    assert_eq!((detail.payload_sha256, detail.summary.payload_bytes), (hash, 8));
    assert_eq!(detail.headers, ["token", "traceparent"]);
    let trace = detail.trace.as_ref().expect("is traced");
    assert_eq!(trace.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(detail.correlation_id.as_deref(), Some("c-1"));
    assert_eq!((detail.reason, detail.holds_key, detail.replay), (Some(Reason::Rejected), true, 0));
    assert_eq!(detail.finished, Some(fixture.clock().now()));
    let history: Vec<_> =
        detail.history.iter().map(|attempt| (attempt.attempt, attempt.error.as_str())).collect();
    assert_eq!(history, [(1, "no"), (1, "never")]);
    let shown = format!("{found:?} {:?}", list(&fixture, &OutboxFilter::default(), 10).await);
    assert!(!shown.contains("canary") && !shown.contains("s3cr3t"), "S17: {shown}");

    fixture.append(vec![message(&fixture, "b", "billing")]).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    let sent = fixture.store().outbox_message(&name("b")).await.expect("looks").remove(0);
    assert_eq!((sent.summary.status, sent.finished), (OutboxStatus::Sent, Some(fixture.clock().now())));
    assert!(sent.history.is_empty());
    assert!(fixture.store().outbox_message(&name("nobody")).await.expect("looks").is_empty());
}

/// RF-22: dead letters are paged with tokens; a token of another listing is refused; places are text.
pub async fn rf_22_dead_letters_are_paged_with_tokens<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for id in ["a", "b", "c", "d"] {
        let reason = if id == "c" { Reason::TooOld } else { Reason::Rejected };
        wait_with(&fixture, vec![(message(&fixture, id, "billing"), Some(dead(reason)))]).await;
        fixture.clock().advance(MINUTE);
    }
    let store = fixture.store();
    let (mut found, mut after) = (Vec::new(), None);
    let filter = DeadLetterFilter { reason: Some(Reason::Rejected), ..DeadLetterFilter::default() };
    loop {
        let page = store.dead_letter_list(&filter, after.as_ref(), 2).await.expect("lists");
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let listed: Vec<_> = found.iter().map(|letter| letter.message_id.as_str()).collect();
    assert_eq!(listed, ["a", "b", "d"]);
    let text = F::Store::position_text(&found[0].position);
    assert_eq!(F::Store::parse_position(&text).expect("reads"), found[0].position);
    assert_eq!(F::Store::parse_position("nowhere").expect_err("is none").kind(), ErrorKind::Invalid);
    let first = store.dead_letter_list(&filter, None, 1).await.expect("lists");
    let refused = store.outbox_list(&OutboxFilter::default(), first.next.as_ref(), 1).await;
    assert_eq!(refused.expect_err("is refused").kind(), ErrorKind::Invalid);
    let one = DeadLetterFilter { message_id: Some(name("b")), ..DeadLetterFilter::default() };
    let page = store.dead_letter_list(&one, None, 10).await.expect("lists");
    assert_eq!((page.items.len(), page.next), (1, None));
}
