//! The inbox: effects once.

use std::time::Duration;

use twobox_core::ports::{Answer, Delivery, InboxStatus, InboxStore, SweepPlan, SweepStore};
use twobox_core::{Consumer, Message, Payload};

use super::fixture::{
    HandlerScript, StoreFixture, deliver, delivery, keyed, lane, message, message_from, name, unread,
};

use HandlerScript::{
    Effect, EffectAndFollowUp, EffectThenPanic, EffectThenReject, EffectThenRetry, EffectThenSpoil,
    EffectThenSwallow,
};

fn is_retry(answer: &Answer) -> bool {
    matches!(answer, Answer::Retry { .. })
}

async fn once<F: StoreFixture>(fixture: &F, message: &Message, script: HandlerScript) -> Answer {
    deliver(fixture, std::slice::from_ref(message), |_| Some(script.clone())).await.remove(0)
}

/// RF-08: the effect happens once; a duplicate gets the stored response.
pub async fn rf_08_effect_once_and_the_stored_response_after<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    let Answer::Done(Some(first)) = once(&fixture, &message, Effect).await else { panic!("not done") };
    assert_eq!(first.body, message.payload);
    let Answer::Duplicate(Some(stored)) = once(&fixture, &message, Effect).await else {
        panic!("not a duplicate")
    };
    assert_eq!(stored, first);
    assert_eq!(fixture.effects().await, ["a"]);
    let in_one_batch = [message.clone(), message.clone()];
    let answers = deliver(&fixture, &in_one_batch, |_| Some(Effect)).await;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Duplicate(_))));
}

/// S3: another consumer or another source is another message.
pub async fn s3_the_key_is_consumer_source_and_id<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let ours = message(&fixture, "a", "billing");
    let theirs = message_from(&fixture, "crm", "a", "billing");
    let other = Delivery {
        consumer: Consumer::new("audit").expect("legal"),
        ..delivery(&fixture, &ours, Some(Effect))
    };
    let deliveries =
        vec![delivery(&fixture, &ours, Some(Effect)), delivery(&fixture, &theirs, Some(Effect)), other];
    let answers = fixture.store().process(deliveries, Duration::from_secs(5)).await.expect("processes");
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Done(_))), "{answers:?}");
    assert_eq!(fixture.effects().await, ["a", "a", "a"]);
}

/// S4: swallowing an SQL error cannot commit half an effect.
pub async fn s4_a_swallowed_sql_error_commits_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    assert!(is_retry(&once(&fixture, &message, EffectThenSwallow).await));
    assert!(is_retry(&once(&fixture, &message, EffectThenSpoil).await));
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    assert_eq!(record(&fixture, &message).await, None);
    assert!(matches!(once(&fixture, &message, Effect).await, Answer::Done(_)));
}

/// S6: a panic is a failure of the message, not of the worker.
pub async fn s6_a_panic_is_a_failure<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    assert!(is_retry(&once(&fixture, &message, EffectThenPanic).await));
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    assert!(matches!(once(&fixture, &message, Effect).await, Answer::Done(_)));
}

/// RF-08: a failure rolls back; the sender tries again.
pub async fn rf_08_a_failure_leaves_nothing_and_runs_again<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    assert!(is_retry(&once(&fixture, &message, EffectThenRetry).await));
    assert_eq!((fixture.effects().await, record(&fixture, &message).await), (vec![], None));
    assert!(matches!(once(&fixture, &message, Effect).await, Answer::Done(_)));
    assert_eq!(fixture.effects().await, ["a"]);
}

async fn record<F: StoreFixture>(fixture: &F, message: &Message) -> Option<InboxStatus> {
    let consumer = Consumer::new("billing").expect("legal");
    let record = fixture.store().inbox_record(&consumer, &message.source, &message.id).await.expect("looks");
    record.map(|record| record.status)
}

/// A rejection is final for this replay; what the handler had written is not kept.
pub async fn a_rejection_is_stored_and_its_effects_are_not<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    let rejected = once(&fixture, &message, EffectThenReject).await;
    assert!(matches!(&rejected, Answer::Rejected { .. }));
    assert_eq!(
        (fixture.effects().await, record(&fixture, &message).await),
        (vec![], Some(InboxStatus::Dead))
    );
    assert_eq!(once(&fixture, &message, Effect).await, rejected, "a duplicate gets the same answer");
    assert_eq!(fixture.effects().await, Vec::<String>::new());
}

