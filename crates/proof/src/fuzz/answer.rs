//! Answers: nothing acknowledges but the very answer the receiver signed for this very request.

use std::time::Duration;

use twobox_core::ports::{Answer, Link};
use twobox_core::signing::{Key, Mac, SignedAnswer, sha256, sign_answer, verify_answer};
use twobox_core::wire::{self, ANSWER_BYTES_MAX, check_content_type};
use twobox_core::{BoxError, ErrorKind, MessageId, Payload, Response};

use super::feed::Feed;
use super::post::{self, NOW};
use super::{Check, edit, ensure};

/// The longest error text that is believed.
const ERROR_CHARS_MAX: usize = 500;

struct Answers {
    key: Key,
    bank: Key,
    link: Link,
    ids: Vec<MessageId>,
    request_sha256: [u8; 32],
    usual: Vec<u8>,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let (key, messages) = (post::shop_key()?, post::usual()?);
    let ids: Vec<MessageId> = messages.iter().map(|message| message.id.clone()).collect();
    let world = Answers {
        request_sha256: sha256(&post::batch(&key, &messages)),
        usual: usual(&ids)?,
        key,
        bank: post::bank_key()?,
        link: post::link()?,
        ids,
    };
    Ok(Box::new(move |input| world.check(input)))
}

