//! Waiting rows and ordering keys.

use std::time::Duration;

use twobox_core::lifecycle::{Next, Reason, Standing, State, Step};
use twobox_core::ports::{
    Due, HeadPolicy, LaneLease, LaneStore, LogStore, Look, NewWaiting, WaitingOutcome, WaitingStore,
};
use twobox_core::{ErrorKind, Message, Payload};

use super::fixture::{StoreFixture, all_sent, keyed, lane, message, name, take, unread};

const DELAY: Duration = Duration::from_secs(5);
const DELAY_MAX: Duration = Duration::from_secs(300);

type Position<F> = <<F as StoreFixture>::Store as LaneStore>::Position;

/// A look for so many messages, however large they are.
pub(super) fn look_for(limit: usize) -> Look {
    Look { limit, bytes_max: usize::MAX, delay_max: DELAY_MAX, expired_only: false }
}

fn outcome(state: State, attempts: u32, next: Next, error: Option<&str>) -> WaitingOutcome {
    let step = Step { standing: Standing { state, attempts }, next };
    WaitingOutcome { step, error: error.map(Into::into), head_policy: HeadPolicy::Block }
}

/// A failed attempt, tried again after the delay.
pub(super) fn failed(attempts: u32) -> WaitingOutcome {
    outcome(State::Open, attempts, Next::After(DELAY), Some("no"))
}

/// A death.
pub(super) fn dead(reason: Reason) -> WaitingOutcome {
    outcome(State::Dead, 1, Next::Never(Some(reason)), Some("never"))
}

fn held() -> WaitingOutcome {
    outcome(State::Open, 0, Next::BehindKey, None)
}

fn sent() -> WaitingOutcome {
    outcome(State::Succeeded, 1, Next::Never(None), None)
}

/// The end of a time to live.
pub(super) fn expired() -> WaitingOutcome {
    outcome(State::Expired, 0, Next::Never(Some(Reason::Expired)), None)
}

/// Enqueues messages and settles them as waiting rows with these outcomes.
pub(super) async fn wait_with<F: StoreFixture>(
    fixture: &F,
    messages: Vec<(Message, Option<WaitingOutcome>)>,
) -> (LaneLease<Position<F>>, Vec<Position<F>>) {
    let (messages, outcomes): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
    fixture.append(messages).await.expect("appends");
    let lease = lane(fixture).await;
    let entries = unread(fixture, &lease).await;
    let mut settlement = all_sent(&entries);
    settlement.receipts[0].2 = 0;
    let positions: Vec<_> = entries.iter().map(|entry| entry.position.clone()).collect();
    let waiting = positions.iter().cloned().zip(outcomes);
    settlement.waiting = waiting.map(|(position, outcome)| NewWaiting { position, outcome }).collect();
    fixture.store().settle_log(&lease, settlement).await.expect("settles");
    (lease, positions)
}

/// Ids of what is due.
pub(super) async fn due<F: StoreFixture>(fixture: &F, lease: &LaneLease<Position<F>>) -> Vec<String> {
    ids(&look(fixture, lease).await)
}

async fn look<F: StoreFixture>(fixture: &F, lease: &LaneLease<Position<F>>) -> Due<Position<F>> {
    fixture.store().due(lease, &look_for(100)).await.expect("looks")
}

fn ids<P>(due: &Due<P>) -> Vec<String> {
    due.messages.iter().map(|waiting| waiting.message.as_ref().expect("decodes").id.to_string()).collect()
}

async fn settle<F: StoreFixture>(
    fixture: &F,
    lease: &LaneLease<Position<F>>,
    position: &Position<F>,
    outcome: WaitingOutcome,
) {
    fixture.store().settle_waiting(lease, vec![(position.clone(), outcome)]).await.expect("settles");
}

/// RF-04: a failed message comes back after its delay, not before.
pub async fn rf_04_a_failed_message_is_due_after_its_delay<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (lease, _) = wait_with(&fixture, vec![(message(&fixture, "a", "billing"), Some(failed(1)))]).await;
    let early = look(&fixture, &lease).await;
    assert_eq!(ids(&early), Vec::<String>::new());
    assert_eq!(early.next, Some(DELAY));
    fixture.clock().advance(DELAY);
    let now = look(&fixture, &lease).await;
    assert_eq!(ids(&now), ["a"]);
    assert_eq!(now.messages[0].standing, Standing { state: State::Open, attempts: 1 });
}

