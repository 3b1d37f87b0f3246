//! The shape of files and crates.

use super::tree::{File, Finding, Tree};

/// Longer than nearly every file that is a pleasure to read.
const LINES_MAX: usize = 600;

/// A file that no longer fits in a head wants a split by subject.
pub(crate) fn no_long_files(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &File| {
        let lines = file.text.lines().count();
        (lines > LINES_MAX)
            .then(|| file.finding(lines, format!("{lines} lines, at most {LINES_MAX}: split it")))
    };
    tree.ending(&[".rs"]).filter_map(finding).collect()
}

/// The first line of a crate says what it is for.
pub(crate) fn crates_open_with_docs(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &File| {
        (!file.text.starts_with("//!")).then(|| file.finding(1, "a crate opens with its `//!` documentation"))
    };
    tree.files.iter().filter(|file| is_library(&file.path)).filter_map(finding).collect()
}

fn is_library(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>().as_slice(), ["crates", _, "src", "lib.rs"])
}

/// Lints live once, in the manifest of the workspace.
pub(crate) fn crates_share_lints(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &File| {
        (is_member(&file.text) && !shares_lints(&file.text))
            .then(|| file.finding(1, "the manifest lacks `[lints]` with `workspace = true`"))
    };
    tree.files.iter().filter(|file| is_manifest(&file.path)).filter_map(finding).collect()
}

fn is_manifest(path: &str) -> bool {
    path.rsplit('/').next() == Some("Cargo.toml")
}

/// A manifest with a workspace of its own, as fuzzing needs, has no lints to share.
fn is_member(manifest: &str) -> bool {
    section(manifest, "[package]").is_some() && section(manifest, "[workspace]").is_none()
}

fn shares_lints(manifest: &str) -> bool {
    let is_shared = |line: &String| line.starts_with("workspace=true");
    section(manifest, "[lints]").is_some_and(|lines| lines.iter().any(is_shared))
}

/// The lines of a table, without blanks inside them.
fn section(manifest: &str, heading: &str) -> Option<Vec<String>> {
    let mut lines = manifest.lines().map(|line| line.replace(char::is_whitespace, ""));
    lines.find(|line| line == heading)?;
    Some(lines.take_while(|line| !line.starts_with('[')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_six_hundred_lines_and_no_more() {
        let tree = |lines| Tree::of(&[("a.rs", &"x\n".repeat(lines))]);
        assert!(no_long_files(&tree(600)).is_empty());
        assert_eq!(no_long_files(&tree(601)).len(), 1);
    }

    #[test]
    fn a_crate_without_opening_docs_is_found() {
        let found = |path, text| crates_open_with_docs(&Tree::of(&[(path, text)])).len();
        assert_eq!(found("crates/a/src/lib.rs", "use b;\n//! Late.\n"), 1);
        assert_eq!(found("crates/a/src/lib.rs", ""), 1);
        assert_eq!(found("crates/a/src/lib.rs", "//! Early.\n"), 0);
        assert_eq!(found("crates/a/src/b.rs", "use c;\n"), 0);
    }

    #[test]
    fn a_crate_with_its_own_lints_is_found() {
        let found = |text| crates_share_lints(&Tree::of(&[("crates/a/Cargo.toml", text)])).len();
        assert_eq!(found("[package]\nname = \"a\"\n"), 1);
        assert_eq!(found("[package]\n[lints]\n[dependencies]\nworkspace = true\n"), 1);
        assert_eq!(found("[package]\n[lints.rust]\nunsafe_code = \"allow\"\n"), 1);
        assert_eq!(found("[package]\n[lints]\nworkspace = true\n"), 0);
    }

    #[test]
    fn workspaces_have_no_lints_to_share() {
        let tree =
            Tree::of(&[("Cargo.toml", "[workspace]\n"), ("fuzz/Cargo.toml", "[package]\n[workspace]\n")]);
        assert!(crates_share_lints(&tree).is_empty());
    }
}
