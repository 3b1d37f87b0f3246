//! What operators do: pausing destinations, and leaving a trail (RF-22).

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use twobox_core::ports::ops::{
    AUDIT_DETAIL_BYTES_MAX, AUDIT_RETENTION, AuditEntry, AuditFilter, AuditOutcome, AuditRecord,
    EXAMINED_MAX, NOTE_CHARS_MAX, Pause,
};
use twobox_core::ports::{LaneStatus, LaneStore, LogStore, OpsStore, SweepPlan, SweepStore};
use twobox_core::{Clock, ErrorKind};

use super::fixture::{StoreFixture, lane, message, name, take};

const SECOND: Duration = Duration::from_secs(1);

async fn pause<F: StoreFixture>(fixture: &F, destination: &str, by: &str) -> bool {
    let paused = fixture.store().pause_lane(&name("shop"), &name(destination), by, "maintenance").await;
    paused.expect("pauses")
}

async fn resume<F: StoreFixture>(fixture: &F, destination: &str) -> bool {
    fixture.store().resume_lane(&name("shop"), &name(destination)).await.expect("resumes")
}

async fn status<F: StoreFixture>(fixture: &F, destination: &str) -> LaneStatus {
    let lanes = fixture.store().lanes().await.expect("lists");
    lanes.into_iter().find(|lane| lane.destination.as_str() == destination).expect("has a lane")
}

/// RF-22: a pause says who, when and why, is kept over a restart, and ends when somebody says so.
pub async fn rf_22_a_paused_lane_stays_paused_until_it_is_resumed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let lease = lane(&fixture).await;
    assert!(!lease.paused);
    assert!(pause(&fixture, "billing", "ann").await);
    let since = fixture.clock().now();
    fixture.clock().advance(SECOND);
    assert!(!pause(&fixture, "billing", "bob").await, "it keeps the pause it has");
    let expected = Pause { since, by: "ann".into(), reason: "maintenance".into() };
    assert_eq!(status(&fixture, "billing").await.paused, Some(expected.clone()));
    let paused = fixture.store().paused_lanes(&name("shop")).await.expect("looks");
    assert_eq!(paused, HashSet::from([lease.lane]));
    assert!(fixture.store().paused_lanes(&name("crm")).await.expect("looks").is_empty(), "another source's");
    let fixture = fixture.reopen().await;
    assert_eq!(status(&fixture, "billing").await.paused, Some(expected));
    assert!(lane(&fixture).await.paused, "whoever takes the lane knows");
    assert!(resume(&fixture, "billing").await);
    assert!(!resume(&fixture, "billing").await);
    assert_eq!(status(&fixture, "billing").await.paused, None);
    assert!(!lane(&fixture).await.paused);
}

/// RF-22: a destination can be paused before anything was sent to it.
pub async fn rf_22_a_destination_without_a_lane_can_be_paused<F: StoreFixture>() {
    let fixture = F::fresh().await;
    assert!(pause(&fixture, "new", "ann").await);
    assert!(status(&fixture, "new").await.paused.is_some());
    fixture.append(vec![message(&fixture, "a", "new")]).await.expect("appends");
    let leases = fixture.store().take_lanes(&take("relay", "shop", &["new"])).await.expect("takes");
    assert!(leases[0].paused);
    let long = "x".repeat(NOTE_CHARS_MAX + 1);
    let refused = fixture.store().pause_lane(&name("shop"), &name("else"), "ann", &long).await;
    assert_eq!(refused.expect_err("is refused").kind(), ErrorKind::Invalid);
}

/// RF-22: whoever watches the log is told of a pause and of its end, once it is committed.
pub async fn rf_22_pausing_wakes_whoever_watches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    lane(&fixture).await;
    let store = fixture.store();
    for paused in [true, false] {
        let (seen, steered) = (store.changed(0).now_or_zero().await, store.steered());
        if paused {
            pause(&fixture, "billing", "ann").await;
        } else {
            resume(&fixture, "billing").await;
        }
        let woken = tokio::time::timeout(10 * SECOND, store.changed(seen)).await;
        assert!(woken.expect("is woken") > seen);
        assert!(store.steered() > steered);
        assert_eq!(store.paused_lanes(&name("shop")).await.expect("looks").is_empty(), !paused);
    }
}

/// The value of something that may never come: zero, if it is not there.
trait NowOrZero {
    async fn now_or_zero(self) -> u64;
}

