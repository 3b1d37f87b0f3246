//! Dead letters, replay and blocked keys.

use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::{
    DeadLetter, DeadLetterFilter, DeadLetterStore, LaneStore, LogStore, NewWaiting, Replay, WaitingStore,
};

use super::fixture::{StoreFixture, keyed, lane, message, name, unread};
use super::waiting::{dead, failed, wait_with};

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
    let due = fixture.store().due(&lease, 10, Duration::from_secs(300), false).await.expect("looks").messages;
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
    let due = fixture.store().due(&lease, 10, Duration::from_secs(300), false).await.expect("looks").messages;
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
    let due = fixture.store().due(&lease, 10, Duration::from_secs(300), false).await.expect("looks").messages;
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
