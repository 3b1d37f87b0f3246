//! Lanes, and the ordering keys that wait in them.

use axum::Json;
use axum::extract::State;
use serde_json::json;
use twobox::ports::{DeadLetterStore as _, LaneStore as _};
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops::EXAMINED_MAX;
use twobox_core::{Destination, OrderingKey, Source};

use super::audit::Deed;
use super::extract::{self, Path, Query, limit, required};
use super::guard::Actor;
use super::refusal::{Code, Refusal};
use super::{Admin, Answer, Shared};
use crate::api::{
    BlockedInboxKey, BlockedOutboxKey, Items, Lane, LimitQuery, PauseAnswer, PauseRequest, ReleaseAnswer,
    ReleaseInboxKey, ReleaseOutboxKey,
};

/// Lanes: who serves them, whether their breaker is open or somebody has paused them, what waits in them.
#[utoipa::path(get, path = "/_rf/outbox/lanes", tag = "outbox", params(LimitQuery),
    responses((status = 200, body = Items<Lane>), (status = 422)))]
pub(super) async fn outbox_lanes(
    State(admin): State<Shared>,
    Query(query): Query<LimitQuery>,
) -> Answer<Items<Lane>> {
    let limit = limit(query.limit)?;
    Ok(Json(Items::of(admin.node.db.outbox_stats(EXAMINED_MAX).await?.lanes, limit)))
}

/// Stops sending to a destination until it is resumed. Nothing is lost or charged meanwhile.
#[utoipa::path(post, path = "/_rf/outbox/lanes/{destination}/pause", tag = "outbox",
    params(("destination" = String, Path, description = "Where nothing is to be sent")),
    request_body = Option<PauseRequest>, responses((status = 200, body = PauseAnswer), (status = 404)))]
pub(super) async fn outbox_pause(
    State(admin): State<Shared>,
    actor: Actor,
    Path(destination): Path<String>,
    extract::Json(asked): extract::Json<PauseRequest>,
) -> Answer<PauseAnswer> {
    let destination: Destination = required("destination", &destination)?;
    let detail = json!({ "source": admin.node.source.as_str(), "reason": asked.reason });
    let deed = Deed { action: "lane.pause", subject: destination.to_string(), detail };
    let pausing = async {
        admin.check_lane(&destination).await?;
        let (db, source) = (&admin.node.db, &admin.node.source);
        let changed = db.pause_lane(source, &destination, &actor.0, &asked.reason).await?;
        Ok(PauseAnswer { destination: destination.to_string(), paused: true, changed })
    };
    admin.audited(&actor, deed, pausing).await
}

/// Sends to a destination again.
#[utoipa::path(post, path = "/_rf/outbox/lanes/{destination}/resume", tag = "outbox",
    params(("destination" = String, Path, description = "Where to send again")),
    responses((status = 200, body = PauseAnswer), (status = 404), (status = 422)))]
pub(super) async fn outbox_resume(
    State(admin): State<Shared>,
    actor: Actor,
    Path(destination): Path<String>,
) -> Answer<PauseAnswer> {
    let destination: Destination = required("destination", &destination)?;
    let detail = json!({ "source": admin.node.source.as_str() });
    let deed = Deed { action: "lane.resume", subject: destination.to_string(), detail };
    let resuming = async {
        admin.check_lane(&destination).await?;
        let changed = admin.node.db.resume_lane(&admin.node.source, &destination).await?;
        Ok(PauseAnswer { destination: destination.to_string(), paused: false, changed })
    };
    admin.audited(&actor, deed, resuming).await
}

/// Ordering keys whose dead head holds up what follows.
#[utoipa::path(get, path = "/_rf/outbox/keys", tag = "outbox", params(LimitQuery),
    responses((status = 200, body = Items<BlockedOutboxKey>), (status = 422)))]
pub(super) async fn outbox_keys(
    State(admin): State<Shared>,
    Query(query): Query<LimitQuery>,
) -> Answer<Items<BlockedOutboxKey>> {
    let limit = limit(query.limit)?;
    Ok(Json(Items::of(admin.node.db.blocked_keys(limit + 1).await?, limit)))
}

/// Lets an ordering key step over its dead messages; they stay in the dead-letter list.
#[utoipa::path(post, path = "/_rf/outbox/keys/release", tag = "outbox", request_body = ReleaseOutboxKey,
    responses((status = 200, body = ReleaseAnswer), (status = 404)))]
pub(super) async fn outbox_release(
    State(admin): State<Shared>,
    actor: Actor,
    extract::Json(asked): extract::Json<ReleaseOutboxKey>,
) -> Answer<ReleaseAnswer> {
    let source =
        asked.source.as_deref().map_or_else(|| Ok(admin.node.source.clone()), |s| required("source", s))?;
    let destination: Destination = required("destination", &asked.destination)?;
    let key: OrderingKey = required("orderingKey", &asked.ordering_key)?;
    let detail = json!({ "source": source.as_str(), "destination": destination.as_str() });
    let deed = Deed { action: "outbox.release", subject: key.to_string(), detail };
    let releasing = async { released(admin.node.db.release_key(&source, &destination, &key).await?) };
    admin.audited(&actor, deed, releasing).await
}

/// Ordering keys whose dead head holds up what follows.
#[utoipa::path(get, path = "/_rf/inbox/keys", tag = "inbox", params(LimitQuery),
    responses((status = 200, body = Items<BlockedInboxKey>), (status = 422)))]
pub(super) async fn inbox_keys(
    State(admin): State<Shared>,
    Query(query): Query<LimitQuery>,
) -> Answer<Items<BlockedInboxKey>> {
    let limit = limit(query.limit)?;
    Ok(Json(Items::of(admin.node.db.blocked_work_keys(limit + 1).await?, limit)))
}

/// Lets an ordering key step over its dead messages; they stay in the dead-letter list.
#[utoipa::path(post, path = "/_rf/inbox/keys/release", tag = "inbox", request_body = ReleaseInboxKey,
    responses((status = 200, body = ReleaseAnswer), (status = 404)))]
pub(super) async fn inbox_release(
    State(admin): State<Shared>,
    actor: Actor,
    extract::Json(asked): extract::Json<ReleaseInboxKey>,
) -> Answer<ReleaseAnswer> {
    let source: Source = required("source", &asked.source)?;
    let key: OrderingKey = required("orderingKey", &asked.ordering_key)?;
    let detail = json!({ "source": source.as_str() });
    let deed = Deed { action: "inbox.release", subject: key.to_string(), detail };
    let releasing = async { released(admin.node.inbox.release_key(&source, &key).await?) };
    admin.audited(&actor, deed, releasing).await
}

fn released(was_blocked: bool) -> Result<ReleaseAnswer, Refusal> {
    let refusal = || Code::KeyNotBlocked.because("the key is not blocked");
    was_blocked.then_some(ReleaseAnswer { released: true }).ok_or_else(refusal)
}

impl Admin {
    /// Pausing makes a lane if there is none; nobody can make as many as they can think of names.
    async fn check_lane(&self, destination: &Destination) -> Result<(), Refusal> {
        let is_known = self.node.destinations.contains(destination)
            || self.node.db.lanes().await?.iter().any(|lane| lane.destination == *destination);
        let refusal = || Code::LaneNotFound.because("the node does not send to this destination");
        is_known.then_some(()).ok_or_else(refusal)
    }
}
