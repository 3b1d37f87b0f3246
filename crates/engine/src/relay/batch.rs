//! A batch: messages that travel in one request and are judged together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::lifecycle::{Event, Reason, Standing};
use twobox_core::ports::Answer;
use twobox_core::{Message, OrderingKey, Timestamp, mutant};

/// When to ask again about a message that was answered in a way that makes no sense.
const HELD_WITHOUT_KEY: Duration = Duration::from_secs(1);

/// Where the messages of a batch come from, and so how their outcomes are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The log: in order, moving the cursor (L1).
    Log,
    /// Waiting rows: at once (L5).
    Waiting,
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be sent, perhaps again.
    Ready,
    /// In a request.
    InFlight,
    /// Everything is known about it.
    Answered,
}

/// What is known about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is to be sent.
    Send,
    /// It is scheduled for later.
    Scheduled,
    /// What happened to it, and what went wrong.
    Known(Event, Option<String>),
}

impl Fate {
    pub(super) fn dead(reason: Reason, error: impl Into<String>) -> Self {
        Self::Known(Event::Rejected(reason), Some(error.into()))
    }

    /// What an answer means. `None`: its turn has not come.
    fn of(answer: Answer) -> Option<Self> {
        Some(match answer {
            Answer::Done(_) | Answer::Duplicate(_) => Self::Known(Event::Succeeded, None),
            Answer::InProgress { after } => Self::Known(Event::Postponed { after }, None),
            Answer::TooEarly { after } => {
                Self::Known(Event::Postponed { after }, Some("dated ahead of the receiver's clock".into()))
            }
            Answer::Held => Self::Known(Event::Held, None),
            Answer::NotReached if mutant!(NotReachedIsSent) => Self::Known(Event::Succeeded, None),
            Answer::NotReached => return None,
            Answer::Retry { after, error } => Self::Known(Event::Failed { after }, Some(error)),
            Answer::Rejected { .. } if mutant!(RejectedIsSent) => Self::Known(Event::Succeeded, None),
            Answer::Rejected { error } => Self::dead(Reason::Rejected, error),
            Answer::Conflict => {
                Self::dead(Reason::Conflict, "the receiver knows another message under this id")
            }
            Answer::TooOld => {
                Self::dead(Reason::TooOld, "older than the receiver remembers; replay it under a new id")
            }
            Answer::UnknownEndpoint => {
                Self::Known(Event::Failed { after: None }, Some("the receiver has no such endpoint".into()))
            }
            other => Self::Known(Event::Failed { after: None }, Some(format!("unknown answer {other:?}"))),
        })
    }
}

/// One message of a batch.
#[derive(Clone, Debug)]
pub(super) struct Item<P> {
    pub(super) position: P,
    /// `None` if it cannot be decoded; then its fate is known.
    pub(super) message: Option<Arc<Message>>,
    pub(super) standing: Standing,
    pub(super) fate: Fate,
}

impl<P> Item<P> {
    pub(super) fn key(&self) -> Option<&OrderingKey> {
        self.message.as_ref().and_then(|message| message.ordering_key.as_ref())
    }

    /// Takes an answer. Without one, or if it was not reached, it is still to be sent.
    fn take(&mut self, answer: Option<Answer>) {
        match answer.and_then(Fate::of) {
            // Without a key there is nothing to be held behind; a receiver that says so is asked again.
            Some(Fate::Known(Event::Held, _)) if self.key().is_none() => {
                self.fate = Fate::Known(Event::Postponed { after: HELD_WITHOUT_KEY }, None);
            }
            Some(fate) => self.fate = fate,
            None => {}
        }
    }

    pub(super) fn succeeded(&self) -> bool {
        matches!(self.fate, Fate::Known(Event::Succeeded, _))
    }
}

/// Messages that travel together.
#[derive(Debug)]
pub(super) struct Batch<P> {
    pub(super) id: u64,
    pub(super) origin: Origin,
    pub(super) items: Vec<Item<P>>,
    pub(super) state: State,
    /// When it was last sent, on the monotonic clock.
    sent: Duration,
    /// One of its messages may have broken the receiver: it travels in halves, with nobody else (L3).
    pub(super) suspect: bool,
    /// It travels as one message, alone, right after the receiver has answered a probe: a failure is its own.
    pub(super) chargeable: bool,
}

impl<P> Batch<P> {
    pub(super) fn new(id: u64, origin: Origin, items: Vec<Item<P>>) -> Self {
        let any = items.iter().any(|item| item.fate == Fate::Send);
        let state = if any { State::Ready } else { State::Answered };
        Self { id, origin, items, state, sent: Duration::ZERO, suspect: false, chargeable: false }
    }

    pub(super) fn send(&mut self, now: Duration) {
        (self.state, self.sent) = (State::InFlight, now);
    }

    /// When its request was sent, if it is under way.
    pub(super) fn under_way(&self) -> Option<Duration> {
        (self.state == State::InFlight).then_some(self.sent)
    }

    /// The messages to send, in order.
    pub(super) fn messages(&self) -> Vec<Arc<Message>> {
        self.to_send().filter_map(|item| item.message.clone()).collect()
    }

    fn to_send(&self) -> impl Iterator<Item = &Item<P>> {
        self.items.iter().filter(|item| item.fate == Fate::Send)
    }

    /// Whether only one message is left to send, so a failure is its own.
    pub(super) fn is_lone(&self) -> bool {
        self.to_send().nth(1).is_none()
    }