impl<T: Future<Output = u64>> NowOrZero for T {
    async fn now_or_zero(self) -> u64 {
        tokio::select! {
            biased;
            value = self => value,
            () = std::future::ready(()) => 0,
        }
    }
}

fn entry(actor: &str, action: &str, subject: &str) -> AuditEntry {
    let detail = json!({ "subject": subject });
    AuditEntry { actor: actor.into(), action: action.into(), subject: subject.into(), detail }
}

async fn trail<F: StoreFixture>(fixture: &F, filter: &AuditFilter) -> Vec<AuditRecord> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.store().audit_list(filter, after.as_ref(), 2).await.expect("lists");
        assert!(page.examined <= EXAMINED_MAX);
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// RF-22: an action is written down before it is done, with its outcome afterwards; an outcome is written once.
pub async fn rf_22_actions_leave_a_trail<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store();
    let replay = store.begin_audit(&entry("ann", "outbox.replay", "m1")).await.expect("writes");
    let begun = trail(&fixture, &AuditFilter::default()).await;
    assert_eq!((begun[0].outcome, &begun[0].result), (AuditOutcome::Begun, &None));
    let at = fixture.clock().now();
    fixture.clock().advance(SECOND);
    store.end_audit(replay, AuditOutcome::Done, Some(&json!({ "replayed": 1 }))).await.expect("writes");
    store.end_audit(replay, AuditOutcome::Failed, None).await.expect("writes nothing");
    for n in 0..4 {
        let id = store.begin_audit(&entry("bob", "lane.pause", &format!("d{n}"))).await.expect("writes");
        store.end_audit(id, AuditOutcome::Refused, None).await.expect("writes");
    }
    let fixture = fixture.reopen().await;
    let all = trail(&fixture, &AuditFilter::default()).await;
    let subjects: Vec<_> = all.iter().map(|record| record.entry.subject.as_str()).collect();
    assert_eq!(subjects, ["d3", "d2", "d1", "d0", "m1"], "newest first");
    let result = Some(json!({ "replayed": 1 }));
    let expected = AuditRecord {
        id: replay,
        at,
        entry: entry("ann", "outbox.replay", "m1"),
        outcome: AuditOutcome::Done,
        result,
    };
    assert_eq!(all[4], expected);
    let by = |actor: &str| AuditFilter { actor: Some(actor.into()), ..AuditFilter::default() };
    assert_eq!(trail(&fixture, &by("ann")).await.len(), 1);
    let one = AuditFilter { subject: Some("d2".into()), ..by("bob") };
    assert_eq!(trail(&fixture, &one).await.len(), 1);
    let none = AuditFilter { action: Some("outbox.purge".into()), ..AuditFilter::default() };
    assert!(trail(&fixture, &none).await.is_empty());
}

/// S17: the trail holds names and numbers, no more than that.
pub async fn s17_rf_22_a_trail_is_no_place_to_keep_things_in<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let long = "x".repeat(AUDIT_DETAIL_BYTES_MAX);
    let large = AuditEntry { detail: json!({ "payload": long }), ..entry("ann", "a", "b") };
    let text = AuditEntry { detail: json!("text"), ..entry("ann", "a", "b") };
    for refused in [large, text, entry(&long, "a", "b"), entry("ann", "a", &long)] {
        let error = fixture.store().begin_audit(&refused).await.expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(trail(&fixture, &AuditFilter::default()).await.is_empty());
}

/// S18: the trail is swept by age, a little at a time.
pub async fn s18_the_trail_is_swept_by_age<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for n in 0..5 {
        fixture.store().begin_audit(&entry("ann", "a", &format!("old{n}"))).await.expect("writes");
    }
    fixture.clock().advance(AUDIT_RETENTION - SECOND);
    fixture.store().begin_audit(&entry("ann", "a", "new")).await.expect("writes");
    let plan = SweepPlan { batch: 2, ..SweepPlan::default() };
    assert_eq!(fixture.store().sweep(&plan).await.expect("sweeps").audit_rows, 0);
    fixture.clock().advance(SECOND);
    let mut sweeps = Vec::new();
    loop {
        let swept = fixture.store().sweep(&plan).await.expect("sweeps");
        sweeps.push(swept.audit_rows);
        if !swept.more {
            break;
        }
    }
    assert_eq!(sweeps, [2, 2, 1]);
    assert_eq!(trail(&fixture, &AuditFilter::default()).await.len(), 1);
}
