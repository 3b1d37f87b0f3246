//! What the receiver's side consists of: the senders' messages, copies on their way, requests being handled, the
//! inbox twice.

use super::InboxBounds;

/// Most messages.
pub(super) const MESSAGES: usize = 3;
/// Requests that are handled at a time.
pub(super) const WORKERS: usize = 2;

/// A message as its sender has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Unborn,
    /// To be sent, perhaps again.
    Open,
    /// In a request that is waited for.
    Awaiting,
    Sent,
    Rejected,
    TooOld,
}

impl Sender {
    fn is_final(self) -> bool {
        matches!(self, Self::Sent | Self::Rejected | Self::TooOld)
    }
}

/// What a message is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// Done, or a duplicate.
    Well,
    Rejected,
    TooOld,
    /// Retry, in progress or too early: the sender tries again.
    Later,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    Received,
    /// Broken variants only: it was looked up, in a step of its own.
    Checked,
    /// Broken variants only: the effect is committed and the row is not.
    Handled,
    /// Broken variants only: the row is committed and the effect is not.
    Marked,
    Answering(Answer),
}

/// A request that is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Work {
    pub(super) message: u8,
    /// Whether the sender still waits for the answer.
    pub(super) awaited: bool,
    pub(super) phase: Phase,
}

/// The row of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Row {
    None,
    Done,
    Dead,
}

/// The receiver's database: inbox rows, the handlers' effects, the peer's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Db {
    pub(super) rows: [Row; MESSAGES],
    pub(super) effects: [u8; MESSAGES],
    /// Dates begin with 1; 0 is before all of them.
    pub(super) newest: u8,
    pub(super) watermark: u8,
    /// Whose row was purged, one bit per message; for the properties only.
    pub(super) purged: u8,
    /// Somebody was handled after that.
    pub(super) again: bool,
}

/// How much may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) late: u8,
    pub(super) kills: u8,
    pub(super) cuts: u8,
    pub(super) failures: u8,
    pub(super) rejections: u8,
    pub(super) sender_steps: u8,
    pub(super) receiver_steps: u8,
}

impl Left {
    pub(super) const NOTHING: Self =
        Self { late: 0, kills: 0, cuts: 0, failures: 0, rejections: 0, sender_steps: 0, receiver_steps: 0 };
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct State {
    pub(super) senders: [Sender; MESSAGES],
    /// `available` of each message, by the sender's clock.
    pub(super) dates: [u8; MESSAGES],
    /// Whether the copy that is waited for is still on its way.
    pub(super) travelling: [bool; MESSAGES],
    /// Copies on their way that nobody waits for.
    pub(super) late: [u8; MESSAGES],
    /// In an order of their own, so that equal sets are equal states.
    pub(super) workers: [Option<Work>; WORKERS],
    pub(super) visible: Db,
    pub(super) durable: Db,
    pub(super) clock: u8,
    /// A broken variant's watermark that is still to be raised, in a transaction of its own.
    pub(super) to_raise: u8,
    pub(super) left: Left,
}

impl State {
    pub(super) fn new(bounds: &InboxBounds) -> Self {
        let db = Db {
            rows: [Row::None; MESSAGES],
            effects: [0; MESSAGES],
            newest: 0,
            watermark: 0,
            purged: 0,
            again: false,
        };
        Self {
            senders: [Sender::Unborn; MESSAGES],
            dates: [0; MESSAGES],
            travelling: [false; MESSAGES],
            late: [0; MESSAGES],
            workers: [None; WORKERS],
            visible: db,
            durable: db,
            clock: 1,
            to_raise: 0,
            left: bounds.left,
        }
    }

    pub(super) fn is_finished(&self, bounds: &InboxBounds) -> bool {
        self.senders[..usize::from(bounds.messages)].iter().all(|sender| sender.is_final())
    }

    /// The next message to be enqueued, and the date of the one before it.
    pub(super) fn next(&self, bounds: &InboxBounds) -> Option<(usize, u8)> {
        let unborn =
            self.senders[..usize::from(bounds.messages)].iter().position(|s| *s == Sender::Unborn)?;
        Some((unborn, unborn.checked_sub(1).map_or(1, |before| self.dates[before])))
    }

    /// The receiving process ends: whatever it was handling ends with it, and whoever waits hears of it.
    pub(super) fn stop(&mut self) {
        for work in self.workers.iter().flatten().filter(|work| work.awaited) {
            self.senders[usize::from(work.message)] = Sender::Open;
        }
        self.workers = [None; WORKERS];
        self.to_raise = 0;
    }
}
