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

/// A kill of the demonstration's own is part of the show; a service that dies otherwise is a failure.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_service_that_ends_by_itself_is_noticed() {
    use std::process::Stdio;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
    command.args(["demo", "--messages", "1000000", "--kills", "0"]);
    let demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let threads = format!("/proc/{}/task", demo.id());
    // The second is started when the first one works.
    let service = twobox_testkit::eventually("both services run", Duration::from_secs(60), async || {
        let children = std::fs::read_dir(&threads)
            .ok()?
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
        let children = children.collect::<String>();
        let pids: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        pids.iter().min().filter(|_| pids.len() == 2).and_then(|pid| Pid::from_raw(*pid))
    })
    .await;
    kill_process(service, Signal::ABORT).unwrap();
    let output = tokio::task::spawn_blocking(|| demo.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ended by itself"), "{said}");
}
