//! Dead letters, replay, purge and blocked keys.

use std::time::Duration;

use twobox_core::Clock;
use twobox_core::lifecycle::Reason;
use twobox_core::ports::{
    DeadLetter, DeadLetterFilter, DeadLetterStore, LaneLease, LaneStore, LogStore, NewWaiting, Purged,
    Replay, WaitingStore,
};

use super::fixture::{
    StoreFixture, ids as entry_ids, keyed, lane, message, message_from, name, take, unread,
};
use super::waiting::{dead, due, expired, failed, look_for, wait_with};

const TTL: Duration = Duration::from_secs(3600);

async fn letters<F: StoreFixture>(
    fixture: &F,
    filter: &DeadLetterFilter,
) -> Vec<DeadLetter<<F::Store as LaneStore>::Position>> {
    fixture.store().dead_letters(filter, None, 100).await.expect("lists")
}

fn ids<P>(letters: &[DeadLetter<P>]) -> Vec<&str> {
    letters.iter().map(|letter| letter.message_id.as_str()).collect()
}

/// RF-05: what died is listed with its reason.
pub async fn rf_05_dead_letters_are_listed_with_their_reason<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (message(&fixture, "a", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "b", "billing"), Some(failed(1))),
        (message(&fixture, "c", "billing"), Some(dead(Reason::TooOld))),
    ];
    wait_with(&fixture, messages).await;
    let all = letters(&fixture, &DeadLetterFilter::default()).await;
    assert_eq!(ids(&all), ["a", "c"]);
    assert_eq!(
        (all[0].reason, all[0].error.as_deref(), all[0].attempts),
        (Reason::Rejected, Some("never"), 1)
    );
    let too_old = DeadLetterFilter { reason: Some(Reason::TooOld), ..DeadLetterFilter::default() };
    assert_eq!(ids(&letters(&fixture, &too_old).await), ["c"]);
    let one = DeadLetterFilter { message_id: Some(name("a")), ..DeadLetterFilter::default() };
    assert_eq!(ids(&letters(&fixture, &one).await), ["a"]);
    let elsewhere = DeadLetterFilter { destination: Some(name("other")), ..DeadLetterFilter::default() };
    assert!(letters(&fixture, &elsewhere).await.is_empty());
}

/// L10: replay under the same id starts counting anew, under a higher replay number, in its old place.
pub async fn l10_replay_keeps_id_and_place<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(dead(Reason::Rejected))),
        (keyed(&fixture, "k2", "k"), Some(failed(1))),
    ];
    let (lease, _) = wait_with(&fixture, messages).await;
    let replayed = fixture.store().replay(&DeadLetterFilter::default(), Replay::SameId, TTL, 10).await;
    assert_eq!(replayed.expect("replays").replayed, 1);
    let due = fixture.store().due(&lease, &look_for(10)).await.expect("looks").messages;
    let due: Vec<_> =
        due.iter().map(|waiting| (waiting.message.as_ref().expect("decodes"), waiting.standing)).collect();
    assert_eq!(due.iter().map(|(message, _)| message.id.as_str()).collect::<Vec<_>>(), ["k1", "k2"]);
    assert_eq!((due[0].0.replay, due[0].1.attempts), (1, 0));
    assert_eq!(due[0].0.available, keyed(&fixture, "k1", "k").available, "the date is immutable");
    assert!(letters(&fixture, &DeadLetterFilter::default()).await.is_empty());
}

/// L10: replay under a new id is a new message; the dead letter no longer blocks.
pub async fn l10_replay_under_a_new_id_goes_to_the_end<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(dead(Reason::TooOld))),
        (keyed(&fixture, "k2", "k"), Some(failed(1))),
    ];
    let (mut lease, positions) = wait_with(&fixture, messages).await;
    lease.cursor = positions[1].clone();
    fixture.clock().advance(Duration::from_secs(60));
    fixture.store().replay(&DeadLetterFilter::default(), Replay::NewId, TTL, 10).await.expect("replays");
    let new = unread(&fixture, &lease).await;
    let new = new[0].message.as_ref().expect("decodes");
    assert_ne!(new.id.as_str(), "k1");
    assert_eq!(new.payload, keyed(&fixture, "k1", "k").payload);
    assert_eq!(new.available, keyed(&fixture, "k1", "k").created, "dated anew");
    let due = fixture.store().due(&lease, &look_for(10)).await.expect("looks").messages;
    assert_eq!(due.len(), 1, "the key goes on");
    assert!(letters(&fixture, &DeadLetterFilter::default()).await.is_empty());
    let again = fixture.store().replay(&DeadLetterFilter::default(), Replay::NewId, TTL, 10).await;
    assert_eq!(again.expect("finds nothing").replayed, 0);
}

