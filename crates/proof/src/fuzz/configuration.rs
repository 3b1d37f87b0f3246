//! What users configure: refused for what it is (S10), or accepted and then workable.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use twobox_core::clock::BoxFuture;
use twobox_core::config::{CLOCK_SKEW_MAX, Timing};
use twobox_core::ports::{Answer, Listen as _, Receive};
use twobox_core::retry::Policy;
use twobox_core::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox_core::wire::Limits;
use twobox_core::{BoxError, Destination, Error, ErrorKind, Message, Source};
use twobox_engine::relay::RelayOptions;
use twobox_http::{Http, HttpServer, ServerLimits};
use twobox_sqlite::Prefix;
use twobox_testkit::SeededRandom;

use super::exchange::{answers, exchange, runtime, server};
use super::feed::Feed;
use super::post;
use super::{Check, ensure};

const ROUTE: &str = "/_rf/receive/batch";
const PLACE: &str = "{destination}";

struct Configurations {
    runtime: Runtime,
    server: HttpServer,
    receiver: Arc<dyn Receive>,
    request: Vec<u8>,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let body = post::batch(&post::shop_key()?, &post::usual()?[..1]);
    let head = format!(
        "POST {ROUTE} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let world = Configurations {
        runtime: runtime()?,
        server: server(post::keyrings()?)?,
        receiver: Arc::new(Held),
        request: [head.as_bytes(), &body].concat(),
    };
    Ok(Box::new(move |input| world.check(input)))
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let urls = [
        "http://127.0.0.1:7402",
        "http://[::1]:1/base/",
        "http://{destination}.internal:80",
        "HTTP://h/{destination}//",
        "http://user:canary@host",
        "http://h:99999",
        "http://h?a#b",
    ];
    let mut seeds: Vec<Vec<u8>> = urls.iter().map(|url| [b"\x00\x04", url.as_bytes()].concat()).collect();
    seeds.extend(
        [&b"\x01shop_"[..], b"\x01sqlite_x", b"\x02", b"\x03", b"\x04\x02\x01\x00\x01\x03\x05"]
            .map(Vec::from),
    );
    seeds.extend((0..12).map(|setting| [vec![2], vec![255; 3], vec![setting], vec![7; 20]].concat()));
    seeds.extend((0..16).map(|setting| vec![3, 1, setting, 0, 255]));
    seeds.push([vec![1], vec![b'x'; 33]].concat());
    Ok(seeds)
}

impl Configurations {
    fn check(&self, input: &[u8]) -> Result<(), BoxError> {
        let mut feed = Feed::new(input);
        match feed.below(5) {
            0 => url(&mut feed),
            1 => texts(feed.rest()),
            2 => timing(&mut feed),
            3 => self.limits(&mut feed),
            _ => keys(&mut feed),
        }
    }

    /// Limits are refused, or an honest request gets through them.
    fn limits(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let mut limits = ServerLimits::default();
        for _ in 0..feed.below(4) {
            change(&mut limits, feed);
        }
        let narrow = limits.wire != Limits::default();
        let server = self.server.clone().limits(limits);
        if let Err(error) = server.check() {
            return misconfigured(&error);
        }
        let said = self.runtime.block_on(exchange(&server, &self.receiver, &self.request, 0))?;
        let statuses: Vec<u16> = answers(&said)?.iter().map(|said| said.status).collect();
        let refused = || !statuses.is_empty() && statuses.iter().all(|status| (400..500).contains(status));
        let taken = statuses == [200] || (narrow && refused());
        ensure(taken, || format!("under limits that were accepted, an honest request got {statuses:?}"))
    }
}

fn change(limits: &mut ServerLimits, feed: &mut Feed<'_>) {
    match feed.below(16) {
        0 => limits.connections_max = number(feed),
        1 => limits.peer_connections_max = number(feed),
        2 => limits.head_timeout = duration(feed),
        3 => limits.headers_max = number(feed),
        4 => limits.head_bytes_max = number(feed),
        5 => limits.body_timeout = duration(feed),
        6 => limits.body_grace = duration(feed),
        7 => limits.body_rate_min = number(feed),
        8 => limits.bodies_bytes_max = number(feed),
        9 => limits.requests_max = number(feed),
        10 => limits.budget = duration(feed),
        11 => limits.answer_timeout = duration(feed),
        12 => limits.idle_timeout = duration(feed),
        13 => limits.shutdown_timeout = duration(feed),
        14 => limits.wire = Limits::for_payloads(number(feed)),
        _ => limits.wire.depth = number(feed),
    }
}

