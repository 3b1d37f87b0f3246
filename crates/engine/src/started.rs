//! What an engine has started: calls to the store, to transports and handlers, each of which ends in an event.

use std::panic::AssertUnwindSafe;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Calls under way. The engine polls them itself: most end at once or with the next commit, and a task for each would
/// cost more than they do and wait in line behind everybody else's.
pub(crate) struct Started<T>(FuturesUnordered<BoxFuture<'static, Option<T>>>);

impl<T: 'static> Started<T> {
    pub(crate) fn new() -> Self {
        Self(FuturesUnordered::new())
    }

    /// Starts one. If it panics it never ends in an event, and no more.
    pub(crate) fn start(&mut self, call: impl Future<Output = T> + Send + 'static) {
        let guarded = AssertUnwindSafe(call).catch_unwind();
        self.0.push(guarded.map(|ended| ended.inspect_err(|_| report()).ok()).boxed());
    }

    /// What ends next; waits for ever if nothing is under way.
    pub(crate) async fn next(&mut self) -> T {
        loop {
            match self.0.next().await {
                Some(Some(value)) => return value,
                Some(None) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// What has ended already.
    pub(crate) fn ended(&mut self) -> Option<T> {
        self.next().now_or_never()
    }
}

fn report() {
    tracing::error!("a call of an engine panicked");
}
