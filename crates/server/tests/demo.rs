//! The demonstration, as a newcomer runs it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twobox")).arg("demo").args(arguments).output().unwrap()
}

fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What comes of many kills is the subject of `twobox_proof::kills`.
#[test]
fn rf_15_two_services_that_are_killed_lose_nothing_and_double_nothing() {
    let output =
        demo(&["--messages", "300", "--kills", "4", "--pause-max-ms", "100", "--seed", "15", "--json"]);
    let result = result(&output);
    assert!(output.status.success(), "{result:#}");
    let number = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name} in {result:#}"));
    for name in ["orders", "enqueued", "delivered", "invoices"] {
        assert_eq!(number(name), 300, "{name}");
    }
    for name in ["lost", "doubled", "phantoms", "dead"] {
        assert_eq!(number(name), 0, "{name}");
    }
    assert_eq!(number("kills"), 4);
    assert!(number("kills_in_flight") > 0, "a kill that hits nothing proves nothing: {result:#}");
    assert!(number("cuts") + number("answers_lost") > 0, "{result:#}");
}

#[test]
fn the_result_is_a_table_and_the_databases_can_be_kept() {
    let output = demo(&["--messages", "50", "--kills", "0", "--keep"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Nothing was lost, nothing happened twice."), "{text}");
    let folder = text.lines().find_map(|line| line.strip_prefix("The databases are in ")).unwrap();
    for name in ["shop.db", "billing.db"] {
        assert!(std::path::Path::new(folder).join(name).is_file(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn nonsense_is_refused_with_a_usage_text() {
    for arguments in
        [&["--messages", "0"][..], &["--kills", "many"], &["--pause-max-ms", "60001"], &["--fast"]]
    {
        let output = demo(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
