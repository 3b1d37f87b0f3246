//! How the program ends: one number, one meaning, whatever the command.

use std::process::ExitCode;

/// What scripts can tell the end of a command by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done as asked.
    Done,
    /// It failed; trying again may help.
    Failed,
    /// The command line or the configuration cannot be used; nothing was done.
    Misconfigured,
    /// Stopped before everything was finished; nothing is lost.
    Unfinished,
    /// There is no such thing, or nothing matches.
    NotFound,
    /// Not confirmed, not allowed, or not in a state in which it can be done.
    Refused,
    /// Something needs somebody: `status`, `verify` or `restore` has found it.
    Unsound,
}

/// Shown below the help of the program.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  failed; trying again may help
  2  the command line or the configuration cannot be used; nothing was done
  3  stopped before everything was finished; nothing is lost
  4  there is no such thing, or nothing matches
  5  refused: not confirmed, not allowed, or not in a state in which it can be done
  6  something needs somebody: found by status, verify or restore";

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Misconfigured => 2,
            Self::Unfinished => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::Unsound => 6,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_every_exit_code_is_documented_once() {
        let page = include_str!("../../../docs/CLI.md");
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Misconfigured,
            Exit::Unfinished,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unsound,
        ];
        for (code, exit) in (0..).zip(all) {
            assert_eq!(exit.code(), code);
            assert_eq!(page.matches(&format!("\n| {code} | ")).count(), 1, "{exit:?}");
            assert_eq!(HELP.matches(&format!("\n  {code}  ")).count(), 1, "{exit:?}");
        }
    }
}
