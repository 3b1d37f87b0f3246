//! Paths that exist on one machine only.

use super::tree::{Finding, Tree};

const PREFIXES: [&str; 3] = [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];

/// Nothing in the tree may depend on where one developer keeps it.
pub(crate) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.lines() {
            let found = PREFIXES.iter().find(|prefix| has_absolute(line, prefix));
            findings
                .extend(found.map(|prefix| file.finding(number, format!("path of one machine: {prefix}…"))));
        }
    }
    findings
}

/// Whether the prefix starts a path here, rather than being the middle of a longer one.
fn has_absolute(line: &str, prefix: &str) -> bool {
    let continues = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || "_-.~})".contains(c));
    line.match_indices(prefix).any(|(at, _)| !continues(&line[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(line: &str) -> bool {
        !no_machine_paths(&Tree::of(&[("Cargo.toml", line)])).is_empty()
    }

    #[test]
    fn absolute_paths_are_found_wherever_they_start() {
        for prefix in PREFIXES {
            for line in [format!("{prefix}x"), format!("path = \"{prefix}x\""), format!("file://{prefix}x")] {
                assert!(is_found(&line), "{line}");
            }
        }
    }

    #[test]
    fn parts_of_longer_paths_are_not_found() {
        for prefix in PREFIXES {
            for line in
                [format!("https://example.org{prefix}x"), format!("../target{prefix}x"), format!("~{prefix}")]
            {
                assert!(!is_found(&line), "{line}");
            }
        }
    }
}
