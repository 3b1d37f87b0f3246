//! What people see as being sent.

use std::time::Duration;

/// Which requests of a lane are shown. Nothing depends on it but what people see, so a request that is answered at once
/// is not worth the commit.
#[derive(Debug)]
pub(super) struct Showing<P> {
    /// When what is being sent is shown, on the monotonic clock.
    at: Option<Duration>,
    /// How far it has been shown.
    upto: Option<P>,
}

impl<P: Clone + Ord> Showing<P> {
    pub(super) const fn new() -> Self {
        Self { at: None, upto: None }
    }

    /// When there is something to show.
    pub(super) fn due(&self) -> Option<Duration> {
        self.at
    }

    /// A settlement shows what is being sent as well.
    pub(super) fn settled(&mut self, sending: Option<&P>) {
        if let Some(sending) = sending {
            *self = Self { at: None, upto: Some(sending.clone()) };
        }
    }

    /// What is to be shown now, if requests up to `sending` are under way.
    pub(super) fn next(&mut self, sending: Option<P>, now: Duration, after: Duration) -> Option<P> {
        let is_news = |sending: &P| self.upto.as_ref().is_none_or(|upto| sending > upto);
        let Some(sending) = sending.filter(is_news) else {
            self.at = None;
            return None;
        };
        if *self.at.get_or_insert(now.saturating_add(after)) > now {
            return None;
        }
        *self = Self { at: None, upto: Some(sending.clone()) };
        Some(sending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rf_02_a_request_is_shown_once_and_only_if_it_takes_a_while() {
        let mut showing = Showing::new();
        assert_eq!(showing.next(Some(1), at(0), AFTER), None);
        assert_eq!(showing.due(), Some(at(10)));
        assert_eq!(showing.next(None, at(5), AFTER), None);
        assert_eq!(showing.due(), None, "it was answered");
        assert_eq!(showing.next(Some(2), at(20), AFTER), None);
        assert_eq!(showing.next(Some(3), at(30), AFTER), Some(3));
        assert_eq!(showing.next(Some(3), at(50), AFTER), None);
        assert_eq!(showing.due(), None, "it is shown");
    }

    #[test]
    fn rf_02_what_a_settlement_shows_is_not_shown_again() {
        let mut showing = Showing::new();
        assert_eq!(showing.next(Some(1), at(0), AFTER), None);
        showing.settled(Some(&2));
        assert_eq!(showing.next(Some(2), at(20), AFTER), None);
        assert_eq!(showing.next(Some(3), at(20), AFTER), None);
        showing.settled(None);
        assert_eq!(showing.next(Some(3), at(30), AFTER), Some(3));
    }
}
