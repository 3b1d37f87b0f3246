//! The tests of the workspace, and what they say they cover.

use std::collections::HashSet;

use super::tag;
use crate::tidy::tree::{self, File, Finding, Tree};

/// Chores are no part of the product, and their tests make up sources with tests in them.
const CHORES: &str = "xtask/";
/// Where the cases are that a macro stamps out as tests, one folder or file per module.
const SUITE: &str = "crates/testkit/src/conformance/";
/// What such a macro passes its list of cases to.
const LIST: &str = "conformance_cases! {";

/// A test with what it says it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
}

/// Every test that runs and names a requirement; `known` are all tags, in their order.
pub(crate) fn tests(tree: &Tree, known: &[&str]) -> Vec<Test> {
    let listed = cases(tree);
    let mut tests = Vec::new();
    for file in sources(tree) {
        let test = |function: Function<'_>| Test {
            path: file.path.clone(),
            line: function.line,
            name: function.name.to_owned(),
            tags: function.tags(known),
        };
        tests.extend(
            functions(file)
                .into_iter()
                .filter(|function| function.runs(file, &listed))
                .map(test)
                .filter(|test| !test.tags.is_empty()),
        );
    }
    tests
}

/// Cases that carry a tag and that no list has, so that nobody runs them.
pub(crate) fn forgotten(tree: &Tree) -> Vec<Finding> {
    let listed = cases(tree);
    let mut findings = Vec::new();
    for file in sources(tree).filter(|file| module(file).is_some()) {
        let lost = functions(file).into_iter().filter(|function| !function.runs(file, &listed));
        let lost = lost.filter(|function| !tag::in_name(function.name).is_empty());
        let message = |name| format!("{name} is in no list of cases that is run");
        findings.extend(lost.map(|function| file.finding(function.line, message(function.name))));
    }
    findings
}

fn sources(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.ending(&[".rs"]).filter(|file| !file.path.starts_with(CHORES))
}

/// A function, and what stands right above it.
#[derive(Debug)]
struct Function<'a> {
    line: usize,
    name: &'a str,
    comment: String,
    is_test: bool,
}

impl Function<'_> {
    fn runs(&self, file: &File, listed: &HashSet<String>) -> bool {
        self.is_test
            || module(file).is_some_and(|module| listed.contains(&format!("{module}::{}", self.name)))
    }

    fn tags(&self, known: &[&str]) -> Vec<String> {
        let mut tags = tag::in_name(self.name);
        tags.extend(tag::in_text(&self.comment, known));
        tags.sort();
        tags.dedup();
        tags
    }
}

fn functions(file: &File) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    let mut above = Above::default();
    for (number, line) in file.lines() {
        if let Some(name) = tree::function(line) {
            let Above { comment, is_test, .. } = std::mem::take(&mut above);
            functions.push(Function { line: number, name, comment, is_test });
        } else {
            above.read(line.trim());
        }
    }
    functions
}

/// Comments and attributes, without anything in between.
#[derive(Debug, Default)]
struct Above {
    comment: String,
    is_test: bool,
    /// Brackets of an attribute that goes on in the next line.
    open: usize,
}

impl Above {
    fn read(&mut self, line: &str) {
        if self.open > 0 {
            self.brackets(line);
        } else if line.starts_with("//") {
            self.comment.push_str(line.trim_start_matches('/'));
            self.comment.push('\n');
        } else if let Some(attribute) = line.strip_prefix("#[") {
            self.is_test |= is_test(attribute);
            self.brackets(line);
        } else {
            *self = Self::default();
        }
    }

    fn brackets(&mut self, line: &str) {
        self.open = (self.open + line.matches('[').count()).saturating_sub(line.matches(']').count());
    }
}

