//! `cargo xtask requirements`: every requirement with the tests that name it.

mod page;
mod report;
mod sources;
mod tag;

use std::collections::HashSet;
use std::path::Path;

use crate::Result;
use crate::tidy::tree::{Finding, Tree};
use page::{Page, Requirement, State};
use sources::Test;

/// What may not be put off any longer.
const DUE: &str = "ADR-04, ADR-05, ADR-07, IBX-001…IBX-084, IBX-098…IBX-130, IBX-8.1…IBX-8.4, CEB-1…CEB-6";

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Every requirement with its tests.
    Table,
    /// How many there are, and what is wrong.
    Brief,
    /// All of it, for machines.
    Json,
}

impl Format {
    /// Reads the words after `requirements`; `None` if they mean nothing.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        match words {
            [] => Some(Self::Table),
            ["--brief"] => Some(Self::Brief),
            ["--json"] => Some(Self::Json),
            _ => None,
        }
    }
}

/// Requirements and tests, side by side.
#[derive(Debug)]
struct Trace {
    page: Page,
    tests: Vec<Test>,
    findings: Vec<Finding>,
}

/// Shows every requirement with its tests.
///
/// # Errors
/// If one has neither a test nor a reason, or page and tests contradict each other.
pub(crate) fn run(root: &Path, format: Format) -> Result<()> {
    let trace = Trace::read(&Tree::read(root)?)?;
    match format {
        Format::Table => print!("{}", report::table(&trace)),
        Format::Brief => print!("{}", report::brief(&trace)),
        Format::Json => println!("{:#}", report::json(&trace)),
    }
    match trace.findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings about requirements").into()),
    }
}

impl Trace {
    fn read(tree: &Tree) -> Result<Self> {
        let file = tree.ending(&[page::PATH]).next().ok_or_else(|| format!("there is no {}", page::PATH))?;
        let page = Page::read(file)?;
        let known: Vec<&str> = page.requirements().map(|requirement| &*requirement.tag).collect();
        let tests = sources::tests(tree, &known);
        let due = tag::in_text(DUE, &known);
        let mut findings: Vec<Finding> = tests.iter().flat_map(|test| strangers(test, &known)).collect();
        findings.extend(sources::forgotten(tree));
        let named: HashSet<&String> = tests.iter().flat_map(|test| &test.tags).collect();
        for requirement in page.requirements() {
            let (has_test, is_due) = (named.contains(&requirement.tag), due.contains(&requirement.tag));
            let message = wrong(requirement, has_test, is_due);
            findings.extend(message.map(|message| file.finding(requirement.line, message)));
        }
        findings.sort();
        Ok(Self { page, tests, findings })
    }

    /// The tests that name a requirement.
    fn tests_of(&self, tag: &str) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter(move |test| test.tags.iter().any(|named| named == tag))
    }
}

/// Tags that a test names and that no requirement has.
fn strangers(test: &Test, known: &[&str]) -> Vec<Finding> {
    let unknown = test.tags.iter().filter(|tag| !known.contains(&tag.as_str()));
    let message = |tag| format!("{} names {tag}, which does not exist", test.name);
    let finding = |tag| Finding { path: test.path.clone(), line: test.line, message: message(tag) };
    unknown.map(finding).collect()
}