/// ADR-05: a message scheduled for later is due when its time has come.
pub async fn adr_05_a_scheduled_message_joins_when_due<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut later = message(&fixture, "later", "billing");
    later.available = later.created.plus(DELAY);
    let (lease, _) = wait_with(&fixture, vec![(later, None)]).await;
    let early = look(&fixture, &lease).await;
    assert_eq!((ids(&early), early.next), (vec![], Some(DELAY)));
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["later"]);
}

/// L5, S13: a clock that was ahead makes a scheduled message a part of its key, but not for longer than it was.
pub async fn l5_s13_what_joined_its_key_by_a_wrong_clock_leaves_it_again<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let month = DELAY_MAX * 12 * 24 * 30;
    let mut later = keyed(&fixture, "later", "k");
    later.available = later.created.plus(month);
    later.expires = later.available.plus(month);
    let (lease, positions) = wait_with(&fixture, vec![(later, None)]).await;
    fixture.clock().step_forward(month + DELAY);
    assert_eq!(due(&fixture, &lease).await, ["later"]);
    fixture.clock().step_back(month + DELAY);
    assert_eq!(due(&fixture, &lease).await, ["later"], "which clock was wrong is for its receiver to say");
    let put_off = outcome(State::Open, 0, Next::After(DELAY), Some("too early"));
    settle(&fixture, &lease, &positions[0], put_off).await;
    let held = async || fixture.store().held_keys(&lease, vec![name("k")]).await.expect("looks").len();
    assert_eq!(held().await, 1);
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, Vec::<String>::new());
    assert_eq!(held().await, 0, "others of its key go on");
    fixture.clock().advance(month);
    assert_eq!(due(&fixture, &lease).await, ["later"], "when it is due, it is its turn");
    settle(&fixture, &lease, &positions[0], failed(1)).await;
    fixture.clock().step_back(month);
    assert_eq!(due(&fixture, &lease).await, ["later"], "what was tried is not parked");
}

/// S12: the head of a key holds the rest; when it goes, they go with it in order.
pub async fn s12_only_the_head_of_a_key_and_what_follows_it_is_due<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(failed(1))),
        (keyed(&fixture, "k2", "k"), Some(held())),
        (keyed(&fixture, "k3", "k"), Some(held())),
    ];
    let (lease, positions) = wait_with(&fixture, messages).await;
    assert_eq!(due(&fixture, &lease).await, Vec::<String>::new(), "the head is not due, so nobody is");
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["k1", "k2", "k3"]);
    settle(&fixture, &lease, &positions[0], sent()).await;
    assert_eq!(due(&fixture, &lease).await, ["k2", "k3"], "the next one is the head now, due at once");
    settle(&fixture, &lease, &positions[1], failed(1)).await;
    assert_eq!(due(&fixture, &lease).await, Vec::<String>::new());
}

/// S18: a look reads what fits into a request, and not all that is due: with and without a key.
pub async fn s18_a_look_reads_no_more_than_it_is_asked_for<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let large = |message| Message { payload: Payload::new(vec![b'1'; 1000]), ..message };
    let mut messages = vec![(large(keyed(&fixture, "k0", "k")), Some(failed(1)))];
    messages.extend((1..5).map(|n| (large(keyed(&fixture, &format!("k{n}"), "k")), Some(held()))));
    messages.extend((0..5).map(|n| (large(message(&fixture, &format!("m{n}"), "billing")), Some(failed(1)))));
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    for (bytes_max, expected) in [(1, 1), (2500, 3), (7001, 8), (usize::MAX, 10)] {
        let look = Look { bytes_max, ..look_for(100) };
        let found = fixture.store().due(&lease, &look).await.expect("looks");
        assert_eq!(found.messages.len(), expected, "{bytes_max} bytes: {:?}", ids(&found));
    }
}

/// The messages behind a head travel with it.
pub async fn a_key_follows_its_head_in_one_batch<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut messages = vec![(keyed(&fixture, "k0", "k"), Some(failed(1)))];
    messages.extend((1..30).map(|n| (keyed(&fixture, &format!("k{n}"), "k"), Some(held()))));
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    let some = fixture.store().due(&lease, &look_for(10)).await.expect("looks");
    assert_eq!(
        ids(&some),
        (0..10).map(|n| format!("k{n}")).collect::<Vec<_>>(),
        "as many as asked for, in order"
    );
}

