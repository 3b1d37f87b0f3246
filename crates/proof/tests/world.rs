//! Worlds in which everything goes wrong, in short. The long form runs for as long as it is asked to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::world::{Options, Outcome, Tally, run};
use twobox_sqlite::Durability;
use twobox_testkit::history::Clause;

/// Few enough for every test run.
const SEEDS: u64 = 25;
/// Enough for every kind of trouble to happen.
const SEEDS_MAX: u64 = 60;

fn world(seed: u64) -> Outcome {
    run(seed, &Options::default()).unwrap()
}

#[test]
fn s2_s3_l4_two_nodes_keep_the_promise_whatever_goes_wrong() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS_MAX {
        if seed >= SEEDS && tally.missing().is_empty() {
            break;
        }
        let outcome = world(seed);
        let violations: Vec<_> = outcome.violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        assert!(outcome.summary.effects > 0, "seed {seed} did nothing");
        tally.add(&outcome.tally);
    }
    assert_eq!(tally.missing(), [], "trouble that never happens proves nothing: {tally}");
    assert!(tally.power_cuts() >= 20 * SEEDS, "{tally}");
}

#[test]
fn the_same_seed_is_the_same_world_byte_for_byte() {
    for seed in [0, 1, 2] {
        let (one, two) = (world(seed), world(seed));
        assert_eq!(one.tally, two.tally);
        let differs = one.history.lines().zip(two.history.lines()).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.history, two.history, "seed {seed}");
    }
    assert_ne!(world(0).history, world(1).history);
}

/// The harness can fail: with the weaker durability a receiver loses effects it has acknowledged, and a sender loses
/// messages it has called committed. What is found says how to see it again.
#[test]
fn s2_the_weaker_durability_is_found_to_break_the_promise() {
    let weak = [[Durability::Full, Durability::ProcessCrash], [Durability::ProcessCrash, Durability::Full]];
    for (durability, clause) in weak.into_iter().zip([Clause::Hollow, Clause::Lost]) {
        let options = Options { durability, ..Options::default() };
        let found = (0..20).find_map(|seed| {
            let violations = run(seed, &options).unwrap().violations;
            violations.into_iter().find(|violation| violation.finding.clause == clause)
        });
        let violation = found.unwrap();
        let command = format!("cargo run --release -p twobox-proof -- world --seed {}", violation.seed);
        assert!(violation.to_string().ends_with(&command), "{violation}");
    }
}
