//! The outbox: in numbers, in lists, one message at a time.

use axum::Json;
use axum::extract::State;
use serde_json::json;
use twobox::ports::{DeadLetterFilter, DeadLetterStore as _, Replay};
use twobox_core::MessageId;
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::{self, EXAMINED_MAX, SAME_ID_MAX};

use super::audit::Deed;
use super::extract::{self, Path, Query, limit, parsed, required, time, token};
use super::guard::Actor;
use super::refusal::{Code, Refusal};
use super::{Admin, Answer, Shared};
use crate::api::{
    OutboxFailed, OutboxFailedQuery, OutboxMessage, OutboxMessages, OutboxQuery, OutboxStats, Page,
    ReplayMode, RetryAnswer, RetryOne,
};

/// The outbox in numbers.
#[utoipa::path(get, path = "/_rf/outbox/stats", tag = "outbox", responses((status = 200, body = OutboxStats)))]
pub(super) async fn outbox_stats(State(admin): State<Shared>) -> Answer<OutboxStats> {
    Ok(Json((&admin.node.db.outbox_stats(EXAMINED_MAX).await?).into()))
}

/// Dead letters: what died or expired, and why.
#[utoipa::path(get, path = "/_rf/outbox/failed", tag = "outbox", params(OutboxFailedQuery),
    responses((status = 200, body = Page<OutboxFailed>), (status = 422)))]
pub(super) async fn outbox_failed(
    State(admin): State<Shared>,
    Query(query): Query<OutboxFailedQuery>,
) -> Answer<Page<OutboxFailed>> {
    let filter = DeadLetterFilter {
        source: parsed("source", query.source.as_deref())?,
        destination: parsed("destination", query.destination.as_deref())?,
        endpoint: parsed("endpoint", query.endpoint.as_deref())?,
        message_id: parsed("messageId", query.message_id.as_deref())?,
        reason: parsed("reason", query.reason.as_deref())?,
        died_before: time("diedBefore", query.died_before.as_deref())?,
    };
    let (after, limit) = (token(query.next), limit(query.limit)?);
    Ok(Json(admin.node.db.dead_letter_list(&filter, after.as_ref(), limit).await?.into()))
}

/// Messages that match.
#[utoipa::path(get, path = "/_rf/outbox/messages", tag = "outbox", params(OutboxQuery),
    responses((status = 200, body = Page<OutboxMessage>), (status = 422)))]
pub(super) async fn outbox_messages(
    State(admin): State<Shared>,
    Query(query): Query<OutboxQuery>,
) -> Answer<Page<OutboxMessage>> {
    let filter = ops::OutboxFilter {
        status: parsed("status", query.status.as_deref())?,
        source: parsed("source", query.source.as_deref())?,
        destination: parsed("destination", query.destination.as_deref())?,
        endpoint: parsed("endpoint", query.endpoint.as_deref())?,
        ordering_key: parsed("orderingKey", query.ordering_key.as_deref())?,
        message_id: parsed("messageId", query.message_id.as_deref())?,
        created_from: time("createdFrom", query.created_from.as_deref())?,
        created_until: time("createdUntil", query.created_until.as_deref())?,
    };
    let (after, limit) = (token(query.next), limit(query.limit)?);
    Ok(Json(admin.node.db.outbox_list(&filter, after.as_ref(), limit).await?.into()))
}

/// A message's life, attempt by attempt.
#[utoipa::path(get, path = "/_rf/outbox/messages/{messageId}", tag = "outbox",
    params(("messageId" = String, Path, description = "Its id")),
    responses((status = 200, body = OutboxMessages), (status = 404), (status = 422)))]
pub(super) async fn outbox_message(
    State(admin): State<Shared>,
    Path(id): Path<String>,
) -> Answer<OutboxMessages> {
    let messages = admin.node.db.outbox_message(&required("messageId", &id)?).await?;
    if messages.is_empty() {
        return Err(not_found());
    }
    Ok(Json(OutboxMessages { messages: messages.into_iter().map(Into::into).collect() }))
}

/// Sends one dead letter again.
#[utoipa::path(post, path = "/_rf/outbox/{messageId}/retry", tag = "outbox",
    params(("messageId" = String, Path, description = "Its id")), request_body = Option<RetryOne>,
    responses((status = 200, body = RetryAnswer), (status = 404), (status = 409)))]
pub(super) async fn outbox_retry(
    State(admin): State<Shared>,
    actor: Actor,
    Path(id): Path<String>,
    extract::Json(asked): extract::Json<RetryOne>,
) -> Answer<RetryAnswer> {
    let id: MessageId = required("messageId", &id)?;
    let deed =
        Deed { action: "outbox.retry", subject: id.to_string(), detail: json!({ "mode": asked.mode }) };
    admin.audited(&actor, deed, admin.retry(id, asked.mode.into())).await
}

impl Admin {
    async fn retry(&self, id: MessageId, replay: Replay) -> Result<RetryAnswer, Refusal> {
        let filter = DeadLetterFilter { message_id: Some(id.clone()), ..DeadLetterFilter::default() };
        let done = self.node.db.replay(&filter, replay, self.node.ttl, SAME_ID_MAX).await?;
        if done.replayed > 0 {
            return Ok(RetryAnswer { replayed: done.replayed });
        }
        if self.node.db.outbox_message(&id).await?.is_empty() {
            return Err(not_found());
        }
        Err(Code::NotDead.because("the message is no dead letter"))
    }
}

fn not_found() -> Refusal {
    Code::MessageNotFound.because("the outbox has no message with this id")
}

impl From<ReplayMode> for Replay {
    fn from(mode: ReplayMode) -> Self {
        match mode {
            ReplayMode::SameId => Self::SameId,
            ReplayMode::NewId => Self::NewId,
        }
    }
}
