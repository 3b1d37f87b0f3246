//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::e2e::Wire;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Everything about the store.
    Store(Arguments),
    /// Everything about the work queue.
    Queue(Arguments),
    /// What operators wait for.
    Ops(Arguments),
    /// What a backup costs everybody else.
    Backup(Arguments),
    /// Everything between two processes.
    E2e(Arguments),
    /// Backlogs, the living load and the trickle of this program against those of another build of it.
    Compare(PathBuf, Arguments),
    /// One of the processes of `e2e`; run by the benchmark itself.
    Part(Part),
    /// Prints how many transactions a database has seen; run by the benchmark itself, see [`crate::syncs`].
    Commits(PathBuf),
    /// Enqueues for a while in a folder and prints how much; run by the benchmark itself under strace.
    EnqueueOnce(PathBuf, Duration),
}

/// What a process of `e2e` does, and in which folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Receiver(PathBuf),
    /// Sends to the address.
    Sender(PathBuf, SocketAddr),
    NaiveReceiver(Wire, PathBuf),
    /// Sends to the address.
    NaiveSender(Wire, PathBuf, SocketAddr),
}

/// A part of `e2e` that can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measurement {
    Drain,
    Live,
    LowRate,
    History,
}

impl Measurement {
    fn named(name: &str) -> Option<Self> {
        match name {
            "drain" => Some(Self::Drain),
            "live" => Some(Self::Live),
            "low-rate" => Some(Self::LowRate),
            "history" => Some(Self::History),
            _ => None,
        }
    }
}

/// Options of `store` and `e2e`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    pub(crate) count_syncs: bool,
    /// What `e2e` and `compare` measure; everything if `None`.
    pub(crate) only: Option<Measurement>,
    /// How long the history of `ops` is.
    pub(crate) messages: Option<u64>,
    pub(crate) dir: Option<PathBuf>,
}

impl Arguments {
    /// Whether this is to be measured.
    pub(crate) fn wants(&self, measurement: Measurement) -> bool {
        self.only.is_none_or(|only| only == measurement)
    }
}

/// `None`: not understood.
pub(crate) fn parse(arguments: &[String]) -> Option<Command> {
    let (command, rest) = arguments.split_first()?;
    match (command.as_str(), rest) {
        ("store", options) => parse_options(options).map(Command::Store),
        ("queue", options) => parse_options(options).map(Command::Queue),
        ("ops", options) => parse_options(options).map(Command::Ops),
        ("backup", options) => parse_options(options).map(Command::Backup),
        ("e2e", options) => parse_options(options).map(Command::E2e),
        ("compare", [other, options @ ..]) => {
            let comparable = |arguments: &Arguments| arguments.only != Some(Measurement::History);
            Some(Command::Compare(other.into(), parse_options(options).filter(comparable)?))
        }
        ("part", words) => parse_part(words).map(Command::Part),
        ("commits", [path]) => Some(Command::Commits(path.into())),
        ("enqueue-once", [dir, millis]) => {
            Some(Command::EnqueueOnce(dir.into(), Duration::from_millis(millis.parse().ok()?)))
        }
        _ => None,
    }
}

fn parse_part(words: &[String]) -> Option<Part> {
    let (part, rest) = words.split_first()?;
    match (part.as_str(), rest) {
        ("receiver", [dir]) => Some(Part::Receiver(dir.into())),
        ("sender", [dir, address]) => Some(Part::Sender(dir.into(), address.parse().ok()?)),
        ("naive-receiver", [wire, dir]) => Some(Part::NaiveReceiver(Wire::named(wire)?, dir.into())),
        ("naive-sender", [wire, dir, address]) => {
            Some(Part::NaiveSender(Wire::named(wire)?, dir.into(), address.parse().ok()?))
        }
        _ => None,
    }
}

fn parse_options(options: &[String]) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--json" => arguments.json = true,
            "--quick" => arguments.quick = true,
            "--count-syncs" => arguments.count_syncs = true,
            "--only" => arguments.only = Some(Measurement::named(options.next()?)?),
            "--messages" => arguments.messages = Some(options.next()?.parse().ok()?),
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
        let arguments = Arguments { json: true, quick: true, dir, ..Arguments::default() };
        assert_eq!(parsed("store --quick --dir /x --json"), Some(Command::Store(arguments)));
    }

    #[test]
    fn a_part_can_be_measured_by_itself() {
        let only_live = Arguments { only: Some(Measurement::Live), ..Arguments::default() };
        assert!(only_live.wants(Measurement::Live) && !only_live.wants(Measurement::Drain));
        assert!(Arguments::default().wants(Measurement::Drain));
        assert_eq!(parsed("e2e --only live"), Some(Command::E2e(only_live)));
        assert_eq!(parsed("e2e --only speed"), None);
    }

    #[test]
    fn another_build_is_named_first() {
        let arguments = Arguments { quick: true, ..Arguments::default() };
        assert_eq!(parsed("compare ./old --quick"), Some(Command::Compare("./old".into(), arguments)));
        assert_eq!(parsed("compare"), None);
        assert!(parsed("compare ./old --only low-rate").is_some());
        assert_eq!(parsed("compare ./old --only history"), None);
    }

    #[test]
    fn parts_have_a_folder_and_senders_an_address() {
        let sender = Part::Sender("/x".into(), ([127, 0, 0, 1], 9).into());
        assert_eq!(parsed("part sender /x 127.0.0.1:9"), Some(Command::Part(sender)));
        assert_eq!(parsed("part receiver /x"), Some(Command::Part(Part::Receiver("/x".into()))));
    }

    #[test]
    fn misspelt_and_missing_arguments_are_refused() {
        for line in
            ["", "stor", "store --fast", "e2e --dir", "commits", "enqueue-once x y", "part sender /x y"]
        {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
