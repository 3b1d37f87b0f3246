//! Schedules, in short. The long form runs for as long as it is asked to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::schedules::{Structure, replay, run};

fn explore(structure: Structure, schedules: u64) {
    let tally = run(structure, schedules, 1).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(tally.schedules, schedules);
    assert!(tally.distinct > schedules / 2, "hardly any two differ: {tally:?}");
}

#[test]
fn w1_every_job_of_the_queue_is_answered_once_and_nobody_sleeps_for_ever() {
    explore(Structure::Queue, 2000);
}

#[test]
fn s2_no_schedule_answers_a_transaction_before_its_commit() {
    explore(Structure::Writer, 1000);
}

#[test]
fn l1_no_schedule_hides_a_message_from_a_relay_that_was_told_of_it() {
    explore(Structure::Log, 1000);
}

#[test]
fn s5_no_schedule_settles_a_message_twice_or_loses_one_when_a_lane_changes_hands() {
    explore(Structure::Leases, 300);
}

#[test]
fn s7_no_schedule_handles_two_copies_of_a_message_at_a_time() {
    explore(Structure::InFlight, 2000);
}

#[test]
fn a_race_is_found_and_its_schedule_leads_to_it_again() {
    let violation = run(Structure::Planted, 100, 1).unwrap_err();
    assert!(violation.text.contains("have counted up to"), "{violation}");
    let again = replay(Structure::Planted, &violation.schedule).unwrap_err();
    assert_eq!((again.text, again.schedule), (violation.text, violation.schedule));
}

/// Follows the schedule of a violation, if one is given.
#[test]
fn replay_follows_the_schedule_it_is_given() {
    let Ok(given) = std::env::var("TWOBOX_SCHEDULE") else { return };
    let (structure, schedule) = given.split_once(':').unwrap();
    replay(structure.parse().unwrap(), schedule).unwrap_or_else(|violation| panic!("{violation}"));
}
