//! A sender by hand: posts whatever bytes a test wants to post, and shows what came back.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use twobox_core::signing::{Key, Mac, SignedAnswer, sha256, sign, verify_answer};
use twobox_core::wire::{Batch, Draft, Stamp, header};
use twobox_core::{Message, Timestamp};

use crate::fake::batch_sha256;
use crate::world::{EVER, destination, source};

/// Takes one envelope.
pub(crate) const ONE: &str = "/_rf/receive";
/// Takes a batch, or a probe.
pub(crate) const BATCH: &str = "/_rf/receive/batch";
/// The outbox in everything that is sealed here; that of [`link`](crate::world::link).
const OUTBOX: &str = "outbox-1";

/// An envelope as a sender would send it.
pub(crate) fn seal(message: &Message, sent: Timestamp, key: &Key) -> Vec<u8> {
    let draft = Draft::new(message);
    let signature = sign(key, &draft.signed(sent, OUTBOX));
    draft.encode(&Stamp { sent, outbox: OUTBOX, signature: Some(&signature) })
}

/// A batch, each message signed with its own key.
pub(crate) fn seal_batch<'a>(
    messages: impl IntoIterator<Item = (&'a Message, &'a Key)>,
    sent: Timestamp,
) -> Vec<u8> {
    let mut batch = Batch::new();
    for (message, key) in messages {
        let draft = Draft::new(message);
        let signature = sign(key, &draft.signed(sent, OUTBOX));
        batch.push(&draft, &Stamp { sent, outbox: OUTBOX, signature: Some(&signature) });
    }
    batch.into_bytes()
}

/// An envelope that nobody has signed.
pub(crate) fn unsealed(message: &Message, sent: Timestamp) -> Vec<u8> {
    Draft::new(message).encode(&Stamp { sent, outbox: OUTBOX, signature: None })
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The answer, apart from the inbox that gives it, which is another one in every test.
    pub(crate) fn json(&self) -> Value {
        let mut answer: Value = serde_json::from_slice(&self.body).unwrap();
        answer.as_object_mut().unwrap().remove("inbox");
        answer
    }

    /// The outcome of the one message, or of the request that was refused.
    pub(crate) fn outcome(&self) -> String {
        self.json()["outcome"].as_str().unwrap_or_default().into()
    }

    /// The outcomes of a batch.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        let answers = self.json()["answers"].as_array().cloned().unwrap_or_default();
        answers.iter().map(|answer| answer["outcome"].as_str().unwrap_or_default().into()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Whether it is signed with this key as billing's answer to this request of shop's: an envelope or a batch.
    pub(crate) fn is_signed(&self, key: &Key, sent: Timestamp, request: &[u8]) -> bool {
        let batch = if request.starts_with(b"[") { request.to_vec() } else { [b"[", request, b"]"].concat() };
        self.is_signed_for(key, sent, batch_sha256(&batch))
    }

    /// The same for a request that is named by this.
    pub(crate) fn is_signed_for(&self, key: &Key, sent: Timestamp, request_sha256: [u8; 32]) -> bool {
        let answer = SignedAnswer {
            source: &source("shop"),
            destination: &destination("billing"),
            sent,
            request_sha256,
            status: self.status,
            body_sha256: sha256(&self.body),
        };
        self.header(header::KEY_ID) == Some(key.id().as_str())
            && self
                .header(header::HMAC)
                .and_then(Mac::from_base64)
                .is_some_and(|mac| verify_answer(key, &answer, &mac).is_ok())
    }
}

/// Posts to one server, over as few connections as it takes.
#[derive(Clone)]
pub(crate) struct Poster {
    client: Client<HttpConnector, Full<Bytes>>,
    to: SocketAddr,
}

impl Poster {
    pub(crate) fn new(to: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), to }
    }

    pub(crate) async fn one(&self, body: impl Into<Bytes>) -> Reply {
        self.post(ONE, &[], body).await
    }

    pub(crate) async fn batch(&self, body: impl Into<Bytes>) -> Reply {
        self.post(BATCH, &[], body).await
    }

    pub(crate) async fn post(
        &self,
        route: &str,
        headers: &[(&str, String)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let head =
            Request::post(format!("http://{}{route}", self.to)).header(CONTENT_TYPE, "application/json");
        let head = headers.iter().fold(head, |head, (name, value)| head.header(*name, value));
        let request = head.body(Full::from(body.into())).unwrap();
        let answered = async {
            let answer = self.client.request(request).await.unwrap();
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Reply { status: head.status.as_u16(), headers: head.headers, body }
        };
        tokio::time::timeout(EVER, answered).await.expect("the server answers")
    }
}
