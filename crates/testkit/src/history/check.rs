//! Whether a history keeps the promise. Nothing but the history is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use twobox_core::ports::HeadPolicy;

use super::facts::{Effect, Facts, Stand};
use super::{History, Order, Reply, Standing};

/// What was configured, as far as it decides what may happen.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Attempts a message has before it dies.
    pub attempts_max: u32,
    /// What happens to a key when its head dies (S12).
    pub head_policy: HeadPolicy,
    /// Whether receivers forget within the time of the history what they have handled. Others call nothing too old.
    pub forgets: bool,
}

/// What was counted in a history without findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were committed.
    pub committed: usize,
    /// Effects.
    pub effects: usize,
    /// Messages that were acknowledged.
    pub acknowledged: usize,
    /// Answers that said "duplicate".
    pub duplicates: usize,
    /// Messages that are dead letters at the end.
    pub dead: usize,
}

/// The parts of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clause {
    /// What is committed has its effect, or is dead with a reason; what an author was told is committed, is.
    Lost,
    /// No effect happens twice.
    Twice,
    /// Nothing has an effect that was not committed.
    Unfounded,
    /// First effects of one key are in the order in which they were enqueued (L3, L5, S12).
    Order,
    /// Every message is in a final state once all is well.
    Open,
    /// Nothing is acknowledged without an effect that survives, or a row in the queue that does and leads to one.
    Hollow,
    /// One message per once key (L8).
    Once,
    /// Nothing dies without a cause.
    Cause,
    /// The databases are sound, and their counters are right.
    Sound,
    /// No part of a node panics, hangs, or ends by itself.
    Broken,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which part of it.
    pub clause: Clause,
    /// The message it is about, or the node.
    pub id: String,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} {}", self.clause, self.id, self.text)
    }
}

/// Node, destination and ordering key.
type Key<'a> = (&'a str, &'a str, &'a str);

/// Judges a history that is complete: the databases were read at its end.
///
/// # Errors
/// Everything that was found.
pub fn check(history: &History, rules: &Rules) -> Result<Summary, Vec<Finding>> {
    let entries = history.entries();
    let facts = Facts::of(&entries);
    let mut judge = Judge { facts: &facts, rules, findings: Vec::new() };
    judge.rows();
    judge.losses();
    judge.effects();
    judge.order();
    judge.acknowledgements();
    judge.once();
    judge.stands();
    judge.work();
    judge.soundness();
    if !judge.findings.is_empty() {
        return Err(judge.findings);
    }
    let committed = facts.orders.values().filter(|(_, order)| facts.place(order).is_some());
    Ok(Summary {
        committed: committed.count(),
        effects: facts.effects.len(),
        acknowledged: facts.acknowledged.len(),
        duplicates: facts.duplicates,
        dead: facts.dead().count(),
    })
}

struct Judge<'f, 'h> {
    facts: &'f Facts<'h>,
    rules: &'f Rules,
    findings: Vec<Finding>,
}

impl<'f, 'h> Judge<'f, 'h> {
    fn find(&mut self, clause: Clause, id: &str, text: impl Into<String>) {
        self.findings.push(Finding { clause, id: id.into(), text: text.into() });
    }

    fn soundness(&mut self) {
        for (node, text) in &self.facts.unsound {
            self.find(Clause::Sound, node, *text);
        }
    }

    /// What authors were told agrees with their own rows.
    fn rows(&mut self) {
        for id in &self.facts.told {
            if !self.facts.rows.contains_key(id) {
                self.find(Clause::Lost, id, "was told to be committed, and its author's row is not there");
            }
        }
        for id in &self.facts.refused {
            if self.facts.rows.contains_key(id) {
                self.find(
                    Clause::Unfounded,
                    id,
                    "was told not to be committed, and its author's row is there",
                );
            }
        }
    }

