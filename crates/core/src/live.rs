//! A value that is replaced while others use it: keys and tokens, when they are exchanged without a pause.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A value that can be replaced at any time. Whoever has taken it keeps what it took. Cheap to clone; clones share it.
pub struct Live<T>(Arc<RwLock<Arc<T>>>);

impl<T> Live<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The value as it is now.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value for all who take it from now on.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_value_and_takers_keep_theirs() {
        let live = Live::new(1);
        let (clone, taken) = (live.clone(), live.get());
        live.set(2);
        assert_eq!((*taken, *clone.get()), (1, 2));
    }
}
