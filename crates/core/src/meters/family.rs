//! Figures of the same kind for several things, told apart by labels. How many there can be is bounded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most label sets that one kind of figure is kept for. Names come from configuration, but also from rows that anybody
/// may have written; what is beyond this is counted together.
pub const LABEL_SETS_MAX: usize = 256;

/// The value of every label of what is counted together.
pub const OTHER: &str = "other";

/// Values of labels, in the order in which the figure names them.
pub type Labels<const N: usize> = [Arc<str>; N];

/// Figures by labels. Whoever counts asks for its own once and keeps them, so that counting takes no lock.
#[derive(Debug)]
pub struct Family<const N: usize, T> {
    known: Mutex<Vec<(Labels<N>, Arc<T>)>>,
    other: Arc<T>,
}

impl<const N: usize, T: Default> Default for Family<N, T> {
    fn default() -> Self {
        Self { known: Mutex::default(), other: Arc::default() }
    }
}

impl<const N: usize, T: Default> Family<N, T> {
    /// The figures with these labels; those of all others once there are too many.
    pub(super) fn of(&self, labels: [&str; N]) -> Arc<T> {
        let mut known = self.lock();
        if let Some((_, found)) = known.iter().find(|(of, _)| of.iter().map(|label| &**label).eq(labels)) {
            return Arc::clone(found);
        }
        if known.len() >= LABEL_SETS_MAX {
            return Arc::clone(&self.other);
        }
        let made = Arc::<T>::default();
        known.push((labels.map(Arc::from), Arc::clone(&made)));
        made
    }

    /// All there are, those of the others last.
    pub(super) fn all(&self) -> Vec<(Labels<N>, Arc<T>)> {
        let known = self.lock();
        let mut all = known.clone();
        if known.len() >= LABEL_SETS_MAX {
            all.push(([OTHER; N].map(Arc::from), Arc::clone(&self.other)));
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Labels<N>, Arc<T>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn rf_21_label_sets_are_bounded_and_the_rest_is_counted_together() {
        let family: Family<1, Counter> = Family::default();
        for n in 0..LABEL_SETS_MAX + 10 {
            family.of([&n.to_string()]).one();
        }
        family.of(["0"]).one();
        let all = family.all();
        assert_eq!(all.len(), LABEL_SETS_MAX + 1);
        assert_eq!((all[0].1.get(), &*all[0].0[0]), (2, "0"));
        assert_eq!((all[LABEL_SETS_MAX].1.get(), &*all[LABEL_SETS_MAX].0[0]), (10, OTHER));
    }
}
