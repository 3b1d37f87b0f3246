//! One request and its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use twobox_core::ports::{Answer, DeliveryError, Link};
use twobox_core::signing::{Key, Keyring};
use twobox_core::wire::{self, ANSWER_BYTES_MAX, ANSWER_TYPE, Asked, Probe, header};
use twobox_core::{Live, Message, Timestamp};

use super::Http;
use super::connect::Connector;
use crate::RECEIVE_BATCH;

impl Http {
    pub(super) async fn exchange(
        &self,
        link: &Link,
        batch: &[Arc<Message>],
        timeout: Duration,
    ) -> Result<Vec<Answer>, DeliveryError> {
        let (sent, timeout) = (self.clock.now(), timeout.min(self.limits.answer_timeout));
        // Kept until the answer is checked, also if the keys are replaced meanwhile.
        let keyring = self.keyring.as_ref().map(Live::get);
        let key = active_key(keyring.as_deref(), sent)?;
        let (asked, body) = Asked::encode(link, batch, sent, key);
        let request = self.request(link, asked.probe(), body, timeout)?;
        let answer = send(&self.client, timeout, request).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if headers.get(CONTENT_TYPE).is_none_or(|of| of != ANSWER_TYPE) {
            return Err(foreign(status, &headers));
        }
        let bytes = self.body(answer).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &headers, &bytes));
        }
        check(&asked, status, &headers, &bytes)?;
        let ids = batch.iter().map(|message| &message.id);
        let answer = wire::parse_batch_answer(&bytes, ids).map_err(|error| {
            DeliveryError::ambiguous("the receiver's answer cannot be read").with_source(error)
        })?;
        if let Some(inbox) = &answer.inbox {
            self.inboxes.answered(link, inbox);
        }
        Ok(answer.answers)
    }

    /// The request; a probe has no message that could carry its signature, so its head does.
    fn request(
        &self,
        link: &Link,
        probe: Option<&Probe>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<Request<Full<Bytes>>, DeliveryError> {
        let uri = self.url.route(&link.destination, RECEIVE_BATCH).map_err(|error| {
            DeliveryError::unreachable("the destination has no address").with_source(error)
        })?;
        let mut head = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(header::TIMEOUT, timeout.as_millis().to_string());
        if let Some(probe) = probe {
            head = probe.headers().into_iter().fold(head, |head, (name, value)| head.header(name, value));
        }
        head.body(Full::from(body)).map_err(|error| {
            DeliveryError::unreachable("a name cannot stand in the head of a request").with_source(error)
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

/// Makes a request and waits for the head of its answer.
pub(super) async fn send(
    client: &Client<Connector, Full<Bytes>>,
    timeout: Duration,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, DeliveryError> {
    let answer = tokio::time::timeout(timeout, client.request(request))
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

fn active_key(keyring: Option<&Keyring>, now: Timestamp) -> Result<Option<&Key>, DeliveryError> {
    let Some(keyring) = keyring else { return Ok(None) };
    let text = "no key for this destination holds now: add one whose not_before has passed";
    keyring.active(now).map(Some).ok_or_else(|| DeliveryError::unreachable(text))
}

/// Whether the answer is the receiver's own, to this very request (S11).
fn check(
    asked: &Asked<'_>,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), DeliveryError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    asked.check(status.as_u16(), text(header::KEY_ID), text(header::HMAC), body)
}

/// Something answered that is no receiver of ours: nothing is acknowledged. Most likely it stands in front of the
/// receiver, so one of the messages may be what it does not like or what broke the receiver behind it; that one is
/// found by sending halves, and charged only after an authentic answer to a probe (L3).
fn foreign(status: StatusCode, headers: &HeaderMap) -> DeliveryError {
    let hint = match status.as_u16() {
        300..=399 => "redirects are not followed: give the transport the final URL",
        404 => "there is no receiver at this URL",
        _ => "the answer does not come from a receiver of ours",
    };
    let text = format!("status {status}: {hint}");
    match status.as_u16() {
        400 | 413 | 431 | 500 | 502 | 504 => DeliveryError::ambiguous(text),
        _ => DeliveryError::unreachable(text).with_retry_after(retry_after(headers)),
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

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
