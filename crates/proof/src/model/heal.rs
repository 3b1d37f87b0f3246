//! Whether trouble passes: from every state, with no further fault, everything must come to an end.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Mutex, PoisonError};

/// More steps without a fault than any state within the bounds needs.
const STEPS_MAX: usize = 300;

/// What one step without a fault came to.
pub(super) enum Course {
    /// Everything is finished.
    Finished,
    /// It went on.
    Moved,
    /// Nothing can be done although something is unfinished.
    Stuck,
}

/// States that are known to come to a good end. Each is walked once: a walk ends where an earlier one passed.
#[derive(Debug, Default)]
pub(super) struct Healed(Mutex<HashSet<u64>>);

impl Healed {
    /// Walks on from `state` by `step`, which takes the same step from the same state, and says whether that ends
    /// with everything finished.
    pub(super) fn heals<S: Clone + Hash>(&self, state: &S, step: impl Fn(&mut S) -> Course) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut walked, mut now) = (Vec::new(), state.clone());
        for _ in 0..STEPS_MAX {
            let print = BuildHasherDefault::<DefaultHasher>::default().hash_one(&now);
            if known.contains(&print) {
                known.extend(walked);
                return true;
            }
            walked.push(print);
            match step(&mut now) {
                Course::Finished => {
                    known.extend(walked);
                    return true;
                }
                Course::Moved => {}
                Course::Stuck => return false,
            }
        }
        false
    }
}
