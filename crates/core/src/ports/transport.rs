//! Carrying messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::BoxFuture;
use crate::{BoxError, Destination, Message, Response, Result, Source};

/// Who sends to whom: what a transport knows about a request, also about a probe, which has no messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whose messages.
    pub source: Source,
    /// Where they go.
    pub destination: Destination,
    /// The instance of the outbox they come from (L7). A second outbox under the same source has another.
    pub outbox: String,
}

/// Carries batches to one destination. Chosen by name at run time, hence object-safe.
pub trait Transport: Send + Sync + 'static {
    /// Delivers the messages of `link` in order and returns one answer per message, in the same order.
    ///
    /// An empty batch is a probe: it asks whether the receiver answers at all, and has no effect there.
    /// Whoever calls gives up after `timeout`. A receiver that is told answers in time what it got to, and the next
    /// batch is no larger (W7); one that is not is still at work when everything is sent again.
    /// The future may be dropped at any time; whether the messages arrived is then unknown, which is
    /// harmless because the receiver's inbox deduplicates.
    ///
    /// # Errors
    /// [`DeliveryError`] when the request as a whole failed. No message is charged for that (L3).
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>>;

    /// The instance of the inbox that answered last on this link, if authentic answers say which it is. One that
    /// differs from the one before was restored or replaced.
    fn inbox(&self, link: &Link) -> Option<Arc<str>> {
        let _ = link;
        None
    }

    /// Checks what is configured, before anything runs (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured), naming what is wrong and the remedy.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

const _: fn(&dyn Transport) = |_| {}; // fails to build if someone breaks that

/// Takes batches from a transport: the far end of [`Transport`].
pub trait Receive: Send + Sync + 'static {
    /// Handles messages in order and answers each once its outcome is durable, within about `budget`.
    ///
    /// The messages' source must be authentic: it is part of the dedup key. Dropping the future does not stop
    /// handlers that have begun; the outcome is found by delivering again.
    ///
    /// # Errors
    /// When nothing can be said about any of them; then none may be acknowledged, and none is to blame.
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>>>;

    /// Says which inbox answers, and takes note of who sends messages: `link` is authentic, or there is none. Called for
    /// every request, for a probe without a link. `None`: it cannot say.
    fn meet(&self, link: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
        let _ = link;
        Box::pin(std::future::ready(None))
    }
}

const _: fn(&dyn Receive) = |_| {}; // as above

/// Listens for batches and gives them to a receiver.
pub trait Listen: Send + Sync + 'static {
    /// Serves the service called `name` until `shutdown` completes, then finishes or cuts what is in flight within
    /// a stated time (S20).
    fn serve(
        &self,
        name: Destination,
        receiver: Arc<dyn Receive>,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()>;

    /// Checks what is configured, before anything runs (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured), naming what is wrong and the remedy.
    fn check(&self) -> Result<()>;
}

const _: fn(&dyn Listen) = |_| {}; // as above

/// What the receiver says about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The effect is committed. The response is left out of an answer that would become too large with it;
    /// whoever wants it delivers the message again, alone.
    Done(Option<Response>),
    /// It had been committed before; this is the stored response, left out as above.
    Duplicate(Option<Response>),
    /// Another delivery of the same message is being handled (S7). Not a failure.
    InProgress {
        /// When to ask again.
        after: Duration,
    },
    /// An earlier message of its ordering key in the same batch failed (L4). Not a failure.
    Held,
    /// The request's time was up before its turn came (W7). Not a failure.
    NotReached,
    /// It is dated so far ahead of the receiver's clock that it is refused for now (S9). Not a failure: one of
    /// the two clocks is wrong, and no message is to blame.
    TooEarly {
        /// When its date becomes plausible.
        after: Duration,
    },
    /// It failed and may work later.
    Retry {
        /// Least delay the receiver asks for.
        after: Option<Duration>,
        /// What went wrong, without payload.
        error: String,
    },
    /// It can never work. Stored by the receiver, so a duplicate gets the same answer.
    Rejected {
        /// Why, without payload.
        error: String,
    },
    /// The receiver knows another message under this id (S8).
    Conflict,
    /// The receiver no longer knows whether it has seen this message (S9).
    TooOld,
    /// The receiver has no handler for the endpoint. Retried: it may be deployed later.
    UnknownEndpoint,
}

/// A request that failed as a whole.
#[derive(Debug)]
pub struct DeliveryError {
    arrived: Arrived,
    text: String,
    retry_after: Option<Duration>,
    source: Option<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    No,
    Perhaps,
}

impl DeliveryError {
    /// No message can be to blame: connection refused, name not found, the receiver says that it is in trouble.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self { arrived: Arrived::No, text: text.into(), retry_after: None, source: None }
    }

    /// Something may have reached the receiver: time-out, connection cut, unreadable answer.
    pub fn ambiguous(text: impl Into<String>) -> Self {
        Self { arrived: Arrived::Perhaps, text: text.into(), retry_after: None, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds how long the receiver asks to be left alone.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Option<Duration>) -> Self {
        self.retry_after = delay;
        self
    }

    /// How long the receiver asks to be left alone. Anybody can write that into an answer, so it is a wish.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the messages may have reached the receiver, so one of them may be what broke it.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.arrived == Arrived::Perhaps
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DeliveryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
