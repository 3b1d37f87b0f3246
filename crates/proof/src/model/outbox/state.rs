//! What the sender's side consists of: the database twice, lanes in memory, requests on their way, the receiver.

use super::bounds::OutboxBounds;

/// Most messages, and most places in the log.
pub(super) const PLACES: usize = 4;
/// Relays that compete for the lane.
pub(super) const RELAYS: usize = 2;

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Exhausted,
    Rejected,
    KeyFailed,
}

/// Where a waiting row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowState {
    /// There is no row.
    Absent,
    Open,
    Sent,
    Dead(Reason),
    /// There was one, or a log row, and the sweeper took it.
    Trimmed,
}

/// A row of the waiting table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) state: RowState,
    pub(super) attempts: u8,
    pub(super) replay: u8,
    pub(super) holds: bool,
}

impl Row {
    pub(super) const ABSENT: Self = Self { state: RowState::Absent, attempts: 0, replay: 0, holds: false };

    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, RowState::Dead(_))
    }
}

/// The sender's database. Places begin with 1; what is stored of a message is its number plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Db {
    pub(super) log: [u8; PLACES],
    pub(super) end: u8,
    pub(super) cursor: u8,
    pub(super) rows: [Row; PLACES],
    pub(super) owner: u8,
    pub(super) token: u8,
}

/// A message as the view shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Pending,
    Sent,
    Dead,
    Trimmed,
}

impl Db {
    pub(super) fn row(&self, place: u8) -> Row {
        self.rows[usize::from(place) - 1]
    }

    pub(super) fn row_mut(&mut self, place: u8) -> &mut Row {
        &mut self.rows[usize::from(place) - 1]
    }

    /// The message at a place of the log.
    pub(super) fn message(&self, place: u8) -> u8 {
        self.log[usize::from(place) - 1].saturating_sub(1)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.end
    }

    /// The view: behind the cursor, a message without a waiting row is sent.
    pub(super) fn status(&self, place: u8) -> Status {
        match self.row(place).state {
            RowState::Absent if place <= self.cursor => Status::Sent,
            RowState::Absent | RowState::Open => Status::Pending,
            RowState::Sent => Status::Sent,
            RowState::Dead(_) => Status::Dead,
            RowState::Trimmed => Status::Trimmed,
        }
    }
}

/// What is known about a message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Send,
    Succeeded,
    Failed,
    Rejected,
    Held,
    Postponed,
}

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) place: u8,
    pub(super) message: u8,
    pub(super) replay: u8,
    pub(super) attempts: u8,
    pub(super) fate: Fate,
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BatchState {
    Ready,
    InFlight,
    Answered,
}

/// Where the messages of a batch come from. A lane that somebody else has taken over may have both at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    Log,
    Waiting,
}

/// Names a batch of a lane: its origin and first place.
pub(super) type BatchId = (Origin, u8);

/// Messages that travel together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    pub(super) origin: Origin,
    pub(super) items: Vec<Item>,
    pub(super) state: BatchState,
    pub(super) suspect: bool,
    pub(super) chargeable: bool,
}

/// Whether requests may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Breaker {
    Closed { probed: bool },
    Open,
}

/// The lane as a relay has it in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) token: u8,
    pub(super) epoch: u8,
    /// Everything up to here was read.
    pub(super) position: u8,
    pub(super) log: Vec<Batch>,
    pub(super) waiting: Option<Batch>,
    pub(super) breaker: Breaker,
    pub(super) suspect_limit: Option<u8>,
}

/// What the receiver says about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// Done, or a duplicate.
    Well,
    Retry,
    Rejected,
    Held,
    InProgress,
}

/// A request on its way, or its answer on the way back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Request {
    /// The relay and its batch that wait for the answer. `None`: a late copy nobody waits for.
    pub(super) awaited: Option<(u8, BatchId)>,
    /// Message and replay number.
    pub(super) messages: Vec<(u8, u8)>,
    pub(super) answers: Option<Vec<Answer>>,
    /// One message alone, right after an answered probe: what goes wrong is its own.
    pub(super) alone: bool,
}

