//! schemathesis against a node with something of everything: `cargo xtask test` installs it and sets the variable.

use std::process::Stdio;

use super::world::{SEND, WRITE, World};

/// Names the program. Without it there is nothing to do.
const PROGRAM: &str = "TWOBOX_SCHEMATHESIS";
/// What must hold of every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth";

#[tokio::test(flavor = "multi_thread")]
async fn rf_22_answers_are_as_documented_whatever_is_asked() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        eprintln!("not run: {PROGRAM} does not name schemathesis; cargo xtask test does");
        return;
    };
    let world = World::full().await;
    for (token, routes) in [(WRITE, "^/(_rf/|livez|readyz|metrics)"), (SEND, "^/v1/")] {
        let mut command = tokio::process::Command::new(&program);
        command
            .arg("run")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"))
            .args(["--url", &format!("http://{}", world.address), "--checks", CHECKS])
            .args(["--header", &format!("Authorization: Bearer {token}"), "--include-path-regex", routes])
            .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "7"])
            .args(["--request-timeout", "10", "--no-color"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null());
        let ended = command.output().await.unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
        println!("{said}");
    }
    world.stop().await;
}
