//! The in-process transport: relay and receiver in one process, no network, no signature.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::Message;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, InboxStore, Transport};

use crate::Receiver;

/// Carries messages to a receiver in the same process.
pub struct InProcess<S: InboxStore> {
    receiver: Receiver<S>,
    budget: Duration,
}

impl<S: InboxStore> InProcess<S> {
    /// A transport to `receiver`.
    #[must_use]
    pub fn to(receiver: Receiver<S>) -> Self {
        Self { receiver, budget: Duration::from_secs(5) }
    }

    /// How long the receiver may work on a request before it answers what it has. Default 5 s: half of a
    /// relay's request time-out.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }
}

impl<S: InboxStore> Transport for InProcess<S> {
    fn deliver(&self, batch: Vec<Arc<Message>>) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (receiver, budget) = (self.receiver.clone(), self.budget);
        Box::pin(async move {
            receiver.receive(batch, budget).await.map_err(|error| {
                // A store that is in trouble is nobody's fault: no message may be charged for it.
                DeliveryError::unreachable("the receiver's store cannot answer").with_source(error)
            })
        })
    }
}

impl<S: InboxStore> fmt::Debug for InProcess<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}
