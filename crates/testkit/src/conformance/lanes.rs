//! Lanes and the log.

use std::time::Duration;

use twobox_core::ports::{
    Discovered, LaneLease, LaneStore, LogStore, NewWaiting, Outage, ReadLog, Settlement, TakeLanes,
};
use twobox_core::{Error, ErrorKind, Message};

use super::fixture::{StoreFixture, all_sent, ids, lane, message, message_from, name, take, unread};
use super::waiting::failed;

const LEASE: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(600);

fn is_lease_lost<T>(result: &Result<T, Error>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost)
}

async fn append<F: StoreFixture>(fixture: &F, messages: &[&str]) {
    let messages: Vec<Message> = messages.iter().map(|id| message(fixture, id, "billing")).collect();
    fixture.append(messages).await.expect("appends");
}

/// RF-01: what is committed is there, in order.
pub async fn rf_01_committed_messages_are_read_in_order<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a", "b"]).await;
    append(&fixture, &["c"]).await;
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    assert_eq!(ids(&entries), ["a", "b", "c"]);
    let read = entries[0].message.as_ref().expect("decodes");
    assert_eq!(**read, message(&fixture, "a", "billing"), "a message comes back as it was written");
}

/// RF-01: what is rolled back was never there.
pub async fn rf_01_rolled_back_messages_do_not_exist<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let lost = vec![message(&fixture, "lost", "billing")];
    fixture.append_and_roll_back(lost).await;
    append(&fixture, &["kept"]).await;
    let lease = lane(&fixture).await;
    assert_eq!(ids(&unread(&fixture, &lease).await), ["kept"]);
    assert_eq!(fixture.status("lost").await, None);
}

/// S5: one holder at a time, and every take-over has a higher token.
pub async fn s5_a_lane_has_one_holder_and_tokens_grow<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = lane(&fixture).await;
    let other = take("other", "shop", &["billing"]);
    assert_eq!(fixture.store().take_lanes(&other).await.expect("asks").len(), 0, "the lane is held");
    fixture.clock().advance(LEASE);
    let second = fixture.store().take_lanes(&other).await.expect("takes");
    assert_eq!(second.len(), 1, "the lease was over");
    assert!(second[0].token > first.token);
}

/// S5: whoever lost the lease changes nothing any more.
pub async fn s5_a_stale_lease_writes_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a"]).await;
    let stale = lane(&fixture).await;
    let entries = unread(&fixture, &stale).await;
    fixture.clock().advance(LEASE);
    let current = &fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("takes")[0];
    let mut settlement = all_sent(&entries);
    settlement.waiting.push(NewWaiting { position: entries[0].position.clone(), outcome: Some(failed(1)) });
    assert!(is_lease_lost(&fixture.store().settle_log(&stale, settlement).await));
    assert!(is_lease_lost(&fixture.store().mark_sending(&stale, &entries[0].position).await));
    assert!(is_lease_lost(&fixture.store().hold_lane(&stale, None).await));
    assert_eq!(ids(&unread(&fixture, current).await), ["a"], "the cursor has not moved");
    assert_eq!(fixture.status("a").await, Some(("Pending".into(), 0)));
    fixture.store().settle_log(current, all_sent(&entries)).await.expect("the holder settles");
}

/// A renewed lease is the same lease.
pub async fn renewing_keeps_the_token<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = lane(&fixture).await;
    fixture.clock().advance(LEASE / 2);
    assert_eq!(lane(&fixture).await.token, first.token);
    fixture.clock().advance(LEASE / 2 + Duration::from_secs(1));
    let other = fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("asks");
    assert_eq!(other.len(), 0, "renewed in time");
}

/// Giving a lane back needs no waiting.
pub async fn a_released_lane_is_free_at_once<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = lane(&fixture).await;
    fixture.store().release_lanes(std::slice::from_ref(&first)).await.expect("releases");
    let other = fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("takes");
    assert_eq!(other.len(), 1);
    fixture.store().release_lanes(&[first]).await.expect("a stale lease is ignored");
    assert!(
        fixture.store().mark_sending(&other[0], &other[0].cursor).await.is_ok(),
        "still held by the other"
    );
}

