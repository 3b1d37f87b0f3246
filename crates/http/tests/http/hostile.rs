//! Whoever reaches the port can write anything, slowly, endlessly, or from thousands of sockets. The server sheds it
//! all within its limits (S16), and an honest sender does not notice: in every siege here one goes on delivering,
//! and none of its deliveries may fail.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};
use twobox_core::wire::Limits;
use twobox_http::ServerLimits;

use crate::post::{BATCH, ONE, Reply};
use crate::raw::{Raw, batch, batch_of, besieged, envelope, head, padded, post, post_chunked, post_head};
use crate::world::EVER;

/// A time-out that a test waits for.
const SHORT: Duration = Duration::from_millis(500);
/// Between two bytes of a slow sender: a time-out that began anew with each of them would never come.
const DRIP: Duration = Duration::from_millis(20);
/// Bytes that take a slow sender far longer than [`SHORT`].
const DRIP_BYTES: usize = 1_000;

pub(crate) fn assert_refused(reply: &Reply, status: u16, outcome: &str) {
    assert_eq!((reply.status, reply.outcome().as_str()), (status, outcome), "{reply:?}");
}

/// That it was the body's time-out, and not its rate, which has the same outcome later.
fn assert_timed_out(reply: &Reply) {
    assert_refused(reply, 408, "timed_out");
    assert_eq!(reply.json()["error"], "the body did not end in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_silence_and_half_a_head_are_cut_after_the_head_timeout() {
    let limits = ServerLimits { head_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        for said in [&b""[..], b"POST /_rf/receive/batch HTTP/1.1\r\nhost: bil"] {
            let begun = Instant::now();
            let mut raw = Raw::connect(address).await;
            raw.send(said).await;
            assert_eq!(raw.closed().await, b"", "nothing was asked, so nothing is answered");
            assert!(begun.elapsed() >= SHORT, "cut after {:?}", begun.elapsed());
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_the_head_timeout_holds_for_the_whole_head_not_for_each_byte() {
    let limits = ServerLimits { head_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut raw = Raw::connect(address).await;
        let long = format!("x-long: {}", "x".repeat(DRIP_BYTES));
        raw.drip(&head("POST /_rf/receive", &[&long]), DRIP).await;
        assert_eq!(raw.closed().await, b"");
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_the_head_timeout_holds_for_a_second_request_too() {
    let limits = ServerLimits { head_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut raw = Raw::connect(address).await;
        assert_eq!(raw.ask(&post(BATCH, &batch("first"))).await.status, 200);
        raw.send(b"POST /_rf/receive/batch HTTP/1.1\r\nhost: bil").await;
        assert_eq!(raw.closed().await, b"");
        1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_half_a_head_that_came_with_the_request_before_is_cut_too() {
    let limits = ServerLimits { head_timeout: SHORT, idle_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut raw = Raw::connect(address).await;
        // What has been read already shows as silence, which is limited as well.
        let both = [&post(BATCH, &batch("first"))[..], b"POST /_rf/receive/batch HTTP/1.1\r\nhost: bil"];
        assert_eq!(raw.ask(&both.concat()).await.status, 200);
        assert_eq!(raw.closed().await, b"");
        1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_half_a_body_and_silence_are_refused_after_the_body_timeout() {
    let limits = ServerLimits { body_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        for (path, body) in [(ONE, envelope("half")), (BATCH, batch("half"))] {
            let begun = Instant::now();
            let mut raw = Raw::connect(address).await;
            let request = post(path, &body);
            let reply = raw.ask(&request[..request.len() - body.len() / 2]).await;
            assert_timed_out(&reply);
            assert!(begun.elapsed() >= SHORT, "refused after {:?}", begun.elapsed());
            assert_eq!(raw.closed().await, b"");
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_the_body_timeout_holds_for_the_whole_body_not_for_each_byte() {
    let limits = ServerLimits { body_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let body = padded(batch("dripped"), 2 * DRIP_BYTES);
        let chunked = post_chunked(BATCH, &body, 1);
        let chunks_at = chunked.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        for (head, body) in [(&post_head(BATCH, body.len())[..], &body[..]), chunked.split_at(chunks_at)] {
            let mut raw = Raw::connect(address).await;
            raw.send(head).await;
            raw.drip(body, DRIP).await;
            assert_timed_out(&raw.answer().await);
            assert_eq!(raw.closed().await, b"");
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_body_above_the_limit_is_refused_before_it_is_read_and_one_at_the_limit_is_taken() {
    let wire = Limits { envelope_bytes: 4 << 10, batch_bytes: 16 << 10, ..Limits::default() };
    let (one_max, batch_max) = (wire.envelope_bytes, wire.batch_bytes);
    besieged(ServerLimits { wire, ..ServerLimits::default() }, async |address, _| {
        for (path, max) in [(ONE, one_max), (BATCH, batch_max)] {
            let body = |id: &str| padded(if path == ONE { envelope(id) } else { batch(id) }, max);
            let too_large = [body("refused"), vec![b' ']].concat();
            // Announced: the answer comes although nothing of the body ever does.
            for length in [max + 1, 1 << 40] {
                let mut raw = Raw::connect(address).await;
                assert_refused(&raw.ask(&post_head(path, length)).await, 413, "too_large");
                assert_eq!(raw.closed().await, b"");
            }
            // Not announced: as soon as it has grown too large.
            for size in [100, max + 1] {
                let mut raw = Raw::connect(address).await;
                let reply = raw.ask(&post_chunked(path, &too_large, size)).await;
                assert_refused(&reply, 413, "too_large");
                assert_eq!(raw.closed().await, b"");
            }
            let mut raw = Raw::connect(address).await;
            let id = format!("announced{path}");
            assert_eq!(raw.ask(&post(path, &body(&id))).await.status, 200);
            let id = format!("chunked{path}");
            assert_eq!(raw.ask(&post_chunked(path, &body(&id), 1000)).await.status, 200);
        }
        4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_head_with_too_many_bytes_or_headers_is_refused() {
    let limits = ServerLimits { headers_max: 32, head_bytes_max: 16 << 10, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let body = batch("refused");
        let length = format!("content-length: {}", body.len());
        let mut headers = vec!["content-type: application/json", &length];
        let long = format!("x-long: {}", "x".repeat(16 << 10));
        let large = head(&format!("POST {BATCH}"), &[&headers[..], &[&*long]].concat());
        headers.resize(32, "x-many: x"); // and the host, which makes one too many
        let many = head(&format!("POST {BATCH}"), &headers);
        for head in [large, many] {
            let mut raw = Raw::connect(address).await;
            assert_eq!(raw.ask(&[&head, &body[..]].concat()).await.status, 431);
            assert_eq!(raw.closed().await, b"");
        }
        headers.pop();
        let enough = [&head(&format!("POST {BATCH}"), &headers), &batch("taken")[..]].concat();
        let length = format!("content-length: {}", batch("taken").len());
        let enough = String::from_utf8(enough).unwrap().replace(headers[1], &length);
        assert_eq!(Raw::connect(address).await.ask(enough.as_bytes()).await.status, 200);
        1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_json_of_a_hundred_thousand_levels_is_malformed_and_breaks_nothing() {
    besieged(ServerLimits::default(), async |address, _| {
        let deep = |open: &str, close: &str| [open.repeat(100_000), close.repeat(100_000)].concat();
        let unclosed = "[".repeat(100_000);
        let closed = deep("[", "]");
        let objects = deep("{\"a\":", "}").replace(":}", ":1}");
        let text = String::from_utf8(envelope("deep")).unwrap();
        let payload = text.replace("\"payload\":\"deep\"", &format!("\"payload\":{closed}"));
        assert_ne!(payload, text);
        let mut raw = Raw::connect(address).await;
        for body in [unclosed, closed, objects, payload] {
            for (path, body) in [(ONE, body.clone()), (BATCH, body.clone()), (BATCH, format!("[{body}]"))] {
                assert_refused(&raw.ask(&post(path, body.as_bytes())).await, 400, "malformed");
            }
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_what_no_route_takes_is_refused_and_writes_nothing() {
    const JSON: &str = "content-type: application/json";
    besieged(ServerLimits::default(), async |address, _| {
        let refused: [(&str, &[&str], u16, &str); 16] = [
            ("POST /_rf/receive/batch", &[JSON, "content-encoding: gzip"], 415, "unsupported"),
            ("POST /_rf/receive", &[JSON, "content-encoding: gzip"], 415, "unsupported"),
            ("POST /_rf/receive/batch", &[JSON, "content-encoding: br, identity"], 415, "unsupported"),
            (
                "POST /_rf/receive/batch",
                &[JSON, "content-encoding: identity", "content-encoding: gzip"],
                415,
                "unsupported",
            ),
            ("POST /_rf/receive/batch", &["content-type: text/plain"], 415, "unsupported"),
            ("POST /_rf/receive/batch", &["content-type: application/jsonp"], 415, "unsupported"),
            ("POST /_rf/receive/batch", &["content-type: \u{e9}"], 415, "unsupported"),
            ("POST /_rf/receive", &[], 415, "unsupported"),
            ("GET /_rf/receive", &[JSON], 405, "method_not_allowed"),
            ("PUT /_rf/receive/batch", &[JSON], 405, "method_not_allowed"),
            ("OPTIONS /_rf/receive/batch", &[JSON], 405, "method_not_allowed"),
            ("post /_rf/receive/batch", &[JSON], 405, "method_not_allowed"),
            ("POST /", &[JSON], 404, "not_found"),
            ("POST /_rf/receive/", &[JSON], 404, "not_found"),
            ("POST /_rf/receive/batch/../batch", &[JSON], 404, "not_found"),
            ("OPTIONS *", &[JSON], 404, "not_found"),
        ];
        for (line, headers, status, outcome) in refused {
            let body = if line.contains("batch") { batch("refused") } else { envelope("refused") };
            let length = format!("content-length: {}", body.len());
            let head = head(line, &[headers, &[&*length]].concat());
            let reply = Raw::connect(address).await.ask(&[&head, &body[..]].concat()).await;
            assert_refused(&reply, status, outcome);
            assert_eq!(reply.header("allow"), (status == 405).then_some("POST"), "{line}");
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_the_body_of_a_refused_request_is_never_taken_for_a_request() {
    const JSON: &str = "content-type: application/json";
    besieged(ServerLimits::default(), async |address, _| {
        let smuggled = post(BATCH, &batch("smuggled"));
        let length = format!("content-length: {}", smuggled.len());
        let too_long = format!("content-length: {}", 1_u64 << 40);
        let refused: [(&str, &[&str], u16); 4] = [
            ("POST /", &[JSON, &length], 404),
            ("PUT /_rf/receive", &[JSON, &length], 405),
            ("POST /_rf/receive", &[JSON, &length, "content-encoding: gzip"], 415),
            ("POST /_rf/receive", &[JSON, &too_long], 413),
        ];
        for (line, headers, status) in refused {
            let mut raw = Raw::connect(address).await;
            assert_eq!(raw.ask(&head(line, headers)).await.status, status);
            raw.send(&smuggled).await;
            assert_eq!(raw.closed().await, b"", "{line}");
        }
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_garbage_after_a_request_is_refused_and_the_request_is_answered() {
    besieged(ServerLimits::default(), async |address, _| {
        let garbage: [&[u8]; 4] =
            [b"\0\x01\x02 garbage\r\n\r\n", b"{\"a\":1}\r\n\r\n", b"GET\r\n\r\n", &[0xff; 100_000]];
        for (at, garbage) in garbage.into_iter().enumerate() {
            let mut raw = Raw::connect(address).await;
            let body = batch(&format!("valid-{at}"));
            let reply = raw.ask(&[&post(BATCH, &body), garbage].concat()).await;
            assert_eq!((reply.status, reply.outcomes()), (200, vec!["done".to_owned()]));
            if let Some(reply) = raw.next().await {
                assert_eq!(reply.status, 400);
            }
            assert_eq!(raw.closed().await, b"");
        }
        4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_whoever_does_not_read_the_answers_is_cut_after_the_answer_timeout() {
    let limits = ServerLimits { answer_timeout: SHORT, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let begun = Instant::now();
        let mut raw = Raw::narrow(address).await;
        let request = post(BATCH, &batch_of(&["large-1", "large-2", "large-3", "large-4"]));
        // A quarter of a mebibyte of answer for each, until no buffer takes any more. That the connection is cut
        // shows in writing: reading would let it go on.
        let mut ticks = interval(DRIP);
        let asking = async {
            while raw.try_send(&request).await.is_ok() {
                ticks.tick().await;
            }
        };
        timeout(EVER, asking).await.expect("cut after the answer time-out");
        assert!(begun.elapsed() >= SHORT, "cut after {:?}", begun.elapsed());
        4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_silent_connection_is_closed_after_the_idle_timeout_and_a_used_one_goes_on() {
    // Long beside the pauses of the used one, because the machine makes pauses too.
    let idle_timeout = Duration::from_millis(1200);
    let limits = ServerLimits { idle_timeout, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let (mut silent, mut used) = (Raw::connect(address).await, Raw::connect(address).await);
        let request = post(BATCH, &batch("again"));
        let mut ticks = interval(Duration::from_millis(100));
        let begun = Instant::now();
        assert_eq!(silent.ask(&request).await.status, 200);
        let mut closed = std::pin::pin!(silent.closed());
        loop {
            tokio::select! {
                _ = ticks.tick() => assert_eq!(used.ask(&request).await.status, 200),
                rest = &mut closed => break assert_eq!(rest, b""),
            }
        }
        assert!(begun.elapsed() >= idle_timeout, "closed after {:?}", begun.elapsed());
        assert_eq!(used.ask(&request).await.status, 200);
        1
    })
    .await;
}

/// Connections that say nothing, each watched by a task that ends with it.
async fn flood(from: Ipv4Addr, to: SocketAddr, count: usize) -> JoinSet<()> {
    // Ours and the server's ends of two floods at a time, and room for other tests.
    let files = 4 * u64::try_from(count).unwrap() + 2_000;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let raised = Rlimit { current: Some(files), ..limit };
        setrlimit(Resource::Nofile, raised).expect("a flood needs open files: raise the limit (ulimit -Hn)");
    }
    let mut open = JoinSet::new();
    for _ in 0..count {
        let mut raw = Raw::from(from, to).await.unwrap();
        open.spawn(async move { drop(raw.stream.read(&mut [0]).await) });
    }
    open
}

/// Waits until no more than `count` of these connections are open.
async fn until_open(open: &mut JoinSet<()>, count: usize) {
    let closing = async {
        while open.len() > count {
            open.join_next().await;
        }
    };
    timeout(EVER, closing).await.expect("connections beyond the limit are closed");
}

#[cfg(target_os = "linux")] // elsewhere only one loopback address is ours without asking
#[tokio::test(flavor = "multi_thread")]
async fn s16_two_thousand_idle_sockets_of_one_peer_take_only_its_share() {
    let limits = ServerLimits { head_timeout: EVER, ..ServerLimits::default() };
    let share = limits.peer_connections_max;
    besieged(limits, async |address, honest| {
        let mut open = flood(Ipv4Addr::new(127, 0, 0, 2), address, 2_000).await;
        until_open(&mut open, share).await;
        honest.goes_on(20).await;
        while open.try_join_next().is_some() {}
        assert_eq!(open.len(), share, "those within the share are left alone");
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_two_thousand_idle_sockets_from_an_honest_senders_own_address_do_not_stop_it() {
    let limits = ServerLimits { head_timeout: EVER, connections_max: 64, ..ServerLimits::default() };
    let max = limits.connections_max;
    besieged(limits, async |address, honest| {
        let mut open = flood(Ipv4Addr::LOCALHOST, address, 2_000).await;
        until_open(&mut open, max).await;
        honest.goes_on(20).await;
        0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_silent_newcomers_do_not_displace_a_connection_that_has_proved_itself() {
    let limits = ServerLimits { head_timeout: EVER, peer_connections_max: 64, ..ServerLimits::default() };
    besieged(limits, async |address, _| {
        let mut proved = Raw::connect(address).await;
        assert_eq!(proved.ask(&post(BATCH, &batch("proved"))).await.status, 200);
        let mut open = flood(Ipv4Addr::LOCALHOST, address, 500).await;
        until_open(&mut open, 64).await;
        proved.send(&post(BATCH, &batch("proved"))).await;
        let reply = proved.next().await.expect("the connection is still open");
        assert_eq!((reply.status, reply.outcomes()), (200, vec!["duplicate".to_owned()]));
        1
    })
    .await;
}