/// S12 with the policy *block*: a dead head keeps its key waiting.
pub async fn s12_block_keeps_the_key_waiting<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(dead(Reason::Rejected))),
        (keyed(&fixture, "k2", "k"), Some(held())),
    ];
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY_MAX);
    assert_eq!(due(&fixture, &lease).await, Vec::<String>::new());
    let held = fixture.store().held_keys(&lease, vec![name("k")]).await.expect("looks");
    assert!(held.contains("k"), "messages still in the log wait as well");
}

/// S12 with the policy *step over*: the next one goes.
pub async fn s12_step_over_lets_the_next_one_go<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let step_over = WaitingOutcome { head_policy: HeadPolicy::StepOver, ..dead(Reason::Rejected) };
    let messages =
        vec![(keyed(&fixture, "k1", "k"), Some(step_over)), (keyed(&fixture, "k2", "k"), Some(held()))];
    let (lease, positions) = wait_with(&fixture, messages).await;
    assert_eq!(due(&fixture, &lease).await, ["k2"]);
    settle(&fixture, &lease, &positions[1], sent()).await;
    assert!(fixture.store().held_keys(&lease, vec![name("k")]).await.expect("looks").is_empty());
}

/// S12 with the policy *fail key*: what waits behind the head dies with it.
pub async fn s12_fail_key_takes_the_rest_along<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages =
        vec![(keyed(&fixture, "k1", "k"), Some(failed(1))), (keyed(&fixture, "k2", "k"), Some(held()))];
    let (lease, positions) = wait_with(&fixture, messages).await;
    let fail_key = WaitingOutcome { head_policy: HeadPolicy::FailKey, ..dead(Reason::Rejected) };
    let settled = fixture.store().settle_waiting(&lease, vec![(positions[0].clone(), fail_key)]).await;
    assert_eq!(settled.expect("settles").died, 2);
    assert_eq!(fixture.status("k2").await.expect("is kept").0, "Failed");
    assert!(fixture.store().held_keys(&lease, vec![name("k")]).await.expect("looks").is_empty());
    assert_eq!(fixture.store().lanes().await.expect("lists")[0].failed, 2);
}

/// L5: the order within a key is no matter of clocks.
pub async fn l5_order_survives_a_clock_that_steps_back<F: StoreFixture>() {
    let fixture = F::fresh().await;
    wait_with(&fixture, vec![(keyed(&fixture, "k1", "k"), Some(failed(1)))]).await;
    fixture.clock().step_back(Duration::from_secs(3600));
    let (lease, positions) = wait_with(&fixture, vec![(keyed(&fixture, "k2", "k"), Some(held()))]).await;
    fixture.clock().advance(DELAY_MAX + Duration::from_secs(3600));
    assert_eq!(due(&fixture, &lease).await, ["k1", "k2"]);
    assert_eq!(positions.len(), 1);
}

/// S13: a clock that was a year ahead does not park a message for a year.
pub async fn s13_no_message_is_parked_beyond_the_longest_delay<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let year = Duration::from_secs(365 * 24 * 3600);
    fixture.clock().step_forward(year);
    let mut patient = message(&fixture, "a", "billing");
    patient.expires = patient.expires.plus(year);
    let (_, _) = wait_with(&fixture, vec![(patient, Some(failed(1)))]).await;
    fixture.clock().step_back(year);
    let lease = &fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("takes")[0];
    assert_eq!(due(&fixture, lease).await, ["a"]);
}

/// L6: expiry is noticed whatever the next attempt says, also while the lane is held.
pub async fn l6_expired_messages_are_due_at_once<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut short = message(&fixture, "short", "billing");
    short.expires = short.created.plus(Duration::from_secs(1));
    let messages = vec![(short, Some(failed(1))), (message(&fixture, "long", "billing"), Some(failed(1)))];
    let (lease, positions) = wait_with(&fixture, messages).await;
    assert_eq!(look(&fixture, &lease).await.next, Some(Duration::from_secs(1)));
    fixture.clock().advance(Duration::from_secs(1));
    let found =
        fixture.store().due(&lease, &Look { expired_only: true, ..look_for(100) }).await.expect("looks");
    assert_eq!(ids(&found), ["short"]);
    assert!(found.messages[0].expired);
    settle(&fixture, &lease, &positions[0], expired()).await;
    assert_eq!(fixture.status("short").await, Some(("Expired".into(), 0)));
    fixture.clock().advance(DELAY);
    let found =
        fixture.store().due(&lease, &Look { expired_only: true, ..look_for(100) }).await.expect("looks");
    assert_eq!(ids(&found), Vec::<String>::new(), "only what is expired");
}

