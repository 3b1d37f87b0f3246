//! Errors: one shape for all of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What every refused or failed request is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorAnswer {
    /// What went wrong.
    pub(crate) error: ErrorDetail,
}

/// What went wrong, for a program and for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// Stable: programs may depend on it. docs/ADMIN.md lists all of them.
    pub(crate) code: String,
    /// What went wrong, in words that may change.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: String,
}
