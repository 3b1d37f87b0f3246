//! Asking before something is done that cannot be undone.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use clap::Args;

use super::failure::Failure;
use crate::exit::Exit;

/// Whether somebody has agreed already.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Confirm {
    /// Does not ask. Needed where nobody can be asked: without a terminal.
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Confirm {
    /// Asks, unless somebody has agreed already.
    pub(super) fn ask(self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !stdin().is_terminal() || !stderr().is_terminal() {
            return Err(Failure::new(
                Exit::Refused,
                format!("{question} Nobody can be asked here: say --yes"),
            ));
        }
        eprint!("{question} [y/N] ");
        let mut answer = String::new();
        let read = stderr().flush().and_then(|()| stdin().lock().read_line(&mut answer));
        read.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Failure::new(Exit::Refused, "not confirmed: nothing was done"))
    }
}
