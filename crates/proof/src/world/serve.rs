//! The far end of a line: what a server makes of a request.

use std::sync::Arc;

use twobox_core::ports::Answer;
use twobox_core::signing::{Keyrings, Refused};
use twobox_core::wire::{self, Asker, Limits, Parsed, Probe};
use twobox_core::{Clock as _, Message};
use twobox_testkit::history::{Event, Reply};

use super::network::{Arrived, Request};
use super::process::{Node, Process};
use super::stage::{REQUEST_TIMEOUT, Stage};
use super::tally::Kind;

/// Why a request was refused as a whole, as a status code.
struct Refusal(u16);

/// Handles a request; `None` if the process died over it.
pub(super) async fn serve(
    stage: &Stage,
    node: &Node,
    process: &Process,
    keyrings: &Keyrings,
    request: &Request,
) -> Option<Arrived> {
    let answered = answer(stage, node, process, keyrings, request).await;
    if !process.is_alive() {
        return None;
    }
    Some(answered.unwrap_or_else(|Refusal(status)| Arrived { status, signature: None, body: Vec::new() }))
}

async fn answer(
    stage: &Stage,
    node: &Node,
    process: &Process,
    keyrings: &Keyrings,
    request: &Request,
) -> Result<Arrived, Refusal> {
    let now = process.clock.now();
    let refused = |refused: Refused| {
        stage.count(if refused == Refused::Stale { Kind::Stale } else { Kind::Unauthentic });
        Refusal(401)
    };
    let malformed = |_: twobox_core::Error| Refusal(400);
    let items = wire::parse_batch(&request.body, &Limits::default()).map_err(malformed)?;
    if items.is_empty() {
        let value =
            |name: &str| request.head.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str());
        let probe = Probe::read(value).map_err(|_| refused(Refused::Unauthentic))?;
        let asker = Asker::of_probe(keyrings, probe, now).map_err(refused)?;
        return Ok(signed(&asker, wire::encode_answers([])));
    }
    let parsed: Vec<Parsed> = items.into_iter().collect::<Result<_, _>>().map_err(malformed)?;
    let asker = Asker::of(keyrings, &parsed, now).map_err(refused)?;
    if parsed.iter().any(|parsed| parsed.message.destination.as_str() != &*node.name) {
        return Err(Refusal(421));
    }
    let messages: Vec<Arc<Message>> = parsed.into_iter().map(|parsed| Arc::new(parsed.message)).collect();
    let answers = process.receiver.receive(messages.clone(), REQUEST_TIMEOUT / 2).await;
    let answers = answers.map_err(|_| Refusal(503))?;
    if process.is_alive() {
        messages.iter().zip(&answers).for_each(|(message, answer)| note(stage, node, message, answer));
    }
    let body = wire::encode_answers(messages.iter().map(|message| &message.id).zip(&answers));
    Ok(signed(&asker, body))
}

fn signed(asker: &Asker<'_>, body: Vec<u8>) -> Arrived {
    let signature = asker.sign(200, &body);
    let signature = signature.map(|(key_id, mac)| (key_id.to_string(), mac.to_base64()));
    Arrived { status: 200, signature, body }
}

fn note(stage: &Stage, node: &Node, message: &Message, answer: &Answer) {
    let reply = match answer {
        Answer::Done(_) => Reply::Done,
        Answer::Duplicate(_) => Reply::Duplicate,
        Answer::Retry { .. } => Reply::Retry,
        Answer::Rejected { .. } => Reply::Rejected,
        Answer::TooOld => Reply::TooOld,
        Answer::TooEarly { .. } => Reply::TooEarly,
        Answer::Conflict => Reply::Conflict,
        _ => Reply::Later,
    };
    let kind = match reply {
        Reply::Duplicate => Some(Kind::Duplicate),
        Reply::TooOld => Some(Kind::TooOld),
        Reply::TooEarly => Some(Kind::TooEarly),
        _ => None,
    };
    kind.into_iter().for_each(|kind| stage.count(kind));
    stage.note(&node.name, Event::Answered(message.id.to_string(), reply));
}
