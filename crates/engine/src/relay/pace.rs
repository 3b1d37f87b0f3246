//! Tells the store how far delivery has come, as long as the relay runs.

use std::time::Duration;

use twobox_core::Source;
use twobox_core::ports::OutboxStore;

use super::lane::Lane;

/// See the [module](self).
pub(super) struct Pace<S: OutboxStore> {
    store: S,
    source: Source,
    /// How many lanes were left out because their receivers are slow.
    slow: usize,
}

impl<S: OutboxStore> Pace<S> {
    pub(super) fn new(store: &S, source: &Source) -> Self {
        Self { store: store.clone(), source: source.clone(), slow: 0 }
    }

    /// Tells how far the lane has come that is furthest behind. One that does not flow, or whose receiver is slow, is
    /// nobody's to wait for.
    pub(super) fn tell<'l>(
        &mut self,
        lanes: impl Iterator<Item = &'l Lane<S::Position>> + Clone,
        now: Duration,
    ) where
        S::Position: 'l,
    {
        let slow = lanes.clone().filter(|lane| lane.is_slow(now)).count();
        if std::mem::replace(&mut self.slow, slow) < slow {
            // What such a lane has not delivered must not count as delivered in no time.
            self.end();
        }
        let counted = lanes.filter(|lane| !lane.is_slow(now));
        self.store.reached(&self.source, counted.filter_map(Lane::reached).min());
    }

    /// Tells that nobody is to wait for this relay any more.
    pub(super) fn end(&self) {
        self.store.reached(&self.source, None);
    }
}

impl<S: OutboxStore> Drop for Pace<S> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use twobox_core::lifecycle::Standing;
    use twobox_core::meters::Meters;
    use twobox_core::ports::{Answer, LaneId, LaneLease, Link};
    use twobox_core::system::SystemRandom;

    use super::super::batch::{Batch, Fate, Item, Origin};
    use super::super::figures::Figures;
    use super::super::options::RelayOptions;
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn lane() -> Lane<u64> {
        let (source, destination) = ("shop".parse().unwrap(), "billing".parse().unwrap());
        let link = Arc::new(Link { source, destination, outbox: String::new() });
        let figures = Figures::new(&Meters::default(), &link);
        let lease = LaneLease {
            lane: LaneId(1),
            link,
            token: 1,
            epoch: 1,
            cursor: 0,
            routed: true,
            paused: false,
            inbox: None,
        };
        Lane::new(lease, 1, Duration::MAX, &RelayOptions::default(), figures)
    }

    fn sent(id: u64, origin: Origin, now: Duration) -> Batch<u64> {
        let item = Item { position: id, message: None, standing: Standing::FRESH, fate: Fate::Send };
        let mut batch = Batch::new(id, origin, vec![item]);
        batch.send(now);
        batch
    }

    fn answer(lane: &mut Lane<u64>, id: u64, now: Duration) {
        let (options, random) = (RelayOptions::default(), SystemRandom::default());
        let _: super::super::lane::Verdict =
            lane.answered(id, vec![Answer::Done(None)], now, &options, &random);
    }

    #[test]
    fn s15_a_receiver_is_slow_when_it_answers_nothing_and_not_when_its_requests_queue() {
        let mut lane = lane();
        assert!(!lane.is_slow(ms(1_000)), "nothing is under way");
        lane.log.extend((1..=3).map(|id| sent(id, Origin::Log, ms(1_000))));
        assert!(!lane.is_slow(ms(1_050)));
        assert!(lane.is_slow(ms(1_051)));
        answer(&mut lane, 1, ms(1_060));
        assert!(!lane.is_slow(ms(1_110)), "the others were sent long ago, but it has just answered");
        answer(&mut lane, 2, ms(1_110));
        assert!(!lane.is_slow(ms(1_160)));
        assert!(lane.is_slow(ms(1_161)));
        answer(&mut lane, 3, ms(1_170));
        assert!(!lane.is_slow(ms(9_000)));
    }

    #[test]
    fn s15_a_request_of_waiting_messages_that_hangs_counts_as_well() {
        let mut lane = lane();
        lane.waiting = Some(sent(1, Origin::Waiting, ms(0)));
        assert!(!lane.is_slow(ms(50)));
        assert!(lane.is_slow(ms(51)));
    }
}