    fn losses(&mut self) {
        let facts = self.facts;
        for (id, (_, order)) in &facts.orders {
            let has_effect = facts.effects.iter().any(|effect| effect.of == *id);
            if facts.place(order).is_some() && !has_effect && !facts.is_dead(id) && !facts.purged.contains(id)
            {
                self.find(Clause::Lost, id, "was committed, and has neither an effect nor a dead letter");
            }
        }
    }

    fn effects(&mut self) {
        let mut seen = BTreeSet::new();
        let mut ids_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for effect in &self.facts.effects {
            if !seen.insert((effect.node, effect.id)) {
                self.find(Clause::Twice, effect.id, format!("has its effect on {} twice", effect.node));
            }
            ids_of.entry(effect.of).or_default().insert(effect.id);
            self.founded(effect);
        }
        for (of, ids) in ids_of {
            if ids.len() > 1 && !self.facts.has_new_id(of) {
                self.find(Clause::Twice, of, format!("has effects under several ids: {ids:?}"));
            }
        }
    }

    fn founded(&mut self, effect: &Effect<'_>) {
        let Some((_, order)) = self.facts.orders.get(effect.of) else {
            return self.find(Clause::Unfounded, effect.id, "has an effect, and nobody ever enqueued it");
        };
        if effect.node != order.destination {
            self.find(
                Clause::Unfounded,
                effect.id,
                format!("has an effect on {}, not its destination", effect.node),
            );
        }
        if effect.id != effect.of && !self.facts.has_new_id(effect.of) {
            self.find(Clause::Unfounded, effect.id, "has an effect under an id that nobody gave it");
        }
        if effect.id == effect.of && self.facts.place(order).is_none() {
            self.find(Clause::Unfounded, effect.id, "has an effect, and was never committed");
        }
    }

    fn order(&mut self) {
        let mut keys: BTreeMap<Key<'_>, Vec<(i64, &Order)>> = BTreeMap::new();
        for (node, order) in self.facts.orders.values() {
            let (Some(key), Some(place)) = (&order.key, self.facts.place(order)) else { continue };
            if !order.scheduled && !self.may_be_late(node, order) {
                keys.entry((node, &order.destination, key)).or_default().push((place, order));
            }
        }
        for ((_, _, key), mut orders) in keys {
            orders.sort_by_key(|(place, _)| *place);
            let mut last: Option<(i64, &str)> = None;
            for (_, order) in orders {
                let Some(place) = self.first_effect(order) else { continue };
                if let Some((_, before)) = last.filter(|(before, _)| *before > place) {
                    self.find(
                        Clause::Order,
                        &order.id,
                        format!("of key {key} has its effect before {before}"),
                    );
                }
                last = Some((place, &order.id));
            }
        }
    }

    fn first_effect(&self, order: &Order) -> Option<i64> {
        let of_it = self.facts.effects.iter().filter(|effect| effect.id == order.id);
        of_it.map(|effect| effect.place).min()
    }

    /// A message that has died may come after those that followed it: at once if the key does not wait for it, or
    /// once an operator has let the key go on without it (S12) or has removed it, and then only a copy of it comes.
    /// Otherwise the key waits, and its place is kept.
    fn may_be_late(&self, node: &str, order: &Order) -> bool {
        let facts = self.facts;
        let id = order.id.as_str();
        let replayed = [&facts.replayed, &facts.replayed_as_new, &facts.work_replayed, &facts.purged];
        let died = replayed.iter().any(|replayed| replayed.contains(id)) || facts.is_dead(id);
        let waits = self.rules.head_policy == HeadPolicy::Block
            && !facts.is_released(node, order)
            && !facts.replayed_as_new.contains(id)
            && !facts.purged.contains(id);
        died && !waits
    }

