//! Nothing that must not be seen is ever said (S17): a program lets canaries flow through everything, and all it says
//! is searched for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use twobox_testkit::{example, leaks};

const CANARIES: [&str; 5] = [
    "canary-payload-7f3a",
    "canary-header-91bc",
    "canary-response-22de",
    "canary-panic-c05e",
    "canary-secret-000",
];

#[test]
fn s17_the_canaries_are_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example("canary")).arg(folder.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}\n{out}");
    for said in [&out, &err] {
        let leaks = leaks(said, &CANARIES);
        assert!(leaks.is_empty(), "{leaks:#?}");
    }
    // It has said what it was to say, so that silence is no success.
    for words in [
        "message=enqueued",
        "message=sent",
        "message=send failed",
        "message=permanently failed",
        "message=processed",
        "message=duplicate",
        "message=HMAC verification failed",
        "message=rejected",
        "message=handling failed",
        "the handler panicked",
        "message=a handler failed",
        "message=a message is a dead letter now",
        "the dead-letter callback panicked",
        "message=request refused",
        "message=lane held",
        "signature does not hold",
        "headers are not a JSON object of strings",
        "the payload is no Typed",
        "UNIQUE constraint failed",
        "HTTP/1.1 400",
        "HTTP/1.1 415",
        "rf_inbox_process_duration_ms_count",
        "rf_outbox_failed_count{",
        "payload_sha256",
        "outbox.purge",
        "SecretKey(…)",
        "{\"authorization\"}",
    ] {
        assert!(out.contains(words), "nobody said {words:?}: {out}");
    }
    assert!(err.contains("a handler panicked at"), "{err}");
    assert!(err.matches("its message is withheld").count() >= 5, "{err}");
}

/// The database holds them: what is searched for has really been there.
#[test]
fn s17_the_canaries_did_flow() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example("canary")).arg(folder.path()).output().unwrap();
    assert!(output.status.success());
    let holds = |name: &str, canary: &str| {
        let files =
            [name.to_owned(), format!("{name}-wal")].map(|file| std::fs::read(folder.path().join(file)));
        files
            .into_iter()
            .flatten()
            .any(|bytes| bytes.windows(canary.len()).any(|part| part == canary.as_bytes()))
    };
    assert!(holds("shop.db", "canary-payload-7f3a") && holds("shop.db", "canary-header-91bc"));
    assert!(holds("billing.db", "canary-payload-7f3a") && holds("billing.db", "canary-response-22de"));
    for name in ["shop.db", "billing.db"] {
        assert!(!holds(name, "canary-panic-c05e"), "a panic's message was stored in {name}");
        assert!(!holds(name, "canary-secret-000"), "a secret was stored in {name}");
    }
}
