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
    budget: Duration,
    inboxes: Inboxes,
}

impl InProcess {
    /// A transport to `receiver`.
    #[must_use]
    pub fn to(receiver: impl Receive) -> Self {
        Self { receiver: Arc::new(receiver), budget: Duration::from_secs(5), inboxes: Inboxes::default() }
    }

    /// How long the receiver may work on a request before it answers what it has. Default 5 s: half of a
    /// relay's request time-out.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }
}

impl Transport for InProcess {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (met, answers) = (
            self.receiver.meet((!batch.is_empty()).then_some(&**link)),
            self.receiver.receive(batch, self.budget),
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
