//! The audit trail: every action leaves a row, before it begins and after it has ended.

use std::future::Future;

use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::{AuditEntry, AuditFilter, AuditOutcome};

use super::extract::{Query, limit, token};
use super::guard::Actor;
use super::refusal::Refusal;
use super::{Admin, Answer, Shared};
use crate::api::{AuditQuery, AuditRow, Page};

/// What is to be done, for the trail.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    pub(super) action: &'static str,
    pub(super) subject: String,
    pub(super) detail: Value,
}

impl Admin {
    /// Does something and leaves a row about it. Nothing is done if the row cannot be written.
    pub(super) async fn audited<T: Serialize>(
        &self,
        actor: &Actor,
        deed: Deed,
        doing: impl Future<Output = Result<T, Refusal>>,
    ) -> Answer<T> {
        let Deed { action, subject, detail } = deed;
        let entry = AuditEntry { actor: actor.0.to_string(), action: action.into(), subject, detail };
        let judge = |done: &Result<T, Refusal>| match done {
            Ok(value) => (AuditOutcome::Done, serde_json::to_value(value).unwrap_or_default()),
            Err(refusal) => {
                let is_refused = refusal.code.status().is_client_error();
                let outcome = if is_refused { AuditOutcome::Refused } else { AuditOutcome::Failed };
                (outcome, json!({ "code": refusal.code.as_str() }))
            }
        };
        twobox::audited_with(&self.node.db, &entry, doing, judge).await.map(axum::Json)
    }
}

/// What operators did, newest first.
#[utoipa::path(get, path = "/_rf/audit", tag = "node", params(AuditQuery),
    responses((status = 200, body = Page<AuditRow>), (status = 422)))]
pub(super) async fn audit_list(
    State(admin): State<Shared>,
    Query(query): Query<AuditQuery>,
) -> Answer<Page<AuditRow>> {
    let AuditQuery { actor, action, subject, limit: asked, next } = query;
    let filter = AuditFilter { actor, action, subject };
    let page = admin.node.db.audit_list(&filter, token(next).as_ref(), limit(asked)?).await?;
    Ok(axum::Json(page.into()))
}
