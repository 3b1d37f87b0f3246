//! From flags, environment and file to one configuration that knows where each of its values comes from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::keys::{Config, Entry, entries};
use super::lines::Lines;
use super::nearest::nearest;
use super::section::Given;
use super::value::Problem;

/// The file that is read if none is named and it exists.
const FILE: &str = "twobox.toml";
/// The variable that names the file.
pub(crate) const FILE_VARIABLE: &str = "TWOBOX_CONFIG";
/// The variable with the token for a running node.
pub(crate) const TOKEN_VARIABLE: &str = "TWOBOX_ADMIN_TOKEN";
/// Variables of this program that are no settings: for its commands, for tests and for the demonstration.
const OTHERS: [&str; 7] = [
    FILE_VARIABLE,
    TOKEN_VARIABLE,
    "TWOBOX_CRASH_POINT",
    "TWOBOX_DEMO_SECRET",
    "TWOBOX_MUTANT",
    "TWOBOX_SCHEDULE",
    "TWOBOX_SEED",
];

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    #[default]
    Default,
    File {
        name: String,
        line: usize,
    },
    Variable(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A mistake in the configuration: where, what, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) origin: Origin,
    /// The setting; empty if there is none to blame.
    pub(crate) key: String,
    pub(crate) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.key.as_str()) {
            (Origin::Default, "") => f.write_str(&self.text),
            (Origin::Default, key) => write!(f, "{key}: {}", self.text),
            (origin, "") => write!(f, "{origin}: {}", self.text),
            (origin, key) => write!(f, "{origin}: {key}: {}", self.text),
        }
    }
}

/// What was found outside of the program.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// The file, if one is named.
    pub(crate) file: Option<PathBuf>,
    /// All environment variables.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Flags: the flag, the path of its setting, its value.
    pub(crate) flags: Vec<(String, String, String)>,
}

/// A configuration, and where its values come from.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    origins: BTreeMap<String, Origin>,
    lines: Lines,
}

impl Loaded {
    /// Where the value of a setting, or of something below it, comes from.
    pub(crate) fn origin(&self, path: &str) -> Origin {
        let mut key = path;
        loop {
            match self.origins.get(key) {
                Some(Origin::File { name, .. }) => {
                    return Origin::File { name: name.clone(), line: self.lines.of(path) };
                }
                Some(origin) => return origin.clone(),
                None => match key.rsplit_once('.') {
                    Some((parent, _)) => key = parent,
                    None => return Origin::Default,
                },
            }
        }
    }

    /// A mistake in a setting, or below it.
    pub(crate) fn fault(&self, path: &str, text: impl Into<String>) -> Fault {
        Fault { origin: self.origin(path), key: path.into(), text: text.into() }
    }

    /// Reads everything there is; all mistakes are found, not only the first.
    pub(crate) fn load(given: &Outside) -> Result<Self, Vec<Fault>> {
        let mut loading = Loading { loaded: Self::default(), entries: entries(), faults: Vec::new() };
        let implicit = Path::new(FILE);
        match &given.file {
            Some(path) => loading.file(path),
            None if implicit.exists() => loading.file(implicit),
            None => {}
        }
        let unknown = loading.environment(&given.environment);
        loading.flags(&given.flags);
        // Only now: a flag may name the variable of a secret.
        loading.refuse_unknown(unknown);
        if loading.faults.is_empty() { Ok(loading.loaded) } else { Err(loading.faults) }
    }
}

struct Loading {
    loaded: Loaded,
    entries: Vec<Entry>,
    faults: Vec<Fault>,
}

