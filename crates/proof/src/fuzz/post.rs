//! Signed post: what an honest sender hands over before somebody tampers with it.

use twobox_core::ports::Link;
use twobox_core::signing::{Key, KeyId, Keyring, Keyrings, SecretKey, Signature, sign};
use twobox_core::wire::{Batch, Draft, Stamp};
use twobox_core::{
    CorrelationId, Destination, Endpoint, Error, Headers, Message, MessageId, MessageType, OrderingKey,
    Payload, Source, Timestamp,
};

use super::feed::Feed;

/// When everything happens: where a `ManualClock` stands.
pub(super) const NOW: Timestamp = Timestamp::from_micros(1_780_000_000_000_000);
pub(super) const OUTBOX: &str = "outbox-1";
/// The key whose owner is the shop, and the bank's, which signs nothing here.
const SHOP_KEY: (&str, &[u8]) = ("k-shop", b"the shop's secret is long enough!");
const BANK_KEY: (&str, &[u8]) = ("k-bank", b"the bank's secret is not the same");

/// Text that tries to be mistaken for lengths, separators, JSON, escapes or heads.
const NASTY: [&str; 12] =
    ["m-1", "1:a,", "0:,", "é", "a\"b\\c", "{\"a\":[", "\u{2028}", "rf-hmac", "%2F", "🦀", " ", "2orders"];

pub(super) fn key(of: (&str, &[u8])) -> Result<Key, Error> {
    Ok(Key::new(KeyId::new(of.0)?, SecretKey::new(of.1)?))
}

pub(super) fn shop_key() -> Result<Key, Error> {
    key(SHOP_KEY)
}

pub(super) fn bank_key() -> Result<Key, Error> {
    key(BANK_KEY)
}

/// What the receiver knows: the keys of the shop and of the bank.
pub(super) fn keyrings() -> Result<Keyrings, Error> {
    let mut keyrings = Keyrings::of("shop", Keyring::of(SHOP_KEY.0, SHOP_KEY.1)?)?;
    keyrings.insert(&Source::new("bank")?, Keyring::of(BANK_KEY.0, BANK_KEY.1)?)?;
    Ok(keyrings)
}

pub(super) fn link() -> Result<Link, Error> {
    Ok(Link {
        source: Source::new("shop")?,
        destination: Destination::new("billing")?,
        outbox: OUTBOX.into(),
    })
}

/// A plain message from the shop to billing.
pub(super) fn plain(id: &str, payload: &[u8]) -> Result<Message, Error> {
    Ok(Message {
        id: MessageId::new(id)?,
        source: Source::new("shop")?,
        destination: Destination::new("billing")?,
        endpoint: Endpoint::new("Pay")?,
        message_type: MessageType::Signal,
        payload: Payload::new(payload.to_vec()),
        content_type: "application/json".into(),
        correlation_id: None,
        ordering_key: None,
        headers: Headers::default(),
        created: NOW,
        available: NOW,
        expires: Timestamp::MAX,
        replay: 0,
    })
}

/// A few messages that are always the same, so that their signatures are as well: they stand in the corpus.
pub(super) fn usual() -> Result<Vec<Message>, Error> {
    let mut odd = plain("m-2", b"\xff\x00 not JSON")?;
    odd.content_type = "application/octet-stream".into();
    odd.ordering_key = Some(OrderingKey::new("order 7")?);
    odd.correlation_id = Some(CorrelationId::new("m-1")?);
    odd.headers.insert("traceparent", "00-ab-cd-01")?;
    let mut other = plain("m-3", b"\"\\ud83e\\udd80\"")?;
    other.message_type = MessageType::Command;
    other.headers.insert("a", "1:b,")?;
    Ok(vec![plain("m-1", br#"{"order":7,"lines":[1,2]}"#)?, odd, other])
}

/// A message of which everything but source and destination is as `feed` says, where that is legal.
pub(super) fn message(feed: &mut Feed<'_>) -> Result<Message, Error> {
    let mut message = plain("m-1", b"{}")?;
    let legal = |text: String| if text.is_empty() { None } else { Some(text) };
    if let Ok(id) = MessageId::new(nasty(feed)) {
        message.id = id;
    }
    if let Ok(endpoint) = Endpoint::new(nasty(feed)) {
        message.endpoint = endpoint;
    }
    message.message_type =
        [MessageType::Signal, MessageType::Command, MessageType::PushCall, MessageType::Response]
            [feed.below(4)];
    message.correlation_id = legal(nasty(feed)).and_then(|text| CorrelationId::new(text).ok());
    message.ordering_key = legal(nasty(feed)).and_then(|text| OrderingKey::new(text).ok());
    for _ in 0..feed.below(4) {
        // What is refused is left out; what is accepted must arrive.
        let (name, value) = (nasty(feed), nasty(feed));
        let mut headers = message.headers.clone();
        if headers.insert(name, value).is_ok() {
            message.headers = headers;
        }
    }
    (message.created, message.available, message.expires) = (time(feed), time(feed), time(feed));
    message.replay = if feed.below(4) == 0 { u32::MAX } else { u32::from(feed.byte()) };
    if let Some(content_type) = content_type(feed) {
        message.content_type = content_type.into();
    }
    message.payload = Payload::new(feed.bytes().to_vec());
    Ok(message)
}

fn content_type(feed: &mut Feed<'_>) -> Option<String> {
    let text = match feed.below(6) {
        0..3 => return None,
        3 => String::new(),
        4 => "text/plain; x=+json".into(),
        _ => feed.text(),
    };
    twobox_core::wire::check_content_type(&text).is_ok().then_some(text)
}

/// Text from the list above or of its own.
pub(super) fn nasty(feed: &mut Feed<'_>) -> String {
    match feed.below(NASTY.len() + 2) {
        own if own >= NASTY.len() => feed.text(),
        at => NASTY[at].into(),
    }
}

/// Times around now, far from it, and at the ends.
pub(super) fn time(feed: &mut Feed<'_>) -> Timestamp {
    match feed.below(6) {
        0 => NOW,
        1 => Timestamp::MAX,
        2 => Timestamp::from_micros(i64::MIN),
        3 => Timestamp::from_micros(NOW.as_micros() + i64::from(feed.byte()) * 10_000_000),
        4 => Timestamp::from_micros(NOW.as_micros() - i64::from(feed.byte()) * 10_000_000),
        _ => Timestamp::from_micros(feed.long().cast_signed()),
    }
}

pub(super) fn signature(key: &Key, message: &Message, sent: Timestamp) -> Signature {
    sign(key, &Draft::new(message).signed(sent, OUTBOX))
}

/// One envelope, signed now.
pub(super) fn envelope(key: &Key, message: &Message) -> Vec<u8> {
    let signature = signature(key, message, NOW);
    Draft::new(message).encode(&Stamp { sent: NOW, outbox: OUTBOX, signature: Some(&signature) })
}

/// A batch, signed now.
pub(super) fn batch(key: &Key, messages: &[Message]) -> Vec<u8> {
    let mut batch = Batch::new();
    for message in messages {
        let signature = signature(key, message, NOW);
        batch.push(&Draft::new(message), &Stamp { sent: NOW, outbox: OUTBOX, signature: Some(&signature) });
    }
    batch.into_bytes()
}
