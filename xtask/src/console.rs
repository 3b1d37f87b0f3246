//! What a person sees: headings and failures on standard error, findings on standard output.

use std::io::IsTerminal;

use crate::Result;

const BOLD: &str = "1";
const RED: &str = "1;31";

/// Announces a section.
pub(crate) fn heading(text: &str) {
    eprintln!("\n{}", painted(BOLD, &format!("== {text}")));
}

/// Says what went wrong.
pub(crate) fn failure(text: &str) {
    eprintln!("{}", painted(RED, &format!("failed: {text}")));
}

fn painted(style: &str, text: &str) -> String {
    if std::io::stderr().is_terminal() { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Runs steps one after another and remembers which failed, so that a single run shows every problem.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    failed: Vec<String>,
}

impl Steps {
    /// Runs one step under its own heading.
    pub(crate) fn run(&mut self, title: &str, step: impl FnOnce() -> Result<()>) {
        heading(title);
        if let Err(error) = step() {
            failure(&error.to_string());
            self.failed.push(title.to_owned());
        }
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If any step failed; the text names each of them.
    pub(crate) fn finish(self) -> Result<()> {
        heading("result");
        if self.failed.is_empty() {
            eprintln!("everything passed");
            return Ok(());
        }
        Err(self.failed.join(", ").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_run_and_does_not_stop_it() {
        let mut steps = Steps::default();
        let mut later = false;
        steps.run("first", || Err("broken".into()));
        steps.run("second", || {
            later = true;
            Ok(())
        });
        assert!(later);
        assert_eq!(steps.finish().unwrap_err().to_string(), "first");
    }

    #[test]
    fn a_run_without_failures_passes() {
        let mut steps = Steps::default();
        steps.run("only", || Ok(()));
        steps.finish().unwrap();
    }
}