    /// Takes the receiver's answers. Returns the place of the first message that was not reached.
    ///
    /// What was not reached is sent again, but not past an earlier one of its key that failed: it is held (L4).
    pub(super) fn answered(&mut self, answers: Vec<Answer>) -> Option<usize> {
        let mut answers = answers.into_iter();
        let mut first_unreached = None;
        let mut held: HashSet<OrderingKey> = HashSet::new();
        for (at, item) in self.items.iter_mut().enumerate() {
            if item.fate == Fate::Send {
                item.take(answers.next());
            }
            if item.fate == Fate::Send && item.key().is_some_and(|key| held.contains(key)) {
                item.fate = Fate::Known(Event::Held, None);
            }
            match &item.fate {
                Fate::Send => _ = first_unreached.get_or_insert(at),
                Fate::Known(event, _) if *event != Event::Succeeded => held.extend(item.key().cloned()),
                // One for later is no part of its key (L5).
                Fate::Known(..) | Fate::Scheduled => {}
            }
        }
        self.state = State::Answered;
        first_unreached
    }

    /// Takes off everything from `at` on, under an id of its own. Both parts are to be sent, unless everything
    /// is known about them.
    pub(super) fn split_off(&mut self, at: usize, id: u64) -> Self {
        let mut rest = Self::new(id, self.origin, self.items.split_off(at));
        rest.suspect = self.suspect;
        self.state = if self.to_send().next().is_some() { State::Ready } else { State::Answered };
        rest
    }

    /// The place behind the first `count` messages that are to be sent, if there are more.
    pub(super) fn place_after(&self, count: usize) -> Option<usize> {
        self.items.iter().enumerate().filter(|(_, item)| item.fate == Fate::Send).map(|(at, _)| at).nth(count)
    }

    /// Charges the one message that was sent.
    pub(super) fn charge_lone(&mut self, error: &str) {
        for item in self.items.iter_mut().filter(|item| item.fate == Fate::Send) {
            // It may have happened: the receiver did not say.
            let error = format!("outcome unknown: {error}");
            item.fate = Fate::Known(Event::Failed { after: None }, Some(error));
        }
        self.state = State::Answered;
    }

    /// Keys of messages whose fate is not known yet.
    pub(super) fn busy_keys(&self) -> impl Iterator<Item = &OrderingKey> {
        self.items.iter().filter(|item| item.fate == Fate::Send).filter_map(Item::key)
    }

    /// Keys that wait because of a message in this batch whose outcome is not settled yet.
    pub(super) fn held_keys(&self) -> impl Iterator<Item = &OrderingKey> {
        self.items
            .iter()
            .filter(|item| matches!(&item.fate, Fate::Known(event, _) if *event != Event::Succeeded))
            .filter_map(Item::key)
    }

    /// Expires what is past its time to live, and holds what follows it in its key.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut held = HashSet::new();
        for item in self.items.iter_mut().filter(|item| item.fate == Fate::Send) {
            if item.message.as_ref().is_some_and(|message| message.expires <= now) {
                item.fate = Fate::Known(Event::Expired, None);
                held.extend(item.key().cloned());
            } else if item.key().is_some_and(|key| held.contains(key)) {
                item.fate = Fate::Known(Event::Held, None);
            }
        }
        self.conclude();
    }

    /// Holds messages of these keys instead of sending them.
    pub(super) fn hold(&mut self, keys: &HashSet<OrderingKey>) {
        if mutant!(RetryOvertakesKey) {
            return;
        }
        for item in &mut self.items {
            if item.fate == Fate::Send && item.key().is_some_and(|key| keys.contains(key)) {
                item.fate = Fate::Known(Event::Held, None);
            }
        }
        self.conclude();
    }

    /// If nothing is left to send, everything is known.
    fn conclude(&mut self) {
        if self.to_send().next().is_none() {
            self.state = State::Answered;
            self.suspect = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, key: Option<&str>) -> Item<u64> {
        let message = Message {
            id: id.parse().unwrap(),
            source: "shop".parse().unwrap(),
            destination: "billing".parse().unwrap(),
            endpoint: "Pay".parse().unwrap(),
            message_type: twobox_core::MessageType::Signal,
            payload: twobox_core::Payload::default(),
            content_type: twobox_core::message::JSON.into(),
            correlation_id: None,
            ordering_key: key.map(|key| key.parse().unwrap()),
            headers: twobox_core::Headers::default(),
            created: Timestamp::default(),
            available: Timestamp::default(),
            expires: Timestamp::MAX,
            replay: 0,
        };
        Item { position: 0, message: Some(Arc::new(message)), standing: Standing::FRESH, fate: Fate::Send }
    }

    fn ids(batch: &Batch<u64>) -> Vec<String> {
        batch.messages().iter().map(|message| message.id.to_string()).collect()
    }

    #[test]
    fn l4_what_was_not_reached_is_not_sent_past_a_failed_one_of_its_key() {
        let items =
            vec![item("b1", None), item("a1", Some("a")), item("c1", Some("c")), item("a2", Some("a"))];
        let mut batch = Batch::new(1, Origin::Waiting, items);
        let retry = Answer::Retry { after: None, error: "not now".into() };
        let first = batch.answered(vec![Answer::NotReached, retry, Answer::Done(None), Answer::NotReached]);
        assert_eq!(first, Some(0));
        assert_eq!(ids(&batch), ["b1"], "a2 waits behind a1");
        assert_eq!(batch.items[3].fate, Fate::Known(Event::Held, None));
    }

    #[test]
    fn what_was_not_reached_is_sent_again() {
        let items = vec![item("a1", Some("a")), item("a2", Some("a")), item("b1", None)];
        let mut batch = Batch::new(1, Origin::Log, items);
        let answers = vec![Answer::Done(None), Answer::NotReached, Answer::NotReached];
        assert_eq!(batch.answered(answers), Some(1));
        assert_eq!(ids(&batch), ["a2", "b1"]);
    }
}