/// `#[test]`, `#[tokio::test(…)]`
fn is_test(attribute: &str) -> bool {
    let path = attribute.split([']', '(', ' ']).next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

/// Every case that a suite lists, as `module::name`, if anybody uses the suite.
fn cases(tree: &Tree) -> HashSet<String> {
    let mut cases = HashSet::new();
    for file in sources(tree) {
        for (at, _) in file.text.match_indices(LIST) {
            let suite =
                file.text[..at].rsplit("macro_rules! ").next().and_then(|text| text.split(' ').next());
            if suite.is_some_and(|suite| is_used(tree, suite)) {
                cases.extend(listed(&file.text[at + LIST.len()..]));
            }
        }
    }
    cases
}

fn is_used(tree: &Tree, suite: &str) -> bool {
    let call = format!("{suite}!(");
    sources(tree).any(|file| file.text.lines().any(|line| without_comment(line).contains(&call)))
}

/// `$fixture; lanes: one, another; inbox: a_third; }`
fn listed(list: &str) -> Vec<String> {
    let list = list.split('}').next().unwrap_or_default();
    let list: String = list.lines().map(without_comment).collect();
    let modules = list.split(';').skip(1).filter_map(|module| module.split_once(':'));
    let cases = |(module, names): (&str, &str)| {
        let case = |name: &str| format!("{}::{}", module.trim(), name.trim());
        names.split(',').map(case).collect::<Vec<_>>()
    };
    modules.flat_map(cases).collect()
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// The module of the suite that a file belongs to.
fn module(file: &File) -> Option<&str> {
    file.path.strip_prefix(SUITE)?.split(['/', '.']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["RF-01", "RF-02", "RF-03", "RF-04"];
    const SUITES: &str = "macro_rules! store_conformance {\n ($fixture:ty) => { conformance_cases! { $fixture;\n\
        lanes: rf_01_listed,\n // rf_02_listed, rf_03_lost,\n other;\n inbox: rf_02_listed; } } }\n";
    const USE: (&str, &str) = ("crates/a/tests/conformance.rs", "store_conformance!(Fixture);\n");

    fn found(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        tests(&Tree::of(files), &KNOWN).into_iter().map(|test| (test.name, test.tags)).collect()
    }

    fn names(text: &str) -> Vec<String> {
        found(&[("crates/a/src/lib.rs", text)]).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn only_functions_that_run_as_tests_count() {
        assert_eq!(names("#[test]\nfn rf_01_a() {\n"), ["rf_01_a"]);
        assert_eq!(names("proptest! {\n    #[test]\n    fn rf_01_a(a in 1..2) {\n"), ["rf_01_a"]);
        assert_eq!(names("#[tokio::test(flavor = \"multi_thread\")]\nasync fn rf_01_a() {\n"), ["rf_01_a"]);
        assert_eq!(
            names("#[tokio::test(\n    start_paused = true,\n)]\nasync fn rf_01_a() {\n"),
            ["rf_01_a"]
        );
        assert_eq!(names("#[test]\n#[cfg(unix)]\nfn rf_01_a() {\n"), ["rf_01_a"]);
        for text in [
            "fn rf_01_a() {\n",
            "// #[test]\nfn rf_01_a() {\n",
            "#[test]\nfn b() {\n}\nfn rf_01_a() {\n",
            "#[cfg(test)]\nfn rf_01_a() {\n",
            "#[test]\nfn without_a_tag() {\n",
        ] {
            assert!(names(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_comment_counts_right_above_a_test_only() {
        let tags = |text: &str| -> Vec<String> {
            found(&[("crates/a/src/lib.rs", text)]).into_iter().flat_map(|(_, tags)| tags).collect()
        };
        assert_eq!(tags("/// RF-01, RF-03: both.\n#[test]\nfn a() {\n"), ["RF-01", "RF-03"]);
        assert_eq!(
            tags("#[test]\n// RF-01…\n// RF-03\nfn rf_04_a() {\n"),
            ["RF-01", "RF-02", "RF-03", "RF-04"]
        );
        assert_eq!(tags("/// RF-01\n#[test]\nfn rf_01_a() {\n"), ["RF-01"], "once is enough");
        assert!(tags("/// RF-01\n\n#[test]\nfn a() {\n").is_empty());
        assert!(tags("/// RF-01\nfn helper() {}\n#[test]\nfn a() {\n    // RF-02\n").is_empty());
    }

    #[test]
    fn a_case_counts_if_it_is_listed_and_the_suite_is_used() {
        let suites = ("crates/testkit/src/conformance/mod.rs", SUITES);
        let lanes = "pub async fn rf_01_listed<F>() {\n}\n/// RF-04\npub async fn other<F>() {\n}\n\
            pub async fn rf_02_listed<F>() {\n}\npub async fn rf_03_lost<F>() {\n}\n\
            #[test]\nfn rf_04_a_test_like_any_other() {\n}\n";
        let lanes = ("crates/testkit/src/conformance/lanes.rs", lanes);
        let inbox = ("crates/testkit/src/conformance/inbox/deep.rs", "pub async fn rf_02_listed<F>() {\n");
        let found_names = |files: &[_]| found(files).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let files = [suites, lanes, inbox, USE];
        assert_eq!(
            found_names(&files),
            ["rf_01_listed", "other", "rf_04_a_test_like_any_other", "rf_02_listed"]
        );
        let messages: Vec<_> = forgotten(&Tree::of(&files)).iter().map(ToString::to_string).collect();
        let lost = |line, name| format!("{}:{line}: {name} is in no list of cases that is run", lanes.0);
        assert_eq!(
            messages,
            [lost(6, "rf_02_listed"), lost(8, "rf_03_lost")],
            "the other one is of another module"
        );
        let unused = ["rf_04_a_test_like_any_other"];
        assert_eq!(found_names(&[suites, lanes, inbox]), unused, "nobody uses the suite");
        let comment = ("crates/a/tests/conformance.rs", "// store_conformance!(Fixture);\n");
        assert_eq!(found_names(&[suites, lanes, inbox, comment]), unused);
    }

    #[test]
    fn tests_of_chores_are_no_evidence() {
        assert!(found(&[("xtask/src/a.rs", "#[test]\nfn rf_01_a() {\n")]).is_empty());
    }
}
