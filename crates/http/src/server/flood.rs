//! Keeps strangers from filling the log: whoever can reach the server can make it say something.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Lines of one kind per second.
const LINES_MAX: u32 = 10;

/// Lets a few lines per second through and counts the rest.
#[derive(Debug, Default)]
pub(super) struct Flood(Mutex<Second>);

#[derive(Debug, Default)]
struct Second {
    begun: Duration,
    lines: u32,
    left_out: u64,
}

impl Flood {
    /// Whether there is room for a line now, and if so how many were left out before it.
    pub(super) fn room(&self, now: Duration) -> Option<u64> {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(second.begun) >= Duration::from_secs(1) {
            second.begun = now;
            second.lines = 0;
        }
        if second.lines >= LINES_MAX {
            second.left_out += 1;
            return None;
        }
        second.lines += 1;
        Some(std::mem::take(&mut second.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_strangers_cannot_fill_the_log() {
        let flood = Flood::default();
        let lines =
            |millis: u64| (0..100).filter_map(|_| flood.room(Duration::from_millis(millis))).collect();
        let first: Vec<u64> = lines(5_000);
        assert_eq!(first, [0; 10]);
        let same: Vec<u64> = lines(5_999);
        assert!(same.is_empty(), "{same:?}");
        let next: Vec<u64> = lines(6_000);
        assert_eq!(next[..2], [190, 0], "what was left out is told");
    }
}
