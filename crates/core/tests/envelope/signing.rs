//! What a signature holds for, and what it does not.

use std::time::Duration;

use proptest::prelude::*;
use twobox_core::name::{CorrelationId, Destination, Endpoint, MessageId, OrderingKey};
use twobox_core::ports::Link;
use twobox_core::signing::{
    FRESHNESS, Key, KeyId, Keyrings, Mac, Refused, SecretKey, Signature, Signed, SignedAnswer, SignedProbe,
    sign, sign_answer, sign_probe, verify_answer,
};
use twobox_core::wire::{self, Encoding, Limits, Parsed};
use twobox_core::{Message, MessageType, Payload, Source, Timestamp};

use crate::generate::{NOW, encode, encode_signed, key, keyrings, message, messages, time};

fn arrived(message: &Message, sent: Timestamp, key: &Key) -> Parsed {
    wire::parse(&encode_signed(message, sent, key), &Limits::default()).expect("what we write, we read")
}

fn shop() -> Source {
    Source::new("shop").expect("legal")
}

fn bump(text: &str) -> String {
    format!("{text}1")
}

fn later(time: Timestamp) -> Timestamp {
    Timestamp::from_micros(time.as_micros().wrapping_add(1))
}

/// One change per covered field. The source is not among them: it is refused for its owner already.
pub(crate) const CHANGES: [fn(&mut Parsed); 19] = [
    |p| p.message.destination = Destination::new(bump(p.message.destination.as_str())).expect("legal"),
    |p| p.message.endpoint = Endpoint::new(bump(p.message.endpoint.as_str())).expect("legal"),
    |p| p.message.id = MessageId::new(bump(p.message.id.as_str())).expect("legal"),
    |p| {
        p.message.message_type = match p.message.message_type {
            MessageType::Signal => MessageType::Command,
            _ => MessageType::Signal,
        };
    },
    |p| p.message.created = later(p.message.created),
    |p| p.message.available = later(p.message.available),
    |p| p.message.expires = later(p.message.expires),
    |p| p.sent = later(p.sent),
    |p| p.message.replay = p.message.replay.wrapping_add(1),
    |p| p.outbox = format!("{}1", p.outbox).into(),
    |p| p.message.content_type = format!("{}1", p.message.content_type).into(),
    |p| {
        p.message.correlation_id = match &p.message.correlation_id {
            Some(_) => None,
            None => Some(CorrelationId::new("0").expect("legal")),
        };
    },
    |p| {
        p.message.ordering_key = match &p.message.ordering_key {
            Some(_) => None,
            None => Some(OrderingKey::new("0").expect("legal")),
        };
    },
    |p| std::mem::swap(&mut p.message.created, &mut p.sent),
    |p| p.message.headers.insert("new", "").expect("room for one more"),
    |p| {
        p.encoding = match p.encoding {
            Encoding::Plain => Encoding::Base64,
            Encoding::Base64 => Encoding::Plain,
        };
    },
    |p| p.payload_sha256[31] ^= 1,
    |p| p.signature.as_mut().expect("signed").key_id = KeyId::new("other").expect("legal"),
    |p| p.signature.as_mut().expect("signed").key_id = KeyId::new("nobody").expect("legal"),
];

/// The fields of a canonical string. That they can be had back is what makes the encoding injective.
fn fields(canonical: &str) -> Vec<String> {
    let (_, mut rest) = canonical.split_once('\n').expect("a tag");
    let mut fields = Vec::new();
    while let Some((length, tail)) = rest.split_once(':') {
        let (field, tail) = tail.split_at(length.parse().expect("a length"));
        fields.push(field.to_owned());
        rest = tail.strip_prefix(',').expect("a comma");
    }
    assert_eq!(rest, "");
    fields
}

/// The texts of a message in signing order, from an alphabet so small that careless joining collides.
fn texts() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[1:,]{1,3}", 8)
}

