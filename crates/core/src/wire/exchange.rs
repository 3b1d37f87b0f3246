//! One request and its answer, whatever carries them: what a sender signs and believes, what a receiver believes
//! and signs (S11).
//!
//! | side | does |
//! | --- | --- |
//! | sender | [`Asked::encode`], then [`Asked::check`] before it reads the answer |
//! | receiver | [`Asker::of`] or [`Asker::of_probe`] before it handles anything, then [`Asker::sign`] |

use std::sync::Arc;

use super::{Batch, Draft, Parsed, Probe, Stamp};
use crate::ports::{DeliveryError, Link};
use crate::signing::{
    Key, KeyId, Keyrings, Mac, Refused, SignedAnswer, SignedProbe, request_sha256, sha256, sign_answer,
    sign_each, sign_probe, verify_answer,
};
use crate::{Destination, Message, Source, Timestamp, mutant};

/// What an envelope usually takes beside its payload: names, dates, a signature.
const ENVELOPE_BYTES: usize = 600;

/// A request that was made, and what its answer must be bound to.
#[derive(Debug)]
pub struct Asked<'a> {
    link: &'a Link,
    sent: Timestamp,
    key: Option<&'a Key>,
    probe: Option<Probe>,
    request_sha256: [u8; 32],
}

impl<'a> Asked<'a> {
    /// A request with its body. Without a key nothing is signed, and any answer is believed.
    #[must_use]
    pub fn encode(
        link: &'a Link,
        batch: &[Arc<Message>],
        sent: Timestamp,
        key: Option<&'a Key>,
    ) -> (Self, Vec<u8>) {
        let drafts: Vec<Draft<'_>> = batch.iter().map(|message| Draft::new(message)).collect();
        let signatures =
            key.map_or(Vec::new(), |key| sign_each(key, &Draft::signed_each(&drafts, sent, &link.outbox)));
        let bytes = batch.iter().map(|message| message.payload.len() + ENVELOPE_BYTES).sum();
        let mut envelopes = Batch::with_capacity(bytes);
        for (at, draft) in drafts.iter().enumerate() {
            envelopes.push(draft, &Stamp { sent, outbox: &link.outbox, signature: signatures.get(at) });
        }
        let probe = key.filter(|_| batch.is_empty()).map(|key| {
            let signature = sign_probe(key, &SignedProbe { link, sent });
            Probe { link: link.clone(), sent, signature }
        });
        let signed = signatures.iter().chain(probe.as_ref().map(|probe| &probe.signature));
        let request_sha256 = request_sha256(signed.map(|signature| &signature.mac));
        (Self { link, sent, key, probe, request_sha256 }, envelopes.into_bytes())
    }

    /// What the head of a signed probe carries, if this is one: there is no message that could carry its signature.
    #[must_use]
    pub fn probe(&self) -> Option<&Probe> {
        self.probe.as_ref()
    }

    /// Whether the answer is the receiver's own, to this very request.
    ///
    /// # Errors
    /// It is not, so what became of the request is unknown.
    pub fn check(
        &self,
        status: u16,
        key_id: Option<&str>,
        mac: Option<&str>,
        body: &[u8],
    ) -> Result<(), DeliveryError> {
        let Some(key) = self.key.filter(|_| !mutant!(UnsignedAnswerCounts)) else { return Ok(()) };
        let answer = SignedAnswer {
            source: &self.link.source,
            destination: &self.link.destination,
            sent: self.sent,
            request_sha256: self.request_sha256,
            status,
            body_sha256: sha256(body),
        };
        let named = key_id == Some(key.id().as_str());
        match mac.and_then(Mac::from_base64) {
            Some(mac) if named && verify_answer(key, &answer, &mac).is_ok() => Ok(()),
            Some(_) => Err(DeliveryError::ambiguous("the answer's signature does not hold")),
            None => Err(DeliveryError::ambiguous("the answer is not signed")),
        }
    }
}

/// Who made a request, and what its answer is bound to.
#[derive(Debug)]
pub struct Asker<'a> {
    source: Source,
    destination: Destination,
    sent: Timestamp,
    /// The key, and what names the request in the signature of its answer.
    key: Option<(&'a Key, [u8; 32])>,
}

impl<'a> Asker<'a> {
    /// Who a message says has sent it, where nothing is signed.
    #[must_use]
    pub fn unsigned(first: &Parsed) -> Self {
        Self {
            source: first.message.source.clone(),
            destination: first.message.destination.clone(),
            sent: first.sent,
            key: None,
        }
    }

    /// The sender of messages that are all signed with the same of our keys.
    ///
    /// # Errors
    /// [`Refused`]. Nothing may be written then (RF-11).
    pub fn of<'p>(keyrings: &'a Keyrings, parsed: &'p [Parsed], now: Timestamp) -> Result<Self, Refused> {
        let signed = |parsed: &'p Parsed| Some((parsed.signed(), parsed.signature.as_ref()?));
        let signed: Option<Vec<_>> = parsed.iter().map(signed).collect();
        let signed = signed.ok_or(Refused::Unauthentic)?;
        let source = keyrings.verify_each(&signed, now)?;
        let (first, signature) = signed.first().ok_or(Refused::Unauthentic)?;
        let macs = signed.iter().map(|(_, signature)| &signature.mac);
        let key = keyrings.key(&signature.key_id).map(|key| (key, request_sha256(macs)));
        Ok(Self { source, destination: first.message.destination.clone(), sent: first.sent, key })
    }

    /// The sender of a probe.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn of_probe(keyrings: &'a Keyrings, probe: Probe, now: Timestamp) -> Result<Self, Refused> {
        let source = probe.verify(keyrings, now)?;
        let key = keyrings.key(&probe.signature.key_id);
        let key = key.map(|key| (key, request_sha256([&probe.signature.mac])));
        Ok(Self { source, destination: probe.link.destination, sent: probe.sent, key })
    }

    /// Whom the request is for, by its first message or its probe.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The signature of an answer, with the key of the request; `None` if that was not signed.
    #[must_use]
    pub fn sign(&self, status: u16, answer: &[u8]) -> Option<(&'a KeyId, Mac)> {
        let (key, request_sha256) = self.key?;
        let answer = SignedAnswer {
            source: &self.source,
            destination: &self.destination,
            sent: self.sent,
            request_sha256,
            status,
            body_sha256: sha256(answer),
        };
        Some((key.id(), sign_answer(key, &answer)))
    }
}
