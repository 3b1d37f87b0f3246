//! Lets delivery keep up with those who append.
//!
//! Callers wait for their commit, not for delivery. Where both share processors and a disk, callers take what delivery
//! needs, and messages arrive later and later although nothing is wrong. So while a relay of this process is a little
//! behind, callers are held until it has caught up, for a moment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;

use twobox_core::Source;

use crate::sync::{Mutex, MutexGuard};

/// So many messages are always on their way: callers are not held for fewer.
const FEW: i64 = 96;
/// So many are not caught up with in a moment: the receiver is slower than the callers, and holding them would slow them
/// down for nothing.
const MANY: i64 = 8_192;

/// The longest that callers are held after a group: longer than a sync that went badly.
pub(crate) const HOLD_MAX: Duration = Duration::from_millis(5);

/// Relays that were told of a group more recently than this are busy with it: to stir them would only interrupt them.
const QUIET: Duration = Duration::from_millis(5);

/// Groups whose delivery is timed. One that is left out costs a little accuracy.
const TIMED_MAX: usize = 256;

/// By what part of the difference the best time approaches a worse one: links change, and it must not be for ever.
const FORGET: u32 = 1_024;

/// How far the relays of this process have come with one log.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    relays: BTreeMap<Source, i64>,
    /// The end of the log.
    end: i64,
    /// When it was last moved.
    moved: Option<Duration>,
    /// How many messages a group has, when it has many.
    group: i64,
    /// Groups that are being delivered: the last place of each, and when it was committed.
    timed: VecDeque<(i64, Duration)>,
    /// How long delivery takes when nothing is in its way: what is on its way for so long is not late.
    best: Duration,
}

impl Pace {
    /// A relay has come so far, or is not to be waited for.
    pub(crate) fn reached(&self, source: &Source, upto: Option<i64>, now: Duration) {
        let mut state = self.lock();
        match (upto, state.relays.get_mut(source)) {
            (Some(upto), Some(known)) => *known = upto,
            (Some(upto), None) => _ = state.relays.insert(source.clone(), upto),
            // Other lanes have come further or less far, and nothing was delivered by that.
            (None, Some(_)) => {
                state.relays.remove(source);
                state.timed.clear();
            }
            (None, None) => {}
        }
        state.time(now);
    }

    /// A group has appended messages up to `end`. Whether its callers are to be held for delivery.
    pub(crate) fn appended(&self, end: i64, now: Duration) -> bool {
        let mut state = self.lock();
        state.grow(end);
        state.moved = Some(now);
        if !state.relays.is_empty() && state.timed.len() < TIMED_MAX {
            state.timed.push_back((end, now));
        }
        state.is_behind(now)
    }

    /// Whether nothing was appended for so long that relays may have gone to sleep.
    pub(crate) fn is_quiet(&self, now: Duration) -> bool {
        self.lock().moved.is_none_or(|moved| now.saturating_sub(moved) >= QUIET)
    }

