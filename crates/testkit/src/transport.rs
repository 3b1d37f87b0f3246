//! A transport that does what the test says.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Link, Transport};
use twobox_core::{Message, Response};
use twobox_engine::Timer;

type Outcome = Result<Vec<Answer>, DeliveryError>;
type Script = dyn Fn(usize, &[Arc<Message>]) -> BoxFuture<'static, Outcome> + Send + Sync;

/// Answers by script and remembers every request. Cheap to clone; clones share script and memory.
#[derive(Clone)]
pub struct ScriptedTransport {
    script: Arc<Script>,
    requests: Arc<Mutex<Vec<Vec<Arc<Message>>>>>,
}

impl ScriptedTransport {
    /// Answers the n-th request (counted from 0, probes included) as `script` says.
    pub fn new(script: impl Fn(usize, &[Arc<Message>]) -> Outcome + Send + Sync + 'static) -> Self {
        Self::with_futures(move |n, batch| {
            let outcome = script(n, batch);
            Box::pin(async move { outcome })
        })
    }

    /// As [`new`](Self::new), for scripts that take their time.
    pub fn with_futures(
        script: impl Fn(usize, &[Arc<Message>]) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self { script: Arc::new(script), requests: Arc::default() }
    }

    /// Answers as `script` says, `delay` later.
    pub fn delayed(
        timer: Arc<dyn Timer>,
        delay: Duration,
        script: impl Fn(usize, &[Arc<Message>]) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self::with_futures(move |n, batch| {
            let (outcome, pause) = (script(n, batch), timer.sleep(delay));
            Box::pin(async move {
                pause.await;
                outcome
            })
        })
    }

    /// Acknowledges everything.
    #[must_use]
    pub fn sink() -> Self {
        Self::new(|_, batch| Ok(all_done(batch)))
    }

    /// Answers message by message.
    pub fn each(answer: impl Fn(&Message) -> Answer + Send + Sync + 'static) -> Self {
        Self::new(move |_, batch| Ok(batch.iter().map(|message| answer(message)).collect()))
    }

    /// The ids of every request so far; a probe is an empty one.
    #[must_use]
    pub fn requests(&self) -> Vec<Vec<String>> {
        let ids = |batch: &Vec<Arc<Message>>| batch.iter().map(|message| message.id.to_string()).collect();
        self.lock().iter().map(ids).collect()
    }

    /// The ids of all messages so far, in the order in which they were sent.
    #[must_use]
    pub fn sent(&self) -> Vec<String> {
        self.requests().concat()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Arc<Message>>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// "Done" for every message.
fn all_done(batch: &[Arc<Message>]) -> Vec<Answer> {
    vec![Answer::Done(Some(Response::empty())); batch.len()]
}

impl Transport for ScriptedTransport {
    fn deliver(&self, _: &Arc<Link>, batch: Vec<Arc<Message>>, _: Duration) -> BoxFuture<'static, Outcome> {
        let mut requests = self.lock();
        let outcome = (self.script)(requests.len(), &batch);
        requests.push(batch);
        outcome
    }
}

impl fmt::Debug for ScriptedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedTransport").field("requests", &self.lock().len()).finish_non_exhaustive()
    }
}