fn of_texts(texts: &[String], encoding: &'static str) -> String {
    let mut message = message(&texts[4], "");
    message.source = Source::new(&texts[0]).expect("legal");
    message.destination = Destination::new(&texts[1]).expect("legal");
    message.endpoint = Endpoint::new(&texts[2]).expect("legal");
    message.id = MessageId::new(&texts[3]).expect("legal");
    message.correlation_id = texts[5].strip_prefix(':').and_then(|text| CorrelationId::new(text).ok());
    message.ordering_key = texts[6].strip_prefix(':').and_then(|text| OrderingKey::new(text).ok());
    message.headers.insert("a", &texts[7]).expect("legal");
    let signed =
        Signed { message: &message, sent: NOW, outbox: &texts[7], encoding, payload_sha256: [0; 32] };
    signed.canonical(&KeyId::new("k").expect("legal"))
}

proptest! {
    #[test]
    fn s11_every_field_can_be_had_back(message in messages(), sent in time(), outbox in "[1:,é]{0,4}") {
        let signed = Signed {
            message: &message, sent, outbox: &outbox, encoding: "base64", payload_sha256: [0xab; 32],
        };
        let fields = fields(&signed.canonical(&KeyId::new("k").expect("legal")));
        prop_assert_eq!(fields.len(), 18);
        prop_assert_eq!(&fields[0], "k");
        prop_assert_eq!(&fields[1], message.source.as_str());
        prop_assert_eq!(&fields[4], message.id.as_str());
        prop_assert_eq!(&fields[8], &sent.as_micros().to_string());
        prop_assert_eq!(&fields[11], &outbox);
        prop_assert_eq!(&fields[12], message.content_type.as_str());
        prop_assert_eq!(&fields[13], message.correlation_id.as_ref().map_or("", |id| id.as_str()));
        prop_assert_eq!(&fields[14], message.ordering_key.as_ref().map_or("", |key| key.as_str()));
        prop_assert_eq!(&fields[16], "base64");
        prop_assert_eq!(&fields[17], &"ab".repeat(32));
    }

    #[test]
    fn s11_the_encoding_is_injective(a in texts(), b in texts(), from in 0..8_usize, to in 0..8_usize) {
        // What is absent is absent in both ways of not starting with a colon.
        let normal = |texts: &[String]| {
            let mut texts = texts.to_vec();
            for text in &mut texts[5..7] {
                *text = text.strip_prefix(':').unwrap_or_default().to_owned();
            }
            texts
        };
        prop_assert_eq!(of_texts(&a, "") == of_texts(&b, ""), normal(&a) == normal(&b));
        prop_assert_ne!(of_texts(&a, ""), of_texts(&a, "base64"));
        // The hard case: the same characters with one moved from field to field.
        let mut moved = a.clone();
        if moved[from].len() > 1 {
            let last = moved[from].pop().expect("not empty");
            moved[to].insert(0, last);
            prop_assert_eq!(of_texts(&a, "") == of_texts(&moved, ""), normal(&a) == normal(&moved));
        }
    }

    #[test]
    fn s11_any_changed_field_is_refused(message in messages(), change in 0..CHANGES.len()) {
        let keyrings = keyrings(&message.source, [key("k", 1), key("other", 2)]);
        let honest = arrived(&message, NOW, &key("k", 1));
        prop_assert_eq!(honest.verify(&keyrings, NOW), Ok(message.source.clone()));
        let mut changed = honest.clone();
        CHANGES[change](&mut changed);
        prop_assume!(changed != honest);
        prop_assert_eq!(changed.verify(&keyrings, NOW), Err(Refused::Unauthentic));
    }

    #[test]
    fn s11_any_changed_bit_of_the_mac_is_refused(message in messages(), bit in 0..256_usize) {
        let keyrings = keyrings(&message.source, [key("k", 1)]);
        let mut parsed = arrived(&message, NOW, &key("k", 1));
        let signature = parsed.signature.as_mut().expect("signed");
        let mut mac = *signature.mac.as_bytes();
        mac[bit / 8] ^= 1 << (bit % 8);
        signature.mac = Mac::from_bytes(mac);
        prop_assert_eq!(parsed.verify(&keyrings, NOW), Err(Refused::Unauthentic));
    }

    #[test]
    fn s11_any_changed_field_of_an_answer_is_refused(change in 0..7_usize, bit in 0..256_usize) {
        let billing = Destination::new("billing").expect("legal");
        let (source, other) = (shop(), (Source::new("s").expect("legal"), Destination::new("d").expect("legal")));
        let honest = SignedAnswer {
            source: &source, destination: &billing, sent: NOW, request_sha256: [1; 32], status: 200,
            body_sha256: [2; 32],
        };
        let key = key("k", 1);
        let mut mac = *sign_answer(&key, &honest).as_bytes();
        prop_assert_eq!(verify_answer(&key, &honest, &Mac::from_bytes(mac)), Ok(()));
        let mut answer = honest;
        match change {
            0 => answer.source = &other.0,
            1 => answer.destination = &other.1,
            2 => answer.sent = later(NOW),
            3 => answer.request_sha256[bit / 8] ^= 1 << (bit % 8),
            4 => answer.status = 201,
            5 => answer.body_sha256[bit / 8] ^= 1 << (bit % 8),
            _ => mac[bit / 8] ^= 1 << (bit % 8),
        }
        prop_assert_eq!(verify_answer(&key, &answer, &Mac::from_bytes(mac)), Err(Refused::Unauthentic));
    }

    #[test]
    fn s11_any_changed_field_of_a_probe_is_refused(change in 0..6_usize, bit in 0..256_usize) {
        let keyrings = keyrings(&shop(), [key("k", 1)]);
        let mut link = Link {
            source: shop(), destination: Destination::new("billing").expect("legal"), outbox: "outbox-1".into(),
        };
        let mut signature = sign_probe(&key("k", 1), &SignedProbe { link: &link, sent: NOW });
        let verify = |link: &Link, sent, signature: &Signature| {
            keyrings.verify_probe(&SignedProbe { link, sent }, signature, NOW)
        };
        prop_assert_eq!(verify(&link, NOW, &signature), Ok(shop()));
        let mut sent = NOW;
        match change {
            0 => link.source = Source::new("s").expect("legal"),
            1 => link.destination = Destination::new("d").expect("legal"),
            2 => link.outbox.push('2'),
            3 => sent = later(NOW),
            4 => signature.key_id = KeyId::new("l").expect("legal"),
            _ => {
                let mut mac = *signature.mac.as_bytes();
                mac[bit / 8] ^= 1 << (bit % 8);
                signature.mac = Mac::from_bytes(mac);
            }
        }
        prop_assert_eq!(verify(&link, sent, &signature), Err(Refused::Unauthentic));
    }
}

