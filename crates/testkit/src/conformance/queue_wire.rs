//! Deliveries that are stored, acknowledged, and handled later (ADR-04).

use std::time::Duration;

use twobox_core::ports::{
    Answer, Delivery, Handled, InboxStatus, InboxStore, QueueStore, SweepPlan, SweepStore, Treatment,
};
use twobox_core::{Clock, Message, Payload, Response};

use super::fixture::{HandlerScript, StoreFixture, deliver, delivery, keyed, message};
use super::worker::{LEASE, SECOND, Worker, only_id};

use HandlerScript::{Effect, EffectThenReject};

/// Delivers messages to be queued.
async fn send<F: StoreFixture>(fixture: &F, messages: &[Message]) -> Vec<Answer> {
    let queued = |message| Delivery { treatment: Treatment::Queue, ..delivery(fixture, message, None) };
    let deliveries = messages.iter().map(queued).collect();
    fixture.store().process(deliveries, Duration::from_secs(5)).await.expect("processes")
}

async fn send_one<F: StoreFixture>(fixture: &F, message: &Message) -> Answer {
    send(fixture, std::slice::from_ref(message)).await.remove(0)
}

fn stored() -> Answer {
    Answer::Done(Some(Response::empty()))
}

/// ADR-04: a delivery is durable when it is acknowledged, and its effect happens once, when a worker handles it.
pub async fn adr_04_stored_first_and_handled_later<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let sent = message(&fixture, "a", "billing");
    assert_eq!(send_one(&fixture, &sent).await, stored());
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    let fixture = fixture.reopen().await;
    let worker = Worker::new(&fixture, 1);
    assert_eq!(worker.status("a").await, InboxStatus::Processing);
    let claimed = vec![worker.only().await];
    assert_eq!(*claimed[0].message, sent);
    let handled = worker.handle(claimed, |_| Effect).await;
    assert!(matches!(handled[0], Handled::Done(_)), "{handled:?}");
    assert_eq!(fixture.effects().await, ["a"]);
}

/// L4, L5: what is delivered is due, whatever the clock here says: its sender has waited, and holds its key from then on.
pub async fn l4_l5_what_is_delivered_is_not_put_off_for_a_clock_that_is_behind<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let available = fixture.clock().now().plus(SECOND);
    let scheduled = Message { available, ..keyed(&fixture, "s", "k") };
    assert_eq!(send(&fixture, &[scheduled, keyed(&fixture, "m", "k")]).await, [stored(), stored()]);
    for id in ["s", "m"] {
        let claimed = vec![worker.only().await];
        assert_eq!(claimed[0].message.id.as_str(), id);
        worker.ack(&claimed).await;
    }
}

/// ADR-04, RF-08: a duplicate is one while the message waits, is leased, is dead, and when it is done.
pub async fn adr_04_rf_08_a_duplicate_is_one_in_every_state<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let sent = message(&fixture, "a", "billing");
    let answers = send(&fixture, &[sent.clone(), sent.clone()]).await;
    assert_eq!(answers, [stored(), Answer::Duplicate(None)]);
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(None), "waits");
    let claimed = vec![worker.only().await];
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(None), "is leased");
    worker.handle(claimed, |_| EffectThenReject).await;
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(None), "is dead");
    let again = Message { replay: 1, ..sent.clone() };
    assert_eq!(send_one(&fixture, &again).await, Answer::Duplicate(None), "its replay is ours to decide");
    worker.store().replay_work(&worker.queue, &only_id("a"), 1).await.expect("replays");
    let claimed = vec![worker.only().await];
    let Handled::Done(response) = worker.handle(claimed, |_| Effect).await.remove(0) else {
        panic!("not done")
    };
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(Some(response.clone())), "is done");
    let inline = deliver(&fixture, &[sent], |_| Some(Effect)).await;
    assert_eq!(inline, [Answer::Duplicate(Some(response))], "also where it would be handled at once");
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(fixture.effects().await, ["a"]);
}