    /// Whether delivery is a little behind.
    pub(crate) fn is_behind(&self, now: Duration) -> bool {
        self.lock().is_behind(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_behind(&self, now: Duration) -> bool {
        let Some(reached) = self.relays.values().min() else { return false };
        let is_late = |(_, committed): &(i64, Duration)| now.saturating_sub(*committed) > self.best;
        let behind = self.end.saturating_sub(*reached);
        (self.allowance()..MANY).contains(&behind) && self.timed.front().is_none_or(is_late)
    }

    /// How far callers may be ahead of delivery: while a group is handled, the next one is committed, and no third one
    /// begins. Two groups are seldom twice as many as the largest, so one and a half is where two begin.
    fn allowance(&self) -> i64 {
        FEW.max(self.group.saturating_add(self.group / 2))
    }

    /// The log ends here now.
    fn grow(&mut self, end: i64) {
        // What was there before is no group.
        let grown = if self.end == 0 { 0 } else { end.saturating_sub(self.end) };
        self.group = grown.max(self.group - self.group / 8);
        self.end = end;
    }

    /// Takes note of how long the groups took that are delivered now.
    fn time(&mut self, now: Duration) {
        let Some(reached) = self.relays.values().min() else { return };
        while let Some((_, committed)) = self.timed.pop_front_if(|(end, _)| *end <= *reached) {
            let took = now.saturating_sub(committed);
            let worse = took.saturating_sub(self.best) / FORGET;
            self.best = if self.best.is_zero() { took } else { took.min(self.best + worse) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn callers_are_held_only_for_delivery_that_is_a_little_behind() {
        let (shop, bank) = (Source::new("shop").unwrap(), Source::new("bank").unwrap());
        let pace = Pace::default();
        assert!(!pace.appended(1_000, ms(0)), "nobody relays");
        pace.reached(&shop, Some(800), ms(0));
        assert!(pace.is_behind(ms(0)));
        pace.appended(1_010, ms(0));
        assert!(pace.appended(1_020, ms(1)));
        (1..=MANY / 10).for_each(|n| _ = pace.appended(1_020 + 10 * n, ms(1)));
        assert!(!pace.appended(800 + MANY, ms(1)), "it is far behind");
        pace.reached(&shop, Some(801), ms(1));
        assert!(pace.is_behind(ms(1)), "it comes nearer");
        pace.reached(&shop, Some(801 + MANY - FEW), ms(1));
        assert!(!pace.is_behind(ms(9)), "it has caught up");
        pace.reached(&bank, Some(801), ms(9));
        assert!(pace.is_behind(ms(9)), "another relay is behind");
        pace.reached(&bank, None, ms(9));
        assert!(!pace.is_behind(ms(9)));
    }

    #[test]
    fn relays_of_a_log_that_has_just_grown_are_not_stirred() {
        let pace = Pace::default();
        assert!(pace.is_quiet(ms(0)), "nothing was appended yet");
        pace.appended(1, ms(10));
        assert!(!pace.is_quiet(ms(14)));
        assert!(pace.is_quiet(ms(15)));
    }

    #[test]
    fn many_callers_may_be_further_ahead_than_few() {
        let shop = Source::new("shop").unwrap();
        let groups = |size: i64| {
            let pace = Pace::default();
            pace.appended(1_000_000, ms(0));
            pace.reached(&shop, Some(1_000_000), ms(0));
            (1..20).find(|n| pace.appended(1_000_000 + size * n, ms(n.unsigned_abs())))
        };
        assert_eq!(groups(500), Some(2), "one is handled while the next one is committed");
        assert_eq!(groups(64), Some(2));
        assert_eq!(groups(20), Some(5), "less than a hundred messages are always on their way");
        assert_eq!(groups(5), None);
    }

    #[test]
    fn a_third_group_waits_although_the_second_was_smaller_than_the_largest() {
        let shop = Source::new("shop").unwrap();
        let pace = Pace::default();
        pace.appended(1_000, ms(0));
        pace.reached(&shop, Some(1_000), ms(0));
        assert!(!pace.appended(1_640, ms(1)), "the first is on its way");
        assert!(pace.appended(1_640 + 400, ms(2)), "the second is, too");
        pace.reached(&shop, Some(1_640), ms(3));
        assert!(!pace.is_behind(ms(3)), "the first has arrived");
    }

    #[test]
    fn the_size_of_groups_follows_the_number_of_callers() {
        let pace = Pace::default();
        let append = |by: i64| {
            let end = pace.lock().end;
            pace.appended(end + by, ms(0));
            pace.lock().group
        };
        assert_eq!(append(2_000_000), 0, "what was there before is no group");
        assert_eq!([append(64), append(64), append(500)], [64, 64, 500]);
        assert!(append(10) > 400, "one group with few does not mean few callers");
        (0..40).for_each(|_| _ = append(10));
        assert_eq!(append(10), 10);
    }

    #[test]
    fn what_a_slow_link_takes_anyhow_is_not_late() {
        let shop = Source::new("shop").unwrap();
        let pace = Pace::default();
        pace.reached(&shop, Some(0), ms(0));
        pace.appended(10, ms(0));
        pace.reached(&shop, Some(10), ms(50));
        assert!((1..=9).all(|n| !pace.appended(10 + 100 * n, ms(60))), "they were committed just now");
        assert!(!pace.is_behind(ms(110)), "the link takes as long");
        assert!(pace.is_behind(ms(111)));
        pace.reached(&shop, Some(910), ms(200));
        let best = pace.lock().best;
        assert!(ms(50) < best && best < ms(51), "one bad time is not the rule: {best:?}");
        assert_eq!(pace.lock().timed.len(), 0);
    }

    #[test]
    fn what_others_have_delivered_does_not_count_for_a_relay_that_is_not_to_be_waited_for() {
        let (shop, bank) = (Source::new("shop").unwrap(), Source::new("bank").unwrap());
        let pace = Pace::default();
        pace.reached(&shop, Some(0), ms(0));
        pace.reached(&bank, Some(100), ms(0));
        pace.appended(100, ms(10));
        pace.reached(&shop, None, ms(11));
        pace.reached(&bank, Some(100), ms(11));
        assert_eq!(pace.lock().best, ms(0), "nothing was delivered after a millisecond");
        pace.appended(200, ms(20));
        pace.reached(&shop, None, ms(21));
        pace.reached(&bank, Some(200), ms(23));
        assert_eq!(pace.lock().best, ms(3), "who was not waited for before changes nothing");
    }

    #[test]
    fn what_is_timed_is_bounded() {
        let pace = Pace::default();
        pace.reached(&Source::new("shop").unwrap(), Some(0), ms(0));
        (1..1_000).for_each(|end| _ = pace.appended(end, ms(0)));
        assert_eq!(pace.lock().timed.len(), TIMED_MAX);
    }
}
