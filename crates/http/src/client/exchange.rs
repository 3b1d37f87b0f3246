//! One request and its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response, StatusCode};
use twobox_core::ports::{Answer, DeliveryError, Link};
use twobox_core::signing::{
    Key, Mac, SignedAnswer, SignedProbe, request_sha256, sha256, sign, sign_probe, verify_answer,
};
use twobox_core::wire::{self, ANSWER_BYTES_MAX, ANSWER_TYPE, Batch, Draft, Probe, Stamp, header};
use twobox_core::{Message, Timestamp, mutant};

use super::Http;
use crate::RECEIVE_BATCH;

/// A request that has been sent, and what its answer must be bound to.
struct Sent<'a> {
    link: &'a Link,
    sent: Timestamp,
    key: Option<&'a Key>,
    request_sha256: [u8; 32],
}

impl Http {
    pub(super) async fn exchange(
        &self,
        link: &Link,
        batch: &[Arc<Message>],
    ) -> Result<Vec<Answer>, DeliveryError> {
        let sent = self.clock.now();
        let key = self.active_key(sent)?;
        let (body, mut macs) = encode(link, batch, sent, key);
        let probe = batch.is_empty().then_some(key).flatten().map(|key| probe(key, link, sent));
        macs.extend(probe.as_ref().map(|probe| probe.signature.mac));
        let request = self.request(link, probe.as_ref(), body)?;
        let answer = self.send(request).await?;
        let sent = Sent { link, sent, key, request_sha256: request_sha256(&macs) };
        let (status, headers) = (answer.status(), answer.headers().clone());
        if headers.get(CONTENT_TYPE).is_none_or(|of| of != ANSWER_TYPE) {
            return Err(foreign(status));
        }
        let bytes = self.body(answer).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &headers, &bytes));
        }
        sent.check(status, &headers, &bytes)?;
        wire::parse_answers(&bytes, batch.iter().map(|message| &message.id)).map_err(|error| {
            DeliveryError::ambiguous("the receiver's answer cannot be read").with_source(error)
        })
    }

    fn active_key(&self, now: Timestamp) -> Result<Option<&Key>, DeliveryError> {
        let Some(keyring) = &self.keyring else { return Ok(None) };
        let key = keyring.active(now);
        let text = "no key for this destination holds now: add one whose not_before has passed";
        key.map(Some).ok_or_else(|| DeliveryError::unreachable(text))
    }

    /// The request; a probe has no message that could carry its signature, so its head does.
    fn request(
        &self,
        link: &Link,
        probe: Option<&Probe>,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, DeliveryError> {
        let uri = self.url.route(&link.destination, RECEIVE_BATCH).map_err(|error| {
            DeliveryError::unreachable("the destination has no address").with_source(error)
        })?;
        let mut head = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(header::TIMEOUT, self.limits.answer_timeout.as_millis().to_string());
        if let Some(probe) = probe {
            head = probe.headers().into_iter().fold(head, |head, (name, value)| head.header(name, value));
        }
        head.body(Full::from(body)).map_err(|error| {
            DeliveryError::unreachable("a name cannot stand in the head of a request").with_source(error)
        })
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, DeliveryError> {
        let timeout = self.limits.answer_timeout;
        let answering = self.client.request(request);
        let answer = tokio::time::timeout(timeout, answering)
            .await
            .map_err(|_| DeliveryError::ambiguous(format!("no answer within {timeout:?}")))?;
        answer.map_err(|error| {
            if error.is_connect() {
                DeliveryError::unreachable("cannot connect").with_source(error)
            } else {
                DeliveryError::ambiguous("the connection broke").with_source(error)
            }
        })
    }

    async fn body(&self, answer: Response<Incoming>) -> Result<Bytes, DeliveryError> {
        let timeout = self.limits.body_timeout;
        let reading = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = tokio::time::timeout(timeout, reading)
            .await
            .map_err(|_| DeliveryError::ambiguous(format!("the answer did not end within {timeout:?}")))?;
        let body =
            body.map_err(|error| DeliveryError::ambiguous("the answer broke off").with_source(error))?;
        Ok(body.to_bytes())
    }
}

impl Sent<'_> {
    /// Whether the answer is the receiver's own, to this very request (S11).
    fn check(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<(), DeliveryError> {
        let Some(key) = self.key.filter(|_| !mutant!(UnsignedAnswerCounts)) else { return Ok(()) };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mac = text(header::HMAC).and_then(Mac::from_base64);
        let named = text(header::KEY_ID) == Some(key.id().as_str());
        let answer = SignedAnswer {
            source: &self.link.source,
            destination: &self.link.destination,
            sent: self.sent,
            request_sha256: self.request_sha256,
            status: status.as_u16(),
            body_sha256: sha256(body),
        };
        match mac {
            Some(mac) if named && verify_answer(key, &answer, &mac).is_ok() => Ok(()),
            Some(_) => Err(DeliveryError::ambiguous("the answer's signature does not hold")),
            None => Err(DeliveryError::ambiguous("the answer is not signed")),
        }
    }
}

/// A batch of envelopes, and the MACs in them.
fn encode(link: &Link, batch: &[Arc<Message>], sent: Timestamp, key: Option<&Key>) -> (Vec<u8>, Vec<Mac>) {
    let (mut envelopes, mut macs) = (Batch::new(), Vec::with_capacity(batch.len().max(1)));
    for message in batch {
        let draft = Draft::new(message);
        let signature = key.map(|key| sign(key, &draft.signed(sent, &link.outbox)));
        envelopes.push(&draft, &Stamp { sent, outbox: &link.outbox, signature: signature.as_ref() });
        macs.extend(signature.map(|signature| signature.mac));
    }
    (envelopes.into_bytes(), macs)
}

fn probe(key: &Key, link: &Link, sent: Timestamp) -> Probe {
    Probe { link: link.clone(), sent, signature: sign_probe(key, &SignedProbe { link, sent }) }
}

/// Something answered that is no receiver of ours: nothing is acknowledged. Most likely it stands in front of the
/// receiver, so one of the messages may be what it does not like or what broke the receiver behind it; that one is
/// found by sending halves, and charged only after an authentic answer to a probe (L3).
fn foreign(status: StatusCode) -> DeliveryError {
    let hint = match status.as_u16() {
        300..=399 => "redirects are not followed: give the transport the final URL",
        404 => "there is no receiver at this URL",
        _ => "the answer does not come from a receiver of ours",
    };
    let text = format!("status {status}: {hint}");
    match status.as_u16() {
        400 | 413 | 431 | 500 | 502 | 504 => DeliveryError::ambiguous(text),
        _ => DeliveryError::unreachable(text),
    }
}

/// The receiver refused the request as a whole.
fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> DeliveryError {
    let reason = wire::parse_refusal(body).unwrap_or_else(|| "no reason given".into());
    let text = format!("status {}: {reason}", status.as_u16());
    match status {
        // One of the messages may be why: it is found by sending halves, and only after an authentic probe (L3).
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => DeliveryError::ambiguous(text),
        _ => DeliveryError::unreachable(text).with_retry_after(retry_after(headers)),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
