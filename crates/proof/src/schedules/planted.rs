//! A race on purpose, to see that races are found.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use super::explore::{ensure, violated};
use super::place::Place;

const CALLERS: u32 = 3;

/// Counts without a lock: two who read the same number write the same next one.
pub(super) fn scenario(_: &Place) {
    let counted = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let counted = Arc::clone(&counted);
            thread::spawn(move || {
                let before = counted.load(Ordering::SeqCst);
                counted.store(before + 1, Ordering::SeqCst);
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap_or_else(|_| violated("a thread panicked"));
    }
    let counted = counted.load(Ordering::SeqCst);
    ensure(counted == CALLERS, || format!("{CALLERS} have counted up to {counted}"));
}
