//! Input that nobody meant well, in short. The long form is `cargo xtask fuzz`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use twobox_proof::fuzz::{Tally, mutate_run, replay_corpus, target, targets};

const SEED: u64 = 1;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn nothing_found(tally: &Tally) {
    if let Some(finding) = tally.findings.first() {
        let file = finding.save(&fuzz_folder().join("artifacts")).unwrap();
        panic!(
            "{finding}\nreplay it: cargo xtask fuzz --target {} --replay {}",
            finding.target,
            file.display()
        );
    }
}

fn mutated(name: &str, executions: u64) {
    let tally = mutate_run(&target(name).unwrap(), SEED, executions).unwrap();
    nothing_found(&tally);
    assert_eq!(tally.executions, executions);
}

#[test]
fn s16_the_corpus_breaks_no_promise() {
    let folder = fuzz_folder().join("corpus");
    nothing_found(&replay_corpus(&folder).unwrap());
    for target in targets() {
        assert!(folder.join(target.name).is_dir(), "{} has no corpus", target.name);
    }
}

#[test]
fn s16_rf_09_envelopes_are_refused_or_read_within_limits_and_come_back() {
    mutated("envelope", 15_000);
}

#[test]
fn s11_nothing_is_believed_but_what_was_signed_by_its_source() {
    mutated("signature", 15_000);
}

#[test]
fn s11_l3_probes_are_refused_or_those_of_their_source() {
    mutated("probe", 15_000);
}

#[test]
fn s11_no_answer_acknowledges_but_the_one_that_was_signed() {
    mutated("answer", 15_000);
}

#[test]
fn s10_configuration_is_refused_or_workable() {
    mutated("configuration", 15_000);
}

#[test]
fn s16_s11_whatever_arrives_nothing_is_handled_but_signed_messages() {
    mutated("batch_route", 3_000);
}
