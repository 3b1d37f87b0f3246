//! Cleaning up.

use std::time::Duration;

use twobox_core::Message;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{Answer, LogStore, SweepPlan, SweepStore};

use super::fixture::{HandlerScript, StoreFixture, all_sent, deliver, lane, message, unread};
use super::waiting::{dead, failed, wait_with};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn sweep<F: StoreFixture>(fixture: &F, plan: &SweepPlan) -> twobox_core::ports::Swept {
    fixture.store().sweep(plan).await.expect("sweeps")
}

/// RF-12: sent messages leave after their retention; nothing else does.
pub async fn rf_12_only_old_sent_messages_are_trimmed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.append(vec![message(&fixture, "sent", "billing")]).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    fixture.append(vec![message(&fixture, "pending", "billing")]).await.expect("appends");
    fixture.clock().advance(DAY * 7 - Duration::from_secs(1));
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 0, "not yet");
    fixture.clock().advance(Duration::from_secs(1));
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 1);
    assert_eq!(fixture.status("sent").await, None);
    assert_eq!(fixture.status("pending").await.expect("stays").0, "Pending");
}

/// S13: what was sent while a clock was a year ahead is kept for its retention, not for a year.
pub async fn s13_rf_12_what_a_clock_that_was_ahead_has_sent_is_trimmed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.clock().step_forward(DAY * 365);
    for id in ["a", "b"] {
        fixture.append(vec![message(&fixture, id, "billing")]).await.expect("appends");
        let lease = lane(&fixture).await;
        let entries = unread(&fixture, &lease).await;
        fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    }
    fixture.clock().step_back(DAY * 365);
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 0);
    fixture.clock().advance(DAY * 7 - Duration::from_secs(1));
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 0, "it counts from when it was noticed");
    fixture.clock().advance(Duration::from_secs(1));
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 2, "and all of it at once");
    assert_eq!(fixture.log_rows().await, 0);
}

/// S18: a sweep takes a little at a time and says when there is more.
pub async fn s18_sweeping_goes_in_small_batches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages: Vec<Message> = (0..25).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    fixture.append(messages).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    fixture.clock().advance(DAY * 7);
    let plan = SweepPlan { batch: 10, ..SweepPlan::default() };
    let mut sweeps = Vec::new();
    loop {
        let swept = sweep(&fixture, &plan).await;
        sweeps.push(swept.trimmed);
        if !swept.more {
            break;
        }
    }
    assert_eq!(sweeps.iter().sum::<u64>(), 25);
    assert!(sweeps.iter().all(|trimmed| *trimmed <= 10), "{sweeps:?}");
    assert_eq!(fixture.log_rows().await, 0);
}

/// S9: rows and watermark go together, a batch at a time.
pub async fn s9_purging_raises_the_watermark_with_it<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut messages = Vec::new();
    for n in 0..4 {
        messages.push(message(&fixture, &format!("m{n}"), "billing"));
        fixture.clock().advance(Duration::from_secs(60));
    }
    fixture.clock().advance(DAY);
    messages.push(message(&fixture, "new", "billing"));
    deliver(&fixture, &messages, |_| Some(HandlerScript::Effect)).await;
    let plan = SweepPlan { dedup_window: Duration::from_secs(3600), batch: 2, ..SweepPlan::default() };
    let swept = sweep(&fixture, &plan).await;
    assert_eq!((swept.purged, swept.more), (2, true));
    let answers = deliver(&fixture, &messages, |_| Some(HandlerScript::Effect)).await;
    assert_eq!(answers[..2], [Answer::TooOld, Answer::TooOld], "forgotten, so refused");
    assert!(
        answers[2..].iter().all(|answer| matches!(answer, Answer::Duplicate(_))),
        "still known: {answers:?}"
    );
    while sweep(&fixture, &plan).await.more {}
    let answers = deliver(&fixture, &messages, |_| Some(HandlerScript::Effect)).await;
    assert_eq!(answers[..4], [const { Answer::TooOld }; 4]);
    assert_eq!(fixture.effects().await.len(), 5, "no effect twice");
}

/// S18: what died stays until somebody has looked at it.
pub async fn s18_dead_letters_are_never_swept<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (message(&fixture, "dead", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "waiting", "billing"), Some(failed(1))),
    ];
    wait_with(&fixture, messages).await;
    let rejected = message(&fixture, "rejected", "billing");
    let reject = |_: &Message| Some(HandlerScript::EffectThenReject);
    deliver(&fixture, std::slice::from_ref(&rejected), reject).await;
    let done = message(&fixture, "done", "billing");
    deliver(&fixture, std::slice::from_ref(&done), |_| Some(HandlerScript::Effect)).await;
    fixture.clock().advance(DAY * 365);
    deliver(&fixture, &[message(&fixture, "new", "billing")], |_| Some(HandlerScript::Effect)).await;
    while sweep(&fixture, &SweepPlan::default()).await.more {}
    assert_eq!(fixture.status("dead").await.expect("stays").0, "Failed");
    assert_eq!(fixture.status("waiting").await.expect("stays").0, "Pending");
    let answers = deliver(&fixture, &[rejected, done], |_| Some(HandlerScript::Effect)).await;
    assert!(matches!(answers[0], Answer::Rejected { .. }), "still known: {answers:?}");
    assert_eq!(answers[1], Answer::TooOld, "what was done is forgotten");
}

/// S9: a longer window later does not bring the watermark down.
pub async fn s9_the_watermark_never_falls<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let old = message(&fixture, "old", "billing");
    deliver(&fixture, std::slice::from_ref(&old), |_| Some(HandlerScript::Effect)).await;
    fixture.clock().advance(DAY);
    deliver(&fixture, &[message(&fixture, "new", "billing")], |_| Some(HandlerScript::Effect)).await;
    let window = |dedup_window| SweepPlan { dedup_window, ..SweepPlan::default() };
    assert_eq!(sweep(&fixture, &window(Duration::from_secs(3600))).await.purged, 1);
    sweep(&fixture, &window(DAY * 30)).await;
    let answer = deliver(&fixture, &[old], |_| Some(HandlerScript::Effect)).await.remove(0);
    assert_eq!(answer, Answer::TooOld);
}

/// L11: a lane that is stuck keeps its own rows and nobody else's.
pub async fn l11_a_held_lane_pins_nobody_elses_log<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.append(vec![message(&fixture, "stuck", "dead-end")]).await.expect("appends");
    fixture.append(vec![message(&fixture, "sent", "billing")]).await.expect("appends");
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    fixture.clock().advance(DAY * 7);
    assert_eq!(sweep(&fixture, &SweepPlan::default()).await.trimmed, 1);
    assert_eq!(fixture.status("stuck").await.expect("stays").0, "Pending");
    assert_eq!(fixture.log_rows().await, 1);
}
