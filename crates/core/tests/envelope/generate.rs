//! Messages of every kind, and small builders.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use twobox_core::name::{CorrelationId, Destination, Endpoint, MessageId, OrderingKey};
use twobox_core::signing::{Key, KeyId, Keyring, Keyrings, SecretKey, sign};
use twobox_core::wire::{Draft, Stamp};
use twobox_core::{Headers, Message, MessageType, Payload, Source, Timestamp};

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_771_070_400_000_000);

/// Text that tries to be mistaken for lengths, separators, JSON or escapes.
const NAME: &str = "[0-9:,a-c\"\\\\{\\[é🦀\u{2028} ]{1,8}";

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..64),
        "[ \\[\\]{}\":,0-9a-z\\\\é]{0,24}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            "null",
            "{}",
            " {}",
            "\"\"",
            "\"AP/+Cg0=\"",
            "1e400",
            "{\"a\":1,\"a\":2}",
            "\"\\ud800\"",
            "[[[]]]",
            "tru",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn content_type() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("application/json".to_owned()),
        1 => prop::sample::select(vec!["", ";", "APPLICATION/JSON;a=b", "x+json", "text/plain", "a\"\\b"])
            .prop_map(str::to_owned),
        1 => "\\PC{0,20}".prop_filter("no control characters", |text| !text.chars().any(char::is_control)),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    btree_map("[a-q._-]{1,6}", "[0-9:,\"\\\\é{ ]{0,8}", 0..4).prop_map(|map| {
        let mut headers = Headers::default();
        for (name, value) in map {
            headers.insert(name, value).expect("generated headers are legal");
        }
        headers
    })
}

fn message_type() -> impl Strategy<Value = MessageType> {
    use MessageType::{Command, PushCall, Response, Signal};
    prop::sample::select(vec![Signal, Command, PushCall, Response])
}

pub(crate) fn time() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp::from_micros)
}

pub(crate) fn messages() -> impl Strategy<Value = Message> {
    let names = (NAME, NAME, NAME, NAME);
    let options = (option::of(NAME), option::of(NAME));
    let body = (message_type(), payload(), content_type(), headers());
    (names, options, body, (time(), time(), time()), any::<u32>()).prop_map(
        |((id, source, destination, endpoint), (correlation, ordering), body, times, replay)| Message {
            id: MessageId::new(id).expect("legal"),
            source: Source::new(source).expect("legal"),
            destination: Destination::new(destination).expect("legal"),
            endpoint: Endpoint::new(endpoint).expect("legal"),
            message_type: body.0,
            payload: Payload::new(body.1),
            content_type: body.2.into(),
            correlation_id: correlation.map(|text| CorrelationId::new(text).expect("legal")),
            ordering_key: ordering.map(|text| OrderingKey::new(text).expect("legal")),
            headers: body.3,
            created: times.0,
            available: times.1,
            expires: times.2,
            replay,
        },
    )
}

/// A plain message with the given payload.
pub(crate) fn message(content_type: &str, payload: impl Into<Vec<u8>>) -> Message {
    Message {
        id: MessageId::new("m-1").expect("legal"),
        source: Source::new("shop").expect("legal"),
        destination: Destination::new("billing").expect("legal"),
        endpoint: Endpoint::new("OrderApproved").expect("legal"),
        message_type: MessageType::Signal,
        payload: Payload::new(payload.into()),
        content_type: content_type.into(),
        correlation_id: None,
        ordering_key: None,
        headers: Headers::default(),
        created: NOW,
        available: NOW,
        expires: Timestamp::MAX,
        replay: 0,
    }
}

/// The envelope of `message`, not signed.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    Draft::new(message).encode(&Stamp { sent: NOW, outbox: "outbox-1", signature: None })
}

/// The envelope of `message`, sent at `sent` and signed with `key`.
pub(crate) fn encode_signed(message: &Message, sent: Timestamp, key: &Key) -> Vec<u8> {
    let draft = Draft::new(message);
    let signature = sign(key, &draft.signed(sent, "outbox-1"));
    draft.encode(&Stamp { sent, outbox: "outbox-1", signature: Some(&signature) })
}

pub(crate) fn key(id: &str, secret: u8) -> Key {
    Key::new(KeyId::new(id).expect("legal"), SecretKey::new(&[secret; 32]).expect("long enough"))
}

pub(crate) fn keyrings<const N: usize>(source: &Source, keys: [Key; N]) -> Keyrings {
    let mut keyrings = Keyrings::new();
    keyrings.insert(source, Keyring::new(keys).expect("legal")).expect("no key yet");
    keyrings
}