/// S5: nothing overwrites Sent.
pub async fn s5_sent_is_final<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (lease, positions) =
        wait_with(&fixture, vec![(message(&fixture, "a", "billing"), Some(failed(1)))]).await;
    settle(&fixture, &lease, &positions[0], sent()).await;
    settle(&fixture, &lease, &positions[0], dead(Reason::Rejected)).await;
    assert_eq!(fixture.status("a").await, Some(("Sent".into(), 1)), "and its attempts are still known (L2)");
}

/// Which keys are held is answered for many at once.
pub async fn held_keys_are_reported<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (lease, positions) = wait_with(&fixture, vec![(keyed(&fixture, "a", "held"), Some(failed(1)))]).await;
    let keys = || vec![name("held"), name("free")];
    let held = fixture.store().held_keys(&lease, keys()).await.expect("looks");
    assert_eq!(held.into_iter().collect::<Vec<_>>(), [name("held")]);
    settle(&fixture, &lease, &positions[0], sent()).await;
    assert!(fixture.store().held_keys(&lease, keys()).await.expect("looks").is_empty());
}

/// S12: keys do not wait for each other.
pub async fn s12_different_keys_do_not_wait_for_each_other<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "a1", "a"), Some(dead(Reason::Rejected))),
        (keyed(&fixture, "b1", "b"), Some(failed(1))),
        (message(&fixture, "c", "billing"), Some(failed(1))),
    ];
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["b1", "c"]);
}

/// L5: what is scheduled for tomorrow holds nobody today.
pub async fn l5_scheduled_for_tomorrow_is_no_part_of_its_key<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut tomorrow = keyed(&fixture, "tomorrow", "k");
    tomorrow.available = tomorrow.created.plus(Duration::from_secs(24 * 3600));
    tomorrow.expires = tomorrow.available.plus(Duration::from_secs(24 * 3600));
    let messages = vec![(tomorrow, None), (keyed(&fixture, "today", "k"), Some(failed(1)))];
    let (lease, positions) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["today"]);
    settle(&fixture, &lease, &positions[1], sent()).await;
    assert!(fixture.store().held_keys(&lease, vec![name("k")]).await.expect("looks").is_empty());
    fixture.clock().advance(Duration::from_secs(24 * 3600));
    let lease = lane(&fixture).await;
    assert_eq!(due(&fixture, &lease).await, ["tomorrow"]);
}

/// L5: who joins a key later comes later, whenever it was enqueued.
pub async fn l5_what_joins_later_comes_later<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let mut soon = keyed(&fixture, "soon", "k");
    soon.available = soon.created.plus(Duration::from_secs(1));
    let messages = vec![(soon, None), (keyed(&fixture, "first", "k"), Some(failed(1)))];
    let (lease, _) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["first", "soon"]);
}

/// L5: what joins at the same time joins in the order of its dates, and every key has one head.
pub async fn l5_what_joins_together_keeps_its_order<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let after = |seconds, id, key| {
        let keyed = keyed(&fixture, id, key);
        (Message { available: keyed.created.plus(Duration::from_secs(seconds)), ..keyed }, None)
    };
    let messages = vec![
        after(3, "a3", "a"),
        after(1, "a1", "a"),
        after(3, "b2", "b"),
        after(1, "a2", "a"),
        after(2, "b1", "b"),
    ];
    let (lease, positions) = wait_with(&fixture, messages).await;
    fixture.clock().advance(DELAY);
    assert_eq!(due(&fixture, &lease).await, ["a1", "a2", "a3", "b1", "b2"]);
    settle(&fixture, &lease, &positions[1], failed(1)).await;
    assert_eq!(due(&fixture, &lease).await, ["b1", "b2"], "nobody else of its key goes before it");
    settle(&fixture, &lease, &positions[4], sent()).await;
    assert_eq!(due(&fixture, &lease).await, ["b2"]);
}

/// S5 for waiting rows.
pub async fn a_stale_lease_settles_no_waiting_row<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (stale, positions) =
        wait_with(&fixture, vec![(message(&fixture, "a", "billing"), Some(failed(1)))]).await;
    fixture.clock().advance(Duration::from_secs(10));
    fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("takes");
    let late = fixture.store().settle_waiting(&stale, vec![(positions[0].clone(), sent())]).await;
    assert_eq!(late.expect_err("is refused").kind(), ErrorKind::LeaseLost);
    assert_eq!(fixture.status("a").await, Some(("Pending".into(), 1)));
}
