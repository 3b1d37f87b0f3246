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
    let judge = |done: &Result<T>| match done {
        Ok(value) => (AuditOutcome::Done, tell(value)),
        Err(error) => (outcome_of(error), json!({ "error": error.chain() })),
    };
    audited_with(store, entry, action, judge).await
}

/// As [`audited`], for actions with errors of their own: `judge` says what became of it, and what is worth keeping of
/// that.
///
/// # Errors
/// As [`audited`].
///
/// # Cancel safety
/// As [`audited`].
pub async fn audited_with<S: OpsStore, T, E: From<Error>>(
    store: &S,
    entry: &AuditEntry,
    action: impl Future<Output = Result<T, E>>,
    judge: impl FnOnce(&Result<T, E>) -> (AuditOutcome, Value),
) -> Result<T, E> {
    let id = store.begin_audit(entry).await?;
    let done = action.await;
    let (outcome, result) = judge(&done);
    if let Err(error) = store.end_audit(id, outcome, Some(&result)).await {
        let (action, subject) = (&entry.action, &entry.subject);
        tracing::warn!(
            action,
            subject,
            error = twobox_core::one_line(&error),
            "cannot write down what became of an action"
        );
    }
    done
}

fn outcome_of(error: &Error) -> AuditOutcome {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Misconfigured => AuditOutcome::Refused,
        _ => AuditOutcome::Failed,
    }
}
