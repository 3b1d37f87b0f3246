//! The demonstration, as a newcomer runs it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use twobox::rusqlite::{Connection, OpenFlags};

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
    for name in ["lost", "doubled", "phantoms", "wrong", "dead"] {
        assert_eq!(number(name), 0, "{name}");
    }
    assert_eq!(["kills", "kills_shop", "kills_billing"].map(number), [4, 2, 2]);
    assert!(number("kills_in_flight") > 0, "a kill that hits nothing proves nothing: {result:#}");
    // What was answered in vain comes again.
    for name in ["cuts", "answers_lost", "duplicates_suppressed"] {
        assert!(number(name) > 0, "{name} in {result:#}");
    }
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

/// Runs a demonstration, which is to fail, and changes one row of billing's database meanwhile.
async fn tampered_with(sql: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
    // Orders flow for three seconds, and the first invoice is there long before the last one.
    command.args(["demo", "--messages", "300", "--kills", "2", "--pause-max-ms", "1000", "--seed", "15"]);
    command.arg("--json").env("TMPDIR", folder.path());
    let demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let billing = || {
        let folders = std::fs::read_dir(folder.path()).unwrap();
        folders.map(|folder| folder.unwrap().path().join("billing.db")).find(|path| path.is_file())
    };
    twobox_testkit::eventually("there is an invoice", Duration::from_secs(60), async || {
        let connection = Connection::open_with_flags(billing()?, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        (connection.execute(sql, []).ok()? == 1).then_some(())
    })
    .await;
    let output = tokio::task::spawn_blocking(|| demo.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result = result(&output);
    assert_eq!(result["whole"], false);
    let kept = std::path::Path::new(result["kept"].as_str().expect("the evidence is kept"));
    assert!(kept.join("shop.db").is_file() && kept.join("billing.db").is_file(), "{kept:?}");
    result
}

#[tokio::test]
async fn an_invoice_that_is_lost_fails_the_demonstration() {
    let lose = "DELETE FROM invoices WHERE rowid = (SELECT min(rowid) FROM invoices)";
    let result = tampered_with(lose).await;
    assert_eq!(["lost", "doubled"].map(|name| result[name].as_u64()), [Some(1), Some(0)], "{result:#}");
}

#[tokio::test]
async fn an_invoice_that_is_written_twice_fails_the_demonstration() {
    let result = tampered_with("INSERT INTO invoices SELECT * FROM invoices LIMIT 1").await;
    assert_eq!(["lost", "doubled"].map(|name| result[name].as_u64()), [Some(0), Some(1)], "{result:#}");
}

/// A demonstration that goes on for longer than anybody waits, in a folder of its own.
#[cfg(target_os = "linux")]
mod endless {
    use std::process::{Child, Command, Output, Stdio};
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    struct Endless {
        demo: Child,
        folder: tempfile::TempDir,
        services: [Pid; 2],
    }

    impl Endless {
        async fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
            command.args(["demo", "--messages", "1000000", "--kills", "0"]).env("TMPDIR", folder.path());
            let demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let threads = format!("/proc/{}/task", demo.id());
            let running = "both services run";
            // The second is started when the first one works.
            let services = twobox_testkit::eventually(running, Duration::from_secs(60), async || {
                let children = std::fs::read_dir(&threads)
                    .ok()?
                    .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
                let children = children.collect::<String>();
                let pid = |pid: &str| Pid::from_raw(pid.parse().unwrap());
                let mut pids: Vec<Pid> = children.split_whitespace().filter_map(pid).collect();
                pids.sort_by_key(|pid| pid.as_raw_nonzero());
                pids.try_into().ok()
            })
            .await;
            Self { demo, folder, services }
        }

        async fn end(self) -> (Output, tempfile::TempDir) {
            let demo = self.demo;
            (tokio::task::spawn_blocking(|| demo.wait_with_output()).await.unwrap().unwrap(), self.folder)
        }
    }

    /// A kill of the demonstration's own is part of the show; a service that dies otherwise is a failure.
    #[tokio::test]
    async fn a_service_that_ends_by_itself_is_noticed() {
        let endless = Endless::start().await;
        kill_process(endless.services[0], Signal::ABORT).unwrap();
        let (output, _folder) = endless.end().await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("ended by itself"), "{said}");
    }

    #[tokio::test]
    async fn whoever_interrupts_it_leaves_neither_services_nor_files() {
        let endless = Endless::start().await;
        let services = endless.services;
        kill_process(Pid::from_child(&endless.demo), Signal::INT).unwrap();
        let (output, folder) = endless.end().await;
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
        twobox_testkit::eventually("the services are gone", Duration::from_secs(10), async || {
            // Whoever adopts them need not have buried them yet.
            let status =
                |pid: &Pid| std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
            let alive = |pid: &Pid| status(pid).is_ok_and(|status| !status.contains("State:\tZ"));
            (!services.iter().any(alive)).then_some(())
        })
        .await;
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
