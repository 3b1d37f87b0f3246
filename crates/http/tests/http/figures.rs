//! What the server counts (RF-21).

use std::sync::Arc;
use std::time::Duration;

use twobox_core::meters::{HttpOutcome, Meters};
use twobox_core::ports::Transport;
use twobox_http::{Http, HttpServer, ServerLimits};
use twobox_testkit::eventually;

use crate::raw::{Raw, head};
use crate::world::{Billing, EVER, keyring, keyrings, link, message};

#[tokio::test(flavor = "multi_thread")]
async fn rf_21_requests_and_connections_are_counted() {
    let meters = Arc::new(Meters::default());
    let limits = ServerLimits {
        connections_max: 1,
        peer_connections_max: 1,
        head_timeout: Duration::from_secs(2),
        ..ServerLimits::default()
    };
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    let billing = Billing::start(server.limits(limits).meters(Arc::clone(&meters))).await;
    let http = &meters.http;
    let known = Http::signed(&billing.url(), keyring()).unwrap();
    known.deliver(&link(), vec![message("first")], EVER).await.unwrap();
    assert_eq!((http.requests.get(HttpOutcome::Answered), http.connections.get()), (1, 1));

    // The silent connection of the sender makes room for a stranger, who is refused. It is silent once its answer is out,
    // which may be a moment after the sender has read it.
    let displacing = async || {
        let raw = Raw::connect(billing.address).await;
        (http.displaced.get() > 0).then_some(raw)
    };
    let mut stranger = eventually("displaced", EVER, displacing).await;
    assert_eq!(stranger.ask(&head("GET /nowhere", &[])).await.status, 404);
    assert_eq!(http.requests.get(HttpOutcome::NotFound), 1);

    // One that says nothing is cut, and then nobody is left.
    let _silent = Raw::connect(billing.address).await;
    eventually("overdue", EVER, async || (http.overdue.get() > 0).then_some(())).await;
    eventually("empty", EVER, async || (http.connections.get() == 0).then_some(())).await;
    billing.stop().await;
}
