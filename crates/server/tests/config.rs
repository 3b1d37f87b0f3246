//! `twobox config`: every mistake is named with its place and the remedy, and what is in effect can be seen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A configuration that a node could be started with, secrets in the environment.
const GOOD: &str = r#"
[node]
name = "shop"

[destinations.billing]
url = "http://127.0.0.1:7400"
keys = [{ id = "shop-1", secret_env = "SHOP_KEY" }]

[admin]
read_token_env = "READ_TOKEN"
"#;

struct Case {
    folder: TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Case {
    fn new() -> Self {
        let variables = vec![
            ("SHOP_KEY", "canary-canary-canary-canary-canary"),
            ("READ_TOKEN", "canary-canary-canary"),
            ("SHORT", "canary"),
        ];
        Self { folder: tempfile::tempdir().unwrap(), variables }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_twobox"))
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .envs(self.variables.iter().copied())
            .output()
            .unwrap()
    }

    /// What `config check` says about a file.
    fn check(&self, text: &str) -> (i32, String) {
        self.check_with(text, &[])
    }

    fn check_with(&self, text: &str, flags: &[&str]) -> (i32, String) {
        std::fs::write(self.path().join("node.toml"), text).unwrap();
        let output = self.run(&[&["config", "check", "--config", "node.toml"], flags].concat());
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!said.contains("canary"), "{said}");
        (output.status.code().unwrap(), said)
    }
}

#[test]
fn s10_a_good_configuration_is_called_good() {
    let case = Case::new();
    assert_eq!(case.check(GOOD), (0, "the configuration of shop is good\n".into()));
}

/// Each change to the good configuration, and what is said about it.
const MISTAKES: &str = include_str!("config_mistakes.txt");

#[test]
fn s10_every_mistake_names_its_place_and_the_remedy() {
    let case = Case::new();
    std::fs::write(case.path().join("open.key"), "canary").unwrap();
    std::fs::set_permissions(case.path().join("open.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut found = String::new();
    for part in MISTAKES.split("=== ").skip(1) {
        let (given, _) = part.split_once("--- says\n").unwrap();
        let (title, text) = given.split_once('\n').unwrap();
        let text = text.replace("GOOD", GOOD.trim());
        let (code, said) = case.check(&text);
        assert_eq!(code, 2, "{title}: {said}");
        let said = said.strip_prefix("twobox: the configuration cannot be used\n").unwrap();
        write!(found, "=== {given}--- says\n{said}\n").unwrap();
    }
    assert_eq!(found.trim_end(), MISTAKES.split_once("\n\n").unwrap().1.trim_end());
}

#[test]
fn s10_unknown_variables_and_flags_are_mistakes_too() {
    let mut case = Case::new();
    case.variables.push(("TWOBOX_OUTBOX_RETRIS_MAX", "3"));
    case.variables.push(("TWOBOX_OUTBOX_TTL", "soon"));
    let (code, said) = case.check_with(GOOD, &["--set", "outbox.tll=1 h", "--listen", "here"]);
    let expected = "\
twobox: the configuration cannot be used
  TWOBOX_OUTBOX_RETRIS_MAX: unknown variable: did you mean TWOBOX_OUTBOX_RETRIES_MAX?
  TWOBOX_OUTBOX_TTL: outbox.ttl: \"soon\" is no duration: write a number and a unit (ms, s, min, h, d), as in \"5 min\"
  --listen: receive.listen: \"here\" is no address: write IP and port, as in \"127.0.0.1:7400\" or \"[::1]:7400\"
  --set: outbox.tll: unknown key: did you mean outbox.ttl?
";
    assert_eq!((code, &*said), (2, expected));
}

#[test]
fn s10_a_node_does_not_start_with_a_mistake() {
    let case = Case::new();
    let output = case.run(&["serve", "--set", "node.name=shop"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("admin.listen: is set, but nobody has a token")
    );
    let output = case.run(&["serve", "--name", "shop", "--admin-listen", "", "--config", "missing.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let output = case.run(&["serve", "--nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!case.path().join("twobox.db").exists(), "nothing was made");
}

#[test]
fn rf_06_what_is_in_effect_is_shown_with_where_it_comes_from() {
    let mut case = Case::new();
    case.variables.push(("TWOBOX_OUTBOX_RETRIES_MAX", "3"));
    std::fs::write(case.path().join("twobox.toml"), GOOD).unwrap();
    let output = case.run(&["config", "print", "--set", "outbox.ttl=2 d"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for line in [
        "name = \"shop\" # twobox.toml:3",
        "retries_max = 3 # TWOBOX_OUTBOX_RETRIES_MAX",
        "ttl = \"2 d\" # --set",
        "retry_base = \"2 s\" # default",
        "billing = { keys = [{ id = \"shop-1\", secret_env = \"SHOP_KEY\" }], url = \"http://127.0.0.1:7400\" } # twobox.toml:5",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}\n{said}");
    }
    assert!(!said.contains("canary"));
}

#[test]
fn rf_24_the_documented_file_is_printed() {
    let output = Case::new().run(&["config", "print", "--default"]);
    assert_eq!(output.stdout, include_bytes!("../twobox.toml"));
}

#[test]
fn completions_and_manual_pages_are_made_from_the_commands() {
    let case = Case::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = case.run(&["completions", shell]);
        assert!(String::from_utf8(output.stdout).unwrap().contains("admin-listen"), "{shell}");
    }
    assert!(case.run(&["man"]).stdout.starts_with(b".ie"));
    assert!(case.run(&["man", "--folder", "pages"]).status.success());
    let page = std::fs::read_to_string(case.path().join("pages/twobox-serve.1")).unwrap();
    assert!(page.contains("SIGHUP"), "{page}");
}