/// A row of the receiver's inbox, with the replay number it was handled under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inbox {
    None,
    Done(u8),
    Dead(u8),
}

/// How much may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) takes: u8,
    pub(super) kills: u8,
    pub(super) cuts: u8,
    pub(super) reopens: u8,
    pub(super) timeouts: u8,
    pub(super) late: u8,
    pub(super) refusals: u8,
    pub(super) failures: u8,
    pub(super) rejections: u8,
    pub(super) replays: u8,
    pub(super) trims: u8,
}

impl Left {
    pub(super) const NOTHING: Self = Self {
        takes: 0,
        kills: 0,
        cuts: 0,
        reopens: 0,
        timeouts: 0,
        late: 0,
        refusals: 0,
        failures: 0,
        rejections: 0,
        replays: 0,
        trims: 0,
    };
}

/// What nobody in the system knows, but the properties speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct History {
    pub(super) effects: [u8; PLACES],
    /// Failures that are a message's own, since it was last replayed.
    pub(super) own_failures: [u8; PLACES],
    /// Whose enqueue was durable, one bit per message.
    pub(super) committed: u8,
    /// Who was durably sent.
    pub(super) sent: u8,
    /// Whose handler has run since the last replay.
    pub(super) ran: u8,
    /// Who has died and holds nobody up, or was released.
    pub(super) excused: u8,
    pub(super) out_of_order: bool,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct State {
    /// What connections see.
    pub(super) visible: Db,
    /// What a power cut leaves.
    pub(super) durable: Db,
    /// Grows when the database is reopened.
    pub(super) epoch: u8,
    pub(super) lanes: [Option<Lane>; RELAYS],
    /// In an order of their own, so that equal sets are equal states.
    pub(super) requests: Vec<Request>,
    pub(super) inbox: [Inbox; PLACES],
    /// The next message to be enqueued.
    pub(super) next: u8,
    pub(super) left: Left,
    pub(super) history: History,
}

impl State {
    /// Relay 0 holds the lane; with `preloaded`, all messages are durable already.
    pub(super) fn new(bounds: &OutboxBounds) -> Self {
        let mut db =
            Db { log: [0; PLACES], end: 0, cursor: 0, rows: [Row::ABSENT; PLACES], owner: 0, token: 1 };
        let mut next = 0;
        if bounds.preloaded {
            next = bounds.messages;
            (0..next).for_each(|message| db.log[usize::from(message)] = message + 1);
            db.end = next;
        }
        Self {
            visible: db,
            durable: db,
            epoch: 0,
            lanes: [Some(Lane::new(&db, 0)), None],
            requests: Vec::new(),
            inbox: [Inbox::None; PLACES],
            next,
            left: bounds.left,
            history: History {
                effects: [0; PLACES],
                own_failures: [0; PLACES],
                committed: (1 << next) - 1,
                sent: 0,
                ran: 0,
                excused: 0,
                out_of_order: false,
            },
        }
    }

    /// Everything that is visible becomes durable.
    pub(super) fn sync(&mut self) {
        self.durable = self.visible;
        for place in self.durable.places() {
            let bit = 1 << self.durable.message(place);
            self.history.committed |= bit;
            if self.durable.status(place) == Status::Sent {
                self.history.sent |= bit;
            }
        }
    }

    /// A relay's state of the lane goes; nobody waits for its requests any more.
    pub(super) fn drop_lane(&mut self, relay: u8) {
        self.lanes[usize::from(relay)] = None;
        let of_relay = |request: &Request| request.awaited.is_some_and(|(of, _)| of == relay);
        self.requests.retain(|request| !of_relay(request) || request.answers.is_none());
        self.requests.iter_mut().filter(|request| of_relay(request)).for_each(|request| {
            request.awaited = None;
            request.alone = false;
        });
        self.requests.sort_unstable();
    }

    /// Whether every message has come to an end.
    pub(super) fn is_finished(&self, bounds: &OutboxBounds) -> bool {
        let open = |place| self.visible.status(place) == Status::Pending;
        self.next == bounds.messages && !self.visible.places().any(open)
    }
}
