//! What can happen.

use std::fmt;

/// A message as its author meant it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// Where it goes: the node that is to have its effect.
    pub destination: String,
    /// Messages of one key stay in order.
    pub key: Option<String>,
    /// It is due later, and no part of its key until then (L5).
    pub scheduled: bool,
    /// It may expire within the run.
    pub mortal: bool,
    /// Of several messages with the same once key, one is enqueued (L8).
    pub once: Option<String>,
    /// The message whose handler enqueues it: it is committed exactly when that one's effect is.
    pub parent: Option<String>,
}

/// What a receiver lets out about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// The effect is committed, or the message is queued for a worker.
    Done,
    /// It had been committed before.
    Duplicate,
    /// It failed and may work later.
    Retry,
    /// It can never work.
    Rejected,
    /// Nobody knows any more whether it was handled.
    TooOld,
    /// It is dated too far ahead.
    TooEarly,
    /// Another message is known under its id.
    Conflict,
    /// Nothing was done: held, not reached, in progress, no such endpoint.
    Later,
}

impl Reply {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Duplicate => "duplicate",
            Self::Retry => "retry",
            Self::Rejected => "rejected",
            Self::TooOld => "too-old",
            Self::TooEarly => "too-early",
            Self::Conflict => "conflict",
            Self::Later => "later",
        }
    }

    /// Whether it says that the message is no longer its sender's concern.
    #[must_use]
    pub fn is_acknowledgement(self) -> bool {
        matches!(self, Self::Done | Self::Duplicate)
    }
}

/// Where a message stands at the end, in its outbox or in the queue of its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Sent and acknowledged.
    Sent,
    /// Dead or expired, for this reason.
    Dead(String),
    /// Neither.
    Open,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody begins to enqueue a message: from now on it may be in the world.
    Begun(Order),
    /// The author was told that it is committed.
    Enqueued(String),
    /// The author was told that nobody knows, or was not told anything.
    Unknown(String),
    /// The author was told that it is not committed.
    Refused(String),
    /// A request with the message left its sender.
    Sent(String),
    /// An answer about the message left its receiver.
    Answered(String, Reply),
    /// The sender believed an answer that acknowledges the message.
    Acknowledged(String),
    /// An operator was told, once its death was durable.
    Died(String, String),
    /// An operator begins to send a dead letter again, under the same id.
    Replayed(String),
    /// An operator begins to send a dead letter again, under a new id.
    ReplayedAsNew(String),
    /// An operator has begun to remove a dead letter for good.
    Purged(String),
    /// An operator begins to let a key step over its dead messages.
    Released(String),
    /// The node came up again, and this is in its database.
    Recovered {
        /// The messages that have their effects.
        effects: Vec<String>,
        /// The messages its workers have still to handle, and those that are dead letters of its inbox.
        queued: Vec<String>,
    },
    /// A handler says that the message can never work.
    Rejected(String),
    /// An operator begins to run a dead letter of the inbox again.
    WorkReplayed(String),
    /// An operator begins to let a key of the inbox step over its dead messages.
    WorkReleased(String),
    /// At the end: the author's own row is there, at this place among the others.
    Row {
        /// The message.
        id: String,
        /// Its place.
        place: i64,
    },
    /// At the end: an effect is there, at this place among the others.
    Effect {
        /// The message that had it.
        id: String,
        /// Under which id its author had enqueued it: a dead letter may be sent again under a new one.
        of: String,
        /// Its place.
        place: i64,
    },
    /// At the end: where the message stands in its outbox. What was sent and swept is not there any more.
    Stands {
        /// The message.
        id: String,
        /// Under which id its author had enqueued it.
        of: String,
        /// Where it stands.
        standing: Standing,
    },
    /// At the end: where the message stands in the queue of its receiver. What is done is not there any more.
    Work {
        /// The message.
        id: String,
        /// Under which id its author had enqueued it.
        of: String,
        /// Where it stands.
        standing: Standing,
    },
    /// At the end: something that must hold in the node's database does not.
    Unsound(String),
    /// Anything else worth reading: cuts, partitions, clocks.
    Note(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent => f.write_str("sent"),
            Self::Dead(reason) => write!(f, "dead {reason}"),
            Self::Open => f.write_str("open"),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.id, self.destination)?;
        for (name, value) in [("key", &self.key), ("once", &self.once), ("parent", &self.parent)] {
            if let Some(value) = value {
                write!(f, " {name} {value}")?;
            }
        }
        let flags = [(self.scheduled, " scheduled"), (self.mortal, " mortal")];
        flags.iter().filter(|(is, _)| *is).try_for_each(|(_, text)| f.write_str(text))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(order) => write!(f, "begun {order}"),
            Self::Enqueued(id) => write!(f, "enqueued {id}"),
            Self::Unknown(id) => write!(f, "unknown {id}"),
            Self::Refused(id) => write!(f, "refused {id}"),
            Self::Sent(id) => write!(f, "sent {id}"),
            Self::Answered(id, reply) => write!(f, "answered {id} {}", reply.as_str()),
            Self::Acknowledged(id) => write!(f, "acknowledged {id}"),
            Self::Died(id, reason) => write!(f, "died {id} {reason}"),
            Self::Replayed(id) => write!(f, "replayed {id}"),
            Self::ReplayedAsNew(id) => write!(f, "replayed-as-new {id}"),
            Self::Purged(id) => write!(f, "purged {id}"),
            Self::Released(key) => write!(f, "released {key}"),
            Self::Recovered { effects, queued } => {
                write!(f, "recovered with {} and queued {}", effects.join(","), queued.join(","))
            }
            Self::Rejected(id) => write!(f, "rejected {id}"),
            Self::WorkReplayed(id) => write!(f, "work-replayed {id}"),
            Self::WorkReleased(key) => write!(f, "work-released {key}"),
            Self::Row { id, place } => write!(f, "row {id} at {place}"),
            Self::Effect { id, of, place } => write!(f, "effect {id} of {of} at {place}"),
            Self::Stands { id, of, standing } => write!(f, "stands {id} of {of} {standing}"),
            Self::Work { id, of, standing } => write!(f, "work {id} of {of} {standing}"),
            Self::Unsound(text) => write!(f, "unsound {text}"),
            Self::Note(text) => write!(f, "note {text}"),
        }
    }
}
