//! Tells the store how far delivery has come, as long as the relay runs.

use twobox_core::Source;
use twobox_core::ports::OutboxStore;

use super::lane::Lane;

/// See the [module](self).
pub(super) struct Pace<S: OutboxStore> {
    store: S,
    source: Source,
}

impl<S: OutboxStore> Pace<S> {
    pub(super) fn new(store: &S, source: &Source) -> Self {
        Self { store: store.clone(), source: source.clone() }
    }

    /// Tells how far the lane has come that is furthest behind. One that does not flow is nobody's to wait for.
    pub(super) fn tell<'l>(&self, lanes: impl Iterator<Item = &'l Lane<S::Position>>)
    where
        S::Position: 'l,
    {
        self.store.reached(&self.source, lanes.filter_map(Lane::reached).min());
    }
}

impl<S: OutboxStore> Drop for Pace<S> {
    fn drop(&mut self) {
        self.store.reached(&self.source, None);
    }
}
