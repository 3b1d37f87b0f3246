//! All routes, and the document that is generated from them.

use std::sync::LazyLock;

use axum::http::Method;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Shared, audit, bulk, guard, health, inbox, lanes, messages, outbox};
use crate::api::ErrorAnswer;

/// The name of the security scheme in the document.
const SCHEME: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Twobox",
        description = "The API of a node: for operators under /_rf, for programs that send under /v1. \
            Tokens have the scopes read, write (which includes read) and send.",
        license(name = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "node", description = "The node as a whole"),
        (name = "outbox", description = "What it sends"),
        (name = "inbox", description = "What it receives"),
        (name = "messages", description = "Sending through it"),
    ),
    components(schemas(ErrorAnswer))
)]
struct Document;

/// All routes.
pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::health))
        .routes(routes!(health::metrics))
        .routes(routes!(health::openapi_document))
        .routes(routes!(audit::audit_list))
        .routes(routes!(outbox::outbox_stats))
        .routes(routes!(outbox::outbox_failed))
        .routes(routes!(outbox::outbox_messages))
        .routes(routes!(outbox::outbox_message))
        .routes(routes!(outbox::outbox_retry))
        .routes(routes!(bulk::outbox_replay))
        .routes(routes!(bulk::outbox_purge))
        .routes(routes!(lanes::outbox_lanes))
        .routes(routes!(lanes::outbox_pause))
        .routes(routes!(lanes::outbox_resume))
        .routes(routes!(lanes::outbox_keys))
        .routes(routes!(lanes::outbox_release))
        .routes(routes!(inbox::inbox_stats))
        .routes(routes!(inbox::inbox_failed))
        .routes(routes!(inbox::inbox_messages))
        .routes(routes!(inbox::inbox_message))
        .routes(routes!(inbox::inbox_retry))
        .routes(routes!(bulk::inbox_replay))
        .routes(routes!(bulk::inbox_purge))
        .routes(routes!(lanes::inbox_keys))
        .routes(routes!(lanes::inbox_release))
        .routes(routes!(messages::send))
}

/// The document as text, the same every time.
pub(super) fn json() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| {
        let mut json = document().to_pretty_json().unwrap_or_default();
        json.push('\n');
        json
    });
    &JSON
}

fn document() -> utoipa::openapi::OpenApi {
    let (_, mut document) = routes().split_for_parts();
    let scheme = Http::builder().scheme(HttpAuthScheme::Bearer).build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            secure(operation, &method, path);
            explain_errors(operation);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let operations = [(Method::GET, item.get.as_mut()), (Method::POST, item.post.as_mut())];
    operations.into_iter().filter_map(|(method, operation)| Some((method, operation?)))
}

/// The scope that a route needs, by the rule that the guard applies.
fn secure(operation: &mut Operation, method: &Method, path: &str) {
    let scope = guard::scope(method, path).map(|scope| SecurityRequirement::new(SCHEME, [scope.as_str()]));
    operation.security = Some(scope.into_iter().collect());
}

/// Errors have one shape. Some can come from every route.
fn explain_errors(operation: &mut Operation) {
    let mut common = vec!["400", "403", "408", "413", "503"];
    if operation.security.as_ref().is_some_and(|needed| !needed.is_empty()) {
        common.push("401");
    }
    if operation.request_body.is_some() {
        common.extend(["415", "422"]);
    }
    let responses = &mut operation.responses.responses;
    for status in common {
        responses.entry(status.into()).or_insert_with(|| ResponseBuilder::new().build().into());
    }
    for (status, response) in responses {
        let RefOr::T(response) = response else { continue };
        if status.starts_with(['4', '5']) {
            let schema = Ref::from_schema_name("ErrorAnswer");
            let content = ContentBuilder::new().schema(Some(schema)).build().into();
            response.content.insert("application/json".into(), content);
        }
        if response.description.is_empty() {
            response.description = describe(status).into();
        }
    }
}

fn describe(status: &str) -> &'static str {
    match status {
        "200" => "Done",
        "400" => "Malformed",
        "401" => "No token, or none that is known",
        "403" => "The token lacks the scope, or the request comes from elsewhere",
        "404" => "There is none",
        "408" => "The body did not come in time",
        "409" => "It is not in a state in which this can be done",
        "413" => "Too large",
        "415" => "Not JSON",
        "422" => "A value makes no sense",
        "429" => "Too fast",
        _ => "Not possible at the moment",
    }
}
