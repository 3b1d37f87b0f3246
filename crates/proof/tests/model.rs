//! The model, in short. The long form has wider bounds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use twobox_proof::model::{Bounds, Variant, check};

#[test]
fn s2_s3_s5_s9_s12_l1_no_interleaving_breaks_the_protocol() {
    let report = check(&Bounds::short(), None);
    println!("{report:?} within\n{}", Bounds::short());
    assert!(report.violation.is_none(), "{}", report.violation.unwrap());
    assert!(report.unique > 10_000, "too few states to say anything: {report:?}");
}

/// The properties can fail: whichever rule is switched off, one of them does.
#[test]
fn s2_s3_s5_s7_s9_s12_s18_l1_l3_l4_l10_w6_every_rule_is_needed() {
    for variant in Variant::ALL {
        let report = check(&Bounds::short(), Some(variant));
        let violation =
            report.violation.unwrap_or_else(|| panic!("nobody misses the rule that {variant:?} breaks"));
        println!("{variant:?}: {} steps, {violation}", violation.path.len());
    }
}
