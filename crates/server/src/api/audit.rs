//! What operators did.

use serde::{Deserialize, Serialize};
use twobox_core::ports::ops::AuditRecord;
use utoipa::{IntoParams, ToSchema};

use super::time;

/// Which rows of the audit trail are wanted, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only what this actor did: the name of a token.
    pub(crate) actor: Option<String>,
    /// Only this action, for instance `outbox.replay`.
    pub(crate) action: Option<String>,
    /// Only what was done to this subject.
    pub(crate) subject: Option<String>,
    /// Most items of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<usize>,
    /// `next` of the page before.
    pub(crate) next: Option<String>,
}

/// Something an operator did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditRow {
    /// When it was begun.
    #[schema(format = DateTime)]
    pub(crate) at: String,
    /// Who: the name of a token.
    pub(crate) actor: String,
    /// What was done.
    pub(crate) action: String,
    /// To what.
    pub(crate) subject: String,
    /// With which parameters.
    pub(crate) detail: serde_json::Value,
    /// `begun`, `done`, `refused` or `failed`. One that stays `begun` was cut off by the end of the process.
    pub(crate) outcome: String,
    /// What it came to.
    pub(crate) result: Option<serde_json::Value>,
}

impl From<AuditRecord> for AuditRow {
    fn from(record: AuditRecord) -> Self {
        Self {
            at: time(record.at),
            actor: record.entry.actor,
            action: record.entry.action,
            subject: record.entry.subject,
            detail: record.entry.detail,
            outcome: record.outcome.as_str().into(),
            result: record.result,
        }
    }
}
