//! The published vectors. Their MACs come from Python's `hmac`, so this compares two implementations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use twobox_core::name::{CorrelationId, Destination, Endpoint, MessageId, OrderingKey};
use twobox_core::signing::{Key, KeyId, Mac, SecretKey, SignedAck, sign, sign_ack};
use twobox_core::wire::Draft;
use twobox_core::{Headers, Message, Payload, Source, Timestamp};

#[derive(Deserialize)]
struct Vectors {
    requests: Vec<Request>,
    acks: Vec<Ack>,
}

#[derive(Deserialize)]
struct Expected {
    name: String,
    key_id: String,
    key_hex: String,
    canonical: String,
    mac_hex: String,
    mac_base64: String,
}

#[derive(Deserialize)]
struct Request {
    #[serde(flatten)]
    expected: Expected,
    source: String,
    destination: String,
    endpoint: String,
    message_id: String,
    #[serde(rename = "type")]
    message_type: String,
    created: i64,
    available: i64,
    sent: i64,
    expires: i64,
    replay: u32,
    outbox: String,
    content_type: String,
    correlation_id: Option<String>,
    ordering_key: Option<String>,
    headers: BTreeMap<String, String>,
    encoding: String,
    payload_hex: String,
    payload_text: String,
    payload_sha256: String,
}

#[derive(Deserialize)]
struct Ack {
    #[serde(flatten)]
    expected: Expected,
    source: String,
    destination: String,
    message_id: String,
    sent: i64,
    outcome: String,
    body_hex: String,
    retry_after_micros: Option<u64>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/signing.json")).expect("vectors are of this shape")
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

impl Expected {
    fn key(&self) -> Key {
        let secret = SecretKey::new(&unhex(&self.key_hex)).expect("long enough");
        Key::new(KeyId::new(&self.key_id).expect("legal"), secret)
    }

    fn check(&self, canonical: &str, mac: Mac) {
        assert_eq!(canonical, self.canonical, "canonical string of {}", self.name);
        assert_eq!(mac.as_bytes().as_slice(), unhex(&self.mac_hex), "MAC of {}", self.name);
        assert_eq!(mac.to_base64(), self.mac_base64, "MAC in base64 of {}", self.name);
    }
}

impl Request {
    fn message(&self) -> Message {
        let mut headers = Headers::default();
        for (name, value) in &self.headers {
            headers.insert(name, value).expect("legal");
        }
        Message {
            id: MessageId::new(&self.message_id).expect("legal"),
            source: Source::new(&self.source).expect("legal"),
            destination: Destination::new(&self.destination).expect("legal"),
            endpoint: Endpoint::new(&self.endpoint).expect("legal"),
            message_type: self.message_type.parse().expect("legal"),
            payload: Payload::new(unhex(&self.payload_hex)),
            content_type: self.content_type.clone(),
            correlation_id: self.correlation_id.as_ref().map(|id| CorrelationId::new(id).expect("legal")),
            ordering_key: self.ordering_key.as_ref().map(|key| OrderingKey::new(key).expect("legal")),
            headers,
            created: Timestamp::from_micros(self.created),
            available: Timestamp::from_micros(self.available),
            expires: Timestamp::from_micros(self.expires),
            replay: self.replay,
        }
    }
}

#[test]
fn s11_published_vectors_of_requests() {
    let requests = vectors().requests;
    assert!(requests.len() >= 6);
    for request in requests {
        let (message, key) = (request.message(), request.expected.key());
        let draft = Draft::new(&message);
        let text_hash: [u8; 32] = Sha256::digest(&request.payload_text).into();
        assert_eq!(draft.payload_sha256(), text_hash, "payload text of {}", request.expected.name);
        assert_eq!(text_hash.as_slice(), unhex(&request.payload_sha256));
        assert_eq!(draft.encoding().as_str(), request.encoding);
        let signed = draft.signed(Timestamp::from_micros(request.sent), &request.outbox);
        request.expected.check(&signed.canonical(key.id()), sign(&key, &signed).mac);
    }
}

#[test]
fn s11_published_vectors_of_answers() {
    let acks = vectors().acks;
    assert!(acks.len() >= 2);
    for ack in acks {
        let key = ack.expected.key();
        let signed = SignedAck {
            source: &Source::new(&ack.source).expect("legal"),
            destination: &Destination::new(&ack.destination).expect("legal"),
            message_id: &MessageId::new(&ack.message_id).expect("legal"),
            sent: Timestamp::from_micros(ack.sent),
            outcome: &ack.outcome,
            body_sha256: Sha256::digest(unhex(&ack.body_hex)).into(),
            retry_after: ack.retry_after_micros.map(Duration::from_micros),
        };
        ack.expected.check(&signed.canonical(key.id()), sign_ack(&key, &signed));
    }
}
