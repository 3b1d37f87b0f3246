//! Tells the store how far delivery has come, as long as the relay runs.

use std::mem::replace;
use std::time::Duration;

use super::lane::Lane;

/// Hears how far delivery has come, or that nobody is to wait for it.
type Tell<P> = Box<dyn Fn(Option<&P>) + Send + Sync>;

/// See the [module](self).
pub(super) struct Pace<P> {
    tell: Tell<P>,
    /// How many lanes counted when it was last told.
    counted: usize,
}

impl<P: Clone + Ord> Pace<P> {
    pub(super) fn new(tell: impl Fn(Option<&P>) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), counted: 0 }
    }

    /// Tells how far the lane has come that is furthest behind, of those that count.
    pub(super) fn tell<'l>(&mut self, lanes: impl Iterator<Item = &'l mut Lane<P>>, now: Duration)
    where
        P: 'l,
    {
        let (mut stayed, mut counted, mut furthest_behind) = (0, 0, None::<&P>);
        for lane in lanes {
            let counts = lane.counts(now);
            stayed += usize::from(replace(&mut lane.counted, counts) && counts);
            if counts {
                counted += 1;
                let reached = lane.reached();
                furthest_behind = Some(furthest_behind.map_or(reached, |other| other.min(reached)));
            }
        }
        if stayed < replace(&mut self.counted, counted) {
            // What a lane has not delivered that counts no longer must not pass for delivered in no time.
            self.end();
        }
        (self.tell)(furthest_behind);
    }
}

impl<P> Pace<P> {
    /// Tells that nobody is to wait for this relay any more.
    pub(super) fn end(&self) {
        (self.tell)(None);
    }
}

impl<P> Drop for Pace<P> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::{Arc, Mutex};

    use twobox_core::lifecycle::Standing;
    use twobox_core::meters::Meters;
    use twobox_core::ports::{Answer, LaneId, LaneLease, Link};
    use twobox_core::system::SystemRandom;

    use super::super::batch::{Batch, Fate, Item, Origin};
    use super::super::figures::Figures;
    use super::super::lane::Verdict;
    use super::super::options::RelayOptions;
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn lane(destination: &str) -> Lane<u64> {
        let (source, destination) = ("shop".parse().unwrap(), destination.parse().unwrap());
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

    /// Sends the message at this place.
    fn send(lane: &mut Lane<u64>, position: u64, now: Duration) {
        let item = Item { position, message: None, standing: Standing::FRESH, fate: Fate::Send };
        let mut batch = Batch::new(position, Origin::Log, vec![item]);
        batch.send(now);
        lane.log.push_back(batch);
        lane.position = position;
    }

    fn answer(lane: &mut Lane<u64>, position: u64, took: Duration, now: Duration) {
        lane.heard(1, took, now);
        let (options, random) = (RelayOptions::default(), SystemRandom::default());
        let _: Verdict = lane.answered(position, vec![Answer::Done(None)], now, &options, &random);
    }

    /// A lane whose receiver has answered the message at this place in time.
    fn prompt(destination: &str, position: u64) -> Lane<u64> {
        let mut lane = lane(destination);
        send(&mut lane, position, ms(0));
        answer(&mut lane, position, ms(1), ms(1));
        lane
    }

    /// A pace, and what was told since this was last called.
    fn listening() -> (Pace<u64>, impl FnMut() -> Vec<Option<u64>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&told);
        let pace = Pace::new(move |upto: Option<&u64>| hear.lock().unwrap().push(upto.copied()));
        (pace, move || std::mem::take(&mut *told.lock().unwrap()))
    }

    #[test]
    fn the_lane_that_is_furthest_behind_is_told() {
        let ((mut pace, mut told), mut lanes) = (listening(), [prompt("billing", 3), prompt("crm", 7)]);
        pace.tell(lanes.iter_mut(), ms(2));
        assert_eq!(told(), [Some(3)]);
        send(&mut lanes[1], 2, ms(2));
        pace.tell(lanes.iter_mut(), ms(2));
        assert_eq!(told(), [Some(2)]);
        drop(pace);
        assert_eq!(told(), [None], "it is over");
    }

    #[test]
    fn s15_a_lane_whose_receiver_is_far_away_never_counts() {
        let (mut pace, mut told) = listening();
        let mut lanes = [prompt("billing", 9), lane("far")];
        for n in 1..100 {
            // Answers come together, because requests were sent together.
            for request in 1..=3 {
                send(&mut lanes[1], n * 3 + request, ms(n * 100));
            }
            pace.tell(lanes.iter_mut(), ms(n * 100));
            for request in 1..=3 {
                answer(&mut lanes[1], n * 3 + request, ms(100), ms(n * 100 + 100));
                pace.tell(lanes.iter_mut(), ms(n * 100 + 100));
            }
        }
        assert!(told().iter().all(|upto| *upto == Some(9)));
    }

    /// Or groups that it has not delivered would count as delivered in no time, and all later ones as late.
    #[test]
    fn s15_a_lane_that_counts_no_longer_is_told_before_the_others_are() {
        let (mut pace, mut told) = listening();
        let mut lanes = vec![prompt("billing", 9), prompt("crm", 3)];
        send(&mut lanes[1], 4, ms(2));
        pace.tell(lanes.iter_mut(), ms(52));
        pace.tell(lanes.iter_mut(), ms(53));
        assert_eq!(told(), [Some(4), None, Some(9)], "it hangs");
        answer(&mut lanes[1], 4, ms(58), ms(60));
        pace.tell(lanes.iter_mut(), ms(60));
        assert_eq!(told(), [Some(4)]);
        lanes.pop();
        pace.tell(lanes.iter_mut(), ms(60));
        assert_eq!(told(), [None, Some(9)], "it is somebody else's");
        lanes.clear();
        pace.tell(lanes.iter_mut(), ms(60));
        assert_eq!(told(), [None, None]);
    }

    #[test]
    fn s15_a_request_of_waiting_messages_that_hangs_counts_as_well() {
        let mut lane = prompt("billing", 1);
        let item = Item { position: 2, message: None, standing: Standing::FRESH, fate: Fate::Send };
        let mut batch = Batch::new(2, Origin::Waiting, vec![item]);
        batch.send(ms(100));
        lane.waiting = Some(batch);
        assert!(lane.counts(ms(150)));
        assert!(!lane.counts(ms(151)));
    }
}
