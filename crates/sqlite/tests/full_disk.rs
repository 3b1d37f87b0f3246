//! S14, with a real failing write: the size of files is limited, so that a commit cannot write its pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::process::Command;

use twobox_testkit::example;

/// What the process has seen whose files cannot grow beyond a limit, and what it complained of.
fn facts(how: &[&str]) -> (Vec<String>, String) {
    let directory = tempfile::tempdir().unwrap();
    // A process that exceeds the limit is sent a signal; ignored, the write fails like one on a full disk.
    let script = "trap '' XFSZ; ulimit -S -f 2000; exec \"$0\" \"$@\"";
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(example("full_disk"))
        .arg(directory.path().join("full.db"))
        .args(how)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    (said.lines().map(Into::into).collect(), complaints.into())
}

/// What is seen while the disk is full, and afterwards.
const WHILE_FULL: [&str; 8] = [
    "while full: transient",
    "it is named: true",
    "reads while full: fine",
    "answers while full: duplicate, later",
    "alone while full: later",
    "lost: 0 of many",
    "recovered: true",
    "answers afterwards: duplicate, done",
];

/// RF-18, fault 18: duplicates are answered while there is no room, and what is new is told to come again, uncharged.
/// S2: what was acknowledged is there; a commit that failed in the middle is an unknown outcome; nothing is
/// acknowledged until the database was recovered; and that needs no restart.
#[test]
fn s14_rf_18_a_commit_that_cannot_write_is_unknown_and_recovered_from() {
    let (facts, complaints) = facts(&[]);
    assert_eq!(facts[0], "first error: CommitUnknown", "{complaints}");
    assert_eq!(facts[1..], WHILE_FULL, "{complaints}");
}

/// The same if a checkpoint is the first that cannot write: no commit is in doubt then.
#[test]
fn s14_rf_18_a_checkpoint_that_cannot_write_is_recovered_from_as_well() {
    let (facts, complaints) = facts(&["checkpoint"]);
    assert_eq!(facts[0], "first error: Full", "{complaints}");
    assert_eq!(facts[1..], WHILE_FULL, "{complaints}");
}
