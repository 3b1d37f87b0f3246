//! `cargo xtask mutants`: planted bugs, and which harness finds each of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use crate::cargo::{Ended, one_test};
use crate::console::heading;
use crate::prove::job::{Job, Seen};
use crate::prove::{build, lanes, report};
use crate::{Result, cargo};

/// Bugs that a test by name is there for: mutant, package, test target or [`LIB`], a part of the test's name.
const SUITE: [(&str, &str, &str, &str); 32] = [
    (
        "claimed-ahead-kept",
        "twobox-sqlite",
        "writer",
        "s3_rows_of_messages_whose_turn_did_not_come_are_taken_back",
    ),
    ("claim-not-made", "twobox", "modes", "ceb_1_of_many_deliveries_one_runs"),
    (
        "conflict-is-duplicate",
        "twobox-sqlite",
        "conformance",
        "s8_another_body_under_the_same_id_is_a_conflict",
    ),
    (
        "failure-forgotten",
        "twobox-sqlite",
        "flow",
        "s6_l3_a_message_whose_handler_hangs_dies_of_its_attempts_and_not_of_its_age",
    ),
    ("first-speaks-for-all", "twobox-core", "envelope", "s11_a_batch_with_one_changed_field_is_refused"),
    (
        "full-lane-stops-reader",
        "twobox-sqlite",
        "flow",
        "s15_a_dead_and_a_slow_destination_delay_nobody_else",
    ),
    (
        "half-bodies-stay",
        "twobox-http",
        "http",
        "s16_strangers_with_half_bodies_make_room_for_an_honest_newcomer",
    ),
    (
        "lane-kept-after-reopen",
        "twobox-proof",
        "powercut",
        "l1_a_relay_reads_anew_from_its_cursors_after_the_store_was_reopened",
    ),
    ("newcomers-first", "twobox-sqlite", "writer", "w7_nobody_is_passed_over_by_those_who_come_later"),
    (
        "no-change-is-sync",
        "twobox-proof",
        "powercut",
        "w6_what_may_be_sent_survives_a_power_cut_whatever_commits_came_before",
    ),
    ("no-fence", "twobox-sqlite", "conformance", "s5_a_stale_lease_writes_nothing"),
    ("other-file-accepted", "twobox-sqlite", "writer", "s1_rf_17_a_connection_to_another_file_is_refused"),
    ("parked-by-clock", "twobox-sqlite", "conformance", "s13_no_message_is_parked_beyond_the_longest_delay"),
    ("pause-ignored", "twobox-sqlite", "flow", "rf_22_a_paused_destination_gets_nothing_until_it_is_resumed"),
    ("payload-shown", "twobox-core", LIB, "s17_debug_shows_no_payload"),
    ("poison-hides-rest", "twobox-sqlite", "conformance", "s19_an_undecodable_row_hides_nothing"),
    (
        "probe-not-kept",
        "twobox-sqlite",
        "flow",
        "l3_l9_a_message_that_kills_its_receiver_dies_although_others_keep_coming",
    ),
    (
        "purge-by-newest",
        "twobox-sqlite",
        "conformance",
        "s9_scheduled_work_that_ends_early_makes_nobody_forget",
    ),
    ("queue-crash-uncharged", "twobox-sqlite", "conformance", "s6_ibx_083_a_crashed_worker_is_an_attempt"),
    ("queue-done-runs-again", "twobox-sqlite", "conformance", "ibx_028_done_is_not_queued_again"),
    (
        "queue-effect-apart",
        "twobox-proof",
        "powercut",
        "s3_no_power_cut_loses_a_stored_message_or_doubles_what_a_worker_does",
    ),
    ("queue-key-ignored", "twobox-sqlite", "conformance", "ibx_8_1_s12_only_the_head_is_claimed"),
    ("queue-no-fence", "twobox-sqlite", "conformance", "s5_a_lease_of_an_earlier_claim_settles_nothing"),
    ("queue-unstored", "twobox-sqlite", "conformance", "adr_04_stored_first_and_handled_later"),
    (
        "refusals-stay",
        "twobox-http",
        "http",
        "s16_strangers_who_do_not_read_their_refusals_make_room_for_an_honest_newcomer",
    ),
    (
        "restart-after-failed-sync",
        "twobox-sqlite",
        LIB,
        "s14_the_log_is_not_started_again_over_a_sync_that_has_just_failed",
    ),
    (
        "slow-holds-callers",
        "twobox",
        "service",
        "s15_callers_give_way_to_a_relay_that_is_a_moment_behind_and_to_nobody_else",
    ),
    ("stop-unbounded", "twobox-sqlite", "flow", "s20_stopping_does_not_wait_for_ever"),
    ("swallowed-error-commits", "twobox-sqlite", "conformance", "s4_a_swallowed_sql_error_commits_nothing"),
    ("watermark-from-clock", "twobox-sqlite", "conformance", "s9_what_was_forgotten_is_refused_as_too_old"),
    ("whole-batch-charged", "twobox-sqlite", "flow", "l3_a_nights_outage_charges_nobody_and_kills_nothing"),
    ("window-unchecked", "twobox-core", LIB, "rf_13_s10_window_must_exceed_the_senders_retries"),
];

