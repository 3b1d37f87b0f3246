//! Handing a message to the user's own program, and what its answer means.

use std::collections::HashMap;

use twobox::ports::DeliveryError;
use twobox::wire::check_content_type;
use twobox::{
    Call, Endpoint, HandlerResult, HttpClient, Message, OrRefuse as _, Payload, Refusal, Reply, Response,
    WorkContext,
};

use super::Target;
use crate::config::Config;

/// Headers of a message that travel under their own names, because everybody knows them by these.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];
/// Says in the program's own words why it refuses; its body is never kept as a reason, because it may repeat the
/// payload.
const REASON: &str = "twobox-reason";

/// Knows where the user's program is, and calls it.
#[derive(Debug)]
pub(super) struct HandOver {
    client: HttpClient,
    default: Option<Target>,
    routes: HashMap<Endpoint, Target>,
    reject_statuses: Vec<u16>,
}

impl HandOver {
    pub(super) fn new(config: &Config) -> crate::Result<Self> {
        let handler = &config.handler;
        let mut routes = HashMap::with_capacity(handler.routes.len());
        for (endpoint, url) in &handler.routes {
            routes.insert(Endpoint::new(endpoint)?, Target::new(url)?);
        }
        let default = (!handler.url.is_empty()).then(|| Target::new(&handler.url)).transpose()?;
        Ok(Self {
            client: HttpClient::new(config.handler_limits(), handler.response_max.0),
            default,
            routes,
            reject_statuses: handler.reject_statuses.clone(),
        })
    }

    /// Endpoints that have a route of their own.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.routes.keys()
    }

    /// Whether all other endpoints have one.
    pub(super) fn has_default(&self) -> bool {
        self.default.is_some()
    }

    /// Hands one message over: at least once, because an answer can be lost after the program has done its work.
    pub(super) async fn handle(&self, mut context: WorkContext) -> HandlerResult<Response> {
        let call = self.call(&context)?;
        tokio::select! {
            biased;
            reply = self.client.call(call) => judge(reply, &self.reject_statuses),
            // Somebody else may be handing it over by now, and nothing that comes back counts any more.
            () = context.lost() => Err(Refusal::retry("the lease is lost")),
        }
    }

    fn call(&self, context: &WorkContext) -> HandlerResult<Call> {
        let message = &*context.message;
        let target = self.routes.get(&message.endpoint).or(self.default.as_ref());
        let target = target.ok_or_else(|| Refusal::retry("no route for this endpoint"))?;
        let url = target.url(&message.endpoint);
        let url = url.ok_or_else(|| Refusal::reject("the endpoint's name cannot stand in a URL"))?;
        let call = Call::new("POST", &url, message.payload.as_bytes().to_vec()).rejected()?;
        headers(message, context.attempts)
            .into_iter()
            .try_fold(call, |call, (name, value)| call.header(&name, &value).rejected())
    }
}

/// What the program is told beside the payload.
fn headers(message: &Message, attempts: u32) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = vec![
        ("content-type".into(), message.content_type.to_string()),
        ("idempotency-key".into(), message.id.to_string()),
        ("twobox-source".into(), message.source.to_string()),
        ("twobox-endpoint".into(), message.endpoint.to_string()),
        ("twobox-message-type".into(), message.message_type.as_str().into()),
        ("twobox-attempt".into(), attempts.saturating_add(1).to_string()),
    ];
    let correlation_id =
        message.correlation_id.iter().map(|id| ("twobox-correlation-id".into(), id.to_string()));
    headers.extend(correlation_id);
    headers.extend(message.headers.iter().map(|(name, value)| {
        let name = if TRACE.contains(&name) { name.into() } else { format!("twobox-header-{name}") };
        (name, value.into())
    }));
    headers
}

/// What an answer means for the message.
fn judge(reply: Result<Reply, DeliveryError>, reject_statuses: &[u16]) -> HandlerResult<Response> {
    let reply = reply?;
    let status = reply.status;
    let why = match reply.header(REASON) {
        Some(reason) => format!("the handler answered {status}: {reason}"),
        None => format!("the handler answered {status}{}", hint(status)),
    };
    match status {
        200..=299 => Ok(response(&reply)),
        _ if reject_statuses.contains(&status) => Err(Refusal::reject(why)),
        _ => Err(reply
            .retry_after()
            .map_or_else(|| Refusal::retry(&why), |after| Refusal::retry_after(after, &why))),
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => ": redirects are not followed, so give handler.url the final URL",
        401 | 403 => ": the node is not let in there",
        404 | 405 => ": nothing takes messages at this URL",
        _ => "",
    }
}

/// What is kept as the response. One that is too large is left out: the program has done its work.
fn response(reply: &Reply) -> Response {
    let Some(body) = &reply.body else {
        tracing::warn!("the handler's answer exceeds handler.response_max and is not kept");
        return Response::empty();
    };
    let content_type = reply.header("content-type").filter(|of| check_content_type(of).is_ok());
    match content_type {
        _ if body.is_empty() => Response::empty(),
        Some(content_type) => {
            Response { content_type: content_type.into(), body: Payload::new(body.to_vec()) }
        }
        None => {
            Response { content_type: "application/octet-stream".into(), body: Payload::new(body.to_vec()) }
        }
    }
}