/// L7: two services in one file never send under each other's name.
pub async fn l7_a_relay_takes_only_its_own_source<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let of_crm = message_from(&fixture, "crm", "theirs", "billing");
    fixture.append(vec![of_crm, message(&fixture, "mine", "billing")]).await.expect("appends");
    let lease = lane(&fixture).await;
    assert_eq!(ids(&unread(&fixture, &lease).await), ["mine"]);
    let theirs = fixture.store().take_lanes(&take("crm relay", "crm", &["billing"])).await.expect("takes");
    assert_eq!(ids(&unread(&fixture, &theirs[0]).await), ["theirs"]);
}

/// L6: a destination that no live process registers is handed out as unrouted, after the grace period.
pub async fn l6_a_destination_nobody_registers_becomes_unrouted<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.append(vec![message(&fixture, "a", "nowhere")]).await.expect("appends");
    let ask = take("relay", "shop", &["billing"]);
    while fixture.store().discover_lanes(&name("shop")).await.expect("looks").more {}
    let destinations =
        |leases: &[LaneLease<_>]| leases.iter().map(|l| l.link.destination.to_string()).collect::<Vec<_>>();
    assert_eq!(destinations(&fixture.store().take_lanes(&ask).await.expect("takes")), ["billing"]);
    fixture.clock().advance(GRACE);
    let leases = fixture.store().take_lanes(&ask).await.expect("takes");
    let unrouted = leases.iter().find(|lease| !lease.routed).expect("is handed out");
    assert_eq!(unrouted.link.destination.as_str(), "nowhere");
    assert_eq!(ids(&unread(&fixture, unrouted).await), ["a"]);
}

/// L6: reading for the lanes that are known hides no destination that is not.
pub async fn l6_a_new_destination_is_found_among_what_was_read_for_others<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let lease = lane(&fixture).await;
    let found = async || fixture.store().discover_lanes(&name("shop")).await.expect("looks").found;
    for round in 1..=3 {
        let stranger = message(&fixture, &format!("b{round}"), &format!("new-{round}"));
        let batch = vec![message(&fixture, &format!("a{round}"), "billing"), stranger];
        fixture.append(batch).await.expect("appends");
        assert_eq!(unread(&fixture, &lease).await.len(), round);
        assert!(found().await, "the one of round {round}");
        assert!(!found().await);
    }
    fixture.append(vec![message(&fixture, "last", "billing")]).await.expect("appends");
    assert_eq!(unread(&fixture, &lease).await.len(), 4);
    assert!(!found().await, "it has a lane");
}

/// RF-14: a relay with a default transport takes every lane of its source, also one that has just been discovered.
pub async fn rf_14_a_relay_that_reaches_everything_takes_every_lane<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let of_crm = message_from(&fixture, "crm", "theirs", "elsewhere");
    fixture.append(vec![of_crm, message(&fixture, "a", "anywhere")]).await.expect("appends");
    let ask = TakeLanes { everywhere: true, ..take("relay", "shop", &["billing"]) };
    assert_eq!(fixture.store().take_lanes(&ask).await.expect("takes").len(), 1, "nothing else is known");
    let discovered = fixture.store().discover_lanes(&name("shop")).await.expect("looks");
    assert_eq!(discovered, Discovered { found: true, more: false });
    let leases = fixture.store().take_lanes(&ask).await.expect("takes");
    assert_eq!(leases.len(), 2, "nothing of another source");
    let lease =
        leases.iter().find(|lease| lease.link.destination.as_str() == "anywhere").expect("is handed out");
    assert!(lease.routed);
    assert_eq!(ids(&unread(&fixture, lease).await), ["a"]);
    let again = fixture.store().discover_lanes(&name("shop")).await.expect("looks");
    assert!(!again.found, "it is no news any more");
}

