//! Real kills, in short. The long form kills for as long as it is asked to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::kills::{Options, run, twobox};

#[test]
fn rf_15_services_that_are_killed_in_the_middle_of_requests_lose_and_double_nothing() {
    let tally = run(&Options { pairs: 2, ..Options::new(twobox().unwrap(), 15, 40) }).unwrap();
    assert!(tally.violations.is_empty(), "{tally:#?}");
    assert_eq!(tally.kills, 40);
    assert!(tally.in_flight * 2 >= tally.kills, "kills that hit nothing prove nothing: {tally:#?}");
    // What was answered in vain comes again.
    let counts = [tally.cuts, tally.answers_lost, tally.duplicates];
    assert!(counts.iter().all(|count| *count > 0), "{tally:#?}");
    assert_eq!(tally.delivered, tally.orders);
}
