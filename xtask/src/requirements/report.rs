//! Requirements and their tests, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Trace;
use super::page::{Document, Requirement, State};
use super::sources::Test;

/// A table per document, then what [`brief`] says.
pub(crate) fn table(trace: &Trace) -> String {
    let mut text = String::new();
    for document in &trace.page.documents {
        _ = writeln!(text, "{}\n", document.title);
        for requirement in &document.requirements {
            _ = writeln!(text, "{:9}{}", requirement.tag, requirement.text);
            evidence(trace, requirement).iter().for_each(|line| _ = writeln!(text, "{:11}{line}", ""));
        }
        text.push('\n');
    }
    text + &brief(trace)
}

/// A line per document, then what is wrong.
pub(crate) fn brief(trace: &Trace) -> String {
    let mut text = String::new();
    for document in &trace.page.documents {
        _ = writeln!(text, "{}", Count::of(trace, document).line(document));
    }
    trace.findings.iter().for_each(|finding| _ = writeln!(text, "{finding}"));
    text
}

/// What there is to say for a requirement, line by line.
fn evidence(trace: &Trace, requirement: &Requirement) -> Vec<String> {
    let state = match &requirement.state {
        State::Whole => None,
        State::InPart(missing) => Some(format!("in part; later: {missing}")),
        State::Later => Some("later".to_owned()),
    };
    let reason = requirement.by_design.as_ref().map(|reason| format!("by design: {reason}"));
    let test = |test: &Test| format!("{}:{} {}", test.path, test.line, test.name);
    let tests = trace.tests_of(&requirement.tag).map(test);
    let lines: Vec<String> = state.into_iter().chain(reason).chain(tests).collect();
    if lines.is_empty() { vec!["NO TEST".to_owned()] } else { lines }
}

/// For machines.
pub(crate) fn json(trace: &Trace) -> Value {
    let document = |document: &Document| {
        let count = Count::of(trace, document);
        json!({
            "document": document.name(),
            "title": document.title,
            "tested": count.tested,
            "by_design": count.by_design,
            "later": count.later,
            "missing": count.missing,
            "requirements": Value::from_iter(document.requirements.iter().map(|row| requirement(trace, row))),
        })
    };
    json!({
        "documents": Value::from_iter(trace.page.documents.iter().map(document)),
        "findings": Value::from_iter(trace.findings.iter().map(ToString::to_string)),
    })
}

fn requirement(trace: &Trace, requirement: &Requirement) -> Value {
    let test = |test: &Test| json!({ "name": test.name, "path": test.path, "line": test.line });
    let (state, missing) = match &requirement.state {
        State::Whole => ("whole", None),
        State::InPart(missing) => ("in part", Some(missing)),
        State::Later => ("later", None),
    };
    json!({
        "tag": requirement.tag,
        "text": requirement.text,
        "state": state,
        "missing": missing,
        "by_design": requirement.by_design,
        "tests": Value::from_iter(trace.tests_of(&requirement.tag).map(test)),
    })
}

/// How many requirements of a document stand how. Each counts once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    tested: usize,
    by_design: usize,
    later: usize,
    missing: usize,
}

impl Count {
    fn of(trace: &Trace, document: &Document) -> Self {
        let mut count = Self::default();
        for requirement in &document.requirements {
            let place = match (&requirement.state, &requirement.by_design) {
                (State::Later, _) => &mut count.later,
                (_, Some(_)) => &mut count.by_design,
                _ if trace.tests_of(&requirement.tag).next().is_some() => &mut count.tested,
                _ => &mut count.missing,
            };
            *place += 1;
        }
        count
    }

    fn line(&self, document: &Document) -> String {
        let Self { tested, by_design, later, missing } = self;
        let (name, all) = (document.name(), document.requirements.len());
        format!(
            "{name}: {all} tags, {tested} tested, {by_design} by design, {later} later, {missing} without a test"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::page;
    use crate::tidy::tree::Tree;

    fn trace() -> Trace {
        let rows = "## RF: sending\n| RF-01 | one | |\n| RF-02 | two | in part: half |\n| RF-03 | three | later |\n\
            | RF-04 | four | |\n| RF-05 | five | |\n## By design\n| RF-04 | so |\n";
        let code = "#[test]\nfn rf_01_rf_02_a() {\n";
        Trace::read(&Tree::of(&[(page::PATH, rows), ("crates/a/src/lib.rs", code)])).unwrap()
    }

    #[test]
    fn people_see_a_table_and_counts() {
        let rows = "\
RF: sending

RF-01    one
           crates/a/src/lib.rs:2 rf_01_rf_02_a
RF-02    two
           in part; later: half
           crates/a/src/lib.rs:2 rf_01_rf_02_a
RF-03    three
           later
RF-04    four
           by design: so
RF-05    five
           NO TEST

";
        let counts = "\
RF: 5 tags, 2 tested, 1 by design, 1 later, 1 without a test
docs/REQUIREMENTS.md:6: RF-05 has neither a test nor a reason
";
        assert_eq!(table(&trace()), format!("{rows}{counts}"));
        assert_eq!(brief(&trace()), counts);
    }

    #[test]
    fn machines_see_the_same() {
        let json = json(&trace());
        let document = &json["documents"][0];
        assert_eq!(
            (&document["document"], &document["tested"], &document["missing"]),
            (&json!("RF"), &json!(2), &json!(1))
        );
        let rows = &document["requirements"];
        let test = json!([{ "name": "rf_01_rf_02_a", "path": "crates/a/src/lib.rs", "line": 2 }]);
        assert_eq!(rows[0]["tests"], test);
        assert_eq!((&rows[1]["state"], &rows[1]["missing"]), (&json!("in part"), &json!("half")));
        assert_eq!(rows[2]["state"], "later");
        assert_eq!(rows[3]["by_design"], "so");
        assert_eq!(json["findings"].as_array().map(Vec::len), Some(1));
    }
}
