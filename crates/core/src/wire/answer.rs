//! Answers as JSON: what became of one message, of a batch, or why a request was refused as a whole.
//!
//! The answer to one message is an object with RF-08's members and ours: `messageId`, `outcome`, and where they apply
//! `payload` (the stored response), `contentType`, `encoding`, `error`, `retryAfterMs`, `acknowledged` and
//! `duplicateDetected`. The answer to a batch has all but the last two, which its outcomes say as well, as the array
//! `answers`, in the order of the request. A refusal has `outcome` and `error` alone. Either answer may name, as `inbox`,
//! the instance of the inbox that gives it.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Encoding;
use super::draft::{member, member_name};
use super::limits::{BATCH_ITEMS_MAX, DEPTH_MAX, at_most, depth_at_most};
use super::payload::{check_content_type, check_label, decode, encode};
use crate::handler::shorten;
use crate::message::{JSON, PAYLOAD_BYTES_MAX};
use crate::ports::Answer;
use crate::{Error, ErrorKind, MessageId, Response, Result};

/// Media type of answers: a sender takes nothing else for one.
pub const ANSWER_TYPE: &str = "application/vnd.twobox+json";
/// Bytes of responses in the answer to several messages: 256 KiB. Those beyond are left out, and fetched singly by
/// whoever wants them.
pub const RESPONSES_BYTES_MAX: usize = 256 << 10;
/// Bytes of an answer: 8 MiB. Room for a thousand messages with long errors, or for the largest single response
/// in base64.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// When to ask again about an outcome that is not known here.
const UNKNOWN_AFTER: Duration = Duration::from_secs(60);

const MESSAGE_ID: &str = "messageId";
const OUTCOME: &str = "outcome";

/// The status code that goes with the answer to one message.
#[must_use]
pub fn answer_status(answer: &Answer) -> u16 {
    match answer {
        Answer::Done(_) | Answer::Duplicate(_) => 200,
        Answer::InProgress { .. } | Answer::Held | Answer::Conflict => 409,
        Answer::NotReached => 503,
        Answer::TooEarly { .. } => 425,
        Answer::Retry { .. } => 500,
        Answer::Rejected { .. } => 422,
        Answer::TooOld => 410,
        Answer::UnknownEndpoint => 404,
    }
}

fn outcome(answer: &Answer) -> &'static str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Duplicate(_) => "duplicate",
        Answer::InProgress { .. } => "in_progress",
        Answer::Held => "held",
        Answer::NotReached => "not_reached",
        Answer::TooEarly { .. } => "too_early",
        Answer::Retry { .. } => "retry",
        Answer::Rejected { .. } => "rejected",
        Answer::Conflict => "conflict",
        Answer::TooOld => "too_old",
        Answer::UnknownEndpoint => "unknown_endpoint",
    }
}

/// The answer to one message, with its response whatever its size.
#[must_use]
pub fn encode_answer(id: &MessageId, answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(id, answer, &mut ResponseRoom::of(1), &mut out);
    write_flags(answer, &mut out);
    out.push(b'}');
    out
}

/// Room for responses in the answer to several messages. One alone has its response whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRoom(usize);

impl ResponseRoom {
    /// For the answer to so many messages.
    #[must_use]
    pub fn of(messages: usize) -> Self {
        Self(if messages == 1 { usize::MAX } else { RESPONSES_BYTES_MAX })
    }

    /// Takes room for so many bytes. `false`, and nothing is taken, if there is not that much.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// The answer, without its response if there is no room for that. What is encoded later may take more room, and be
    /// left out then.
    #[must_use]
    pub fn keep(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Done(Some(response)) if !self.take(response.body.len()) => Answer::Done(None),
            Answer::Duplicate(Some(response)) if !self.take(response.body.len()) => Answer::Duplicate(None),
            answer => answer,
        }
    }
}

