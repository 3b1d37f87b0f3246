//! How long a handler that runs outside of a transaction may take.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::{HandlerResult, Refusal, mutant, panics};

use crate::Timer;
use crate::sync::{JoinHandle, spawn};

/// Waits for a handler, and not for ever: one that waits for something that never comes would keep its message, and
/// whatever waits for it, from being tried again.
#[derive(Clone)]
pub struct Patience {
    timer: Arc<dyn Timer>,
    limit: Duration,
}

impl Patience {
    pub(crate) fn new(timer: Arc<dyn Timer>, limit: Duration) -> Self {
        Self { timer, limit }
    }

    /// Runs a handler in a task of its own, which ends with whoever waits for it. A panic is a failure (S6), and so is
    /// to take longer than the limit.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        handling: impl Future<Output = HandlerResult<T>> + Send + 'static,
    ) -> HandlerResult<T> {
        let mut running = Running(spawn(panics::handling(handling)));
        let ended = tokio::select! {
            biased;
            ended = &mut running.0 => ended.ok(),
            () = self.timer.sleep(self.limit), if !mutant!(HandlerUnbounded) => return self.end(running).await,
        };
        ended.unwrap_or_else(|| Err(Refusal::retry("the handler panicked")))
    }

    /// It ends where it waits. Nobody may begin again before it has.
    async fn end<T>(&self, mut running: Running<HandlerResult<T>>) -> HandlerResult<T> {
        running.0.abort();
        let in_time = (&mut running.0).await.ok();
        in_time
            .unwrap_or_else(|| Err(Refusal::retry(format!("the handler took longer than {:?}", self.limit))))
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("limit", &self.limit).finish_non_exhaustive()
    }
}

struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::SystemTimer;

    const LIMIT: Duration = Duration::from_secs(30);

    fn patience() -> Patience {
        Patience::new(Arc::new(SystemTimer::default()), LIMIT)
    }

    struct Ends(Arc<AtomicBool>);

    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s6_a_handler_that_waits_for_ever_is_a_failure_and_has_ended_by_then() {
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Ends(Arc::clone(&ended));
        let start = tokio::time::Instant::now();
        let outcome: HandlerResult<()> = patience()
            .run(async move {
                let _ends = ends;
                std::future::pending().await
            })
            .await;
        assert_eq!(outcome, Err(Refusal::retry("the handler took longer than 30s")));
        assert_eq!(start.elapsed(), LIMIT);
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn s6_what_a_handler_says_in_time_counts_and_a_panic_is_a_failure() {
        let patience = patience();
        let slow = patience.run(async {
            tokio::time::sleep(LIMIT / 2).await;
            Ok(7)
        });
        assert_eq!(slow.await, Ok(7));
        let panics: HandlerResult<()> = patience.run(async { panic!("a handler's own mistake") }).await;
        assert_eq!(panics, Err(Refusal::retry("the handler panicked")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_ends_with_whoever_waits_for_it() {
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Ends(Arc::clone(&ended));
        let waiting = tokio::spawn(async move {
            let patience = patience();
            let handling = async move {
                let _ends = ends;
                std::future::pending::<HandlerResult<()>>().await
            };
            patience.run(handling).await
        });
        tokio::time::sleep(LIMIT / 2).await;
        assert!(!ended.load(Ordering::SeqCst));
        waiting.abort();
        assert!(waiting.await.is_err());
        tokio::time::sleep(LIMIT / 4).await;
        assert!(ended.load(Ordering::SeqCst));
    }
}
