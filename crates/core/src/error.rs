//! The one error type of the workspace's libraries.

use std::error::Error as StdError;
use std::fmt;

/// Any error, as a cause.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// Shorthand for results of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in terms a caller can act on. See [`ErrorKind`].
///
/// The text says what was attempted and on what; it never contains payloads or secrets (S17). The cause, if
/// there is one, is available through [`std::error::Error::source`].
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    text: String,
    source: Option<BoxError>,
}

/// The caller's question an error answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something that can never work; the text names the limit or rule.
    Invalid,
    /// Two settings contradict each other; the text names both and the remedy.
    Misconfigured,
    /// Not possible right now; the same call may succeed later.
    Unavailable,
    /// The disk has no room, or takes nothing for another reason. The same call succeeds once it does; nobody has to
    /// restart anything.
    Full,
    /// Another connection held the database lock for longer than the time-out.
    Busy,
    /// The lane or row now belongs to somebody else; in-memory state about it must be thrown away.
    LeaseLost,
    /// A commit failed in a way that leaves open whether it happened. Repeat with the same key or id.
    CommitUnknown,
    /// The database cannot be written.
    ReadOnly,
    /// The database is damaged. Nothing was recreated or repaired.
    Corrupt,
    /// The store stopped for safety and will not acknowledge anything until it is opened again.
    Stopped,
    /// The store was called from inside its own transaction, which would deadlock.
    Reentrant,
    /// A statement failed earlier in this transaction, so the transaction cannot commit.
    TransactionFailed,
    /// A statement failed: a constraint, a missing table, a syntax error.
    Statement,
    /// The schema is missing, older or newer than this library expects.
    Schema,
    /// A row or an envelope cannot be decoded.
    Undecodable,
}

impl Error {
    /// Creates an error of `kind` with a text that says what was attempted.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, text: text.into(), source: None }))
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What the caller can act on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without anyone changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Busy | ErrorKind::CommitUnknown
        )
    }

    /// The text with all causes, for a place that stores only text. See [`one_line`] for the log.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// The text of an error with all its causes, cut to what is kept and free of anything that could forge a line: for the
/// log, whose words may come from far away.
#[must_use]
pub fn one_line(error: &dyn StdError) -> String {
    crate::handler::shorten(&chain(error))
}

/// The text of an error with all its causes, in the order of cause.
#[must_use]
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("text", &self.0.text)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_names_every_cause_once() {
        let error = Error::new(ErrorKind::Unavailable, "cannot open shop.db")
            .with_source(std::io::Error::other("no such device"));
        assert_eq!(error.chain(), "cannot open shop.db: no such device");
        assert_eq!(error.to_string(), "cannot open shop.db");
        assert!(error.is_transient());
    }
}
