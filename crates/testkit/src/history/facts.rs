//! What a history says, sorted for looking things up.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Event, Order, Reply, Standing};

/// An effect at the end.
pub(super) struct Effect<'h> {
    pub(super) node: &'h str,
    pub(super) id: &'h str,
    pub(super) of: &'h str,
    pub(super) place: i64,
}

/// Where a message stands at the end.
pub(super) struct Stand<'h> {
    pub(super) id: &'h str,
    pub(super) of: &'h str,
    pub(super) standing: &'h Standing,
}

/// A history by message.
#[derive(Default)]
pub(super) struct Facts<'h> {
    /// Messages with the node of their author.
    pub(super) orders: BTreeMap<&'h str, (&'h str, &'h Order)>,
    pub(super) told: BTreeSet<&'h str>,
    pub(super) refused: BTreeSet<&'h str>,
    pub(super) rows: BTreeMap<&'h str, i64>,
    pub(super) sent: BTreeMap<&'h str, u32>,
    pub(super) answers: BTreeSet<(&'h str, Reply)>,
    pub(super) duplicates: usize,
    /// When each message was first acknowledged, as a place in the history.
    pub(super) acknowledged: BTreeMap<&'h str, usize>,
    pub(super) replayed: BTreeSet<&'h str>,
    pub(super) replayed_as_new: BTreeSet<&'h str>,
    pub(super) released: BTreeSet<(&'h str, &'h str)>,
    /// When which node came up with which messages, handled or queued.
    pub(super) recovered: Vec<(usize, &'h str, BTreeSet<&'h str>)>,
    pub(super) effects: Vec<Effect<'h>>,
    pub(super) stands: Vec<Stand<'h>>,
    /// What handlers have called impossible.
    pub(super) rejected: BTreeSet<&'h str>,
    pub(super) purged: BTreeSet<&'h str>,
    pub(super) work_replayed: BTreeSet<&'h str>,
    pub(super) work_released: BTreeSet<(&'h str, &'h str)>,
    /// What is in the queues of receivers.
    pub(super) work: Vec<Stand<'h>>,
    /// What does not hold in the database of a node.
    pub(super) unsound: Vec<(&'h str, &'h str)>,
}

impl<'h> Facts<'h> {
    pub(super) fn of(entries: &'h [Entry]) -> Self {
        let mut facts = Self::default();
        for (at, entry) in entries.iter().enumerate() {
            facts.note(at, &entry.node, &entry.event);
        }
        facts
    }

    fn note(&mut self, at: usize, node: &'h str, event: &'h Event) {
        match event {
            Event::Begun(order) => drop(self.orders.insert(&order.id, (node, order))),
            Event::Enqueued(id) => drop(self.told.insert(id)),
            Event::Refused(id) => drop(self.refused.insert(id)),
            Event::Sent(id) => *self.sent.entry(id).or_default() += 1,
            Event::Answered(id, reply) => {
                self.answers.insert((id, *reply));
                self.duplicates += usize::from(*reply == Reply::Duplicate);
                if reply.is_acknowledgement() {
                    self.acknowledged.entry(id).or_insert(at);
                }
            }
            Event::Acknowledged(id) => drop(self.acknowledged.entry(id).or_insert(at)),
            Event::Replayed(id) => drop(self.replayed.insert(id)),
            Event::ReplayedAsNew(id) => drop(self.replayed_as_new.insert(id)),
            Event::Purged(id) => drop(self.purged.insert(id)),
            Event::Released(key) => drop(self.released.insert((node, key))),
            Event::Recovered { effects, queued } => {
                let ids = effects.iter().chain(queued).map(String::as_str).collect();
                self.recovered.push((at, node, ids));
            }
            Event::Rejected(id) => drop(self.rejected.insert(id)),
            Event::WorkReplayed(id) => drop(self.work_replayed.insert(id)),
            Event::WorkReleased(key) => drop(self.work_released.insert((node, key))),
            Event::Row { id, place } => drop(self.rows.insert(id, *place)),
            Event::Effect { id, of, place } => self.effects.push(Effect { node, id, of, place: *place }),
            Event::Stands { id, of, standing } => self.stands.push(Stand { id, of, standing }),
            Event::Work { id, of, standing } => self.work.push(Stand { id, of, standing }),
            Event::Unsound(text) => self.unsound.push((node, text)),
            Event::Unknown(_) | Event::Died(..) | Event::Note(_) => {}
        }
    }

    /// Where the message stands among those of its author, if it is committed.
    pub(super) fn place(&self, order: &Order) -> Option<i64> {
        match &order.parent {
            None => self.rows.get(order.id.as_str()).copied(),
            Some(parent) => self.effects.iter().find(|effect| effect.id == parent).map(|effect| effect.place),
        }
    }

    /// Whether the message, or the one whose handler enqueues it, was sent again under a new id.
    pub(super) fn has_new_id(&self, id: &str) -> bool {
        let parent = self.orders.get(id).and_then(|(_, order)| order.parent.as_deref());
        self.replayed_as_new.contains(id)
            || parent.is_some_and(|parent| self.replayed_as_new.contains(parent))
    }

    /// Whether a message of this author's id is a dead letter at the end, of its outbox or of an inbox.
    pub(super) fn is_dead(&self, id: &str) -> bool {
        self.dead().any(|stand| stand.of == id)
    }

    /// The dead letters of the end.
    pub(super) fn dead(&self) -> impl Iterator<Item = &Stand<'h>> {
        let stands = self.stands.iter().chain(&self.work);
        stands.filter(|stand| matches!(stand.standing, Standing::Dead(_)))
    }

    /// Whether an operator has let this key of this author go on without its dead messages, in the outbox or in the
    /// inbox of its destination.
    pub(super) fn is_released(&self, node: &str, order: &Order) -> bool {
        let key = order.key.as_deref().unwrap_or_default();
        self.released.contains(&(node, key)) || self.work_released.contains(&(&order.destination, key))
    }
}