/// The answer to a batch, with responses up to [`RESPONSES_BYTES_MAX`].
#[must_use]
pub fn encode_answers<'a>(answers: impl IntoIterator<Item = (&'a MessageId, &'a Answer)>) -> Vec<u8> {
    let mut answers = answers.into_iter();
    let (first, second) = (answers.next(), answers.next());
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(br#"{"answers":["#);
    let mut room = ResponseRoom::of(first.iter().chain(&second).count());
    for (id, answer) in first.into_iter().chain(second).chain(answers) {
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        write(id, answer, &mut room, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// Adds to an answer which inbox gives it. Whoever does not know this member passes over it.
#[must_use]
pub fn with_inbox(mut answer: Vec<u8>, inbox: &str) -> Vec<u8> {
    if answer.pop_if(|last| *last == b'}').is_some() {
        member(&mut answer, "inbox", inbox);
        answer.push(b'}');
    }
    answer
}

/// The answer to a request that is refused as a whole.
#[must_use]
pub fn encode_refusal(outcome: &str, error: &str) -> Vec<u8> {
    let mut out = vec![b'{'];
    member(&mut out, OUTCOME, outcome);
    member(&mut out, "error", error);
    out.push(b'}');
    out
}

/// Writes an object up to what closes it.
fn write(id: &MessageId, answer: &Answer, room: &mut ResponseRoom, out: &mut Vec<u8>) {
    out.push(b'{');
    member(out, MESSAGE_ID, id.as_str());
    member(out, OUTCOME, outcome(answer));
    match answer {
        Answer::Done(response) | Answer::Duplicate(response) => write_response(response.as_ref(), room, out),
        Answer::InProgress { after } | Answer::TooEarly { after } => write_after(Some(*after), out),
        Answer::Retry { after, error } => {
            member(out, "error", error);
            write_after(*after, out);
        }
        Answer::Rejected { error } => member(out, "error", error),
        Answer::Held | Answer::NotReached | Answer::Conflict | Answer::TooOld | Answer::UnknownEndpoint => {}
    }
}

/// Adds what RF-08 wants to be told about one message. A batch of hundreds says it by outcomes alone: its answer is hashed
/// as a whole on either side.
fn write_flags(answer: &Answer, out: &mut Vec<u8>) {
    let flags = match answer {
        Answer::Done(_) => r#","acknowledged":true,"duplicateDetected":false"#,
        Answer::Duplicate(_) => r#","acknowledged":true,"duplicateDetected":true"#,
        _ => return,
    };
    out.extend_from_slice(flags.as_bytes());
}

fn write_response(response: Option<&Response>, room: &mut ResponseRoom, out: &mut Vec<u8>) {
    let Some(response) = response else { return };
    let (text, encoding) = encode(&response.content_type, &response.body);
    if !room.take(text.len()) {
        return;
    }
    member_name(out, "payload");
    out.extend_from_slice(text.as_bytes());
    if response.content_type != JSON {
        member(out, "contentType", &response.content_type);
    }
    if encoding != Encoding::Plain {
        member(out, "encoding", encoding.as_str());
    }
}

fn write_after(after: Option<Duration>, out: &mut Vec<u8>) {
    if let Some(after) = after {
        // Rounded up: a sender that comes back too early only has to come again.
        let millis = u64::try_from(after.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        member_name(out, "retryAfterMs");
        out.extend_from_slice(millis.to_string().as_bytes());
    }
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    answers: Vec<Item<'a>>,
    #[serde(default)]
    inbox: Option<String>,
}

/// What became of a batch, and which inbox says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchAnswer {
    /// One answer per message, in the order of the request.
    pub answers: Vec<Answer>,
    /// The instance of the inbox, if it says which it is.
    pub inbox: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content_type: Option<Text<'a>>,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

/// Text that is not copied if there is nothing to decode in it; a plain `Cow` in an `Option` always is.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is there, also if it is `null`: that is a response like any other.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// Reads the answer to the message `id`.
///
/// # Errors
/// [`Undecodable`](ErrorKind::Undecodable) or [`Invalid`](ErrorKind::Invalid): it is no answer, or one to another
/// message. What became of the message is then unknown.
pub fn parse_answer(bytes: &[u8], id: &MessageId) -> Result<Answer> {
    read::<Item<'_>>(bytes)?.into_answer(id)
}

/// Reads the answer to a batch of the messages `ids`, in this order.
///
/// # Errors
/// As [`parse_answer`], also if there is another number of answers.
pub fn parse_answers<'a>(
    bytes: &[u8],
    ids: impl ExactSizeIterator<Item = &'a MessageId>,
) -> Result<Vec<Answer>> {
    parse_batch_answer(bytes, ids).map(|batch| batch.answers)
}

/// Reads the answer to a batch of the messages `ids`, in this order, with the inbox that gives it.
///
/// # Errors
/// As [`parse_answers`].
pub fn parse_batch_answer<'a>(
    bytes: &[u8],
    ids: impl ExactSizeIterator<Item = &'a MessageId>,
) -> Result<BatchAnswer> {
    let batch: Batch<'_> = read(bytes)?;
    at_most("answers", batch.answers.len(), BATCH_ITEMS_MAX)?;
    if batch.answers.len() != ids.len() {
        let text = format!("{} answers to {} messages", batch.answers.len(), ids.len());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let answers = batch.answers.into_iter().zip(ids).map(|(item, id)| item.into_answer(id));
    let answers = answers.collect::<Result<_>>()?;
    // A name that cannot be one is as good as none: what became of the messages is known all the same.
    let inbox = batch.inbox.filter(|inbox| !inbox.is_empty() && check_label("inbox instance", inbox).is_ok());
    Ok(BatchAnswer { answers, inbox })
}

/// What a refusal says, if it is one: made short and harmless, because anybody can send one.
#[must_use]
pub fn parse_refusal(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    read::<Refusal>(bytes).ok().map(|refusal| shorten(&refusal.error))
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    at_most("bytes of answer", bytes.len(), ANSWER_BYTES_MAX)?;
    depth_at_most(bytes, DEPTH_MAX + 3)?; // a payload, in an item, in a list, in an object
    // The cause would quote what it met (S17).
    serde_json::from_slice(bytes)
        .map_err(|_| Error::new(ErrorKind::Undecodable, "the answer is not of the right shape"))
}

impl Item<'_> {
    fn into_answer(self, id: &MessageId) -> Result<Answer> {
        if self.message_id != id.as_str() {
            return Err(Error::invalid("the answer is to another message"));
        }
        let after = || self.retry_after_ms.map(Duration::from_millis);
        let error = || shorten(self.error.as_deref().unwrap_or("the receiver gave no reason"));
        Ok(match &*self.outcome {
            // What cannot be read of a response is left out: it is done all the same.
            "done" => Answer::Done(self.response().unwrap_or(None)),
            "duplicate" => Answer::Duplicate(self.response().unwrap_or(None)),
            "in_progress" => Answer::InProgress { after: after().unwrap_or_default() },
            "held" => Answer::Held,
            "not_reached" => Answer::NotReached,
            "too_early" => Answer::TooEarly { after: after().unwrap_or_default() },
            "retry" => Answer::Retry { after: after(), error: error() },
            "rejected" => Answer::Rejected { error: error() },
            "conflict" => Answer::Conflict,
            "too_old" => Answer::TooOld,
            "unknown_endpoint" => Answer::UnknownEndpoint,
            // A newer receiver may know more outcomes; nobody is charged for that.
            _ => Answer::InProgress { after: UNKNOWN_AFTER },
        })
    }

    fn response(&self) -> Result<Option<Response>> {
        let Some(text) = self.payload else { return Ok(None) };
        let encoding = Encoding::from_header(self.encoding.as_deref())?;
        let content_type = self.content_type.as_ref().map_or(JSON, |text| &text.0);
        check_content_type(content_type)?;
        // A stored response is no larger than a payload may be; its store has seen to that.
        let body = decode(text.get(), encoding, PAYLOAD_BYTES_MAX)?;
        Ok(Some(Response { content_type: content_type.into(), body }))
    }
}