    fn acknowledgements(&mut self) {
        let facts = self.facts;
        let queued = facts.work.iter().map(|stand| stand.id);
        let there: BTreeSet<&str> = facts.effects.iter().map(|effect| effect.id).chain(queued).collect();
        for (id, at) in &facts.acknowledged {
            if !there.contains(id) {
                self.find(Clause::Hollow, id, "was acknowledged, and neither its effect nor it is there");
            }
            let destination = facts.orders.get(id).map(|(_, order)| order.destination.as_str());
            let mut later =
                facts.recovered.iter().filter(|(when, node, _)| when > at && Some(*node) == destination);
            if let Some((_, node, _)) = later.find(|(_, _, there)| !there.contains(id)) {
                self.find(
                    Clause::Hollow,
                    id,
                    format!("was acknowledged, and {node} came up without its effect and without it"),
                );
            }
        }
    }

    fn once(&mut self) {
        let mut keys: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (id, (node, order)) in &self.facts.orders {
            if let Some(once) = &order.once
                && self.facts.rows.contains_key(id)
            {
                keys.entry((node, once)).or_default().push(id);
            }
        }
        for ((_, once), ids) in keys.into_iter().filter(|(_, ids)| ids.len() > 1) {
            self.find(Clause::Once, ids[0], format!("shares the once key {once} with {:?}", &ids[1..]));
        }
    }

    fn stands(&mut self) {
        for stand in &self.facts.stands {
            match stand.standing {
                Standing::Sent => {}
                Standing::Open => self.find(Clause::Open, stand.id, "is still open although all is well"),
                Standing::Dead(reason) => {
                    if !self.has_cause(stand, reason) {
                        let sent = self.facts.sent.get(stand.id).copied().unwrap_or(0);
                        self.find(
                            Clause::Cause,
                            stand.id,
                            format!("died without a cause: {reason}, sent {sent} times"),
                        );
                    }
                }
            }
        }
    }

    /// What receivers have stored and not handled.
    fn work(&mut self) {
        let handled: BTreeSet<&str> = self.facts.effects.iter().map(|effect| effect.id).collect();
        for stand in &self.facts.work {
            if handled.contains(stand.id) {
                self.find(Clause::Twice, stand.id, "has its effect, and is queued to have it again");
            }
            match stand.standing {
                Standing::Dead(reason) if self.work_has_cause(stand, reason) => {}
                Standing::Dead(reason) => {
                    self.find(
                        Clause::Cause,
                        stand.id,
                        format!("died in the queue without a cause: {reason}"),
                    );
                }
                _ => self.find(Clause::Open, stand.id, "is still queued although all is well"),
            }
        }
    }

    fn work_has_cause(&self, stand: &Stand<'_>, reason: &str) -> bool {
        match reason {
            // A lease that is over counts as an attempt as well, and leaves no trace in a history.
            "attempts-exhausted" => true,
            "rejected" => self.facts.rejected.contains(stand.id),
            _ => self.dies_by_rule(stand, reason),
        }
    }

    /// Whether its author or the configuration has wanted it so.
    fn dies_by_rule(&self, stand: &Stand<'_>, reason: &str) -> bool {
        match reason {
            "key-failed" => self.rules.head_policy == HeadPolicy::FailKey,
            "expired" => self.facts.orders.get(stand.of).is_some_and(|(_, order)| order.mortal),
            _ => false,
        }
    }

    fn has_cause(&self, stand: &Stand<'_>, reason: &str) -> bool {
        let facts = self.facts;
        match reason {
            "attempts-exhausted" => {
                facts.sent.get(stand.id).is_some_and(|sent| *sent >= self.rules.attempts_max)
            }
            // That the receiver has answered so is not enough: it must have had a reason. Nobody sends two bodies under
            // one id, so there is none for a conflict.
            "rejected" => {
                facts.rejected.contains(stand.id) && facts.answers.contains(&(stand.id, Reply::Rejected))
            }
            "too-old" => self.rules.forgets && facts.answers.contains(&(stand.id, Reply::TooOld)),
            _ => self.dies_by_rule(stand, reason),
        }
    }
}