impl Loading {
    fn file(&mut self, path: &Path) {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("cannot read {name}: {error}");
                self.faults.push(Fault { origin: Origin::Default, key: String::new(), text });
                return;
            }
        };
        match text.parse::<Table>() {
            Ok(table) => {
                self.loaded.lines = Lines::of_text(&text);
                self.tables(&name, &table);
            }
            Err(error) => {
                let line = error.span().map_or(1, |span| Lines::count(&text, span.start));
                let text = format!("not TOML: {}", error.message().lines().next().unwrap_or_default());
                self.faults.push(Fault { origin: Origin::File { name, line }, key: String::new(), text });
            }
        }
    }

    fn tables(&mut self, file: &str, tables: &Table) {
        for (table, value) in tables {
            if self.entries.iter().any(|entry| entry.path == *table) {
                self.set(table, &Given::Value(value), &Origin::File { name: file.into(), line: 0 });
                continue;
            }
            let known: Vec<String> = self.entries.iter().map(|entry| entry.place().0.to_owned()).collect();
            match value {
                Value::Table(keys) if known.contains(table) => {
                    for (key, value) in keys {
                        let origin = Origin::File { name: file.into(), line: 0 };
                        self.set(&format!("{table}.{key}"), &Given::Value(value), &origin);
                    }
                }
                Value::Table(_) => {
                    let text = format!("unknown table{}", nearest(table, known.iter().map(String::as_str)));
                    self.blame(file, table, text);
                }
                _ => {
                    let paths: Vec<&str> = self.entries.iter().map(|entry| &*entry.path).collect();
                    let ends = paths.iter().find(|path| path.ends_with(&format!(".{table}")));
                    let remedy = ends.map_or_else(
                        || nearest(table, paths.iter().copied()),
                        |path| format!(": did you mean {path}?"),
                    );
                    self.blame(file, table, format!("unknown key{remedy}"));
                }
            }
        }
    }

    fn blame(&mut self, file: &str, path: &str, text: String) {
        let origin = Origin::File { name: file.into(), line: self.loaded.lines.of(path) };
        self.faults.push(Fault { origin, key: path.into(), text });
    }

    /// Takes over what is there; returns the variables that are no settings.
    fn environment<'v>(&mut self, variables: &'v [(OsString, OsString)]) -> Vec<&'v str> {
        let mut variables: Vec<_> = variables.iter().collect();
        variables.sort();
        let mut unknown = Vec::new();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("TWOBOX_")) else { continue };
            let known = self.entries.iter().find(|entry| entry.variable() == name);
            match (known.map(|entry| entry.path.clone()), value.to_str()) {
                (Some(path), Some(value)) => {
                    self.set(&path, &Given::Text(value), &Origin::Variable(name.into()));
                }
                (Some(path), None) => {
                    let (origin, text) = (Origin::Variable(name.into()), "is not UTF-8".into());
                    self.faults.push(Fault { origin, key: path, text });
                }
                (None, _) => unknown.push(name),
            }
        }
        unknown
    }

    fn refuse_unknown(&mut self, mut unknown: Vec<&str>) {
        let secrets = self.loaded.config.secret_variables();
        unknown.retain(|name| !OTHERS.contains(name) && !secrets.contains(name));
        let known: Vec<String> = self.entries.iter().map(Entry::variable).collect();
        for name in unknown {
            let text = format!("unknown variable{}", nearest(name, known.iter().map(String::as_str)));
            let origin = Origin::Variable(name.into());
            self.faults.push(Fault { origin, key: String::new(), text });
        }
    }

    fn flags(&mut self, flags: &[(String, String, String)]) {
        for (flag, path, value) in flags {
            self.set(path, &Given::Text(value), &Origin::Flag(flag.clone()));
        }
    }

    fn set(&mut self, path: &str, given: &Given<'_>, origin: &Origin) {
        let set = match self.entries.iter().find(|entry| entry.path == path) {
            Some(entry) => entry.set(&mut self.loaded.config, given),
            None => {
                let known = self.entries.iter().map(|entry| &*entry.path);
                Err(Problem::new(format!("unknown key{}", nearest(path, known))))
            }
        };
        self.loaded.origins.insert(path.into(), origin.clone());
        if let Err(problem) = set {
            let path = [&[path.to_owned()], &problem.below[..]].concat().join(".");
            self.faults.push(self.loaded.fault(&path, problem.text));
        }
    }
}