/// L10: a higher replay number runs a rejection again; what is done stays a duplicate.
pub async fn l10_a_rejection_runs_again_under_a_higher_replay_number<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = message(&fixture, "a", "billing");
    once(&fixture, &first, EffectThenReject).await;
    let replayed = Message { replay: 1, ..first.clone() };
    assert!(matches!(once(&fixture, &replayed, EffectThenReject).await, Answer::Rejected { .. }));
    assert!(
        matches!(once(&fixture, &replayed, Effect).await, Answer::Rejected { .. }),
        "this number was used"
    );
    let again = Message { replay: 2, ..first.clone() };
    assert!(matches!(once(&fixture, &again, Effect).await, Answer::Done(_)));
    let once_more = Message { replay: 3, ..first };
    assert!(matches!(once(&fixture, &once_more, Effect).await, Answer::Duplicate(_)));
    assert_eq!(fixture.effects().await, ["a"]);
}

/// S8: the same id with another body is a conflict, and the first effect is kept.
pub async fn s8_another_body_under_the_same_id_is_a_conflict<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = message(&fixture, "a", "billing");
    once(&fixture, &first, Effect).await;
    let other = Message { payload: Payload::new(&b"\"other\""[..]), ..first.clone() };
    assert_eq!(once(&fixture, &other, Effect).await, Answer::Conflict);
    assert!(matches!(once(&fixture, &first, Effect).await, Answer::Duplicate(_)));
    assert_eq!(fixture.effects().await, ["a"]);
}

/// L4: later messages of a failed key are held, others go on.
pub async fn l4_a_failure_holds_its_key_and_nobody_else<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let batch = [
        keyed(&fixture, "k1", "k"),
        keyed(&fixture, "o1", "other"),
        keyed(&fixture, "k2", "k"),
        message(&fixture, "free", "billing"),
    ];
    let script = |message: &Message| Some(if message.id.as_str() == "k1" { EffectThenRetry } else { Effect });
    let answers = deliver(&fixture, &batch, script).await;
    assert!(is_retry(&answers[0]));
    assert!(matches!(answers[1], Answer::Done(_)));
    assert_eq!(answers[2], Answer::Held);
    assert!(matches!(answers[3], Answer::Done(_)));
    assert_eq!(fixture.effects().await, ["o1", "free"]);
}

/// S9: once purged, an old message is refused: nobody knows whether it was handled.
pub async fn s9_what_was_forgotten_is_refused_as_too_old<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let hour = Duration::from_secs(3600);
    let old = message(&fixture, "old", "billing");
    let never_seen = message(&fixture, "never seen", "billing");
    once(&fixture, &old, Effect).await;
    fixture.clock().advance(2 * hour);
    let new = message(&fixture, "new", "billing");
    once(&fixture, &new, Effect).await;
    let plan = SweepPlan { dedup_window: hour, ..SweepPlan::default() };
    assert_eq!(fixture.store().sweep(&plan).await.expect("sweeps").purged, 1);
    fixture.clock().step_back(hour * 24 * 365); // safety never depends on clocks
    assert_eq!(once(&fixture, &old, Effect).await, Answer::TooOld);
    assert_eq!(once(&fixture, &never_seen, Effect).await, Answer::TooOld);
    fixture.clock().step_forward(hour * 24 * 365);
    assert!(matches!(once(&fixture, &new, Effect).await, Answer::Duplicate(_)));
    assert_eq!(fixture.effects().await, ["old", "new"]);
}

/// S9: a sender whose clock runs ahead must not sit above every watermark.
pub async fn s9_a_message_from_the_future_is_refused_for_now<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut ahead = message(&fixture, "ahead", "billing");
    ahead.available = ahead.created.plus(Duration::from_secs(301));
    assert_eq!(once(&fixture, &ahead, Effect).await, Answer::TooEarly { after: Duration::from_secs(1) });
    assert_eq!(record(&fixture, &ahead).await, None);
    fixture.clock().advance(Duration::from_secs(1));
    assert!(matches!(once(&fixture, &ahead, Effect).await, Answer::Done(_)));
}

