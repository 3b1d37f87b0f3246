//! Why a command did not do what it was asked for.

use std::fmt;
use std::time::Duration;

use twobox_core::{Error, ErrorKind};

use super::text::visible;
use crate::api::ErrorDetail;
use crate::exit::Exit;

/// What went wrong, for a person, and what a script is told.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// How long to wait before asking again, if only that is wrong.
    pub(super) retry_after: Option<Duration>,
    text: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, retry_after: None, text: text.into() }
    }

    /// The command cannot work as it was given.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Misconfigured, text)
    }

    /// What the API answered.
    pub(super) fn answered(status: u16, detail: &ErrorDetail, retry_after: Option<Duration>) -> Self {
        let exit = match status {
            404 => Exit::NotFound,
            401 | 403 | 409 => Exit::Refused,
            400 | 413 | 415 | 422 => Exit::Misconfigured,
            _ => Exit::Failed,
        };
        let retry_after = retry_after.filter(|_| status == 429);
        let text =
            format!("{} ({}): {}", visible(&detail.message), visible(&detail.code), visible(&detail.remedy));
        Self { exit, retry_after, text }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Misconfigured | ErrorKind::Invalid | ErrorKind::Schema => Exit::Misconfigured,
            ErrorKind::Corrupt => Exit::Unsound,
            _ => Exit::Failed,
        };
        Self::new(exit, visible(&error.chain()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}