fn wrong(requirement: &Requirement, has_test: bool, is_due: bool) -> Option<String> {
    let tag = &requirement.tag;
    match (&requirement.state, &requirement.by_design) {
        (State::Later, Some(_)) => Some(format!("{tag} is by design and still to come")),
        (State::Later, None) => is_due.then(|| format!("{tag} may not wait any longer")),
        (_, Some(_)) => has_test.then(|| format!("{tag} is by design and has a test: one of them is wrong")),
        (_, None) => (!has_test).then(|| format!("{tag} has neither a test nor a reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "crates/a/src/lib.rs";

    fn messages(page: &str, code: &str) -> Vec<String> {
        let trace = Trace::read(&Tree::of(&[(page::PATH, page), (SOURCE, code)])).unwrap();
        trace.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_requirement_has_a_test_or_a_reason_or_time() {
        let page = "## RF: a\n| RF-01 | a | |\n| RF-02 | a | in part: b |\n| RF-03 | a | later |\n| RF-04 | a | |\n\
            ## By design\n| RF-04 | so |\n";
        assert!(messages(page, "#[test]\nfn rf_01_rf_02_a() {\n").is_empty());
        let missing = messages(page, "fn rf_01_rf_02_rf_03_a() {\n");
        let expected = ["2: RF-01", "3: RF-02"]
            .map(|place| format!("docs/REQUIREMENTS.md:{place} has neither a test nor a reason"));
        assert_eq!(missing, expected);
        assert!(messages(page, "#[test]\nfn rf_01_rf_02_rf_03_a() {\n").is_empty(), "tests may come early");
    }

    #[test]
    fn what_is_due_cannot_be_put_off() {
        let page = "## CEB: a\n| CEB-1 | a | later |\n| CEB-6 | a | |\n";
        let code = "/// CEB-1, CEB-6\n#[test]\nfn a() {\n";
        assert_eq!(messages(page, code), ["docs/REQUIREMENTS.md:2: CEB-1 may not wait any longer"]);
        assert_eq!(
            messages(page, code),
            messages(page, &code.replace("CEB-1, ", "")),
            "with a test or without"
        );
    }

    #[test]
    fn a_reason_and_a_test_contradict_each_other() {
        let page = "## RF: a\n| RF-01 | a | |\n| RF-02 | a | later |\n## By design\n| RF-01 | so |\n| RF-02 | so |\n";
        let found = messages(page, "#[test]\nfn rf_01_a() {\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("RF-01 is by design and has a test: one of them is wrong"), "{found:?}");
        assert!(found[1].ends_with("RF-02 is by design and still to come"), "{found:?}");
    }

    #[test]
    fn a_tag_that_does_not_exist_is_found() {
        let page = "## RF: a\n| RF-01 | a | |\n";
        let found = messages(page, "/// RF-01, GP-9\n#[test]\nfn rf_1_a() {\n");
        let expected =
            ["GP-9", "RF-1"].map(|tag| format!("{SOURCE}:3: rf_1_a names {tag}, which does not exist"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_case_that_nobody_runs_is_found() {
        let page = (page::PATH, "## RF: a\n| RF-01 | a | later |\n");
        let case = ("crates/testkit/src/conformance/lanes.rs", "pub async fn rf_01_a<F>() {\n");
        let findings = Trace::read(&Tree::of(&[page, case])).unwrap().findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn without_its_page_nothing_can_be_said() {
        assert!(Trace::read(&Tree::default()).is_err());
    }

    /// A row that is lost takes its duty with it.
    #[test]
    fn the_page_is_complete() {
        let trace = Trace::read(&Tree::read(crate::root()).unwrap()).unwrap();
        let mut expected = Vec::new();
        for (document, digits, last) in
            [("RF", 2, 25), ("ADR", 2, 9), ("IBX", 3, 130), ("GP", 1, 5), ("CEB", 1, 6)]
        {
            expected.extend((1..=last).map(|number| format!("{document}-{number:0digits$}")));
            match document {
                "IBX" => expected.extend((1..=4).map(|question| format!("IBX-8.{question}"))),
                "GP" => expected.extend((1..=4).map(|question| format!("GP-Q{question}"))),
                _ => {}
            }
        }
        let tags: Vec<&String> = trace.page.requirements().map(|requirement| &requirement.tag).collect();
        assert_eq!(tags, expected.iter().collect::<Vec<_>>());
        let known: Vec<&str> = tags.iter().map(|tag| tag.as_str()).collect();
        assert_eq!(tag::in_text(DUE, &known).len(), 3 + 84 + 33 + 4 + 6);
    }
}
