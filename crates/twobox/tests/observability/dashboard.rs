//! The dashboard asks for figures that are there.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::page::{full_page, parse};
use crate::read;

/// The names of figures in an expression.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("rf_") || word.starts_with("twobox_"))
}

/// Every name under which samples stand on the page.
fn sample_names() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, figure) in parse(&full_page()) {
        all.extend(figure.samples.iter().map(|(suffix, _, _)| format!("{name}{suffix}")));
    }
    all
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if ["expr", "query", "definition"].contains(&name.as_str()) => {
                        found.push(text.clone());
                    }
                    other => expressions(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn rf_21_the_dashboard_asks_for_what_is_there() {
    let dashboard: Value = serde_json::from_str(&read("docs/grafana/twobox.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    let (known, mut shown) = (sample_names(), BTreeSet::new());
    for expression in &found {
        for name in names(expression) {
            assert!(known.contains(name), "{name} is not on the page: {expression}");
            shown.insert(name.to_owned());
        }
    }
    assert!(panels.len() > 20 && shown.len() > 40, "{} panels show {} figures", panels.len(), shown.len());
}

#[test]
fn rf_21_alerts_ask_for_what_is_there() {
    let (known, text) = (sample_names(), read("docs/OBSERVABILITY.md"));
    let rules: Vec<&str> = text.lines().filter(|line| line.contains("alert:")).collect();
    assert!(rules.len() > 5);
    for rule in rules {
        for name in names(rule.split("expr:").nth(1).unwrap()) {
            assert!(known.contains(name), "{name} is not on the page: {rule}");
        }
    }
}
