//! What stands in heads: probes with their escapes, instants, headers and names.

use std::collections::BTreeMap;

use twobox_core::message::{HEADER_BYTES_MAX, HEADERS_MAX};
use twobox_core::signing::{Keyrings, SignedProbe, sign_probe};
use twobox_core::wire::{Probe, header};
use twobox_core::{BoxError, Destination, Endpoint, Headers, MessageType, Source, Timestamp};

use super::feed::Feed;
use super::post::{self, NOW};
use super::{Check, edit, ensure};

type Head = BTreeMap<&'static str, String>;

struct Probes {
    honest: Probe,
    head: Head,
    keyrings: Keyrings,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let honest = honest()?;
    let world = Probes { head: honest.headers().into(), honest, keyrings: post::keyrings()? };
    Ok(Box::new(move |input| world.check(input)))
}

fn honest() -> Result<Probe, BoxError> {
    let link = post::link()?;
    let signature = sign_probe(&post::shop_key()?, &SignedProbe { link: &link, sent: NOW });
    Ok(Probe { link, sent: NOW, signature })
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let mut seeds = vec![vec![1], vec![1, 0, 9, 3], vec![3, 5, 5], b"\x02billing".to_vec()];
    for time in
        ["2026-02-14T12:00:00Z", "2026-02-14t12:00:00.123456789+00:00", "-290308-12-21T19:59:05.224192Z"]
    {
        seeds.push([&[0], time.as_bytes()].concat());
    }
    seeds.extend(
        [&br#"{"traceparent":"00-ab","a":""}"#[..], b"Signal", b"b%C3%BCro%201"]
            .map(|text| [&[2], text].concat()),
    );
    seeds.extend((0..14).map(|of| vec![3, 0, of, of, of, 1]));
    Ok(seeds)
}

impl Probes {
    fn check(&self, input: &[u8]) -> Result<(), BoxError> {
        let mut feed = Feed::new(input);
        match feed.below(4) {
            0 => self.instant(&String::from_utf8_lossy(feed.rest())),
            1 => self.tampered(&mut feed),
            2 => texts(&String::from_utf8_lossy(feed.rest())),
            _ => self.any(&mut feed),
        }
    }

    /// An honest probe of which one header was spoilt.
    fn tampered(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let (mut head, untouched) = (self.head.clone(), feed.is_empty());
        let names: Vec<_> = head.keys().copied().collect();
        let (name, other) = (names[feed.below(names.len())], names[feed.below(names.len())]);
        let mut value = head[name].clone().into_bytes();
        edit::tamper(feed, &mut value, head[other].as_bytes());
        head.insert(name, String::from_utf8_lossy(&value).into_owned());
        let Ok(probe) = read(&head) else {
            return ensure(!untouched, || "an honest probe was not read".into());
        };
        again(&probe)?;
        match probe.verify(&self.keyrings, NOW) {
            Ok(source) => {
                let same = source.as_str() == "shop" && probe == self.honest;
                ensure(same, || format!("believed, but never signed: {probe:?}"))
            }
            Err(refused) => ensure(!untouched, || format!("an honest probe was refused: {refused}")),
        }
    }

    /// A sent time as text: refused, or a time that is written in one way and read again.
    fn instant(&self, text: &str) -> Result<(), BoxError> {
        let mut head = self.head.clone();
        head.insert(header::TIMESTAMP, text.into());
        let Ok(probe) = read(&head) else { return Ok(()) };
        let shaped = text.len() >= 20 && text.is_ascii() && text.contains(['T', 't']);
        ensure(shaped, || format!("{text:?} was read as a time"))?;
        again(&probe)
    }

    /// Every time and every name can be written and read, also those of clocks that are years off.
    fn any(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let (sent, mut probe) = (post::time(feed), self.honest.clone());
        probe.sent = sent;
        probe.link.source = Source::new(post::nasty(feed)).unwrap_or(probe.link.source);
        probe.link.destination = Destination::new(post::nasty(feed)).unwrap_or(probe.link.destination);
        probe.link.outbox = twobox_core::handler::shorten(&post::nasty(feed));
        again(&probe)?;
        let far = Timestamp::from_micros(feed.long().cast_signed());
        let ordered = sent.plus(far.since(sent)) >= sent && sent.minus(far.since(sent)) <= sent;
        ensure(ordered, || format!("time went backwards between {sent:?} and {far:?}"))
    }
}

fn read(head: &Head) -> twobox_core::Result<Probe> {
    Probe::read(|name| head.get(name).map(String::as_str))
}

fn again(probe: &Probe) -> Result<(), BoxError> {
    let head = Head::from(probe.headers());
    let plain = head.values().all(|value| value.bytes().all(|byte| byte.is_ascii_graphic()));
    ensure(plain, || format!("{head:?} cannot stand in a head"))?;
    let read = read(&head)?;
    ensure(read == *probe, || format!("came back as {read:?} instead of {probe:?}"))
}

fn texts(text: &str) -> Result<(), BoxError> {
    let has_control = text.chars().any(char::is_control);
    let legal = !has_control && (1..=255).contains(&text.chars().count());
    ensure(Endpoint::new(text).is_ok() == legal, || format!("as a name, {text:?} is judged wrongly"))?;
    if let Ok(kind) = text.parse::<MessageType>() {
        ensure(kind.as_str() == text, || format!("{text} is a second name of {kind:?}"))?;
    }
    let mut one = Headers::default();
    let fits = text.len() < HEADER_BYTES_MAX;
    ensure(one.insert("a", text).is_ok() == (fits && !has_control), || {
        format!("header {text:?} is judged wrongly")
    })?;
    let Ok(headers) = Headers::from_json(text) else { return Ok(()) };
    ensure(headers.iter().count() <= HEADERS_MAX, || "more headers than allowed".into())?;
    let again = Headers::from_json(&headers.to_json())?;
    ensure(again == headers, || format!("headers came back as {again:?} instead of {headers:?}"))
}
