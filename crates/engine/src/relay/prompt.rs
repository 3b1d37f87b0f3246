//! Whether a receiver answers so quickly that those who enqueue may be asked to wait for it.

use std::time::Duration;

use twobox_core::mutant;

/// A receiver that takes longer for a request at its best is far away or slow by nature. It has not caught up in a
/// moment, and waiting for it would slow callers down for nothing. Several times what a request takes that is handled at
/// once by a neighbour.
const NEAR: Duration = Duration::from_millis(5);

/// A receiver that answers nothing for longer will not have caught up in a moment either, however quick it was before.
/// Several times what checkpoints and other stalls of a disk make of a request.
const MOMENT: Duration = Duration::from_millis(50);

/// Requests with more messages take their time because of that.
const LIGHT: usize = 64;

/// By what part of the difference the best time approaches a worse one: receivers move, and it must not be for ever.
const FORGET: u32 = 1_024;

/// How promptly one receiver answers, as far as it is known.
#[derive(Debug)]
pub(super) struct Promptness {
    /// What a request takes at best. Endless before the first answer.
    best: Duration,
    /// When a request was last answered, on the monotonic clock.
    heard: Duration,
}

impl Promptness {
    pub(super) const UNKNOWN: Self = Self { best: Duration::MAX, heard: Duration::ZERO };

    /// A request with so many messages, one of so many under way, is answered after this time.
    pub(super) fn answered(&mut self, messages: usize, among: usize, took: Duration, now: Duration) {
        self.heard = now;
        if took < self.best {
            self.best = took;
        } else if messages <= LIGHT {
            // Requests queue behind each other at the receiver, so only a part of the time need be its own.
            let own = took / u32::try_from(among).unwrap_or(u32::MAX).max(1);
            self.best += own.saturating_sub(self.best) / FORGET;
        }
    }

    /// Whether nobody's callers are to wait for this receiver (S15). The oldest request that is under way was sent then.
    pub(super) fn is_slow(&self, oldest: Option<Duration>, now: Duration) -> bool {
        // Since the last answer, not since it was sent: a pipeline that has once filled up would never be quick again.
        let waits = oldest.map(|sent| now.saturating_sub(sent.max(self.heard)));
        let hangs = waits.is_some_and(|waits| waits > MOMENT);
        (self.best > NEAR || hangs) && !mutant!(SlowHoldsCallers)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn is_slow(prompt: &Promptness) -> bool {
        prompt.is_slow(None, ms(1_000))
    }

    /// A receiver that has taken so long for each of these requests, of which so many are always under way.
    fn after(messages: usize, among: usize, took: impl IntoIterator<Item = u64>) -> Promptness {
        let mut prompt = Promptness::UNKNOWN;
        took.into_iter().for_each(|took| prompt.answered(messages, among, ms(took), ms(0)));
        prompt
    }

    #[test]
    fn s15_nobody_waits_for_a_receiver_that_is_far_away() {
        assert!(is_slow(&Promptness::UNKNOWN), "nothing is known of it");
        assert!(is_slow(&after(1, 1, [6])));
        assert!(!is_slow(&after(1, 1, [5])));
        assert!(is_slow(&after(64, 3, [12; 1_000])), "requests on a long way do not queue behind each other");
        assert!(is_slow(&after(64, 32, [100; 1_000])));
        assert!(!is_slow(&after(1, 3, [100, 100, 1])), "it has come near");
        let moved = |among, times| after(1, among, [1].into_iter().chain([100].repeat(times)));
        assert!(!is_slow(&moved(1, 2)), "one bad time is not the rule");
        assert!(is_slow(&moved(1, 50)) && is_slow(&moved(3, 150)), "it has moved away");
    }

    #[test]
    fn s15_requests_that_are_full_or_queue_behind_each_other_do_not_make_a_receiver_slow() {
        let quick_once =
            |messages, among, took| after(messages, among, [1].into_iter().chain([took].repeat(100_000)));
        assert!(!is_slow(&quick_once(64, 3, 12)), "it answers one every 4 ms");
        assert!(!is_slow(&quick_once(500, 3, 30)));
    }

    #[test]
    fn s15_nobody_waits_for_a_receiver_that_has_stopped_to_answer() {
        let mut prompt = after(1, 1, [1]);
        assert!(!prompt.is_slow(None, ms(9_000)), "nothing is under way");
        let oldest = Some(ms(1_000));
        assert!(!prompt.is_slow(oldest, ms(1_050)));
        assert!(prompt.is_slow(oldest, ms(1_051)));
        prompt.answered(1, 3, ms(60), ms(1_060));
        assert!(
            !prompt.is_slow(oldest, ms(1_110)),
            "the others were sent long ago, but it has just answered"
        );
        assert!(prompt.is_slow(oldest, ms(1_111)));
    }
}
