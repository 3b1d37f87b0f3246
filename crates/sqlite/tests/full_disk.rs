//! S14, with a real failing write: the size of files is limited, so that a commit cannot write its pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::process::Command;

use twobox_testkit::example;

/// RF-18, fault 18: duplicates are answered while there is no room, and what is new is told to come again, uncharged.
/// S2: what was acknowledged is there; a commit that failed in the middle is an unknown outcome; nothing is
/// acknowledged until the database was recovered; and that needs no restart.
#[test]
fn s14_rf_18_a_commit_that_cannot_write_is_unknown_and_recovered_from() {
    let directory = tempfile::tempdir().unwrap();
    // A process that exceeds the limit is sent a signal; ignored, the write fails like one on a full disk.
    let script = "trap '' XFSZ; ulimit -S -f 2000; exec \"$0\" \"$1\"";
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(example("full_disk"))
        .arg(directory.path().join("full.db"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    let facts: Vec<&str> = said.lines().collect();
    assert_eq!(
        facts,
        [
            "first error: CommitUnknown",
            "while full: transient",
            "it is named: true",
            "reads while full: fine",
            "answers while full: duplicate, later",
            "alone while full: later",
            "lost: 0 of many",
            "recovered: true",
            "answers afterwards: duplicate, done"
        ],
        "{complaints}"
    );
}
