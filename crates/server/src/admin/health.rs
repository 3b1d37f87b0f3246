//! How the node is.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use twobox::prometheus;
use twobox_core::one_line;
use twobox_core::ports::OpsStore as _;
use twobox_core::ports::ops;

use super::refusal::{Code, Refusal};
use super::{Answer, Shared, openapi};
use crate::api::{Alive, Health, HealthStatus, Problem};

/// How long the store may take to show that it is there.
const READY_WAIT: Duration = Duration::from_secs(2);

/// Whether the process answers at all. Open to everybody.
#[utoipa::path(get, path = "/livez", tag = "node", responses((status = 200, body = Alive)))]
pub(super) async fn livez() -> Json<Alive> {
    alive()
}

/// Whether the node can work: its database answers, and takes what is written. Open to everybody, without any detail.
#[utoipa::path(get, path = "/readyz", tag = "node", responses((status = 200, body = Alive)))]
pub(super) async fn readyz(State(admin): State<Shared>) -> Answer<Alive> {
    if is_stopped(&admin) {
        return Err(not_ready());
    }
    match tokio::time::timeout(READY_WAIT, admin.node.db.outbox_stats(0)).await {
        Ok(Ok(_)) => Ok(alive()),
        Ok(Err(error)) => {
            tracing::warn!(error = one_line(&error), "the node is not ready");
            Err(not_ready())
        }
        Err(_) => Err(not_ready()),
    }
}

/// Whether the store acknowledges nothing any more until the node is started again; if its file is there, it can still be read.
fn is_stopped(admin: &Shared) -> bool {
    admin.node.db.meters().store.stopped.get() != 0
}

fn alive() -> Json<Alive> {
    Json(Alive { status: "ok".into() })
}

fn not_ready() -> Refusal {
    Code::NotReady.because("the node cannot work at the moment")
}

/// How the node is, and what needs somebody.
#[utoipa::path(get, path = "/_rf/health", tag = "node", responses((status = 200, body = Health)))]
pub(super) async fn health(State(admin): State<Shared>) -> Answer<Health> {
    let (found, stopped) = (found(&admin).await, is_stopped(&admin));
    // A store that has stopped may have lost its file.
    let mut problems = if stopped { found.unwrap_or_default() } else { found? };
    if stopped {
        let text = "the store takes nothing any more: the log says why; mend that, then start the node again";
        problems.insert(0, problem("store_stopped", text.into()));
    }
    let status = if problems.is_empty() { HealthStatus::Healthy } else { HealthStatus::Degraded };
    let version = env!("CARGO_PKG_VERSION").into();
    Ok(Json(Health { status, source: admin.node.source.to_string(), version, problems }))
}

/// What the database tells of.
async fn found(admin: &Shared) -> twobox::Result<Vec<Problem>> {
    let (outbox, inbox) = (admin.node.db.outbox_stats(0).await?, admin.node.db.inbox_stats().await?);
    Ok(problems(&outbox, &inbox))
}

/// The most lanes that are named: with more, something greater is wrong.
const LANES_NAMED_MAX: usize = 100;

fn problems(outbox: &ops::OutboxStats, inbox: &ops::InboxStats) -> Vec<Problem> {
    let lanes = outbox.lanes.iter().map(|stats| &stats.lane);
    let held = lanes.clone().filter(|lane| lane.held_since.is_some()).map(|lane| {
        let error = lane.held_error.as_deref().unwrap_or("it does not answer");
        problem("lane_held", format!("{} cannot be reached: {error}", lane.destination))
    });
    let paused = lanes.filter_map(|lane| Some((lane, lane.paused.as_ref()?))).map(|(lane, pause)| {
        problem("lane_paused", format!("{} was paused by {}", lane.destination, pause.by))
    });
    let dead = [
        ("outbox_dead_letters", outbox.waiting.dead, "could not be sent"),
        ("inbox_dead_letters", inbox.total.dead, "could not be handled"),
    ];
    let dead = dead
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(code, count, what)| problem(code, format!("{count} messages {what} and wait for a decision")));
    held.chain(paused).take(LANES_NAMED_MAX).chain(dead).collect()
}

fn problem(code: &str, message: String) -> Problem {
    Problem { code: code.into(), message }
}

/// The node's figures, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "node",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(admin): State<Shared>) -> impl IntoResponse {
    let db = &admin.node.db;
    let page = prometheus::scrape(db, &db.meters(), db.clock().now()).await;
    ([(CONTENT_TYPE, prometheus::CONTENT_TYPE)], page)
}

/// This API as an OpenAPI document.
#[utoipa::path(get, path = "/_rf/openapi.json", tag = "node", responses((status = 200, body = serde_json::Value)))]
pub(super) async fn openapi_document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], openapi::json())
}