/// Answers everything, so that only limits can be in the way.
struct Held;

impl Receive for Held {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, Error>> {
        Box::pin(async move { Ok(vec![Answer::Held; messages.len()]) })
    }
}

/// Numbers at the edges, or any.
fn number(feed: &mut Feed<'_>) -> usize {
    match feed.below(8) {
        0 => 0,
        1 => 1,
        2 => 8 << 10,
        3 => 16,
        4 => 64 << 20,
        5 => usize::MAX,
        6 => feed.short(),
        _ => usize::try_from(feed.long()).unwrap_or(usize::MAX),
    }
}

/// Durations at the edges, or any.
fn duration(feed: &mut Feed<'_>) -> Duration {
    match feed.below(9) {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(1),
        2 => Duration::from_millis(1),
        3 => Duration::from_secs(20),
        4 => Duration::from_secs(3600),
        5 => Duration::from_secs(30 * 24 * 3600),
        6 => Duration::MAX,
        7 => Duration::from_secs(u64::from(feed.byte())),
        _ => Duration::from_micros(feed.long()),
    }
}

fn misconfigured(error: &Error) -> Result<(), BoxError> {
    let kind = error.kind();
    ensure(kind == ErrorKind::Misconfigured, || format!("refused as {kind:?}: {error}"))
}

/// A URL is refused, or leads where it says: to its own host and port, whatever the destination is called.
fn url(feed: &mut Feed<'_>) -> Result<(), BoxError> {
    let name = post::nasty(feed);
    let text = String::from_utf8_lossy(feed.rest()).into_owned();
    let http = match Http::unsigned(&text) {
        Ok(http) => http,
        Err(error) => return misconfigured(&error),
    };
    let scheme = text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    ensure(scheme || text.to_ascii_lowercase().starts_with("https://"), || {
        format!("{text} was taken for http")
    })?;
    let base = text.trim_end_matches('/');
    let authority = base.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    ensure(has_host_and_port(authority), || format!("{text} was accepted and has no such host and port"))?;
    let Ok(destination) = Destination::new(&name) else { return Ok(()) };
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match http.address(&destination) {
        Err(error) => {
            ensure(text.contains(PLACE), || format!("{text} was accepted and has no address: {error}"))
        }
        Ok(address) => {
            let fit = !text.contains(PLACE) || name.chars().all(legal);
            ensure(fit, || format!("{name:?} was put into {text}"))?;
            let expected = format!("{}{ROUTE}", base.replace(PLACE, &name));
            ensure(address.eq_ignore_ascii_case(&expected), || format!("{text} leads to {address}"))
        }
    }
}

fn has_host_and_port(authority: &str) -> bool {
    // An address of version 6 stands in brackets and is full of colons.
    let brackets = authority.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match authority[brackets..].find(':') {
        Some(at) => (&authority[..brackets + at], &authority[brackets + at + 1..]),
        None => (authority, "80"),
    };
    let is_port =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && !authority.contains('@') && is_port
}

/// Prefixes of tables and secrets.
fn texts(bytes: &[u8]) -> Result<(), BoxError> {
    let text = String::from_utf8_lossy(bytes);
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_prefix = text.len() <= 30
        && text.chars().all(legal)
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.starts_with("sqlite_");
    ensure(Prefix::new(&text).is_ok() == is_prefix, || format!("as a prefix, {text:?} is judged wrongly"))?;
    let secret = SecretKey::new(bytes);
    ensure(secret.is_ok() == (bytes.len() >= 32), || format!("{} bytes are judged wrongly", bytes.len()))?;
    let Ok(secret) = secret else { return Ok(()) };
    let shown = format!("{secret:?}");
    ensure(shown == "SecretKey(…)", || format!("a secret shows as {shown}"))
}