/// L10: a callback is due until it was confirmed, also after a restart.
pub async fn l10_callbacks_are_due_until_confirmed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    wait_with(&fixture, vec![(message(&fixture, "a", "billing"), Some(dead(Reason::Rejected)))]).await;
    let fixture = fixture.reopen().await;
    let due = fixture.store().unannounced(&name("shop"), None, 10).await.expect("lists");
    assert_eq!(ids(&due), ["a"]);
    assert!(fixture.store().unannounced(&name("crm"), None, 10).await.expect("lists").is_empty());
    fixture
        .store()
        .announced(due.into_iter().map(|letter| (letter.position, letter.died)).collect())
        .await
        .expect("confirms");
    assert!(fixture.store().unannounced(&name("shop"), None, 10).await.expect("lists").is_empty());
}

/// S12: blocked keys are listed with what waits behind them, and an operator can release them.
pub async fn s12_blocked_keys_are_listed_and_released<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(dead(Reason::Rejected))),
        (keyed(&fixture, "k2", "k"), Some(failed(1))),
        (keyed(&fixture, "o1", "other"), Some(failed(1))),
    ];
    let (lease, positions) = wait_with(&fixture, messages).await;
    let blocked = fixture.store().blocked_keys(10).await.expect("lists");
    assert_eq!(blocked.len(), 1);
    assert_eq!((blocked[0].ordering_key.as_str(), blocked[0].waiting), ("k", 1));
    assert_eq!(blocked[0].head, positions[0]);
    let release = async |key| fixture.store().release_key(&name("shop"), &name("billing"), &name(key)).await;
    assert!(release("k").await.expect("releases"));
    assert!(!release("other").await.expect("was not blocked"));
    assert!(fixture.store().blocked_keys(10).await.expect("lists").is_empty());
    let due = fixture.store().due(&lease, &look_for(10)).await.expect("looks").messages;
    assert_eq!(due.len(), 1, "the next one takes its turn at once");
    assert_eq!(letters(&fixture, &DeadLetterFilter::default()).await.len(), 1, "the dead letter stays");
}

/// A replay takes a bounded number and says whether there are more.
pub async fn replay_is_bounded_and_filtered<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages =
        (0..5).map(|n| (message(&fixture, &format!("m{n}"), "billing"), Some(dead(Reason::Rejected))));
    wait_with(&fixture, messages.collect()).await;
    let filter = DeadLetterFilter { source: Some(name("crm")), ..DeadLetterFilter::default() };
    let replay = async |filter, limit| {
        fixture.store().replay(filter, Replay::SameId, TTL, limit).await.expect("replays")
    };
    assert_eq!(replay(&filter, 10).await.replayed, 0, "not this source");
    let all = DeadLetterFilter::default();
    let some = replay(&all, 3).await;
    assert_eq!((some.replayed, some.more), (3, true));
    let rest = replay(&all, 3).await;
    assert_eq!((rest.replayed, rest.more), (2, false));
}

/// Listing goes page by page and skips nothing.
pub async fn dead_letters_are_paged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages =
        (0..5).map(|n| (message(&fixture, &format!("m{n}"), "billing"), Some(dead(Reason::Rejected))));
    wait_with(&fixture, messages.collect()).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = fixture
            .store()
            .dead_letters(&DeadLetterFilter::default(), after.as_ref(), 2)
            .await
            .expect("lists");
        let Some(last) = page.last().cloned() else { break };
        seen.extend(page.into_iter().map(|letter| letter.message_id));
        after = Some(last);
    }
    assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4"]);
    // An undecodable row is listed with the others (S19).
    fixture.append_undecodable(&name("shop"), &name("billing")).await;
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    let mut settlement = super::fixture::all_sent(&entries);
    settlement.waiting =
        vec![NewWaiting { position: entries[0].position.clone(), outcome: Some(dead(Reason::Undecodable)) }];
    fixture.store().settle_log(&lease, settlement).await.expect("settles");
    assert_eq!(letters(&fixture, &DeadLetterFilter::default()).await.len(), 6);
}

fn of_reason(reason: Reason) -> DeadLetterFilter {
    DeadLetterFilter { reason: Some(reason), ..DeadLetterFilter::default() }
}

