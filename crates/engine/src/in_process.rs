//! The in-process transport: relay and receiver in one process, no network, no signature.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::Message;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Inboxes, Link, Receive, Transport};

/// Carries messages to a receiver in the same process.
#[derive(Clone)]
pub struct InProcess {
    receiver: Arc<dyn Receive>,
    budget: Option<Duration>,
    inboxes: Inboxes,
}

impl InProcess {
    /// A transport to `receiver`.
    #[must_use]
    pub fn to(receiver: impl Receive) -> Self {
        Self { receiver: Arc::new(receiver), budget: None, inboxes: Inboxes::default() }
    }

    /// How long the receiver may work on a request before it answers what it has, if that is less than half of the
    /// relay's request time-out. Default: half of that.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }
}

impl Transport for InProcess {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        // Half of it, as over a network: the answer has to be there in time.
        let budget = self.budget.unwrap_or(Duration::MAX).min(timeout / 2);
        let (met, answers) = (
            self.receiver.meet((!batch.is_empty()).then_some(&**link)),
            self.receiver.receive(batch, budget),
        );
        let (link, inboxes) = (Arc::clone(link), self.inboxes.clone());
        Box::pin(async move {
            if let Some(inbox) = met.await {
                inboxes.answered(&link, &inbox);
            }
            answers.await.map_err(|error| {
                // A store that is in trouble is nobody's fault: no message may be charged for it.
                DeliveryError::unreachable("the receiver's store cannot answer").with_source(error)
            })
        })
    }

    fn inbox(&self, link: &Link) -> Option<Arc<str>> {
        self.inboxes.of(link)
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("budget", &self.budget).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Mutex;

    use twobox_core::{Destination, Result, Source};

    use super::*;

    /// Notes how long it may work.
    #[derive(Clone, Default)]
    struct Budgets(Arc<Mutex<Vec<Duration>>>);

    impl Receive for Budgets {
        fn receive(&self, _: Vec<Arc<Message>>, budget: Duration) -> BoxFuture<'static, Result<Vec<Answer>>> {
            self.0.lock().expect("nobody panics").push(budget);
            Box::pin(async { Ok(Vec::new()) })
        }

        fn meet(&self, _: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
            Box::pin(async { None })
        }
    }

    #[tokio::test]
    async fn w7_the_receiver_answers_before_its_sender_gives_up() {
        let budgets = Budgets::default();
        let transport = InProcess::to(budgets.clone()).budget(Duration::from_secs(3));
        let link = Arc::new(Link {
            source: Source::new("shop").unwrap(),
            destination: Destination::new("billing").unwrap(),
            outbox: "outbox".into(),
        });
        for timeout in [10, 2] {
            transport.deliver(&link, Vec::new(), Duration::from_secs(timeout)).await.unwrap();
        }
        assert_eq!(*budgets.0.lock().unwrap(), [3, 1].map(Duration::from_secs));
    }
}
