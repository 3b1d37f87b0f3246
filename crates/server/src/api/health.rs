//! How the node is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer to whoever only asks whether anybody is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Alive {
    /// Always `ok`.
    pub(crate) status: String,
}

/// How the node is, as a whole.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Health {
    /// Whether anything needs somebody.
    pub(crate) status: HealthStatus,
    /// The node's name.
    pub(crate) source: String,
    /// Version of the program.
    pub(crate) version: String,
    /// What needs somebody. Empty if nothing does.
    pub(crate) problems: Vec<Problem>,
}

/// Whether anything needs somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HealthStatus {
    /// Nothing.
    Healthy,
    /// It works, but something needs somebody: see the problems.
    Degraded,
}

/// Something that needs somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// Stable: `lane_held`, `lane_paused`, `outbox_dead_letters`, `inbox_dead_letters`.
    pub(crate) code: String,
    /// What it is, in words that may change.
    pub(crate) message: String,
}
