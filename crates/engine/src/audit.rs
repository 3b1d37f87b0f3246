//! What operators do leaves a trail: a row before it is done, with what became of it afterwards.

use std::future::Future;

use serde_json::{Value, json};
use twobox_core::ports::OpsStore;
use twobox_core::ports::ops::{AuditEntry, AuditOutcome};
use twobox_core::{Error, ErrorKind, Result};

/// Does what an operator asked for, and writes it down. `tell` says what is worth keeping of the result: a JSON object of
/// names and numbers, never a payload or a secret (S17).
///
/// The row is durable before the action begins, so that nothing happens that is not written down. If the process ends in
/// between, the row says *begun*.
///
/// # Errors
/// That of the trail, and then nothing was done; otherwise the action's own.
///
/// # Cancel safety
/// Dropping the future may leave the action undone, done or half done, as the action itself has it; its row says *begun*.
pub async fn audited<S: OpsStore, T>(
    store: &S,
    entry: &AuditEntry,
    action: impl Future<Output = Result<T>>,
    tell: impl FnOnce(&T) -> Value,
) -> Result<T> {
    let id = store.begin_audit(entry).await?;
    let done = action.await;
    let (outcome, result) = match &done {
        Ok(value) => (AuditOutcome::Done, tell(value)),
        Err(error) => (outcome_of(error), json!({ "error": error.chain() })),
    };
    if let Err(error) = store.end_audit(id, outcome, Some(&result)).await {
        let (action, subject) = (&entry.action, &entry.subject);
        tracing::warn!(action, subject, error = %error.chain(), "cannot write down what became of an action");
    }
    done
}

fn outcome_of(error: &Error) -> AuditOutcome {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Misconfigured => AuditOutcome::Refused,
        _ => AuditOutcome::Failed,
    }
}
