//! The inbox: in numbers, in lists, one message at a time.

use axum::Json;
use axum::extract::State;
use serde_json::json;
use twobox::WorkFilter;
use twobox_core::MessageId;
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::{self, PAGE_MAX, SAME_ID_MAX};

use super::audit::Deed;
use super::extract::{Path, Query, limit, parsed, required, time, token};
use super::guard::Actor;
use super::refusal::{Code, Refusal};
use super::{Admin, Answer, Shared};
use crate::api::{
    InboxFailed, InboxFailedQuery, InboxMessage, InboxMessages, InboxQuery, InboxStats, Page, RetryAnswer,
};

/// The inbox in numbers.
#[utoipa::path(get, path = "/_rf/inbox/stats", tag = "inbox", responses((status = 200, body = InboxStats)))]
pub(super) async fn inbox_stats(State(admin): State<Shared>) -> Answer<InboxStats> {
    Ok(Json(InboxStats::new(admin.node.db.inbox_stats().await?, PAGE_MAX)))
}

/// Dead letters: what died or expired, and why.
#[utoipa::path(get, path = "/_rf/inbox/failed", tag = "inbox", params(InboxFailedQuery),
    responses((status = 200, body = Page<InboxFailed>), (status = 422)))]
pub(super) async fn inbox_failed(
    State(admin): State<Shared>,
    Query(query): Query<InboxFailedQuery>,
) -> Answer<Page<InboxFailed>> {
    let filter = WorkFilter {
        source: parsed("source", query.source.as_deref())?,
        id: parsed("messageId", query.message_id.as_deref())?,
        topic: parsed("endpoint", query.endpoint.as_deref())?,
        reason: parsed("reason", query.reason.as_deref())?,
        died_before: time("diedBefore", query.died_before.as_deref())?,
    };
    let (after, limit) = (token(query.next), limit(query.limit)?);
    let consumer = admin.node.inbox.consumer();
    Ok(Json(admin.node.db.dead_work_list(consumer, &filter, after.as_ref(), limit).await?.into()))
}

/// Messages that match.
#[utoipa::path(get, path = "/_rf/inbox/messages", tag = "inbox", params(InboxQuery),
    responses((status = 200, body = Page<InboxMessage>), (status = 422)))]
pub(super) async fn inbox_messages(
    State(admin): State<Shared>,
    Query(query): Query<InboxQuery>,
) -> Answer<Page<InboxMessage>> {
    let filter = ops::InboxFilter {
        consumer: parsed("consumer", query.consumer.as_deref())?,
        source: parsed("source", query.source.as_deref())?,
        status: parsed("status", query.status.as_deref())?,
        endpoint: parsed("endpoint", query.endpoint.as_deref())?,
        ordering_key: parsed("orderingKey", query.ordering_key.as_deref())?,
        message_id: parsed("messageId", query.message_id.as_deref())?,
        received_from: time("receivedFrom", query.received_from.as_deref())?,
        received_until: time("receivedUntil", query.received_until.as_deref())?,
    };
    let (after, limit) = (token(query.next), limit(query.limit)?);
    Ok(Json(admin.node.db.inbox_list(&filter, after.as_ref(), limit).await?.into()))
}

/// All there is to know about a message.
#[utoipa::path(get, path = "/_rf/inbox/messages/{messageId}", tag = "inbox",
    params(("messageId" = String, Path, description = "Its id")),
    responses((status = 200, body = InboxMessages), (status = 404), (status = 422)))]
pub(super) async fn inbox_message(
    State(admin): State<Shared>,
    Path(id): Path<String>,
) -> Answer<InboxMessages> {
    let messages = admin.node.db.inbox_message(&required("messageId", &id)?).await?;
    if messages.is_empty() {
        return Err(not_found());
    }
    Ok(Json(InboxMessages { messages: messages.into_iter().map(Into::into).collect() }))
}

/// Runs one dead letter again.
#[utoipa::path(post, path = "/_rf/inbox/{messageId}/retry", tag = "inbox",
    params(("messageId" = String, Path, description = "Its id")),
    responses((status = 200, body = RetryAnswer), (status = 404), (status = 409), (status = 422)))]
pub(super) async fn inbox_retry(
    State(admin): State<Shared>,
    actor: Actor,
    Path(id): Path<String>,
) -> Answer<RetryAnswer> {
    let id: MessageId = required("messageId", &id)?;
    let deed = Deed { action: "inbox.retry", subject: id.to_string(), detail: json!({}) };
    admin.audited(&actor, deed, admin.run_again(id)).await
}

impl Admin {
    async fn run_again(&self, id: MessageId) -> Result<RetryAnswer, Refusal> {
        let filter = WorkFilter { id: Some(id.clone()), ..WorkFilter::default() };
        let done = self.node.inbox.replay(&filter, SAME_ID_MAX).await?;
        if done.replayed > 0 {
            return Ok(RetryAnswer { replayed: done.replayed });
        }
        if self.node.db.inbox_message(&id).await?.is_empty() {
            return Err(not_found());
        }
        Err(Code::NotDead.because("the message is no dead letter that is kept to be run again"))
    }
}

fn not_found() -> Refusal {
    Code::MessageNotFound.because("the inbox has no message with this id")
}
