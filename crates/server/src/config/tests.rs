//! The documented file and the code say the same.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keys::{Config, Destination, Entry, Key, Source, entries};
use super::load::{Loaded, Origin, Outside};
use super::section::Section;
use super::{DEFAULTS, print};

/// The file with every key uncommented: lines that begin with `#` and no space behind it.
fn uncommented() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => setting.to_owned(),
        _ => line.to_owned(),
    };
    DEFAULTS.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The file with its examples instead: lines that begin with `#` and three spaces.
fn examples() -> String {
    let example = |line: &str| line.strip_prefix("#   ").map(str::to_owned);
    let example =
        |line| example(line).filter(|line| !line.starts_with("- ") && !line.starts_with("  TWOBOX"));
    DEFAULTS.lines().filter_map(example).collect::<Vec<_>>().join("\n")
}

fn load(text: &str, variables: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> Result<Loaded, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    std::fs::write(&path, text).unwrap();
    let own = |text: &&str| (*text).to_owned();
    let outside = Outside {
        file: Some(path),
        environment: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        flags: flags.iter().map(|(flag, key, value)| (own(flag), own(key), own(value))).collect(),
    };
    let shown = |faults: Vec<super::Fault>| faults.iter().map(ToString::to_string).collect();
    Loaded::load(&outside).map_err(shown)
}

#[test]
fn rf_24_the_documented_file_is_the_default_and_names_every_key() {
    let loaded = load(&uncommented(), &[], &[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    for entry in entries() {
        let named = loaded.origin(&entry.path) != Origin::Default;
        assert!(named, "{} is not in twobox.toml", entry.path);
    }
    // As it is shipped, all is commented out, so it changes nothing either.
    assert_eq!(load(DEFAULTS, &[], &[]).unwrap().config, Config::default());
}

#[test]
fn rf_24_the_examples_of_the_documented_file_name_every_key_of_their_tables() {
    fn names<S: Section>() -> Vec<&'static str> {
        S::KEYS.iter().map(|key| key.name).collect()
    }
    let text = examples();
    let loaded = load(&text, &[], &[]).unwrap();
    assert_eq!(loaded.config.destinations.len(), 2);
    assert_eq!(loaded.config.sources.len(), 1);
    assert_eq!(loaded.config.handler.routes.len(), 2);
    for name in [names::<Destination>(), names::<Source>(), names::<Key>()].concat() {
        assert!(text.contains(&format!("{name} = ")), "{name} is in no example");
    }
}

#[test]
fn rf_06_every_key_has_a_variable_of_its_own() {
    let variables: BTreeSet<String> = entries().iter().map(Entry::variable).collect();
    assert_eq!(variables.len(), entries().len());
    assert!(variables.contains("TWOBOX_OUTBOX_RETRIES_MAX"));
}

#[test]
fn rf_06_a_flag_counts_more_than_a_variable_and_that_more_than_the_file() {
    let file = "[outbox]\nretries_max = 1\nttl = \"1 h\"\n\n[handler]\nconcurrency = 1";
    let variables = [("TWOBOX_OUTBOX_TTL", "2 h"), ("TWOBOX_HANDLER_CONCURRENCY", "2"), ("OTHER", "x")];
    let flags = [("--set", "handler.concurrency", "3")];
    let loaded = load(file, &variables, &flags).unwrap();
    assert_eq!((loaded.config.outbox.retries_max, loaded.config.handler.concurrency), (1, 3));
    assert_eq!(loaded.config.outbox.ttl.as_secs(), 7_200);
    let origin = |path| loaded.origin(path).to_string();
    assert!(origin("outbox.retries_max").ends_with("node.toml:2"));
    assert_eq!(origin("outbox.ttl"), "TWOBOX_OUTBOX_TTL");
    assert_eq!(origin("handler.concurrency"), "--set");
    assert_eq!(origin("outbox.retry_base"), "default");
}

#[test]
fn rf_24_what_is_printed_can_be_read_again() {
    let loaded = load(&examples(), &[], &[("--set", "outbox.ttl", "90 min")]).unwrap();
    let printed = print::print(&loaded);
    assert!(printed.contains("ttl = \"90 min\" # --set"), "{printed}");
    assert_eq!(load(&printed, &[], &[]).unwrap().config, loaded.config);
}

#[test]
fn lists_and_tables_can_stand_in_variables() {
    let table = r#"{ billing = { url = "http://127.0.0.1:1", unsigned = true } }"#;
    let variables = [("TWOBOX_DESTINATIONS", table), ("TWOBOX_HANDLER_REJECT_STATUSES", "[422]")];
    let loaded = load("", &variables, &[]).unwrap();
    assert!(loaded.config.destinations["billing"].unsigned);
    assert_eq!(loaded.config.handler.reject_statuses, [422]);
}

#[test]
fn secrets_may_be_in_variables_that_look_like_settings() {
    let file = "[sources.shop]\nkeys = [{ id = \"a\", secret_env = \"TWOBOX_KEY_A\" }]";
    assert!(load(file, &[("TWOBOX_KEY_A", "…")], &[]).is_ok());
    let error = load("", &[("TWOBOX_OUTBOX_RETRIES", "1")], &[]).unwrap_err();
    assert_eq!(error, ["TWOBOX_OUTBOX_RETRIES: unknown variable: did you mean TWOBOX_OUTBOX_RETRIES_MAX?"]);
}

/// The whole answer has the time that is configured, not only its head.
#[test]
fn a_program_may_take_as_long_as_configured_for_its_whole_answer() {
    let mut config = Config::default();
    config.handler.timeout = Duration::from_secs(7200);
    let (limits, worker) = (config.handler_limits(), config.worker_options());
    assert_eq!(
        (limits.answer_timeout, limits.body_timeout),
        (config.handler.timeout, config.handler.timeout)
    );
    assert_eq!(worker.handler_timeout, config.handler.timeout + config.handler.connect_timeout);
}

/// Wherever it is named: in the file, in a variable or by a flag.
#[test]
fn rf_24_the_variable_of_a_secret_is_known() {
    let secret = ("TWOBOX_MY_TOKEN", "0123456789abcdef");
    let named = ("--set", "admin.read_token_env", "TWOBOX_MY_TOKEN");
    load("", &[secret], &[named]).unwrap();
    load("", &[secret, ("TWOBOX_ADMIN_READ_TOKEN_ENV", "TWOBOX_MY_TOKEN")], &[]).unwrap();
    let faults = load("", &[secret], &[]).unwrap_err();
    assert!(faults[0].contains("TWOBOX_MY_TOKEN: unknown variable"), "{faults:?}");
}
