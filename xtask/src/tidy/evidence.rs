//! What the docs name as evidence is there: tests by their names, crash points by theirs.

use std::collections::HashSet;

use super::tree::{File, Finding, Tree};

/// The page that says which test proves what.
const PAGE: &str = "docs/GUARANTEES.md";

/// Every test and every crash point that the page names exists.
pub(crate) fn evidence_exists(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.ending(&[PAGE]).next() else {
        return vec![Finding { path: PAGE.into(), line: 1, message: "is not there".into() }];
    };
    let functions: HashSet<&str> =
        tree.ending(&[".rs"]).flat_map(File::functions).map(|(_, name)| name).collect();
    let points: HashSet<&str> = tree.ending(&[".rs"]).flat_map(crash_points).collect();
    let missing = |word: &&str| {
        let known = if is_crash_point(word) { points.contains(word) } else { functions.contains(word) };
        (is_test(word) || is_crash_point(word)) && !known
    };
    let mut findings = Vec::new();
    for (number, line) in page.lines() {
        let words = line.split('`').skip(1).step_by(2).filter(missing);
        findings.extend(words.map(|word| page.finding(number, format!("there is no {word}"))));
    }
    findings
}

fn crash_points(file: &File) -> impl Iterator<Item = &str> {
    let mark = concat!("crash_", "point!(\"");
    file.text.split(mark).skip(1).filter_map(|rest| rest.split('"').next())
}

/// A rule's number or a tag, and then a sentence.
fn is_test(word: &str) -> bool {
    let legal = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
    word.matches('_').count() >= 3 && word.chars().all(legal)
}

/// `place.what-happened`
fn is_crash_point(word: &str) -> bool {
    let legal = |c: char| c == '-' || c.is_ascii_lowercase();
    word.split_once('.').is_some_and(|(place, what)| {
        what != "rs" && what != "db" && place.chars().all(legal) && what.chars().all(legal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_that_is_not_there_is_found() {
        let code = concat!("async fn s1_a_b_c<F>() { crash_", "point!(\"relay.sent\"); }");
        let page = "`s1_a_b_c`, `s1_a_b_d`, `relay.sent`, `relay.lost`, `crates/proof`, `S1`, `twobox demo`";
        let tree = Tree::of(&[("docs/GUARANTEES.md", page), ("crates/a/src/lib.rs", code)]);
        let messages: Vec<_> = evidence_exists(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(messages, ["there is no s1_a_b_d", "there is no relay.lost"]);
    }
}
