//! The files the rules look at, in memory, so that a test can make up a tree.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Every file that is or could be committed.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// One file; its path is relative to the root, with forward slashes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    /// Empty for a file that is not text.
    pub(crate) text: String,
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl Tree {
    /// Reads the files git tracks or would add.
    ///
    /// # Errors
    /// If git cannot list them, or one cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for path in list(root)? {
            files.extend(read(root, path)?);
        }
        Ok(Self { files })
    }

    /// A made-up tree.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Self { files: files.iter().map(file).collect() }
    }

    /// The files whose name ends in one of these.
    pub(crate) fn ending(&self, ends: &[&str]) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| ends.iter().any(|end| file.path.ends_with(end)))
    }

    /// Whether a path is a file, or a folder with a file in it.
    pub(crate) fn contains(&self, path: &str) -> bool {
        path.is_empty()
            || self.files.iter().any(|file| {
                file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

impl File {
    /// Lines with their numbers, as editors count them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The functions that begin in this file, each with its line.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter_map(|(number, line)| Some((number, function(line)?)))
    }

    /// A finding in this file.
    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// The name of the function that begins on this line of Rust.
pub(crate) fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let qualifies = |word: &str| matches!(word, "async" | "const" | "unsafe") || word.starts_with("pub");
    let name = &rest[..rest.find(['(', '<'])?];
    before.split_whitespace().all(qualifies).then_some(name)
}

fn list(root: &Path) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.current_dir(root).args(["ls-files", "-co", "--exclude-standard", "-z"]);
    let output = command.output().map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let names = String::from_utf8(output.stdout)?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// Git still lists a file that was deleted but not yet committed as such; it has nothing to inspect.
fn read(root: &Path, path: String) -> Result<Option<File>> {
    match std::fs::read(root.join(&path)) {
        Ok(bytes) => Ok(Some(File { path, text: String::from_utf8(bytes).unwrap_or_default() })),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => Ok(None),
        Err(error) => Err(format!("cannot read {path}: {error}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_folders_are_contained() {
        let tree = Tree::of(&[("docs/guide/start.md", "")]);
        for path in ["", "docs", "docs/guide", "docs/guide/start.md"] {
            assert!(tree.contains(path), "{path:?}");
        }
        for path in ["doc", "docs/guide/start", "start.md"] {
            assert!(!tree.contains(path), "{path:?}");
        }
    }

    #[test]
    fn a_deleted_file_is_left_out() {
        assert!(read(crate::root(), "no/such/file".into()).unwrap().is_none());
    }

    #[test]
    fn functions_are_found_where_they_begin() {
        for line in ["fn a() {", "    pub(crate) async fn a<F: B>() {", "const fn a("] {
            assert_eq!(function(line), Some("a"), "{line}");
        }
        for line in ["// fn a() {", "let text = \"fn a() {}\";", "type A = fn (u8);", "impl Fn for A {"] {
            assert_eq!(function(line), None, "{line}");
        }
        let tree = Tree::of(&[("a.rs", "\nfn a() {\n}\n")]);
        assert_eq!(tree.files[0].functions().collect::<Vec<_>>(), [(2, "a")]);
    }

    #[test]
    fn findings_can_be_opened_from_the_terminal() {
        let finding = Finding { path: "a/b.rs".into(), line: 7, message: "too long".into() };
        assert_eq!(finding.to_string(), "a/b.rs:7: too long");
    }
}
