//! What a receiver counts, and what it says about single messages (RF-21, RF-23).

use std::sync::Arc;
use std::time::Duration;

use twobox_core::meters::{AnswerOutcome, InboxMeters};
use twobox_core::ports::{Answer, InboxStore};
use twobox_core::{Message, Result};

use super::{Inner, Route};
use crate::events::{MESSAGES, millis};

/// Counts a batch and says what became of its messages.
pub(super) fn tell<S: InboxStore>(
    inner: &Inner<S>,
    messages: &[Arc<Message>],
    answers: &Result<Vec<Answer>>,
    took: Duration,
) {
    count(&inner.meters, messages.len(), answers.as_deref().ok(), took);
    for (message, answer) in messages.iter().zip(answers.iter().flatten()) {
        let is_queued = matches!(inner.routes.get(&message.endpoint), Some(Route::Queued));
        tell_one(message, answer, is_queued, millis(took));
    }
}

fn count(meters: &InboxMeters, messages: usize, answers: Option<&[Answer]>, took: Duration) {
    let Some(answers) = answers else {
        meters.unanswered.add(messages as u64);
        return;
    };
    meters.process.took(took, messages);
    // Nearly all batches have one kind of answer: it is counted once.
    let mut rest = answers;
    while let Some(first) = rest.first() {
        let outcome = AnswerOutcome::from(first);
        let alike = rest.iter().take_while(|answer| AnswerOutcome::from(*answer) == outcome).count();
        meters.answers.add(outcome, alike as u64);
        rest = &rest[alike..];
    }
}

fn tell_one(message: &Message, answer: &Answer, is_queued: bool, duration_ms: f64) {
    let (source, endpoint, message_id) =
        (message.source.as_str(), message.endpoint.as_str(), message.id.as_str());
    match answer {
        Answer::Done(_) if is_queued => {
            tracing::info!(target: MESSAGES, source, endpoint, message_id, duration_ms, "stored");
        }
        Answer::Done(_) => {
            tracing::info!(target: MESSAGES, source, endpoint, message_id, duration_ms, "processed");
        }
        Answer::Duplicate(_) => tracing::warn!(source, endpoint, message_id, "duplicate"),
        Answer::Retry { error, .. } => {
            let error = error.as_str();
            tracing::warn!(source, endpoint, message_id, error, "handling failed; the sender tries again");
        }
        Answer::Rejected { error } => {
            let error = error.as_str();
            tracing::warn!(source, endpoint, message_id, error, "rejected");
        }
        Answer::Conflict => {
            tracing::warn!(source, endpoint, message_id, "another message is known under this id");
        }
        Answer::TooOld => {
            tracing::warn!(source, endpoint, message_id, "older than what is remembered; refused");
        }
        Answer::TooEarly { .. } => {
            tracing::warn!(source, endpoint, message_id, "dated ahead of our clock; refused for now");
        }
        Answer::UnknownEndpoint => {
            tracing::warn!(source, endpoint, message_id, "no handler for this endpoint");
        }
        _ => tracing::debug!(source, endpoint, message_id, "not now; the sender asks again"),
    }
}