/// L6: rolling deploys: once somebody registers the destination, it is theirs.
pub async fn l6_registering_takes_a_lane_back<F: StoreFixture>() {
    let fixture = F::fresh().await;
    fixture.append(vec![message(&fixture, "a", "late")]).await.expect("appends");
    while fixture.store().discover_lanes(&name("shop")).await.expect("looks").more {}
    fixture.clock().advance(GRACE);
    let old = take("old", "shop", &["billing"]);
    assert_eq!(fixture.store().take_lanes(&old).await.expect("takes").len(), 2);
    let new = take("new", "shop", &["late"]);
    assert_eq!(
        fixture.store().take_lanes(&new).await.expect("registers").len(),
        0,
        "still leased to the old one"
    );
    assert_eq!(fixture.store().take_lanes(&old).await.expect("renews").len(), 1, "gives it back");
    let taken = fixture.store().take_lanes(&new).await.expect("takes");
    assert_eq!(taken.len(), 1);
    assert!(taken[0].routed);
}

/// S13: a lease that ends in a year is not waited for.
pub async fn s13_a_lease_from_a_clock_that_jumped_is_over<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let year = Duration::from_secs(365 * 24 * 3600);
    fixture.clock().step_forward(year);
    lane(&fixture).await;
    fixture.clock().step_back(year);
    let other = fixture.store().take_lanes(&take("other", "shop", &["billing"])).await.expect("takes");
    assert_eq!(other.len(), 1);
}

/// S13, L6: a destination that was registered by a clock that was ahead is given up no later than others.
pub async fn s13_l6_a_registration_from_a_clock_that_jumped_counts_from_now<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let year = Duration::from_secs(365 * 24 * 3600);
    fixture.clock().step_forward(year);
    let gone = fixture.store().take_lanes(&take("gone", "shop", &["nowhere"])).await.expect("takes");
    fixture.store().release_lanes(&gone).await.expect("releases");
    fixture.clock().step_back(year);
    let ask = take("relay", "shop", &["billing"]);
    assert_eq!(fixture.store().take_lanes(&ask).await.expect("takes").len(), 1, "it has its grace period");
    fixture.clock().advance(GRACE);
    let leases = fixture.store().take_lanes(&ask).await.expect("takes");
    let unrouted = leases.iter().find(|lease| !lease.routed).expect("is handed out");
    assert_eq!(unrouted.link.destination.as_str(), "nowhere");
}

/// L1: cursor and waiting rows are one unit, also after a restart.
pub async fn l1_cursor_and_waiting_rows_move_together<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a", "b", "c"]).await;
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    let mut settlement = all_sent(&entries);
    settlement.receipts[0].2 = 2;
    settlement.waiting.push(NewWaiting { position: entries[1].position.clone(), outcome: Some(failed(1)) });
    fixture.store().settle_log(&lease, settlement).await.expect("settles");
    let fixture = fixture.reopen().await;
    fixture.clock().advance(LEASE);
    let lease = lane(&fixture).await;
    assert_eq!(ids(&unread(&fixture, &lease).await), Vec::<String>::new());
    assert_eq!(fixture.status("a").await, Some(("Sent".into(), 0)));
    assert_eq!(fixture.status("b").await, Some(("Pending".into(), 1)));
    assert_eq!(fixture.status("c").await, Some(("Sent".into(), 0)));
    let lanes = fixture.store().lanes().await.expect("lists");
    assert_eq!((lanes[0].sent, lanes[0].failed), (2, 0));
}

/// L3: an outage is visible and touches no message.
pub async fn l3_an_outage_is_shown_and_changes_nothing_else<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a"]).await;
    let lease = lane(&fixture).await;
    let outage = Outage { error: "connection refused".into(), next_probe: Duration::from_secs(1) };
    fixture.store().hold_lane(&lease, Some(&outage)).await.expect("holds");
    let held = fixture.store().lanes().await.expect("lists").remove(0);
    let since = held.held_since.expect("since when");
    assert_eq!(held.held_error.as_deref(), Some("connection refused"));
    fixture.clock().advance(Duration::from_secs(5));
    fixture.store().hold_lane(&lease, Some(&outage)).await.expect("holds");
    let held = fixture.store().lanes().await.expect("lists").remove(0);
    assert_eq!(held.held_since, Some(since), "since the first failure");
    assert_eq!(fixture.status("a").await, Some(("Pending".into(), 0)));
    fixture.store().hold_lane(&lease, None).await.expect("flows");
    let flowing = fixture.store().lanes().await.expect("lists").remove(0);
    assert_eq!((flowing.held_since, flowing.held_error, flowing.next_probe), (None, None, None));
}

