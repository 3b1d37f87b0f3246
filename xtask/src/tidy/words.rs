//! Words that do not belong in the source.

use super::tree::{File, Finding, Tree};

const UNFINISHED: [&str; 6] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
];
const IGNORED: &str = concat!("#[", "ignore");
const ANY_PANIC: &str = concat!("#[should_", "panic]");
const SLEEPS: [&str; 2] = [concat!("thread::", "sleep"), concat!("time::", "sleep")];
const SLEEP_REASON: &str = "// sleep: ";

/// Work is finished or in the issue tracker, never half in the source.
pub(crate) fn no_unfinished_work(tree: &Tree) -> Vec<Finding> {
    let found = |file, word| occurrences(file, word, "finish it or take it out");
    tree.ending(&[".rs", ".sql"])
        .flat_map(|file| UNFINISHED.iter().flat_map(move |word| found(file, word)))
        .collect()
}

/// A test that does not run, or that passes on any panic, says nothing.
pub(crate) fn no_skipped_tests(tree: &Tree) -> Vec<Finding> {
    let found = |file| {
        let mut findings = occurrences(file, IGNORED, "every test runs: assert what is true today");
        findings.extend(occurrences(file, ANY_PANIC, "say which panic: expected = \"…\""));
        findings
    };
    tree.ending(&[".rs"]).flat_map(found).collect()
}

/// A test that sleeps is slow on good days and wrong on bad ones.
///
/// The few that must, because real time is what they test, say why on the same line.
pub(crate) fn no_sleeping_tests(tree: &Tree) -> Vec<Finding> {
    tree.ending(&[".rs"]).filter(|file| is_test(&file.path)).flat_map(sleeps).collect()
}

fn is_test(path: &str) -> bool {
    path.rsplit('/').skip(1).any(|folder| folder == "tests")
}

fn sleeps(file: &File) -> Vec<Finding> {
    let message =
        "no sleeping in tests: use the manual clock, a signal, or say why with `// sleep: <reason>`";
    let sleeps = |line: &str| SLEEPS.iter().any(|word| line.contains(word)) && !has_reason(line);
    file.lines().filter(|(_, line)| sleeps(line)).map(|(number, _)| file.finding(number, message)).collect()
}

fn has_reason(line: &str) -> bool {
    line.split_once(SLEEP_REASON).is_some_and(|(_, reason)| !reason.trim().is_empty())
}

fn occurrences(file: &File, word: &str, remedy: &str) -> Vec<Finding> {
    let finding = |(number, _)| file.finding(number, format!("`{word}`: {remedy}"));
    file.lines().filter(|(_, line)| line.contains(word)).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unfinished_work_is_found_in_rust_and_sql() {
        for word in UNFINISHED {
            for path in ["a.rs", "sql/a.sql"] {
                let tree = Tree::of(&[(path, &format!("fine\n-- {word} later\n"))]);
                assert_eq!(lines(&no_unfinished_work(&tree)), [2], "{word} in {path}");
            }
            assert!(no_unfinished_work(&Tree::of(&[("a.md", word)])).is_empty());
        }
    }

    #[test]
    fn ignored_tests_are_found_with_and_without_a_reason() {
        for end in ["]", " = \"slow\"]"] {
            let tree = Tree::of(&[("a.rs", &format!("#[test]\n{IGNORED}{end}\nfn a() {{}}\n"))]);
            assert_eq!(lines(&no_skipped_tests(&tree)), [2]);
        }
    }

    #[test]
    fn expecting_any_panic_is_found_and_a_named_one_is_fine() {
        let named = ANY_PANIC.replace(']', "(expected = \"lease\")]");
        let tree = Tree::of(&[("a.rs", &format!("{ANY_PANIC}\n{named}\n"))]);
        assert_eq!(lines(&no_skipped_tests(&tree)), [1]);
    }

    #[test]
    fn sleeping_is_found_in_tests_unless_it_says_why() {
        for word in SLEEPS {
            let text =
                format!("{word}(a);\n{word}(a); {SLEEP_REASON}the kernel's clock\n{word}(a); // sleep: \n");
            let found = |path| lines(&no_sleeping_tests(&Tree::of(&[(path, &text)])));
            assert_eq!(found("crates/a/tests/it/main.rs"), [1, 3]);
            assert_eq!(found("tests/a.rs"), [1, 3]);
            assert!(found("crates/a/src/tests.rs").is_empty());
        }
    }
}
