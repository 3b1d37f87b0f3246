//! Nothing that must not be seen is ever said (S17): a program lets canaries flow through everything, and all it says
//! is searched for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use twobox_testkit::example;

/// What all canaries begin with, beside what they are.
const MARK: &str = "canary-";
const KINDS: [&str; 5] = ["payload-7f3a", "header-91bc", "response-22de", "panic-c05e", "secret-000"];

/// Ways in which a text can be shown without being read at once.
fn disguises(canary: &str) -> Vec<String> {
    let bytes = canary.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    // Of three ways in which base64 can cut a text, whole groups of the middle are the same wherever it stands.
    let encoded = (0..3).map(|skip| base64(&bytes[skip..bytes.len() - (bytes.len() - skip) % 3]));
    [canary.to_owned(), hex.to_uppercase(), hex, list].into_iter().chain(encoded).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[(bits >> shift & 63) as usize]))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

/// Lines with a canary in them.
fn leaks(said: &str) -> Vec<&str> {
    let canaries: Vec<String> = KINDS.iter().flat_map(|kind| disguises(&format!("{MARK}{kind}"))).collect();
    said.lines().filter(|line| canaries.iter().any(|canary| line.contains(canary.as_str()))).collect()
}

#[test]
fn s17_a_canary_is_found_in_any_disguise() {
    assert!(leaks("all is well, canary-like even").is_empty());
    for leak in [
        "error=\"cannot handle canary-payload-7f3a\"",
        "b'Y2FuYXJ5LXBheWxvYWQtN2YzYQ=='",
        "ImNhbmFyeS1wYXlsb2FkLTdmM2Ei",
        "[99, 97, 110, 97, 114, 121, 45, 104, 101, 97, 100, 101, 114, 45, 57, 49, 98, 99]",
        "63616e6172792d70616e69632d63303565",
    ] {
        assert_eq!(leaks(leak).len(), 1, "{leak}");
    }
}

#[test]
fn s17_the_canaries_are_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example("canary")).arg(folder.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}\n{out}");
    for said in [&out, &err] {
        let leaks = leaks(said);
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
