//! What a lane can settle.

use std::time::Duration;

use twobox_core::lifecycle;
use twobox_core::ports::{NewWaiting, Settlement, WaitingOutcome};
use twobox_core::{Random, mutant};

use super::batch::{Batch, Fate, Item, State};
use super::figures::Outcomes;
use super::lane::Lane;
use super::options::RelayOptions;

impl<P: Clone + Ord> Lane<P> {
    /// What can be settled of the log: everything known in front of the first batch that is not (L1).
    pub(super) fn settlement(
        &mut self,
        options: &RelayOptions,
        random: &dyn Random,
    ) -> Option<(Settlement<P>, Outcomes)> {
        let answered = |batch: &&Batch<P>| batch.state == State::Answered;
        let known = if mutant!(SettleOutOfOrder) {
            self.log.iter().rposition(|batch| answered(&batch)).map_or(0, |last| last + 1)
        } else {
            self.log.iter().take_while(answered).count()
        };
        let upto = self.log.get(known.checked_sub(1)?)?.items.last()?.position.clone();
        let (mut outcomes, sending) = (self.outcomes(options), self.sending());
        self.showing.settled(sending.as_ref());
        let mut settlement =
            Settlement { upto, receipts: Vec::with_capacity(known), waiting: Vec::new(), sending };
        for batch in self.log.iter().take(known).filter(answered) {
            let (Some(first), Some(last)) = (batch.items.first(), batch.items.last()) else { continue };
            let sent = batch.items.iter().filter(|item| item.succeeded()).count();
            outcomes.sent(sent);
            let sent = u64::try_from(sent).unwrap_or(u64::MAX);
            settlement.receipts.push((first.position.clone(), last.position.clone(), sent));
            for item in batch.items.iter().filter(|item| !item.succeeded()) {
                let outcome = outcome(item, options, random);
                outcome
                    .iter()
                    .for_each(|outcome| outcomes.note(item.message.as_ref(), item.standing, outcome));
                settlement.waiting.push(NewWaiting { position: item.position.clone(), outcome });
            }
        }
        Some((settlement, outcomes))
    }

    /// What there will be to count and to tell of a settlement.
    pub(super) fn outcomes(&self, options: &RelayOptions) -> Outcomes {
        Outcomes::new(&self.figures, &self.lease.link, options.timing.retry.retries_max())
    }

    /// Forgets what was settled up to `upto`.
    pub(super) fn settled(&mut self, upto: &P) {
        self.lease.cursor = upto.clone();
        while self
            .log
            .front()
            .is_some_and(|batch| batch.items.last().is_some_and(|item| item.position <= *upto))
        {
            self.log.pop_front();
        }
    }

    /// The outcomes of the waiting batch, once all are known.
    pub(super) fn waiting_outcomes(
        &mut self,
        options: &RelayOptions,
        random: &dyn Random,
    ) -> Option<(Vec<(P, WaitingOutcome)>, Outcomes)> {
        let batch = self.waiting.as_ref().filter(|batch| batch.state == State::Answered)?;
        let mut told = self.outcomes(options);
        let outcomes = batch.items.iter().filter_map(|item| {
            let outcome = outcome(item, options, random)?;
            told.note(item.message.as_ref(), item.standing, &outcome);
            Some((item.position.clone(), outcome))
        });
        Some((outcomes.collect(), told))
    }

    pub(super) fn waiting_settled(&mut self) {
        self.waiting = None;
        self.settling_waiting = false;
        self.look_at = Some(Duration::ZERO);
    }
}

/// The lifecycle's decision about a message. `None`: scheduled for later, or nothing happened to it.
fn outcome<P>(item: &Item<P>, options: &RelayOptions, random: &dyn Random) -> Option<WaitingOutcome> {
    let Fate::Known(event, error) = &item.fate else { return None };
    let step = lifecycle::step(item.standing, event, &options.timing.retry, random)?;
    Some(WaitingOutcome { step, error: error.clone(), head_policy: options.head_policy })
}
