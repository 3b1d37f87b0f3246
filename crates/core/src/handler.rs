//! What handlers say: a response, "try again", or "never".

use std::fmt;
use std::time::Duration;

use crate::Response;

/// What a handler returns: the response to store, or a refusal.
pub type HandlerResult<T = Response> = std::result::Result<T, Refusal>;

/// Why a handler did not handle a message. Said where the knowledge is: in the handler.
///
/// Any error converts into "try again" with `?`; use [`OrRefuse::rejected`] where trying again cannot help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    error: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RefusalKind {
    Retry { after: Option<Duration> },
    Reject,
}

/// Longest error text that is kept: enough for a cause, too short for a dump.
const ERROR_CHARS_MAX: usize = 500;

impl Refusal {
    /// The message may work later.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self { kind: RefusalKind::Retry { after: None }, error: shorten(&error.to_string()) }
    }

    /// The message may work after `delay`. It is tried again no sooner than the retry policy has it, so that asking for
    /// little does not use its attempts up, and no later than the policy's longest delay, so that nobody parks it for
    /// good.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self { kind: RefusalKind::Retry { after: Some(delay) }, error: shorten(&error.to_string()) }
    }

    /// The message can never work: its sender keeps it as a dead letter.
    pub fn reject(error: impl fmt::Display) -> Self {
        Self { kind: RefusalKind::Reject, error: shorten(&error.to_string()) }
    }

    /// Whether trying again cannot help.
    #[must_use]
    pub fn is_reject(&self) -> bool {
        self.kind == RefusalKind::Reject
    }

    /// The delay asked for.
    #[must_use]
    pub fn after(&self) -> Option<Duration> {
        match self.kind {
            RefusalKind::Retry { after } => after,
            RefusalKind::Reject => None,
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.error
    }
}

/// Cuts an error text to what is kept, with everything replaced that is not seen but acts: control characters, line
/// separators and changes of direction, so that it stays one line and reads as what it is.
#[must_use]
pub fn shorten(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

/// Whether a character is not seen but acts: on a terminal, or on how the rest of a line reads.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    let separates = ('\u{2028}'..='\u{2029}').contains(&c);
    let turns =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || separates || turns
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::retry(crate::chain(&error))
    }
}

/// Turns any `Result` into a handler's verdict.
pub trait OrRefuse<T> {
    /// An error means "try again later".
    ///
    /// # Errors
    /// The refusal.
    fn retryable(self) -> HandlerResult<T>;

    /// An error means "this can never work".
    ///
    /// # Errors
    /// The refusal.
    fn rejected(self) -> HandlerResult<T>;
}

impl<T, E: fmt::Display> OrRefuse<T> for Result<T, E> {
    fn retryable(self) -> HandlerResult<T> {
        self.map_err(Refusal::retry)
    }

    fn rejected(self) -> HandlerResult<T> {
        self.map_err(Refusal::reject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_means_retry_and_rejected_means_never() {
        fn parse(text: &str) -> HandlerResult<i32> {
            text.parse::<i32>().rejected()
        }
        fn read() -> HandlerResult<String> {
            Ok(std::fs::read_to_string("/nonexistent/file")?)
        }
        assert!(parse("x").unwrap_err().is_reject());
        assert!(!read().unwrap_err().is_reject());
    }

    #[test]
    fn error_texts_stay_short_and_on_one_line() {
        let refusal = Refusal::reject("x\n".repeat(1_000));
        assert_eq!(refusal.error().chars().count(), ERROR_CHARS_MAX);
        assert!(!refusal.error().contains('\n'));
    }

    #[test]
    fn s17_error_texts_cannot_forge_a_line() {
        let forged = "no\r\n2026 INFO all is well\u{1b}[2K\u{85}a\u{2028}b\u{202e}c\u{2066}d\u{7f}";
        let text = shorten(forged);
        assert!(text.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{text:?}");
        assert!(text.contains("all is well"), "what can be read is kept: {text}");
    }
}
