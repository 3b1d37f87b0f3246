//! What a relay counts, and what it says about single messages (RF-21, RF-23).

use std::sync::Arc;
use std::time::Duration;

use tracing::Level;
use twobox_core::lifecycle::{Standing, State, Step};
use twobox_core::meters::{LaneMeters, Meters};
use twobox_core::ports::{Answer, Link, Settled, WaitingOutcome};
use twobox_core::{Message, Timestamp};

use super::breaker::Breaker;
use crate::events::{MESSAGES, millis};

/// The figures of a lane that this relay holds, until it does no longer.
#[derive(Debug)]
pub(super) struct Figures(pub(super) Arc<LaneMeters>);

impl Figures {
    pub(super) fn new(meters: &Meters, link: &Link) -> Self {
        Self(meters.lane(&link.source, &link.destination))
    }

    /// Shows that the lane is held, what its breaker does, and since when its oldest message waits.
    pub(super) fn show(&self, breaker: &Breaker, oldest: Option<Timestamp>) {
        self.0.leased.set(1);
        self.0.oldest.set(oldest.map_or(0, Timestamp::as_micros));
        self.0.breaker.set(match breaker {
            Breaker::Closed { .. } => 0,
            Breaker::Open { .. } => 1,
            Breaker::Probing { .. } => 2,
        });
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        self.0.leased.set(0);
        self.0.oldest.set(0);
        self.0.breaker.set(0);
    }
}

/// Says which messages of a request have arrived.
pub(super) fn tell_sent(messages: impl FnOnce() -> Vec<Arc<Message>>, answers: &[Answer], took: Duration) {
    if !tracing::enabled!(target: MESSAGES, Level::INFO) {
        return;
    }
    for (message, answer) in messages().iter().zip(answers) {
        if matches!(answer, Answer::Done(_) | Answer::Duplicate(_)) {
            tracing::info!(
                target: MESSAGES,
                source = message.source.as_str(),
                destination = message.destination.as_str(),
                endpoint = message.endpoint.as_str(),
                message_id = message.id.as_str(),
                duration_ms = millis(took),
                "sent"
            );
        }
    }
}

/// What becomes of messages if a settlement is committed: counted and told then, because before it is not true.
#[derive(Debug)]
pub(super) struct Outcomes {
    meters: Arc<LaneMeters>,
    link: Arc<Link>,
    attempts_max: u32,
    /// Messages that were sent at the first attempt.
    fresh: usize,
    others: Vec<Other>,
}

/// A message that was not simply sent.
#[derive(Debug)]
struct Other {
    /// `None` if it cannot be decoded.
    message: Option<Arc<Message>>,
    attempts_before: u32,
    step: Step,
    error: Option<String>,
}

impl Outcomes {
    pub(super) fn new(meters: &Figures, link: &Arc<Link>, retries_max: u32) -> Self {
        let attempts_max = retries_max.saturating_add(1);
        Self {
            meters: Arc::clone(&meters.0),
            link: Arc::clone(link),
            attempts_max,
            fresh: 0,
            others: Vec::new(),
        }
    }

    /// Messages were sent at the first attempt.
    pub(super) fn sent(&mut self, messages: usize) {
        self.fresh += messages;
    }

    /// Something else became of a message.
    pub(super) fn note(
        &mut self,
        message: Option<&Arc<Message>>,
        before: Standing,
        outcome: &WaitingOutcome,
    ) {
        self.others.push(Other {
            message: message.cloned(),
            attempts_before: before.attempts,
            step: outcome.step,
            error: outcome.error.clone(),
        });
    }

    /// It is committed.
    pub(super) fn tell(&self, settled: Settled) {
        if self.fresh > 0 {
            self.meters.retries.saw(0, self.fresh);
        }
        self.others.iter().for_each(|other| self.tell_other(other));
        let is_death = |other: &&Other| matches!(other.step.standing.state, State::Dead | State::Expired);
        let messages = settled.died.saturating_sub(self.others.iter().filter(is_death).count() as u64);
        if messages > 0 {
            let (source, destination) = self.names();
            tracing::error!(source, destination, messages, "messages died with the head of their key");
        }
    }

    fn tell_other(&self, other: &Other) {
        let Standing { state, attempts } = other.step.standing;
        match state {
            State::Succeeded => self.meters.retries.saw(attempts.into(), 1),
            State::Dead => {
                self.meters.retries.saw(attempts.saturating_sub(1).into(), 1);
                self.tell_dead(other);
            }
            State::Expired => {
                self.meters.retries.saw(attempts.into(), 1);
                let (source, destination) = self.names();
                let (endpoint, message_id) = other.names();
                tracing::warn!(source, destination, endpoint, message_id, attempt = attempts, "expired");
            }
            // What is merely postponed or held has not failed.
            State::Open if attempts > other.attempts_before => self.tell_failed(other),
            State::Open => {}
        }
    }

    fn tell_failed(&self, other: &Other) {
        let (source, destination) = self.names();
        let (endpoint, message_id) = other.names();
        let (attempt, attempts_max, error) =
            (other.step.standing.attempts, self.attempts_max, other.error.as_deref());
        tracing::warn!(
            source,
            destination,
            endpoint,
            message_id,
            attempt,
            attempts_max,
            error,
            "send failed"
        );
    }

    fn tell_dead(&self, other: &Other) {
        let (source, destination) = self.names();
        let (endpoint, message_id) = other.names();
        let (attempt, attempts_max, error) =
            (other.step.standing.attempts, self.attempts_max, other.error.as_deref());
        let reason = match other.step.next {
            twobox_core::lifecycle::Next::Never(reason) => reason.map(twobox_core::lifecycle::Reason::as_str),
            _ => None,
        };
        tracing::error!(
            source,
            destination,
            endpoint,
            message_id,
            attempt,
            attempts_max,
            reason,
            error,
            "permanently failed"
        );
    }

    fn names(&self) -> (&str, &str) {
        (self.link.source.as_str(), self.link.destination.as_str())
    }
}

impl Other {
    fn names(&self) -> (Option<&str>, Option<&str>) {
        let message = self.message.as_deref();
        (message.map(|message| message.endpoint.as_str()), message.map(|message| message.id.as_str()))
    }
}
