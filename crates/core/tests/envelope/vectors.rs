//! The published vectors. Their MACs come from Python's `hmac`, so this compares two implementations.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use twobox_core::name::{CorrelationId, Destination, Endpoint, MessageId, OrderingKey};
use twobox_core::ports::Link;
use twobox_core::signing::{
    Key, KeyId, Mac, SecretKey, SignedAnswer, SignedProbe, request_sha256, sign, sign_answer, sign_probe,
};
use twobox_core::wire::Draft;
use twobox_core::{Headers, Message, Payload, Source, Timestamp};

#[derive(Deserialize)]
struct Vectors {
    requests: Vec<Request>,
    probes: Vec<Probe>,
    answers: Vec<Answer>,
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
struct Probe {
    #[serde(flatten)]
    expected: Expected,
    source: String,
    destination: String,
    sent: i64,
    outbox: String,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    expected: Expected,
    source: String,
    destination: String,
    sent: i64,
    request_macs_hex: Vec<String>,
    status: u16,
    body_hex: String,
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
            content_type: self.content_type.as_str().into(),
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
fn s11_published_vectors_of_probes() {
    let probes = vectors().probes;
    assert!(probes.len() >= 2);
    for probe in probes {
        let key = probe.expected.key();
        let link = Link {
            source: Source::new(&probe.source).expect("legal"),
            destination: Destination::new(&probe.destination).expect("legal"),
            outbox: probe.outbox,
        };
        let signed = SignedProbe { link: &link, sent: Timestamp::from_micros(probe.sent) };
        probe.expected.check(&signed.canonical(key.id()), sign_probe(&key, &signed).mac);
    }
}

#[test]
fn s11_published_vectors_of_answers() {
    let answers = vectors().answers;
    assert!(answers.len() >= 4);
    for answer in answers {
        let key = answer.expected.key();
        let signed = SignedAnswer {
            source: &Source::new(&answer.source).expect("legal"),
            destination: &Destination::new(&answer.destination).expect("legal"),
            sent: Timestamp::from_micros(answer.sent),
            request_sha256: request_sha256(
                &answer
                    .request_macs_hex
                    .iter()
                    .map(|mac| Mac::from_bytes(unhex(mac).try_into().expect("32 bytes")))
                    .collect::<Vec<_>>(),
            ),
            status: answer.status,
            body_sha256: Sha256::digest(unhex(&answer.body_hex)).into(),
        };
        answer.expected.check(&signed.canonical(key.id()), sign_answer(&key, &signed));
    }
}

/// The vectors are right because two implementations agree on them, and here is the other one.
#[test]
fn s11_python_computes_the_same_vectors_from_their_fields() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut python = Command::new("python3");
    let output = python.arg("verify.py").arg("signing.json").current_dir(folder).output();
    let output = output.expect("python3 runs (apt-get install -y python3)");
    let all = vectors();
    let count = all.requests.len() + all.probes.len() + all.answers.len();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{count} vectors hold\n"), "{output:?}");
}
