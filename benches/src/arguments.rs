//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Everything about the store.
    Store(StoreArguments),
    /// Prints how many transactions a database has seen; run by the benchmark itself, see [`crate::syncs`].
    Commits(PathBuf),
    /// Enqueues for a while in a folder and prints how much; run by the benchmark itself under strace.
    EnqueueOnce(PathBuf, Duration),
}

/// Options of `store`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreArguments {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    pub(crate) count_syncs: bool,
    pub(crate) dir: Option<PathBuf>,
}

/// `None`: not understood.
pub(crate) fn parse(arguments: &[String]) -> Option<Command> {
    let (command, rest) = arguments.split_first()?;
    match (command.as_str(), rest) {
        ("store", options) => parse_store(options).map(Command::Store),
        ("commits", [path]) => Some(Command::Commits(path.into())),
        ("enqueue-once", [dir, millis]) => {
            Some(Command::EnqueueOnce(dir.into(), Duration::from_millis(millis.parse().ok()?)))
        }
        _ => None,
    }
}

fn parse_store(options: &[String]) -> Option<StoreArguments> {
    let mut arguments = StoreArguments::default();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--json" => arguments.json = true,
            "--quick" => arguments.quick = true,
            "--count-syncs" => arguments.count_syncs = true,
            "--dir" => arguments.dir = Some(options.next()?.into()),
            _ => return None,
        }
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Command> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        let dir = Some("/x".into());
        let arguments = StoreArguments { json: true, quick: true, dir, ..StoreArguments::default() };
        assert_eq!(parsed("store --quick --dir /x --json"), Some(Command::Store(arguments)));
    }

    #[test]
    fn misspelt_and_missing_arguments_are_refused() {
        for line in ["", "stor", "store --fast", "store --dir", "commits", "enqueue-once x y"] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