/// S8: another body under the same id is a conflict, and changes nothing.
pub async fn s8_another_body_of_a_queued_message_is_a_conflict<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let sent = message(&fixture, "a", "billing");
    let other = Message { payload: Payload::new(b"other".to_vec()), ..sent.clone() };
    send_one(&fixture, &sent).await;
    assert_eq!(send_one(&fixture, &other).await, Answer::Conflict);
    let claimed = vec![worker.only().await];
    assert_eq!(claimed[0].message.payload, sent.payload);
    worker.handle(claimed, |_| Effect).await;
    assert_eq!(send_one(&fixture, &other).await, Answer::Conflict);
}

/// S9: what may have been handled and forgotten is refused as too old, and what is dated ahead is refused for now.
pub async fn s9_queued_messages_have_a_date_as_well<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let old = message(&fixture, "old", "billing");
    let late = message(&fixture, "late", "billing");
    send_one(&fixture, &old).await;
    let claimed = vec![worker.only().await];
    worker.handle(claimed, |_| Effect).await;
    fixture.clock().advance(SECOND * 7200);
    let waits = message(&fixture, "waits", "billing");
    assert_eq!(send_one(&fixture, &waits).await, stored());
    let plan = SweepPlan { dedup_window: SECOND * 3600, ..SweepPlan::default() };
    assert_eq!(fixture.store().sweep(&plan).await.expect("sweeps").purged, 1);
    assert_eq!(send(&fixture, &[old, late]).await, [Answer::TooOld, Answer::TooOld]);
    let mut ahead = message(&fixture, "ahead", "billing");
    ahead.available = ahead.created.plus(SECOND * 301);
    assert_eq!(send_one(&fixture, &ahead).await, Answer::TooEarly { after: SECOND });
    assert_eq!(worker.claim_ids(10).await, ["waits"]);
    assert_eq!(fixture.effects().await, ["old"]);
}

/// S9, IBX-099: what waits in the queue is remembered, however old it gets.
pub async fn s9_ibx_099_what_waits_is_never_forgotten<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let sent = Message {
        expires: message(&fixture, "a", "billing").created.plus(SECOND * 3600 * 24 * 365),
        ..message(&fixture, "a", "billing")
    };
    send_one(&fixture, &sent).await;
    fixture.clock().advance(SECOND * 3600 * 24 * 30);
    let new = message(&fixture, "new", "billing");
    deliver(&fixture, &[new], |_| Some(Effect)).await;
    while fixture.store().sweep(&SweepPlan::default()).await.expect("sweeps").more {}
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(None));
    let claimed = vec![worker.only().await];
    worker.handle(claimed, |_| Effect).await;
    assert_eq!(fixture.effects().await, ["new", "a"]);
}

/// S12: deliveries of a key are queued in the order in which they arrive, and handled so.
pub async fn s12_deliveries_of_a_key_keep_their_order<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let messages = ["k1", "k2", "k3"].map(|id| keyed(&fixture, id, "k"));
    assert_eq!(send(&fixture, &messages).await, [stored(), stored(), stored()]);
    for _ in 0..3 {
        let claimed = vec![worker.only().await];
        worker.handle(claimed, |_| Effect).await;
    }
    assert_eq!(fixture.effects().await, ["k1", "k2", "k3"]);
}

/// S6: a message that kills its workers is ours to bury; its sender is not asked again.
pub async fn s6_a_queued_message_dies_here<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut worker = Worker::new(&fixture, 1);
    worker.queue.retry = worker.queue.retry.clone().attempts_max(std::num::NonZeroU32::MIN);
    let sent = message(&fixture, "a", "billing");
    send_one(&fixture, &sent).await;
    worker.only().await;
    fixture.clock().advance(LEASE);
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(worker.dead().await.len(), 1);
    assert_eq!(send_one(&fixture, &sent).await, Answer::Duplicate(None));
}

/// ADR-04: a delivery wakes the workers.
pub async fn adr_04_a_delivery_wakes_the_workers<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let store = fixture.store().clone();
    let waiting = tokio::spawn(async move { store.work_changed(0).await });
    send_one(&fixture, &message(&fixture, "a", "billing")).await;
    assert!(waiting.await.expect("wakes") > 0);
}
