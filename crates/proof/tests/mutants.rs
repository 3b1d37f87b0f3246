//! Every planted bug is found by the harness that is there for it. Those of the schedules have a build of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::campaign;

#[test]
fn every_planted_bug_is_found() {
    let report = campaign::run("mutants", &[]).unwrap();
    assert!(report.is_good(), "{:#}", report.json());
}