/// Settings that constrain each other: accepted exactly if all that is said about them holds.
fn timing(feed: &mut Feed<'_>) -> Result<(), BoxError> {
    let mut options = RelayOptions::default();
    for _ in 0..feed.below(5) {
        tune(&mut options, feed);
    }
    let timing = &options.timing;
    let sound = sound(&timing.retry) && sound(&options.probe) && agree(timing);
    let sound = sound
        && timing.lease <= Duration::from_secs(3600)
        && options.route_grace >= timing.lease
        && ![options.batch_messages_max, options.batch_bytes_max, options.in_flight_max].contains(&0);
    let checked = options.check();
    ensure(checked.is_ok() == sound, || format!("sound is {sound}, and the check says {checked:?}"))?;
    checked.map_or_else(|error| misconfigured(&error), |()| delays(&timing.retry, feed))
}

fn agree(timing: &Timing) -> bool {
    timing.dedup_window > timing.ttl.saturating_add(CLOCK_SKEW_MAX)
        && timing.retry.horizon() < timing.ttl
        && !timing.request_timeout.is_zero()
        && timing.lease >= timing.request_timeout.saturating_mul(2)
}

/// Whether a policy waits at all, and never longer than it says. There is nothing to read it back by but its delays.
fn sound(policy: &Policy) -> bool {
    let (none, first) = (SeededRandom::new(0), Duration::ZERO);
    policy.check().is_ok() && policy.delay(0, &none) > first
}

fn delays(policy: &Policy, feed: &mut Feed<'_>) -> Result<(), BoxError> {
    let random = SeededRandom::new(feed.long());
    for doublings in [0, 1, 31, 32, 33, u32::MAX] {
        let delay = policy.delay(doublings, &random);
        ensure(delay <= policy.delay_max(), || format!("{delay:?} after {doublings} doublings"))?;
    }
    Ok(())
}

fn tune(options: &mut RelayOptions, feed: &mut Feed<'_>) {
    let timing = &mut options.timing;
    match feed.below(12) {
        0 => timing.ttl = duration(feed),
        1 => timing.dedup_window = duration(feed),
        2 => timing.request_timeout = duration(feed),
        3 => timing.lease = duration(feed),
        4 => timing.retry = policy(feed),
        5 => options.probe = policy(feed),
        6 => options.route_grace = duration(feed),
        7 => options.batch_messages_max = number(feed),
        8 => options.batch_bytes_max = number(feed),
        9 => options.in_flight_max = number(feed),
        10 => options.shutdown_timeout = duration(feed),
        _ => timing.retry = timing.retry.clone().attempts_max(attempts(feed)),
    }
}

fn attempts(feed: &mut Feed<'_>) -> NonZeroU32 {
    NonZeroU32::new(u32::try_from(number(feed)).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
}

fn policy(feed: &mut Feed<'_>) -> Policy {
    Policy::default()
        .attempts_max(attempts(feed))
        .base(duration(feed))
        .max(duration(feed))
        .jitter(duration(feed))
}

/// Keyrings: every key has one name, one owner and a time that is not empty; the newest that holds signs.
fn keys(feed: &mut Feed<'_>) -> Result<(), BoxError> {
    let (shop, bank) = (Source::new("shop")?, Source::new("bank")?);
    let (mut keyrings, mut taken) = (Keyrings::new(), Vec::new());
    for owner in [&shop, &bank] {
        let (mut keys, mut ids, mut sound) = (Vec::new(), Vec::new(), true);
        for _ in 0..feed.below(4) {
            let id = KeyId::new(feed.one_of(&["a", "b", "c", "d"]))?;
            let (first, last) = (post::time(feed), post::time(feed));
            sound &= first <= last && !ids.contains(&id);
            keys.push(Key::new(id.clone(), SecretKey::new(&[7; 32])?).not_before(first).not_after(last));
            ids.push(id);
        }
        sound &= !keys.is_empty();
        let ring = Keyring::new(keys);
        ensure(ring.is_ok() == sound, || format!("sound is {sound}, and the keyring {ring:?}"))?;
        let Ok(ring) = ring else { continue };
        let now = post::time(feed);
        ensure(ring.active(now).is_none_or(|key| key.is_active(now)), || {
            "a key signs out of its time".into()
        })?;
        let free = ids.iter().all(|id| !taken.contains(id));
        ensure(keyrings.insert(owner, ring).is_ok() == free, || format!("{ids:?} beside {taken:?}"))?;
        ensure(keyrings.knows(owner) == free, || format!("{owner} is known although free is {free}"))?;
        if free {
            taken.extend(ids);
        }
    }
    Ok(())
}
