//! The audit trail: what operators did.

use std::str::FromStr;

use crate::{Error, Result, Timestamp};

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuditOutcome {
    /// It was begun. A row that still says so is of a process that ended before the action did, or runs now.
    Begun,
    /// It was done.
    Done,
    /// It was not allowed, or made no sense.
    Refused,
    /// It failed.
    Failed,
}

impl AuditOutcome {
    /// The name in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl FromStr for AuditOutcome {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Begun, Self::Done, Self::Refused, Self::Failed]
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is not the outcome of an action")))
    }
}

/// An action of an operator, as it is written down. Holds names and numbers, never a payload or a secret (S17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who: a name of a token or of a user, never the token itself.
    pub actor: String,
    /// What was done, for example `outbox.replay`.
    pub action: String,
    /// To what, for example a message id or `orders/billing`.
    pub subject: String,
    /// Its parameters: a JSON object.
    pub detail: serde_json::Value,
}

/// Names an audit row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditId(pub i64);

/// A row of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The row.
    pub id: AuditId,
    /// When it was begun.
    pub at: Timestamp,
    /// What was done.
    pub entry: AuditEntry,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// More about the outcome: a JSON object, for example how many messages were replayed, or the error.
    pub result: Option<serde_json::Value>,
}

/// Which rows of the audit trail are meant. All that is given must match.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only what this actor did.
    pub actor: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only what was done to this subject.
    pub subject: Option<String>,
}
