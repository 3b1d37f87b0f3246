//! Every route of the document, through everybody who might ask.

use serde_json::{Value, json};

use super::ask::Ask;
use super::world::{READ, SEND, WRITE, World};

/// A route of the document.
#[derive(Debug)]
struct Route {
    method: String,
    path: String,
    /// `None`: open.
    scope: Option<String>,
    /// Statuses that are documented.
    statuses: Vec<String>,
}

fn document() -> Value {
    serde_json::from_str(crate::admin::openapi::json()).unwrap()
}

fn routes() -> Vec<Route> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let routes = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(|(method, operation)| {
            let security = operation["security"].as_array().unwrap();
            let scope = security.first().map(|needed| needed["token"][0].as_str().unwrap().to_owned());
            let statuses = operation["responses"].as_object().unwrap().keys().cloned().collect();
            Route { method: method.to_uppercase(), path: path.clone(), scope, statuses }
        })
    });
    routes.collect()
}

impl Route {
    /// A request that is as good as a stranger can make it: whoever may ask gets past the guard.
    fn ask(&self) -> Ask {
        let id = if self.path.starts_with("/_rf/inbox") { "in-dead-0" } else { "dead-0" };
        let target = self.path.replace("{messageId}", id).replace("{destination}", "billing");
        let ask = Ask::new(&self.method, &target);
        if self.method == "POST" { ask.raw(self.body().to_string().as_bytes()) } else { ask }
    }

    fn body(&self) -> Value {
        match self.path.as_str() {
            "/v1/messages" => json!({ "destination": "billing", "endpoint": "Take", "payload": 1 }),
            "/_rf/outbox/keys/release" => json!({ "destination": "billing", "orderingKey": "k1" }),
            "/_rf/inbox/keys/release" => json!({ "source": "warehouse", "orderingKey": "k2" }),
            path if path.ends_with("/replay") || path.ends_with("/purge") => {
                json!({ "all": true, "dryRun": true })
            }
            _ => json!({}),
        }
    }

    /// Who gets past the guard, of nobody, a stranger, and the tokens for reading, writing and sending.
    fn expected(&self) -> [u16; 5] {
        match self.scope.as_deref() {
            None => [0; 5],
            Some("read") => [401, 401, 0, 0, 403],
            Some("write") => [401, 401, 403, 0, 403],
            Some("send") => [401, 401, 403, 403, 0],
            Some(other) => panic!("{other} is no scope"),
        }
    }
}

#[test]
fn rf_22_the_five_routes_and_all_others_are_documented() {
    let found: Vec<String> =
        routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let five = [
        "GET /_rf/health",
        "GET /_rf/outbox/stats",
        "GET /_rf/outbox/failed",
        "POST /_rf/outbox/{messageId}/retry",
        "GET /_rf/inbox/stats",
    ];
    for route in five {
        assert!(found.iter().any(|other| other == route), "{route} is missing");
    }
    let page = include_str!("../../../../../docs/ADMIN.md");
    for route in &found {
        assert!(page.contains(&format!("`{route}`")), "docs/ADMIN.md does not mention `{route}`");
    }
}

#[tokio::test]
async fn rf_22_every_route_asks_for_its_scope() {
    let world = World::full().await;
    for route in routes() {
        let who = [None, Some("wrong-token-0123456789"), Some(READ), Some(WRITE), Some(SEND)];
        for (token, expected) in who.into_iter().zip(route.expected()) {
            let ask = token.map_or_else(|| route.ask(), |token| route.ask().token(token));
            let reply = world.ask(ask).await;
            let what = format!("{} {} with {token:?}", route.method, route.path);
            match expected {
                // It gets through; whether it is done is for other tests, but it is as documented.
                0 => {
                    assert!(![401, 403, 404, 405].contains(&reply.status), "{what}: {}", reply.text());
                    assert!(route.statuses.contains(&reply.status.to_string()), "{what}: {}", reply.status);
                }
                401 => {
                    reply.refused(401, "unauthorized");
                    assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"twobox\""), "{what}");
                }
                _ => reply.refused(403, "scope_missing"),
            }
            assert_eq!(reply.header("cache-control"), Some("no-store"), "{what}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{what}");
            assert_eq!(reply.header("set-cookie"), None, "{what}");
            assert_eq!(reply.header("access-control-allow-origin"), None, "{what}");
        }
    }
    world.stop().await;
}

/// The token that every scope is missing nothing with, per route.
fn good(route: &Route) -> Ask {
    match route.scope.as_deref() {
        None => route.ask(),
        Some("send") => route.ask().token(SEND),
        Some(_) => route.ask().token(WRITE),
    }
}

#[tokio::test]
async fn rf_22_every_route_refuses_other_hosts_and_pages_of_other_sites() {
    let world = World::full().await;
    for route in routes() {
        for host in
            ["evil.example", "evil.example:7401", "127.0.0.1.evil.example", "user@127.0.0.1", "localhost."]
        {
            world.ask(good(&route).host(Some(host))).await.refused(403, "host_refused");
        }
        for host in [None, Some(""), Some("a b"), Some("/")] {
            world.ask(good(&route).host(host)).await.refused(400, "malformed");
        }
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"] {
            let reply = world.ask(good(&route).header("origin", origin)).await;
            reply.refused(403, "origin_refused");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_node_is_called_by_address_localhost_or_a_name_that_is_set() {
    let world = World::empty().await;
    for host in ["127.0.0.1", "127.0.0.1:7401", "[::1]:7401", "LocalHost:80", "node.example", "10.1.2.3"] {
        let reply = world.ask(Ask::get("/_rf/health").token(READ).host(Some(host))).await;
        assert_eq!(reply.status, 200, "{host}: {}", reply.text());
    }
    let own = Ask::get("/_rf/health").token(READ).host(Some("node.example:7401"));
    assert_eq!(world.ask(own.clone().header("origin", "http://node.example:7401")).await.status, 200);
    world.ask(own.header("host", "127.0.0.1")).await.refused(400, "malformed");
    // A proxy's request names its host in the first line.
    world.ask(Ask::get("http://evil.example/_rf/health").token(READ)).await.refused(403, "host_refused");
    world.stop().await;
}

#[tokio::test]
async fn rf_22_tokens_are_exchanged_while_the_node_runs() {
    let world = World::empty().await;
    assert_eq!(world.read("/_rf/health").await.status, 200);
    world.tokens.set(
        [crate::admin::Token::new("new", b"another-token-0123", [crate::admin::Scope::Read])]
            .into_iter()
            .collect(),
    );
    world.read("/_rf/health").await.refused(401, "unauthorized");
    assert_eq!(world.ask(Ask::get("/_rf/health").token("another-token-0123")).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn rf_22_a_token_is_presented_in_one_way_only() {
    let world = World::empty().await;
    let ask = |value: &str| Ask::get("/_rf/health").header("authorization", value);
    for wrong in [
        READ,
        &format!("Basic {READ}"),
        "Bearer",
        "Bearer ",
        &format!("Bearer{READ}"),
        &format!("Bearer {READ}x"),
    ] {
        world.ask(ask(wrong)).await.refused(401, "unauthorized");
    }
    for right in [format!("Bearer {READ}"), format!("bearer  {READ} ")] {
        assert_eq!(world.ask(ask(&right)).await.status, 200, "{right}");
    }
    let twice = ask(&format!("Bearer {READ}")).token(READ);
    world.ask(twice).await.refused(401, "unauthorized");
    world.ask(Ask::get(&format!("/_rf/health?token={READ}"))).await.refused(401, "unauthorized");
    world.stop().await;
}
