//! Signatures: nothing but the very thing that was signed is believed, and of nobody but the key's owner.

use std::time::Duration;

use twobox_core::message::Message;
use twobox_core::ports::Link;
use twobox_core::signing::{
    Key, KeyId, Keyrings, Mac, Refused, Signature, Signed, SignedAnswer, SignedProbe, sha256, sign,
    sign_probe,
};
use twobox_core::wire::{self, Draft, Limits, Parsed, Stamp};
use twobox_core::{BoxError, Destination, Source, Timestamp};

use super::feed::Feed;
use super::post::{self, NOW, OUTBOX};
use super::{Check, edit, ensure};

struct Signatures {
    messages: Vec<Message>,
    envelopes: Vec<Vec<u8>>,
    honest: Vec<Parsed>,
    shop: Key,
    bank: Key,
    stranger: Key,
    keyrings: Keyrings,
    limits: Limits,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let (shop, messages, limits) = (post::shop_key()?, post::usual()?, Limits::default());
    let envelopes: Vec<_> = messages.iter().map(|message| post::envelope(&shop, message)).collect();
    let world = Signatures {
        honest: envelopes.iter().map(|bytes| wire::parse(bytes, &limits)).collect::<Result<_, _>>()?,
        messages,
        envelopes,
        shop,
        bank: post::bank_key()?,
        stranger: post::key(("k-none", &[0; 32]))?,
        keyrings: post::keyrings()?,
        limits,
    };
    Ok(Box::new(move |input| world.check(input)))
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let key = post::shop_key()?;
    let signature = post::signature(&key, &post::usual()?[0], NOW);
    let mut seeds: Vec<Vec<u8>> = (0..3).map(|at| vec![1, at]).collect();
    seeds.push([&[0], signature.mac.to_base64().as_bytes()].concat());
    seeds.push(b"\x00k-shop".to_vec());
    seeds.extend((0..6).map(|attack| vec![2, attack, 1, 40, 3]));
    seeds.push(vec![3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    seeds.extend((0..14).map(|of| [vec![3], vec![of; 24]].concat()));
    seeds.push(b"\x01\x01\x00\x50\x01\x02\x05".to_vec());
    Ok(seeds)
}

impl Signatures {
    fn check(&self, input: &[u8]) -> Result<(), BoxError> {
        let mut feed = Feed::new(input);
        match feed.below(4) {
            0 => texts(&String::from_utf8_lossy(feed.rest())),
            1 => self.tampered(&mut feed),
            2 => self.attack(&mut feed),
            _ => self.canonical(&mut feed),
        }
    }

    /// An honest envelope that was spoilt on its way.
    fn tampered(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let at = feed.below(self.envelopes.len());
        let (mut bytes, untouched) = (self.envelopes[at].clone(), feed.is_empty());
        edit::tamper(feed, &mut bytes, &self.envelopes[(at + 1) % self.envelopes.len()]);
        let Ok(parsed) = wire::parse(&bytes, &self.limits) else {
            return ensure(!untouched, || "an honest envelope was not read".into());
        };
        match parsed.verify(&self.keyrings, NOW) {
            Ok(source) => {
                ensure(source.as_str() == "shop", || format!("the shop's key is said to be {source}'s"))?;
                ensure(self.honest.contains(&parsed), || format!("believed, but never signed: {parsed:?}"))
            }
            Err(refused) => ensure(!untouched, || format!("an honest envelope was refused: {refused}")),
        }
    }

    /// Somebody who can sign, but not as the shop; or the shop at another time.
    fn attack(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let (attack, sent) = (feed.below(6), post::time(feed));
        let message = &self.messages[feed.below(self.messages.len())];
        let key = match attack {
            0 => &self.bank,
            1 => &self.stranger,
            _ => &self.shop,
        };
        let mut signature = post::signature(key, message, sent);
        let mut bits = *signature.mac.as_bytes();
        match attack {
            // The bank's code under the shop's name, the other way round, or a code of which one bit differs.
            2 => {
                signature =
                    Signature { key_id: self.shop.id().clone(), ..post::signature(&self.bank, message, sent) }
            }
            3 => signature.key_id = self.bank.id().clone(),
            4 => {
                bits[feed.below(32)] ^= 1 << feed.below(8);
                signature.mac = Mac::from_bytes(bits);
            }
            _ => {}
        }
        let stamp = Stamp { sent, outbox: OUTBOX, signature: Some(&signature) };
        let parsed = wire::parse(&Draft::new(message).encode(&stamp), &self.limits)?;
        let far = NOW.since(sent).max(sent.since(NOW)) > Duration::from_secs(300);
        let expected = match attack {
            5 if far => Err(Refused::Stale),
            5 => Ok(Source::new("shop")?),
            _ => Err(Refused::Unauthentic),
        };
        let verdict = parsed.verify(&self.keyrings, NOW);
        ensure(verdict == expected, || format!("attack {attack}: {verdict:?} instead of {expected:?}"))
    }

    /// What is signed can be taken apart again into exactly the fields it was made of, so no two requests share it.
    fn canonical(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let (mut message, sent, outbox) = (post::message(feed)?, post::time(feed), post::nasty(feed));
        message.source = Source::new(post::nasty(feed)).unwrap_or(message.source);
        message.destination = Destination::new(post::nasty(feed)).unwrap_or(message.destination);
        let encoding = post::nasty(feed);
        let key_id = KeyId::new(post::nasty(feed)).or_else(|_| KeyId::new("k"))?;
        let hash = sha256(feed.rest());
        let signed =
            Signed { message: &message, sent, outbox: &outbox, encoding: &encoding, payload_sha256: hash };
        taken_apart(&signed.canonical(&key_id), "TB1-REQ", &request_fields(&signed, &key_id))?;
        let link = Link {
            source: message.source.clone(),
            destination: message.destination.clone(),
            outbox: outbox.clone(),
        };
        let probe = SignedProbe { link: &link, sent };
        taken_apart(&probe.canonical(&key_id), "TB1-PRB", &probe_fields(&probe, &key_id))?;
        let status = u16::try_from(message.replay % 1000)?;
        let answer = SignedAnswer {
            source: &link.source,
            destination: &link.destination,
            sent,
            request_sha256: hash,
            status,
            body_sha256: sha256(message.payload.as_bytes()),
        };
        taken_apart(&answer.canonical(&key_id), "TB1-ANS", &answer_fields(&answer, &key_id))?;
        self.same_key_same_code(&signed, &probe)
    }

    /// Signing is a function of what is signed, and of the kind of thing it is.
    fn same_key_same_code(&self, signed: &Signed<'_>, probe: &SignedProbe<'_>) -> Result<(), BoxError> {
        let (one, two) = (sign(&self.shop, signed), sign(&self.shop, signed));
        ensure(one == two, || "the same request was signed in two ways".into())?;
        ensure(one.mac != sign_probe(&self.shop, probe).mac, || "a probe has the code of a request".into())
    }
}

/// Names of keys and codes as text: one text each, and only legal ones.
fn texts(text: &str) -> Result<(), BoxError> {
    if let Some(mac) = Mac::from_base64(text) {
        ensure(mac.to_base64() == text, || format!("{text} is a second text of the same code"))?;
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let expected = (1..=64).contains(&text.len()) && text.chars().all(legal);
    ensure(KeyId::new(text).is_ok() == expected, || format!("as a key id, {text:?} is judged wrongly"))
}

fn micros(time: Timestamp) -> String {
    time.as_micros().to_string()
}

fn hex(hash: &[u8; 32]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn request_fields(signed: &Signed<'_>, key_id: &KeyId) -> Vec<String> {
    let message = signed.message;
    let mut headers = String::new();
    for text in message.headers.iter().flat_map(|(name, value)| [name, value]) {
        headers += &format!("{}:{text},", text.len());
    }
    vec![
        key_id.to_string(),
        message.source.to_string(),
        message.destination.to_string(),
        message.endpoint.to_string(),
        message.id.to_string(),
        message.message_type.as_str().into(),
        micros(message.created),
        micros(message.available),
        micros(signed.sent),
        micros(message.expires),
        message.replay.to_string(),
        signed.outbox.into(),
        message.content_type.to_string(),
        message.correlation_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        message.ordering_key.as_ref().map(ToString::to_string).unwrap_or_default(),
        hex(&sha256(headers.as_bytes())),
        signed.encoding.into(),
        hex(&signed.payload_sha256),
    ]
}

fn probe_fields(probe: &SignedProbe<'_>, key_id: &KeyId) -> Vec<String> {
    let link = probe.link;
    let (source, destination) = (link.source.to_string(), link.destination.to_string());
    vec![key_id.to_string(), source, destination, micros(probe.sent), link.outbox.clone()]
}

fn answer_fields(answer: &SignedAnswer<'_>, key_id: &KeyId) -> Vec<String> {
    vec![
        key_id.to_string(),
        answer.source.to_string(),
        answer.destination.to_string(),
        micros(answer.sent),
        hex(&answer.request_sha256),
        answer.status.to_string(),
        hex(&answer.body_sha256),
    ]
}

fn taken_apart(canonical: &str, tag: &str, fields: &[String]) -> Result<(), BoxError> {
    let rest = canonical.strip_prefix(tag).and_then(|rest| rest.strip_prefix('\n'));
    let found = rest.and_then(netstrings);
    let equal = found.as_ref().is_some_and(|found| found.iter().eq(fields));
    ensure(equal, || format!("{canonical:?} reads as {found:?} instead of {fields:?}"))
}

/// The netstrings a text consists of, and nothing beside them.
fn netstrings(mut text: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let (length, rest) = text.split_once(':')?;
        let (field, rest) = rest.split_at_checked(length.parse().ok()?)?;
        found.push(field);
        text = rest.strip_prefix(',')?;
    }
    Some(found)
}
