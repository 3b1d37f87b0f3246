//! Lets delivery keep up with those who append.
//!
//! Callers wait for their commit, not for delivery. Where both share processors and a disk, callers take what delivery
//! needs, and messages arrive later and later although nothing is wrong. So while a relay of this process is a little
//! behind, every group that appends is followed by a pause, as long as delivering what it appended takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;

use twobox_core::Source;

use crate::sync::Mutex;

/// How many messages of the log delivery may be behind for it to be waited for. Fewer are on their way anyhow: two groups
/// of 64 callers. More are not caught up with in a moment: the receiver is slower than the callers, and waiting would
/// slow them down for nothing.
const BEHIND: Range<i64> = 128..8_192;

/// About what it takes both sides to deliver a message in a batch.
const PER_MESSAGE: Duration = Duration::from_micros(16);

/// From here on the pause is twice as long: something has held delivery up, and it is to catch up.
const FAR: i64 = 2 * BEHIND.start;

/// The longest pause. Whoever else needs the writer waits as well.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// How far the relays of this process have come.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<BTreeMap<Source, i64>>);

impl Pace {
    /// A relay has come so far, or is not to be waited for.
    pub(crate) fn reached(&self, source: &Source, upto: Option<i64>) {
        let mut relays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (upto, relays.get_mut(source)) {
            (Some(upto), Some(known)) => *known = upto,
            (Some(upto), None) => _ = relays.insert(source.clone(), upto),
            (None, _) => _ = relays.remove(source),
        }
    }

    /// How long a group that has appended so many messages, the last of them at `end`, waits for delivery.
    pub(crate) fn pause(&self, appended: i64, end: i64) -> Duration {
        let relays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = relays.values().min().map_or(0, |reached| end.saturating_sub(*reached));
        if !BEHIND.contains(&behind) {
            return Duration::ZERO;
        }
        let per_message = if behind < FAR { PER_MESSAGE } else { PER_MESSAGE * 2 };
        per_message.saturating_mul(u32::try_from(appended).unwrap_or(u32::MAX)).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_append_wait_and_only_for_delivery_that_is_a_little_behind() {
        let (shop, bank) = (Source::new("shop").unwrap(), Source::new("bank").unwrap());
        let pace = Pace::default();
        assert_eq!(pace.pause(10, 1_000), Duration::ZERO, "nobody relays");
        pace.reached(&shop, Some(800));
        assert_eq!(pace.pause(10, 1_000), PER_MESSAGE * 10);
        assert_eq!(pace.pause(500, 1_000), PAUSE_MAX);
        assert_eq!(pace.pause(10, 800 + FAR), PER_MESSAGE * 20, "something has held it up");
        assert_eq!(pace.pause(0, 1_000), Duration::ZERO, "nothing was appended");
        assert_eq!(pace.pause(10, 800 + BEHIND.start - 1), Duration::ZERO, "it keeps up");
        assert_eq!(pace.pause(10, 800 + BEHIND.end), Duration::ZERO, "it is far behind");
        pace.reached(&shop, Some(999));
        assert_eq!(pace.pause(10, 1_000), Duration::ZERO, "it has caught up");
        pace.reached(&bank, Some(500));
        assert_eq!(pace.pause(10, 1_000), PER_MESSAGE * 20, "another relay is behind");
        pace.reached(&bank, None);
        assert_eq!(pace.pause(10, 1_000), Duration::ZERO);
    }
}