#[test]
fn s11_the_payload_is_covered_as_it_stands() {
    let keyrings = keyrings(&shop(), [key("k", 1)]);
    let bytes = encode_signed(&message("application/json", *br#"{"n":1}"#), NOW, &key("k", 1));
    let text = String::from_utf8(bytes).unwrap();
    for (from, to) in [(r#"{"n":1}"#, r#"{"n":2}"#), (r#"{"n":1}"#, r#"{"n": 1}"#)] {
        let parsed = wire::parse(text.replace(from, to).as_bytes(), &Limits::default()).unwrap();
        assert_eq!(parsed.verify(&keyrings, NOW), Err(Refused::Unauthentic), "{to}");
    }
    // White space around the payload is outside of it.
    let spaced = text.replace(r#"{"n":1},"#, "\n{\"n\":1} ,");
    assert!(wire::parse(spaced.as_bytes(), &Limits::default()).unwrap().verify(&keyrings, NOW).is_ok());
}

#[test]
fn s11_base64_cannot_be_passed_off_as_a_json_string() {
    let keyrings = keyrings(&shop(), [key("k", 1)]);
    let bytes = encode_signed(&message("application/json", ""), NOW, &key("k", 1));
    let stripped = String::from_utf8(bytes).unwrap().replace(r#","rf-encoding":"base64""#, "");
    let parsed = wire::parse(stripped.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(parsed.message.payload, Payload::new("\"\""));
    assert_eq!(parsed.verify(&keyrings, NOW), Err(Refused::Unauthentic));
}

#[test]
fn s11_the_source_is_the_owner_of_the_key() {
    let mut keyrings = keyrings(&shop(), [key("shop", 1)]);
    let bank = twobox_core::signing::Keyring::new([key("bank", 2)]).unwrap();
    keyrings.insert(&Source::new("bank").unwrap(), bank).unwrap();
    let forged = arrived(&message("application/json", "1"), NOW, &key("bank", 2));
    assert_eq!(forged.verify(&keyrings, NOW), Err(Refused::Unauthentic));
}

#[test]
fn s11_unknown_key_bad_mac_and_no_signature_are_one_refusal() {
    let message = message("application/json", "1");
    let keyrings = keyrings(&shop(), [key("k", 1)]);
    let unsigned = wire::parse(&encode(&message), &Limits::default()).unwrap();
    let refusals = [
        arrived(&message, NOW, &key("unknown", 1)).verify(&keyrings, NOW),
        arrived(&message, NOW, &key("k", 2)).verify(&keyrings, NOW),
        // The key that stands in for unknown ones opens nothing.
        arrived(&message, NOW, &key("unknown", 0)).verify(&keyrings, NOW),
        arrived(&message, NOW, &key("unknown", 0)).verify(&Keyrings::new(), NOW),
        unsigned.verify(&keyrings, NOW),
    ];
    assert!(refusals.iter().all(|refusal| *refusal == Err(Refused::Unauthentic)), "{refusals:?}");
}

#[test]
fn s11_a_key_holds_within_its_time_only() {
    let micro = Duration::from_micros(1);
    let (first, last) = (NOW, NOW.plus(Duration::from_secs(60)));
    let keyrings = keyrings(&shop(), [key("k", 1).not_before(first).not_after(last), key("next", 2)]);
    let parsed = arrived(&message("application/json", "1"), NOW, &key("k", 1));
    assert!(parsed.verify(&keyrings, first).is_ok());
    assert!(parsed.verify(&keyrings, last).is_ok());
    for outside in [first.minus(micro), last.plus(micro)] {
        assert_eq!(parsed.verify(&keyrings, outside), Err(Refused::Unauthentic));
    }
    let parsed = arrived(&message("application/json", "1"), NOW, &key("next", 2));
    assert!(parsed.verify(&keyrings, last.plus(micro)).is_ok(), "rotation leaves no gap");
}

#[test]
fn s11_only_the_authentic_are_told_that_they_are_stale() {
    let keyrings = keyrings(&shop(), [key("k", 1)]);
    let message = message("application/json", "1");
    let old = NOW.minus(FRESHNESS).minus(Duration::from_micros(1));
    assert_eq!(arrived(&message, old, &key("k", 1)).verify(&keyrings, NOW), Err(Refused::Stale));
    assert_eq!(arrived(&message, old, &key("k", 2)).verify(&keyrings, NOW), Err(Refused::Unauthentic));
    assert!(arrived(&message, NOW.plus(FRESHNESS), &key("k", 1)).verify(&keyrings, NOW).is_ok());
}

#[test]
fn s11_signing_needs_no_more_than_the_key() {
    let message = message("application/json", "1");
    let signed = Signed { message: &message, sent: NOW, outbox: "o", encoding: "", payload_sha256: [0; 32] };
    let long = Key::new(KeyId::new("k").unwrap(), SecretKey::new(&[1; 33]).unwrap());
    assert_ne!(sign(&key("k", 1), &signed), sign(&long, &signed));
    assert_eq!(sign(&key("k", 1), &signed), sign(&key("k", 1), &signed));
}
