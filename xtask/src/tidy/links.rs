//! Links in markdown lead somewhere.

use super::tree::{File, Finding, Tree};

/// A relative link resolves to a file or folder of the tree.
pub(crate) fn links_resolve(tree: &Tree) -> Vec<Finding> {
    tree.ending(&[".md"]).flat_map(|file| broken(tree, file)).collect()
}

fn broken(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(file) {
        for target in targets(&line).into_iter().filter(|target| is_relative(target)) {
            if !resolve(&file.path, target).is_some_and(|path| tree.contains(&path)) {
                findings.push(file.finding(number, format!("the link to {target} leads nowhere")));
            }
        }
    }
    findings
}

/// The lines outside code, numbered. Code is full of brackets that are not links.
fn prose(file: &File) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in file.lines() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => lines.push((number, without_code(line))),
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
    }
    lines
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Where the links of a line lead: inline ones and definitions of references.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    inline.chain(definition(line)).map(|target| target.trim_matches(['<', '>'])).collect()
}

fn definition(line: &str) -> Option<&str> {
    let (label, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    // A footnote looks alike but holds prose.
    if label.starts_with('^') { None } else { target.split_whitespace().next() }
}

/// Whether a target is a path: not an address, not a place on the same page, not an item for rustdoc.
fn is_relative(target: &str) -> bool {
    !target.is_empty() && !target.starts_with('#') && !target.contains(':')
}

/// The path from the root, or nothing if it leaves the tree. A leading slash means the root, as on the web.
fn resolve(from: &str, target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next()?;
    let mut parts: Vec<&str> = if path.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_in(path: &str, text: &str) -> usize {
        links_resolve(&Tree::of(&[(path, text), ("LICENSE-MIT", ""), ("docs/guide.md", "")])).len()
    }

    #[test]
    fn links_to_missing_files_are_found() {
        for text in [
            "[a](gone.md)",
            "[a](gone.md#part)",
            "[a](gone.md \"title\")",
            "![a](docs/gone.png)",
            "[a]: gone.md",
            "[a](../LICENSE-MIT)",
            "text\n```\ncode\n```\n[a](gone.md)",
        ] {
            assert_eq!(broken_in("README.md", text), 1, "{text}");
        }
        assert_eq!(broken_in("README.md", "[a](gone.md) and [b](lost.md)"), 2);
    }

    #[test]
    fn links_to_files_and_folders_resolve() {
        for text in
            ["[a](LICENSE-MIT)", "[a](docs)", "[a](./docs/guide.md#part)", "[a](<LICENSE-MIT>)", "[a]: docs/"]
        {
            assert_eq!(broken_in("README.md", text), 0, "{text}");
        }
        for text in ["[a](../LICENSE-MIT)", "[a](guide.md)", "[a](/LICENSE-MIT)"] {
            assert_eq!(broken_in("docs/start.md", text), 0, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_relative_link_is_left_alone() {
        for text in [
            "[a](https://example.org/gone.md)",
            "[a](mailto:a@example.org)",
            "[a](#part)",
            "[a](crate::Relay)",
            "`[a](gone.md)`",
            "```\n[a](gone.md)\n```",
            "[^1]: prose",
        ] {
            assert_eq!(broken_in("README.md", text), 0, "{text}");
        }
    }
}
