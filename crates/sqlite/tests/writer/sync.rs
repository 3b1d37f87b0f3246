//! What is synced, and when (S2, W4, W6): counted by strace in a child process, `examples/sync_child.rs`.

use std::process::Command;

use twobox_testkit::example;

use crate::fixture::{Place, skip};

/// A piece of a file is written, without making it durable.
const WRITTEN_BACK: &str = " sync_file_range(";

/// Syncs of one part of a child's work.
struct Part {
    name: String,
    syncs: Vec<String>,
}

/// Runs a scenario of the child under strace. `None` if there is none.
fn trace(scenario: &str) -> Option<Vec<Part>> {
    trace_with(scenario, &[])
}

/// As [`trace`], with more options of strace.
fn trace_with(scenario: &str, options: &[&str]) -> Option<Vec<Part>> {
    let place = Place::new();
    let output = place.file("trace");
    let status = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fdatasync,fsync,?sync_file_range,write"])
        .args(options)
        .arg("-o")
        .arg(&output)
        .arg(example("sync_child"))
        .arg(scenario)
        .arg(place.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            skip(&format!("no strace: {error}"));
            return None;
        }
    };
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    if !text.contains("mark: ") && !status.success() {
        skip("strace may not trace here");
        return None;
    }
    assert!(status.success(), "the child failed:\n{text}");
    Some(parts(&text))
}

fn parts(trace: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in trace.lines() {
        if let Some((_, name)) = line.split_once("\"mark: ") {
            let name = name.split("\\n").next().unwrap_or_default().to_owned();
            parts.push(Part { name, syncs: Vec::new() });
        } else if [" fdatasync(", " fsync(", WRITTEN_BACK].iter().any(|call| line.contains(call)) {
            parts.iter_mut().last().into_iter().for_each(|part| part.syncs.push(line.to_owned()));
        }
    }
    parts
}

/// The syncs of the write-ahead log in a part.
fn syncs(parts: &[Part], name: &str) -> usize {
    let part = parts.iter().find(|part| part.name == name).expect("the part was traced");
    part.syncs.iter().filter(|line| line.contains("-wal")).count()
}

#[test]
fn s2_an_acknowledged_commit_is_synced_and_lazy_work_soon_after() {
    let Some(parts) = trace("full") else { return };
    assert!(syncs(&parts, "commit") >= 1);
    assert_eq!(syncs(&parts, "sent"), 0, "what a commit has synced needs no barrier");
    assert_eq!(syncs(&parts, "lazy"), 0, "lazy work alone does not sync");
    assert!(
        syncs(&parts, "some seconds") >= 1,
        "but it is synced after a second, which strace makes a long one"
    );
    assert_eq!(syncs(&parts, "idle"), 0, "and then there is nothing left to sync");
}

#[test]
fn w6_what_is_sent_is_durable_although_commits_are_not() {
    let Some(parts) = trace("process-crash") else { return };
    assert_eq!(syncs(&parts, "commit"), 0, "that is what the weaker durability is for");
    assert!(syncs(&parts, "durable") >= 1);
    assert_eq!(syncs(&parts, "again"), 0, "what is durable stays so");
}

#[test]
fn w6_what_a_careless_connection_has_written_is_durable_before_it_is_sent() {
    let Some(parts) = trace("foreign") else { return };
    assert_eq!(syncs(&parts, "commit"), 0, "a foreign connection with synchronous = NORMAL");
    assert!(syncs(&parts, "durable") >= 1);
    assert_eq!(syncs(&parts, "again"), 0);
}

/// SQLite writes nothing, and so syncs nothing, for a commit that leaves everything as it is.
#[test]
fn w6_a_commit_that_changes_nothing_does_not_pass_for_a_sync() {
    let Some(parts) = trace("unchanged") else { return };
    let synced = syncs(&parts, "commit") + syncs(&parts, "durable");
    assert!(synced >= 1, "it may be one of these groups, but one of them must");
    assert_eq!(syncs(&parts, "again"), 0);
}

/// A sync that finds everything still to be written keeps every commit waiting.
#[test]
#[cfg(target_os = "linux")]
fn what_a_checkpoint_has_copied_is_written_bit_by_bit_before_it_is_synced() {
    let Some(parts) = trace("checkpoint") else { return };
    assert_eq!(parts.last().map(|part| part.name.as_str()), Some("started again"));
    let calls: Vec<&String> = parts.iter().flat_map(|part| &part.syncs).collect();
    let (last, piece) =
        calls.iter().enumerate().rfind(|(_, call)| call.contains(WRITTEN_BACK)).expect("it is written back");
    let file = format!("({}", piece.split(['(', ',']).nth(1).expect("it is an argument"));
    assert!(file.contains("boxes.db>"), "{piece}");
    let of_file = |calls: &[&String]| {
        let of_file = calls.iter().filter(|call| call.contains(&file));
        of_file.map(|call| call.contains(WRITTEN_BACK)).collect::<Vec<bool>>()
    };
    let before = of_file(&calls[..=last]).iter().rev().take_while(|is_piece| **is_piece).count();
    // How many depends on the disk: a slow one gets the rest at once.
    assert!(before >= 2, "of more than four megabytes: {calls:#?}");
    let after = of_file(&calls[last + 1..]);
    assert_eq!(after.first(), Some(&false), "by whoever has been told if it had failed: {calls:#?}");
}

/// The system says it once: the sync that follows may succeed. And file systems have any number for it.
#[test]
#[cfg(target_os = "linux")]
fn s14_a_file_that_could_not_be_written_back_is_opened_anew() {
    let Some(parts) = trace_with("checkpoint", &["-e", "inject=?sync_file_range:error=EINVAL:when=3"]) else {
        return;
    };
    assert_eq!(parts.last().map(|part| part.name.as_str()), Some("opened anew"));
}