fn usual(ids: &[MessageId]) -> Result<Vec<u8>, BoxError> {
    let answers = [
        Answer::Done(Some(Response::json(&"paid")?)),
        Answer::Retry { after: Some(Duration::from_secs(2)), error: "not now".into() },
        Answer::Duplicate(None),
        Answer::Held,
    ];
    Ok(wire::encode_answers(ids.iter().zip(&answers)))
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let ids: Vec<MessageId> = post::usual()?.into_iter().map(|message| message.id).collect();
    let mut seeds =
        vec![[&[1], &*usual(&ids)?].concat(), vec![3], vec![3, 1, 9, 4], vec![4, 0, 3, b'a', b'b', b'c', 1]];
    seeds.push([&[1], &*usual(&ids[..2])?].concat());
    seeds.push([&[1], &*usual(&[&ids[..], &ids[..1]].concat())?].concat());
    for (kind, text) in [
        (0, &br#"{"messageId":"m-1","outcome":"done","payload":"AP8=","encoding":"base64","contentType":"x/y"}"#[..]),
        (0, br#"{"messageId":"m-1","outcome":"in_progress","retryAfterMs":18446744073709551615}"#),
        (0, br#"{"messageId":"m-1","outcome":"rejected","error":"a\u0000b"}"#),
        (2, br#"{"outcome":"malformed","error":"batch is not JSON"}"#),
    ] {
        seeds.push([&[kind], text].concat());
    }
    seeds.extend((0..11).map(|outcome| vec![4, outcome, outcome, outcome]));
    seeds.extend((0..6).map(|change| vec![3, change, 7, 1, 30, 3]));
    Ok(seeds)
}

impl Answers {
    fn check(&self, input: &[u8]) -> Result<(), BoxError> {
        let mut feed = Feed::new(input);
        match feed.below(5) {
            0 => self.one(feed.rest()),
            1 => self.many(feed.rest()),
            2 => refusal(feed.rest()),
            3 => self.tampered(&mut feed),
            _ => self.honest(&mut feed),
        }
    }

    fn one(&self, bytes: &[u8]) -> Result<(), BoxError> {
        match wire::parse_answer(bytes, &self.ids[0]) {
            Err(error) => refused(error.kind()),
            Ok(answer) => {
                harmless(&answer)?;
                let again = wire::parse_answer(&wire::encode_answer(&self.ids[0], &answer), &self.ids[0])?;
                same(&again, &answer)
            }
        }
    }

    fn many(&self, bytes: &[u8]) -> Result<(), BoxError> {
        match wire::parse_answers(bytes, self.ids.iter()) {
            Err(error) => refused(error.kind()),
            Ok(answers) => {
                ensure(answers.len() == self.ids.len(), || format!("{} answers were read", answers.len()))?;
                answers.iter().try_for_each(harmless)?;
                self.again(&answers)
            }
        }
    }

    fn again(&self, answers: &[Answer]) -> Result<(), BoxError> {
        let written = wire::encode_answers(self.ids.iter().zip(answers));
        let read = wire::parse_answers(&written, self.ids.iter())?;
        read.iter().zip(answers).try_for_each(|(again, answer)| same(again, answer))
    }

    /// Answers of every kind arrive as they were given.
    fn honest(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let answers: Vec<Answer> = self.ids.iter().map(|_| given(feed)).collect();
        self.again(&answers)
    }

    /// A signed answer that was spoilt on its way, or is to something else.
    fn tampered(&self, feed: &mut Feed<'_>) -> Result<(), BoxError> {
        let honest = SignedAnswer {
            source: &self.link.source,
            destination: &self.link.destination,
            sent: NOW,
            request_sha256: self.request_sha256,
            status: 200,
            body_sha256: sha256(&self.usual),
        };
        let mut mac = *sign_answer(&self.key, &honest).as_bytes();
        let (mut body, mut key, mut claimed) = (self.usual.clone(), &self.key, honest);
        let mut spoilt = true;
        match feed.below(6) {
            0 => {
                edit::tamper(feed, &mut body, b"{\"messageId\":\"m-2\",\"outcome\":\"done\"}");
                claimed.body_sha256 = sha256(&body);
                spoilt = body != self.usual;
            }
            1 => mac[feed.below(32)] ^= 1 << feed.below(8),
            2 => claimed.status = claimed.status.wrapping_add(u16::from(feed.byte().max(1))),
            3 => claimed.request_sha256[feed.below(32)] ^= 1 << feed.below(8),
            4 => {
                claimed.sent = post::time(feed);
                spoilt = claimed.sent != NOW;
            }
            _ => key = &self.bank,
        }
        let verdict = verify_answer(key, &claimed, &Mac::from_bytes(mac));
        ensure(verdict.is_err() == spoilt, || format!("spoilt is {spoilt}, and the verdict {verdict:?}"))?;
        self.many(&body)
    }
}

fn refusal(bytes: &[u8]) -> Result<(), BoxError> {
    let Some(error) = wire::parse_refusal(bytes) else { return Ok(()) };
    harmless_text(&error)?;
    let again = wire::parse_refusal(&wire::encode_refusal("malformed", &error));
    ensure(again.as_ref() == Some(&error), || format!("came back as {again:?} instead of {error:?}"))
}

fn refused(kind: ErrorKind) -> Result<(), BoxError> {
    ensure(matches!(kind, ErrorKind::Invalid | ErrorKind::Undecodable), || format!("refused as {kind:?}"))
}

/// What strangers wrote is short and cannot hide anything in a terminal.
fn harmless(answer: &Answer) -> Result<(), BoxError> {
    match answer {
        Answer::Retry { error, .. } | Answer::Rejected { error } => harmless_text(error),
        Answer::Done(Some(response)) | Answer::Duplicate(Some(response)) => {
            let fits =
                response.body.len() <= ANSWER_BYTES_MAX && check_content_type(&response.content_type).is_ok();
            ensure(fits, || "a response beyond its limits was read".into())
        }
        _ => Ok(()),
    }
}

fn harmless_text(error: &str) -> Result<(), BoxError> {
    let harmless = error.chars().count() <= ERROR_CHARS_MAX && !error.chars().any(char::is_control);
    ensure(harmless, || format!("{error:?} was kept as an error text"))
}

fn same(again: &Answer, answer: &Answer) -> Result<(), BoxError> {
    ensure(again == answer, || format!("came back as {again:?} instead of {answer:?}"))
}

fn given(feed: &mut Feed<'_>) -> Answer {
    match feed.below(11) {
        0 => Answer::Done(response(feed)),
        1 => Answer::Duplicate(response(feed)),
        2 => Answer::InProgress { after: Duration::from_millis(feed.long()) },
        3 => Answer::Held,
        4 => Answer::NotReached,
        5 => Answer::TooEarly { after: Duration::from_millis(feed.long() >> 20) },
        6 => Answer::Retry {
            after: (feed.below(2) == 1).then(|| Duration::from_millis(feed.long())),
            error: error(feed),
        },
        7 => Answer::Rejected { error: error(feed) },
        8 => Answer::Conflict,
        9 => Answer::TooOld,
        _ => Answer::UnknownEndpoint,
    }
}

/// As a handler's refusal would keep it.
fn error(feed: &mut Feed<'_>) -> String {
    twobox_core::handler::shorten(&post::nasty(feed))
}

fn response(feed: &mut Feed<'_>) -> Option<Response> {
    let content_type = match feed.below(4) {
        0 => return None,
        1 => "application/json".into(),
        2 => post::nasty(feed),
        _ => feed.text(),
    };
    check_content_type(&content_type).ok()?;
    Some(Response { content_type: content_type.into(), body: Payload::new(feed.bytes().to_vec()) })
}
