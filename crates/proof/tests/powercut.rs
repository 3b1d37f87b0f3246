//! Power cuts, in short. The long form runs for as long as it is asked to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::powercut::{Side, Workload, check_images};
use twobox_sqlite::Durability;

fn whole(side: Side) {
    let workload = Workload { messages: 10, ..Workload::new(side, 0) };
    let (tally, violations) = check_images(&workload, 1).unwrap();
    assert!(violations.is_empty(), "{} violations, first: {}", violations.len(), violations[0]);
    assert!(tally.acknowledged > 100, "too few images to say anything: {tally:?}");
}

#[test]
fn s2_no_power_cut_loses_what_a_sender_was_told_is_committed() {
    whole(Side::Shop);
}

#[test]
fn s3_no_power_cut_loses_or_halves_an_effect_that_was_acknowledged() {
    whole(Side::Billing);
}

/// The harness can fail: with the weaker durability a power cut does lose acknowledged work.
#[test]
fn s2_the_weaker_durability_is_found_to_lose_acknowledged_work() {
    for side in [Side::Shop, Side::Billing] {
        let weaker = Workload { messages: 4, durability: Durability::ProcessCrash, ..Workload::new(side, 0) };
        let (_, violations) = check_images(&weaker, 1).unwrap();
        assert!(
            violations.iter().any(|violation| violation.text.contains("lost")),
            "{side:?}: {violations:?}"
        );
    }
}
