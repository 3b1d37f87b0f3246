//! Log events and spans as they stand in the source.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository;

/// What runs in production.
const CRATES: [&str; 6] = ["core", "engine", "sqlite", "http", "twobox", "server"];

/// A call of one of the macros of `tracing`.
#[derive(Debug)]
pub(crate) struct Call {
    /// `info`, `debug_span`, …
    pub(crate) level: String,
    /// The text of an event, the name of a span.
    pub(crate) text: String,
    pub(crate) fields: BTreeSet<String>,
    /// Whether it writes something by its `Display`.
    pub(crate) displays: bool,
    /// Whether it comes once per message when all goes well.
    pub(crate) per_message: bool,
    pub(crate) place: String,
}

/// Every call of every crate.
pub(crate) fn calls() -> Vec<Call> {
    let mut all = Vec::new();
    for name in CRATES {
        visit(&repository(&format!("crates/{name}/src")), &mut all);
    }
    all
}

fn visit(folder: &Path, all: &mut Vec<Call>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let place = path.display().to_string();
            all.extend(text.split("tracing::").skip(1).filter_map(|rest| call(rest, &place)));
        }
    }
}

fn call(rest: &str, place: &str) -> Option<Call> {
    let (level, rest) = rest.split_once("!(")?;
    let known = ["trace", "debug", "info", "warn", "error"];
    let plain = level.strip_suffix("_span").unwrap_or(level);
    if !known.contains(&plain) {
        return None;
    }
    let arguments = arguments(rest);
    let quoted = |argument: &&String| argument.starts_with('"') && argument.ends_with('"');
    // Of an event the text comes last, of a span the name comes first.
    let text = arguments.iter().rfind(quoted).unwrap_or_else(|| panic!("{place}: {rest:.80} has no text"));
    let fields = arguments.iter().filter(|argument| !quoted(argument) && !argument.starts_with("target:"));
    Some(Call {
        level: level.into(),
        text: text.trim_matches('"').into(),
        fields: fields.map(|field| field.split('=').next().unwrap().trim().to_owned()).collect(),
        displays: arguments.iter().any(|argument| argument.starts_with('%') || argument.contains("= %")),
        per_message: arguments.iter().any(|argument| argument == "target: MESSAGES"),
        place: place.into(),
    })
}

/// The arguments of a call, up to its closing bracket.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut one, mut depth, mut in_text) = (Vec::new(), String::new(), 0, false);
    let mut before = ' ';
    for c in text.chars() {
        if c == '"' && before != '\\' {
            in_text = !in_text;
        }
        if !in_text {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' if depth == 0 => break,
                ')' | ']' | '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.push(std::mem::take(&mut one).trim().to_owned());
                    continue;
                }
                _ => {}
            }
        }
        before = c;
        one.push(c);
    }
    found.push(one.trim().to_owned());
    found.retain(|argument| !argument.is_empty());
    found
}

#[test]
fn calls_are_read_as_they_stand() {
    let rest = "warn!(\n    target: MESSAGES,\n    store = db.name(a, b),\n    message_id,\n    ?phase,\n    \"cut, (at last)\"\n);";
    let call = call(rest, "here").unwrap();
    assert_eq!((call.level.as_str(), call.text.as_str()), ("warn", "cut, (at last)"));
    assert!(call.per_message && !call.displays);
    assert_eq!(call.fields.into_iter().collect::<Vec<_>>(), ["?phase", "message_id", "store"]);
}
