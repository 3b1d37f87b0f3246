//! The tables of docs/OBSERVABILITY.md against the code.

use std::collections::{BTreeMap, BTreeSet};

use crate::page::{full_page, parse};
use crate::read;
use crate::sources::calls;

/// The rows of the table under a heading: cells, without the marks of code.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = read("docs/OBSERVABILITY.md");
    let section = page.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells =
        |row: &str| row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
    rows.map(cells).collect()
}

fn list(cell: &str) -> BTreeSet<String> {
    cell.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

#[test]
fn rf_21_every_figure_is_documented_and_every_documented_one_is_there() {
    let figures = parse(&full_page());
    let there: BTreeMap<String, (String, BTreeSet<String>)> =
        figures.iter().map(|(name, figure)| (name.clone(), (figure.kind.clone(), figure.labels()))).collect();
    let documented: BTreeMap<_, _> =
        table("Figures").into_iter().map(|row| (row[0].clone(), (row[1].clone(), list(&row[2])))).collect();
    for (name, of) in &there {
        assert_eq!(documented.get(name), Some(of), "{name}");
    }
    for name in documented.keys() {
        assert!(there.contains_key(name), "{name} is documented and not there");
    }
}

#[test]
fn rf_23_every_event_that_matters_is_documented_and_every_documented_one_is_there() {
    let rows = table("Log events");
    let documented: BTreeMap<(&str, &str), BTreeSet<String>> =
        rows.iter().map(|row| ((row[0].as_str(), row[1].as_str()), list(&row[2]))).collect();
    assert_eq!(documented.len(), rows.len(), "an event stands there twice");
    let calls = calls();
    let mut fields: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for call in calls.iter().filter(|call| !call.level.ends_with("_span")) {
        let event = (call.text.as_str(), call.level.as_str());
        let matters = ["warn", "error"].contains(&call.level.as_str()) || call.per_message;
        let known = documented.contains_key(&event);
        assert!(known || !matters, "{event:?} is not documented: {}", call.place);
        let named = call.fields.iter().map(|field| field.trim_start_matches(['?', '%']).to_owned());
        fields.entry(event).or_default().extend(named);
    }
    for (event, of) in &documented {
        assert_eq!(fields.get(event), Some(of), "fields of {event:?}");
    }
}

#[test]
fn rf_23_the_seven_usual_moments_have_their_levels() {
    let calls = calls();
    for (text, level) in [
        ("enqueued", "info"),
        ("sent", "info"),
        ("send failed", "warn"),
        ("permanently failed", "error"),
        ("processed", "info"),
        ("duplicate", "warn"),
        ("HMAC verification failed", "warn"),
    ] {
        let found = calls.iter().find(|call| call.text == text && call.level == level);
        let fields = &found.unwrap_or_else(|| panic!("{level} {text}")).fields;
        assert!(fields.contains("message_id") && fields.contains("source"), "{text}: {fields:?}");
    }
}

/// Subscribers escape text; what a `Display` writes they may not.
#[test]
fn s17_what_is_logged_is_recorded_as_text() {
    for call in calls() {
        let in_the_way = call.fields.contains("message");
        assert!(!call.displays && !in_the_way, "{}: {:?} in {}", call.text, call.fields, call.place);
    }
}

#[test]
fn rf_23_every_span_is_documented_and_every_documented_one_is_there() {
    let there: BTreeMap<String, (String, BTreeSet<String>)> = calls()
        .into_iter()
        .filter_map(|call| Some((call.text, (call.level.strip_suffix("_span")?.to_owned(), call.fields))))
        .collect();
    let documented: BTreeMap<_, _> =
        table("Spans").into_iter().map(|row| (row[0].clone(), (row[1].clone(), list(&row[2])))).collect();
    assert_eq!(documented, there);
}