/// No wake-up is lost, whether the watcher came before or after the commit.
pub async fn a_commit_wakes_whoever_watches<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let limit = Duration::from_secs(10);
    append(&fixture, &["a"]).await;
    let seen = tokio::time::timeout(limit, fixture.store().changed(0))
        .await
        .expect("a commit before the look counts");
    let watching = fixture.store().changed(seen);
    let (woken, ()) = tokio::join!(tokio::time::timeout(limit, watching), append(&fixture, &["b"]));
    assert!(woken.expect("a commit after the look counts") > seen);
}

/// S19: a row that cannot be decoded is an entry of its own.
pub async fn s19_an_undecodable_row_hides_nothing<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a"]).await;
    fixture.append_undecodable(&name("shop"), &name("billing")).await;
    append(&fixture, &["b"]).await;
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    assert_eq!(entries.len(), 3);
    assert!(entries[1].message.is_err());
    assert_eq!(ids(&entries), ["a", "b"]);
    let mut settlement = all_sent(&entries);
    let dead = super::waiting::dead(twobox_core::lifecycle::Reason::Undecodable);
    settlement.waiting.push(NewWaiting { position: entries[1].position.clone(), outcome: Some(dead) });
    fixture.store().settle_log(&lease, settlement).await.expect("is set aside with its bytes");
    assert_eq!(fixture.status("b").await, Some(("Sent".into(), 0)));
}

/// L7: a lane gets its own messages and knows how far it looked.
pub async fn l7_reading_passes_over_other_destinations<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let others: Vec<Message> = (0..20).map(|n| message(&fixture, &format!("o{n}"), "other")).collect();
    fixture.append(others).await.expect("appends");
    append(&fixture, &["mine"]).await;
    let lease = lane(&fixture).await;
    let read = |after, scan_max| ReadLog {
        after,
        until: None,
        lanes: vec![lease.clone()],
        scan_max,
        bytes_max: usize::MAX,
    };
    let first = fixture.store().read_log(read(lease.cursor.clone(), 10)).await.expect("reads");
    assert_eq!((first.entries.len(), first.more), (0, true));
    assert!(first.scanned > lease.cursor, "need not look there again");
    let rest = fixture.store().read_log(read(first.scanned, 1_000)).await.expect("reads");
    assert_eq!(ids(&rest.entries), ["mine"]);
    let end = fixture.store().read_log(read(rest.scanned, 1_000)).await.expect("reads");
    assert_eq!((end.entries.len(), end.more), (0, false), "who reads on finds the end");
}

/// Reads are bounded in rows and bytes.
pub async fn reading_stops_at_its_limits<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a", "b", "c", "d"]).await;
    let lease = lane(&fixture).await;
    let read = |scan_max, bytes_max| ReadLog {
        after: lease.cursor.clone(),
        until: None,
        lanes: vec![lease.clone()],
        scan_max,
        bytes_max,
    };
    let rows = fixture.store().read_log(read(3, usize::MAX)).await.expect("reads");
    assert_eq!((rows.entries.len(), rows.more), (3, true));
    let bytes = fixture.store().read_log(read(100, 4)).await.expect("reads");
    assert_eq!((bytes.entries.len(), bytes.more), (2, true), "payloads are three bytes each");
    let until = ReadLog { until: Some(bytes.scanned), ..read(100, usize::MAX) };
    assert_eq!(fixture.store().read_log(until).await.expect("reads").entries.len(), 2);
}

/// A settlement that would move the cursor back is refused.
pub async fn the_cursor_never_moves_back<F: StoreFixture>() {
    let fixture = F::fresh().await;
    append(&fixture, &["a", "b"]).await;
    let lease = lane(&fixture).await;
    let entries = unread(&fixture, &lease).await;
    fixture.store().settle_log(&lease, all_sent(&entries)).await.expect("settles");
    let back = Settlement { upto: entries[0].position.clone(), ..all_sent(&entries[..1]) };
    assert!(is_lease_lost(&fixture.store().settle_log(&lease, back).await));
}
