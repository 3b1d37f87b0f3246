//! House rules and chores of the workspace, in Rust so that they run wherever the workspace builds.
//!
//! `cargo xtask` alone prints what there is.

mod cargo;
mod check;
mod console;
mod diff;
mod example;
mod fuzz;
mod metadata;
mod mutants;
mod prove;
mod requirements;
mod schemathesis;
mod test;
mod tidy;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Chores end in a sentence for a person; nobody acts on the kind of failure.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
Chores of the Twobox workspace.

Usage: cargo xtask <command>

Commands:
  test [--offline] [-- ARGS]
                  all tests, doctests included, then every example against its expected.txt, then schemathesis, which is
                  installed from the Python package index unless it is there: --offline leaves it out;
                  ARGS go to the test binaries, for instance a part of a test's name, and leave it out too
  check           format, lints, docs, each feature alone, and tidy
  fuzz [--seconds N] [--target NAME] [--json]
                  fuzzes everything that reads input from outside, guided by coverage; 60 s in all unless told;
                  --target NAME --replay FILE runs one input again
  tidy            the house rules no compiler knows
  prove [--minutes N]
                  every harness for so long (10 minutes unless said otherwise), and a report
  mutants [NAME]  planted bugs, and which harness finds each of them
  openapi         writes docs/openapi.json anew, from the code
  requirements [--brief | --json]
                  every requirement with the tests that name it; fails if one has neither a test nor a reason;
                  --brief shows the counts and what is wrong
  help            this text
";

#[derive(Debug, PartialEq)]
enum Command {
    Help,
    Test(test::Options),
    Check,
    Fuzz(fuzz::Options),
    Tidy,
    Prove(prove::Options),
    Mutants(Vec<String>),
    OpenApi,
    Requirements(requirements::Format),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(command) = parse(&arguments) else {
        eprintln!("unknown command: {}\n\n{USAGE}", arguments.join(" "));
        return ExitCode::from(2);
    };
    match run(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::failure(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<Command> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => Some(Command::Help),
        ["test", ..] => test::Options::parse(&words[1..]).map(Command::Test),
        ["check"] => Some(Command::Check),
        ["fuzz", ..] => fuzz::Options::parse(&words[1..]).map(Command::Fuzz),
        ["tidy"] => Some(Command::Tidy),
        ["prove"] => Some(Command::Prove(prove::Options { minutes: 10.0 })),
        ["prove", "--minutes", minutes] => {
            let minutes = minutes.parse().ok().filter(|minutes: &f64| *minutes > 0.0 && *minutes < 1e5)?;
            Some(Command::Prove(prove::Options { minutes }))
        }
        ["mutants", ..] => Some(Command::Mutants(arguments[1..].to_vec())),
        ["openapi"] => Some(Command::OpenApi),
        ["requirements", ..] => requirements::Format::parse(&words[1..]).map(Command::Requirements),
        _ => None,
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Help => {
            print!("{USAGE}");
            Ok(())
        }
        Command::Test(options) => test::run(root(), options),
        Command::Check => check::run(root()),
        Command::Fuzz(options) => fuzz::run(root(), options),
        Command::Tidy => tidy::run(root()),
        Command::Prove(options) => prove::run(root(), *options),
        Command::Mutants(names) => mutants::run(root(), names),
        Command::OpenApi => schemathesis::rewrite_document(root()),
        Command::Requirements(format) => requirements::run(root(), *format),
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Command> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn no_command_asks_for_help() {
        assert_eq!(parsed(""), Some(Command::Help));
        assert_eq!(parsed("--help"), Some(Command::Help));
    }

    #[test]
    fn arguments_after_the_dashes_belong_to_the_tests() {
        let options = |is_offline, arguments: &[&str]| {
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            Some(Command::Test(test::Options { is_offline, arguments }))
        };
        assert_eq!(parsed("test -- relay --nocapture"), options(false, &["relay", "--nocapture"]));
        assert_eq!(parsed("test --offline -- relay"), options(true, &["relay"]));
        assert_eq!(parsed("test --offline"), options(true, &[]));
        assert_eq!(parsed("test"), options(false, &[]));
    }

    #[test]
    fn misspelt_commands_and_stray_arguments_are_refused() {
        for line in [
            "tests",
            "test relay",
            "test --offline relay",
            "openapi docs",
            "check --fast",
            "tidy crates",
            "fuzz envelope",
            "prove --minutes",
            "prove --minutes -1",
            "requirements RF-01",
            "requirements --brief --json",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