/// RF-05: a replay or a purge can be tried without doing it, and counting stops at a bound.
pub async fn rf_05_dead_letters_are_counted_up_to_a_bound<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (message(&fixture, "a", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "b", "billing"), Some(failed(1))),
        (message(&fixture, "c", "billing"), Some(expired())),
        (message(&fixture, "d", "billing"), Some(dead(Reason::Rejected))),
    ];
    wait_with(&fixture, messages).await;
    let count = async |filter: DeadLetterFilter, limit| {
        fixture.store().dead_letter_count(&filter, limit).await.expect("counts")
    };
    let all = DeadLetterFilter::default();
    assert_eq!(count(all.clone(), 10).await, 3, "what is still tried is not dead");
    assert_eq!(count(all.clone(), 2).await, 2, "at least two");
    assert_eq!(count(all.clone(), 0).await, 0);
    assert_eq!(count(of_reason(Reason::Rejected), 10).await, 2);
    assert_eq!(count(DeadLetterFilter { message_id: Some(name("c")), ..all.clone() }, 10).await, 1);
    assert_eq!(count(DeadLetterFilter { message_id: Some(name("b")), ..all.clone() }, 10).await, 0);
    assert_eq!(count(DeadLetterFilter { endpoint: Some(name("Refund")), ..all.clone() }, 10).await, 0);
    fixture.store().replay(&of_reason(Reason::Expired), Replay::NewId, TTL, 10).await.expect("replays");
    assert_eq!(count(all, 10).await, 2, "what was replayed under a new id is done with");
}

/// RF-05: dead letters can be chosen by when they died.
pub async fn rf_05_dead_letters_of_a_time_are_chosen<F: StoreFixture>() {
    let fixture = F::fresh().await;
    wait_with(&fixture, vec![(message(&fixture, "early", "billing"), Some(dead(Reason::Rejected)))]).await;
    fixture.clock().advance(Duration::from_secs(60));
    let noon = fixture.clock().now();
    wait_with(&fixture, vec![(message(&fixture, "late", "billing"), Some(dead(Reason::Rejected)))]).await;
    let before_noon = DeadLetterFilter { died_before: Some(noon), ..DeadLetterFilter::default() };
    assert_eq!(ids(&letters(&fixture, &before_noon).await), ["early"]);
    assert_eq!(fixture.store().dead_letter_count(&before_noon, 10).await.expect("counts"), 1);
    let late = DeadLetterFilter { message_id: Some(name("late")), ..before_noon.clone() };
    assert!(letters(&fixture, &late).await.is_empty());
    let purged = fixture.store().purge(&before_noon, 10).await.expect("purges");
    assert_eq!(purged, Purged { purged: 1, more: false });
    assert_eq!(ids(&letters(&fixture, &DeadLetterFilter::default()).await), ["late"]);
}

/// RF-05, L2: a purged message is gone: it is not listed, not shown, not sent, not replayed, and nobody is told of it.
pub async fn rf_05_l2_a_purged_message_is_gone<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (message(&fixture, "failed", "billing"), Some(dead(Reason::Rejected))),
        (message(&fixture, "expired", "billing"), Some(expired())),
        (message(&fixture, "waits", "billing"), Some(failed(1))),
    ];
    let (from_the_start, _) = wait_with(&fixture, messages).await;
    let all = DeadLetterFilter::default();
    assert_eq!(fixture.store().purge(&all, 10).await.expect("purges").purged, 2);
    let fixture = fixture.reopen().await;
    for id in ["failed", "expired"] {
        assert_eq!(fixture.status(id).await, None, "{id} is neither sent nor pending");
    }
    assert_eq!(fixture.status("waits").await, Some(("Pending".into(), 1)));
    let lease = lane(&fixture).await;
    let behind = LaneLease { cursor: from_the_start.cursor, ..lease.clone() };
    assert_eq!(entry_ids(&unread(&fixture, &behind).await), ["waits"], "the log has forgotten them");
    fixture.clock().advance(Duration::from_secs(60));
    assert_eq!(due(&fixture, &lease).await, ["waits"]);
    assert!(fixture.store().unannounced(&name("shop"), None, 10).await.expect("lists").is_empty());
    assert!(letters(&fixture, &all).await.is_empty());
    assert_eq!(
        fixture.store().replay(&all, Replay::NewId, TTL, 10).await.expect("finds nothing").replayed,
        0
    );
    assert_eq!(fixture.store().purge(&all, 10).await.expect("finds nothing"), Purged::default());
}

/// ADR-07, S12: when a dead head is purged its key goes on, past no other dead message of it.
pub async fn adr_07_s12_a_purged_head_lets_its_key_go_on<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![
        (keyed(&fixture, "k1", "k"), Some(dead(Reason::Rejected))),
        (keyed(&fixture, "k2", "k"), Some(dead(Reason::TooOld))),
        (keyed(&fixture, "k3", "k"), Some(failed(1))),
        (keyed(&fixture, "k4", "k"), Some(failed(1))),
    ];
    let (lease, positions) = wait_with(&fixture, messages).await;
    fixture.clock().advance(Duration::from_secs(60));
    assert!(due(&fixture, &lease).await.is_empty());
    fixture.store().purge(&of_reason(Reason::Rejected), 10).await.expect("purges");
    let blocked = fixture.store().blocked_keys(10).await.expect("lists");
    assert_eq!(blocked.iter().map(|key| &key.head).collect::<Vec<_>>(), [&positions[1]], "by the next one");
    assert!(due(&fixture, &lease).await.is_empty());
    fixture.store().purge(&of_reason(Reason::TooOld), 10).await.expect("purges");
    assert!(fixture.store().blocked_keys(10).await.expect("lists").is_empty());
    assert_eq!(due(&fixture, &lease).await, ["k3", "k4"], "at once, and in order");
}

