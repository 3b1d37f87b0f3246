//! The house rules no compiler knows. Each is a function from the tree of files to its findings.
//!
//! What a rule looks for is put together with `concat!`, or this source would break the rule itself.

mod evidence;
mod layout;
mod links;
mod paths;
pub(crate) mod tree;
mod words;

use std::path::Path;

use crate::{Result, console};
use tree::{Finding, Tree};

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 9] = [
    words::no_unfinished_work,
    words::no_skipped_tests,
    words::no_sleeping_tests,
    paths::no_machine_paths,
    layout::no_long_files,
    layout::crates_open_with_docs,
    layout::crates_share_lints,
    links::links_resolve,
    evidence::evidence_exists,
];

/// Applies the rules under a heading of its own.
///
/// # Errors
/// If a rule found something, or the files cannot be listed.
pub(crate) fn run(root: &Path) -> Result<()> {
    console::heading("tidy");
    inspect(root)
}

/// Applies the rules.
///
/// # Errors
/// If a rule found something, or the files cannot be listed.
pub(crate) fn inspect(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let findings = findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("{} files keep the rules", tree.files.len());
            Ok(())
        }
        count => Err(format!("{count} findings of tidy").into()),
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_all_rules_come_in_the_order_of_files() {
        let page = ("docs/GUARANTEES.md", "");
        let tree = Tree::of(&[("z.md", "[x](gone.md)\n"), page, ("crates/a/src/lib.rs", "use b;\n")]);
        let paths: Vec<String> = findings(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["crates/a/src/lib.rs", "z.md"]);
    }
}