/// Stands for the tests inside a package.
const LIB: &str = "lib";

/// What bugs are planted by.
const FEATURES: &[&str] = &["--features", "twobox-core/mutants"];

/// Plants all bugs, or the named ones, one after the other.
///
/// # Errors
/// If one survives, or a name is none.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<()> {
    heading("build");
    let programs = build::mutants(root)?;
    build_suite(root)?;
    heading("mutants");
    let known = |name: &&String| SUITE.iter().all(|(mutant, ..)| mutant != name);
    let others: Vec<&str> = names.iter().filter(known).map(String::as_str).collect();
    let mut seen = Vec::new();
    if names.is_empty() || !others.is_empty() {
        let arguments: Vec<&str> = std::iter::once("mutants").chain(others).collect();
        let lanes = programs.iter().map(|program| vec![Job::new("mutants", program, &arguments)]).collect();
        seen = lanes::run(lanes)?;
    }
    seen.push(suite(root, names));
    let mutants = report::mutants(&seen);
    print!("{}", report::table(&mutants));
    if mutants.is_empty() {
        return Err("no mutant was tried".into());
    }
    let wrong = [report::wrong(&seen), report::untried(&seen)].concat();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Builds the tests by name, so that looking for bugs takes no longer than the tests do.
///
/// # Errors
/// If one cannot be built.
pub(crate) fn build_suite(root: &Path) -> Result<()> {
    let places: BTreeSet<_> = SUITE.iter().map(|(_, package, target, _)| (package, target)).collect();
    places.into_iter().try_for_each(|(package, target)| {
        cargo::run(root, &[&["test", "--no-run"], FEATURES, &place(package, target)].concat())
    })
}

/// The arguments that choose the tests of a target.
fn place<'a>(package: &'a str, target: &'a str) -> Vec<&'a str> {
    let within = if target == LIB { vec!["--lib"] } else { vec!["--test", target] };
    [vec!["--package", package], within].concat()
}

/// Plants the bugs that tests by name are there for: each test must fail with its bug.
pub(crate) fn suite(root: &Path, names: &[String]) -> Seen {
    let wanted = |mutant: &str| names.is_empty() || names.iter().any(|name| name == mutant);
    let (mut mutants, mut broken) = (Vec::new(), Vec::new());
    for (mutant, package, target, test) in SUITE.iter().filter(|(mutant, ..)| wanted(mutant)) {
        match hunt(root, mutant, &place(package, target), test) {
            Ok(found) => {
                mutants.push(json!({ "name": mutant, "harness": "suite", "seeds": 1, "found": found }));
            }
            Err(error) => broken.push(format!("{mutant}: {error}")),
        }
    }
    Seen { name: "suite", report: json!({ "mutants": mutants, "violations": broken }) }
}

/// What the test says with the bug, if it says anything.
fn hunt(root: &Path, mutant: &str, place: &[&str], test: &str) -> Result<Option<String>> {
    let arguments = [&["test"], FEATURES, place, &["--", test]].concat();
    // Without the bug first: a test that does not compile, is not there or fails anyway has found nothing.
    if one_test(&cargo::command(root, &arguments).output()?)? != Ended::Passed {
        return Err(format!("{test} does not pass without the bug").into());
    }
    let output = cargo::command(root, &arguments).env("TWOBOX_MUTANT", mutant).output()?;
    // A test that wants a bug nobody has planted fails as well.
    if [output.stdout.as_slice(), &output.stderr].iter().any(|text| says(text, "names no mutant")) {
        return Err("there is no such mutant".into());
    }
    Ok((one_test(&output)? == Ended::Failed).then(|| format!("{test} fails")))
}

fn says(text: &[u8], words: &str) -> bool {
    String::from_utf8_lossy(text).contains(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NoFence` is `no-fence`.
    fn kebab(name: &str) -> String {
        let parts = name.split_inclusive(|c: char| c.is_ascii_alphanumeric());
        let hyphened =
            parts.map(|c| if c.starts_with(char::is_uppercase) { format!("-{c}") } else { c.into() });
        hyphened.collect::<String>().trim_start_matches('-').to_lowercase()
    }

    #[test]
    fn every_bug_that_the_harnesses_leave_to_a_test_has_one() {
        let source = include_str!("../../crates/proof/src/campaign/mutants.rs");
        let arms =
            source.split("=> Self::Suite").next().and_then(|text| text.split("=> Self::Schedules").last());
        let names = arms.unwrap().split("Mutant::").skip(1);
        let left: BTreeSet<String> =
            names.map(|name| kebab(name.split_whitespace().next().unwrap())).collect();
        let tried: BTreeSet<String> = SUITE.iter().map(|(mutant, ..)| (*mutant).to_owned()).collect();
        assert_eq!(left, tried);
    }
}