/// A message for an endpoint that is deployed later finds no trace of itself.
pub async fn an_unknown_endpoint_leaves_no_row<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    let unknown = deliver(&fixture, std::slice::from_ref(&message), |_| None).await;
    assert_eq!(unknown, [Answer::UnknownEndpoint]);
    assert_eq!(record(&fixture, &message).await, None);
    once(&fixture, &message, Effect).await;
    let removed = deliver(&fixture, &[message], |_| None).await;
    assert!(matches!(removed[0], Answer::Duplicate(_)), "what was handled stays handled");
}

/// W7: when time is up, the rest is answered as not reached.
pub async fn w7_what_was_not_reached_is_said_so<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    let late = vec![delivery(&fixture, &message, Some(Effect))];
    assert_eq!(fixture.store().process(late, Duration::ZERO).await.expect("answers"), [Answer::NotReached]);
    assert_eq!(fixture.effects().await, Vec::<String>::new());
}

/// RF-25: stored responses are bounded, with a clear error.
pub async fn rf_25_a_response_beyond_the_limit_is_rejected<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let answer = once(&fixture, &message(&fixture, "a", "billing"), HandlerScript::Large(64 << 10)).await;
    assert!(matches!(answer, Answer::Done(_)), "at the limit");
    let answer =
        once(&fixture, &message(&fixture, "b", "billing"), HandlerScript::Large((64 << 10) + 1)).await;
    let Answer::Rejected { error } = answer else { panic!("{answer:?}") };
    assert!(error.contains("response_bytes_max"), "{error}");
}

/// RF-25, S16: a batch holds no more responses than its answer has room for; a message alone has its own.
pub async fn rf_25_s16_responses_that_no_answer_has_room_for_are_not_kept<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let batch: Vec<_> = (0..8).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    for again in [false, true] {
        let answers = deliver(&fixture, &batch, |_| Some(HandlerScript::Large(60 << 10))).await;
        let sizes = answers.iter().map(|answer| match answer {
            Answer::Done(response) if !again => response.as_ref().map(|response| response.body.len()),
            Answer::Duplicate(response) if again => response.as_ref().map(|response| response.body.len()),
            answer => panic!("{answer:?}"),
        });
        let room = [Some(60 << 10); 4].into_iter().chain([None; 4]);
        assert!(sizes.eq(room), "four of them are within 256 KiB; again: {again}");
    }
    let alone = once(&fixture, &batch[7], Effect).await;
    assert!(matches!(&alone, Answer::Duplicate(Some(response)) if response.body.len() == 60 << 10));
}

/// Follow-ups exist exactly when the effect does.
pub async fn follow_ups_commit_with_the_effect<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let message = message(&fixture, "a", "billing");
    for _ in 0..2 {
        once(&fixture, &message, EffectAndFollowUp(name("billing"))).await;
    }
    let lease = lane(&fixture).await;
    assert_eq!(unread(&fixture, &lease).await.len(), 1);
}

/// What was answered is still known after a restart.
pub async fn results_survive_a_reopening<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (done, rejected) = (message(&fixture, "a", "billing"), message(&fixture, "b", "billing"));
    once(&fixture, &done, Effect).await;
    once(&fixture, &rejected, EffectThenReject).await;
    let fixture = fixture.reopen().await;
    assert!(matches!(once(&fixture, &done, Effect).await, Answer::Duplicate(_)));
    assert!(matches!(once(&fixture, &rejected, Effect).await, Answer::Rejected { .. }));
    assert_eq!(fixture.effects().await, ["a"]);
}

/// A handler that makes the shared transaction roll back takes nobody along.
pub async fn one_bad_neighbour_spoils_nobody<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let batch: Vec<Message> = (0..9).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    let script = |message: &Message| Some(if message.id.as_str() == "m4" { EffectThenSpoil } else { Effect });
    let answers = deliver(&fixture, &batch, script).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Answer::Done(_)), n != 4, "m{n}: {answer:?}");
    }
    assert_eq!(fixture.effects().await, ["m0", "m1", "m2", "m3", "m5", "m6", "m7", "m8"]);
}
