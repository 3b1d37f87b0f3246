//! What a worker has claimed and not settled: its leases are renewed, and whoever handles it is told when one is lost.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::watch;
use twobox_core::ports::{Claimed, MessageKey, WorkLease};

/// A message that is being handled.
struct Busy {
    lease: WorkLease,
    lost: watch::Sender<bool>,
}

/// The messages in hand.
#[derive(Default)]
pub(super) struct InHand {
    waiting: VecDeque<Claimed>,
    /// By place: of one message there is never more than one handler at a time (IBX-078), not even after its lease was
    /// lost and claimed again.
    busy: BTreeMap<i64, Busy>,
}

impl InHand {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.busy.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_empty()
    }

    /// Takes what was claimed.
    pub(super) fn take(&mut self, claimed: Vec<Claimed>) {
        self.waiting.extend(claimed);
    }

    /// Whether there is a message that `wanted` takes and nobody is handling.
    pub(super) fn any(&self, wanted: impl Fn(&Claimed) -> bool) -> bool {
        self.waiting.iter().any(|claimed| !self.busy.contains_key(&claimed.lease.place) && wanted(claimed))
    }

    /// The next message that `wanted` takes and nobody is handling, with what tells its handler that its lease is lost.
    pub(super) fn next(
        &mut self,
        wanted: impl Fn(&Claimed) -> bool,
    ) -> Option<(Claimed, watch::Receiver<bool>)> {
        let free = |claimed: &Claimed| !self.busy.contains_key(&claimed.lease.place) && wanted(claimed);
        let at = self.waiting.iter().position(free)?;
        let claimed = self.waiting.remove(at)?;
        let (lost, told) = watch::channel(false);
        self.busy.insert(claimed.lease.place, Busy { lease: claimed.lease.clone(), lost });
        Some((claimed, told))
    }

    /// Its handler has ended and its outcome is settled, or does not count.
    pub(super) fn ended(&mut self, lease: &WorkLease) {
        self.busy.remove(&lease.place);
    }

    /// Whether a lease is, as far as is known, still held.
    pub(super) fn is_held(&self, lease: &WorkLease) -> bool {
        self.busy.get(&lease.place).is_some_and(|busy| busy.lease == *lease && !*busy.lost.borrow())
    }

    /// All leases that are to be renewed.
    pub(super) fn leases(&self) -> Vec<WorkLease> {
        let busy = self.busy.values().filter(|busy| !*busy.lost.borrow()).map(|busy| &busy.lease);
        busy.chain(self.waiting.iter().map(|claimed| &claimed.lease)).cloned().collect()
    }

    /// Of those that were asked for, these are still held: the others are lost. Returns how many of them are being
    /// handled.
    pub(super) fn renewed(&mut self, asked: &[WorkLease], held: &[WorkLease]) -> usize {
        let lost: Vec<&WorkLease> = asked.iter().filter(|lease| !held.contains(lease)).collect();
        if lost.is_empty() {
            return 0;
        }
        self.waiting.retain(|claimed| !lost.contains(&&claimed.lease));
        let busy = self.busy.values().filter(|busy| lost.contains(&&busy.lease));
        let tell = |busy: &Busy| {
            let MessageKey { source, id } = &busy.lease.key;
            let (source, message_id) = (source.as_str(), id.as_str());
            tracing::warn!(source, message_id, "the lease of a message that is being handled is lost");
            busy.lost.send_replace(true);
        };
        busy.inspect(|busy| tell(busy)).count()
    }

    /// Everything nobody has begun to handle.
    pub(super) fn put_down(&mut self) -> Vec<WorkLease> {
        self.waiting.drain(..).map(|claimed| claimed.lease).collect()
    }

    /// Everything that is still being handled; the handlers are told.
    pub(super) fn give_up(&mut self) -> Vec<WorkLease> {
        let busy = std::mem::take(&mut self.busy).into_values();
        busy.inspect(|busy| _ = busy.lost.send_replace(true)).map(|busy| busy.lease).collect()
    }
}