/// A purge takes a bounded number, oldest death first, and says whether there are more.
pub async fn s18_purge_is_bounded_and_filtered<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages =
        (0..5).map(|n| (message(&fixture, &format!("m{n}"), "billing"), Some(dead(Reason::Rejected))));
    wait_with(&fixture, messages.collect()).await;
    let purge =
        async |filter: &DeadLetterFilter, limit| fixture.store().purge(filter, limit).await.expect("purges");
    let all = DeadLetterFilter::default();
    let elsewhere = DeadLetterFilter { source: Some(name("crm")), ..all.clone() };
    assert_eq!(purge(&elsewhere, 10).await, Purged::default(), "not this source");
    assert_eq!(purge(&all, 3).await, Purged { purged: 3, more: true });
    assert_eq!(ids(&letters(&fixture, &all).await), ["m3", "m4"]);
    let one = DeadLetterFilter { message_id: Some(name("m4")), ..all.clone() };
    assert_eq!(purge(&one, 3).await, Purged { purged: 1, more: false });
    assert_eq!(purge(&all, 3).await, Purged { purged: 1, more: false });
}

/// L10: whoever acts on a death that he has seen does not act on a later one of the same message.
pub async fn l10_another_death_is_not_the_one_that_was_meant<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let messages = vec![(message(&fixture, "m", "billing"), Some(dead(Reason::Rejected)))];
    let (lease, positions) = wait_with(&fixture, messages).await;
    let (store, all) = (fixture.store(), DeadLetterFilter::default());
    let seen = store.dead_letter_page(&all, None, 10).await.expect("lists").deaths();
    store.replay(&all, Replay::SameId, TTL, 10).await.expect("replays");
    assert_eq!(store.purge_deaths(seen.clone()).await.expect("passes over"), 0, "it is being sent");
    fixture.clock().advance(Duration::from_secs(1));
    let again = vec![(positions[0].clone(), dead(Reason::Rejected))];
    store.settle_waiting(&lease, again).await.expect("settles");
    assert_eq!(store.purge_deaths(seen.clone()).await.expect("passes over"), 0);
    for replay in [Replay::SameId, Replay::NewId] {
        let replayed = store.replay_deaths(seen.clone(), replay, TTL).await;
        assert_eq!(replayed.expect("passes over"), 0, "{replay:?}");
    }
    let now = store.dead_letter_page(&all, None, 10).await.expect("lists").deaths();
    assert_eq!(store.replay_deaths(now.clone(), Replay::NewId, TTL).await.expect("replays"), 1);
    assert_eq!(store.replay_deaths(now.clone(), Replay::NewId, TTL).await.expect("passes over"), 0, "once");
    assert_eq!(store.purge_deaths(now).await.expect("passes over"), 0, "it is no dead letter any more");
}

/// Listing by id goes page by page as well: two sources may use the same one.
pub async fn dead_letters_of_one_id_are_paged<F: StoreFixture>() {
    let fixture = F::fresh().await;
    for source in ["shop", "crm"] {
        fixture.append(vec![message_from(&fixture, source, "m", "billing")]).await.expect("appends");
        let lease =
            fixture.store().take_lanes(&take("relay", source, &["billing"])).await.expect("takes").remove(0);
        let entries = unread(&fixture, &lease).await;
        let mut settlement = super::fixture::all_sent(&entries);
        let (position, outcome) = (entries[0].position.clone(), Some(dead(Reason::Rejected)));
        settlement.waiting = vec![NewWaiting { position, outcome }];
        fixture.store().settle_log(&lease, settlement).await.expect("settles");
    }
    let one = DeadLetterFilter { message_id: Some(name("m")), ..DeadLetterFilter::default() };
    let first = fixture.store().dead_letter_page(&one, None, 1).await.expect("lists");
    assert!(first.more);
    let second = fixture.store().dead_letter_page(&one, first.letters.first(), 1).await.expect("lists");
    assert!(!second.more && second.letters[0].position > first.letters[0].position);
    let purged = fixture.store().purge(&DeadLetterFilter { source: Some(name("crm")), ..one }, 10).await;
    assert_eq!(purged.expect("purges"), Purged { purged: 1, more: false });
}
